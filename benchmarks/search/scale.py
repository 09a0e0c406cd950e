"""What a trial costs in a study of 100,000: the proposal, the store, memory, the leaderboard.

Points of the flash_mma space at the mission shape, each once, with a source of its own, go into a real SQLite
file through `Store.add`, with times made up from the point. At each checkpoint a process of its own resumes
the study with a strategy for some trials more, as after a crash, and answers are made up again: what is
measured is all that happens between two results, but no compiler and no GPU.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import resource
import signal
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from evo.gpu import KNOWN_GPUS, Limits
from evo.loop import Progress, SearchSpace, search, search_spaces
from evo.store import Store
from evo.study import Study
from evo.task import load_task
from evo.template import load_template
from evo.trial import Candidate, CaseError, InputTime, Interval, Outcome, Resources, Timing, Trial, digest_of

PROTOCOL = """medians over the second half of each checkpoint's trials, in a process of its own; cpu: seconds
of that process alone, whatever else the machine did"""
GPU = False
TASK = load_task("attention")
PROBLEM = TASK.example
GPU_MODEL = KNOWN_GPUS["H200"]
CHECKPOINTS = (0, 1_000, 3_000, 10_000, 30_000, 100_000)


def answer(candidate: Candidate) -> Trial:
    """A made-up trial of the size of a real one: 15 samples, 30 errors, 6 baselines."""
    code = digest_of(dict(candidate.point))
    rng = random.Random(code)
    if rng.random() < 0.05:
        return Trial(candidate, Outcome.RED, "row error", "made up", "nowhere", machine_code=code)
    us = 4.5 * (1 + rng.expovariate(2.0))
    return Trial(
        candidate,
        Outcome.TIMED,
        resources=Resources(128, 0, 0, 0),
        machine_code=code,
        compiler="nvrtc 13.0.88",
        errors=tuple(CaseError(PROBLEM.key, "normal", rng.randrange(2**31), 2e-4, 9e-4) for _ in range(30)),
        timing=_timed(us, rng),
        seconds={"ahead": 0.2, "gate": 0.02, "timing": 0.008},
        device=GPU_MODEL.name,
        versions={"evo": "made up"},
    )


def _timed(us: float, rng: random.Random) -> Timing:
    """A kernel that lost on the first of four timing inputs, as most do; one in ten was timed on all."""
    baselines = {name: 9.0 + i for i, name in enumerate(("sdpa", "flash", "cudnn", "efficient", "math", "x"))}
    own, ratio = Interval(us * 0.999, us * 1.001), Interval(8.9 / us, 9.1 / us)
    names = ("normal", "sharp", "sink", "growing")
    times = {
        name: InputTime(
            us, own, 9 / us, ratio, "sdpa", baselines, tuple(us * rng.gauss(1, 0.002) for _ in range(15))
        )
        for name in names[: 4 if rng.random() < 0.1 else 1]
    }
    return Timing.ranked(times, inputs=len(names), clocks={"sm_mhz": 1980.0})


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--real", type=int, default=100_000, help="beyond it trials are copies of the first")
    parser.add_argument("--more", type=int, default=100, help="trials searched at each checkpoint")
    parser.add_argument("--strategy", default="evo")


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    about = {"strategy": asked.strategy, "ten_million_additions_s": loop_s()}
    curve: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "scale.db"
        store = TimedStore(database)
        with store:
            asked_for = Study("scale", PROBLEM, "cuda:0", GPU_MODEL.name, ("flash_mma",), 1e9, workers=16)
            filler = Filler(store, store.create(asked_for))
            for goal in (c for c in CHECKPOINTS if c <= asked.trials):
                store.took_ms.clear()
                store.cpu_ms.clear()
                filler.fill(goal, asked.real, database)
                adding = list(store.took_ms)
                row = resumed(database, asked.strategy, asked.more)
                if adding:
                    row["store_since_last_ms"] = round(statistics.median(adding), 2)
                    row["store_since_last_cpu_ms"] = round(statistics.median(store.cpu_ms), 2)
                curve.append(row)
                print(row, file=sys.stderr, flush=True)
                yield {**about, "curve": curve}


class Filler:
    """Puts points of the space into a study, each once, in an order at random."""

    def __init__(self, store: Store, study: Study) -> None:
        self._store, self._study = store, study
        there = space()["flash_mma"]
        self._template, self._points = there.template, there.feasible.points
        self._order = np.random.default_rng(1).permutation(len(there.feasible.indices))

    def fill(self, goal: int, real: int, database: Path) -> None:
        """Until the study has `goal` trials; beyond `real` they are copies of those that there are."""
        have = len(self._store.rows(self._study))
        if goal > real:
            copy_up_to(database, goal, self._points, self._order)
            return
        base = self._template.candidate(self._template.space.default, PROBLEM)
        for number in range(have, goal):
            point = self._points[int(self._order[number])]
            source = f"// point {dict(point)}\n{base.source}// variant {number}\n"
            launch = replace(base.launch, smem_bytes=base.launch.smem_bytes + number)
            made = answer(replace(base, point=point, source=source, launch=launch))
            self._store.add(self._study, number, made)


def resumed(database: Path, strategy: str, count: int) -> dict[str, Any]:
    """What `count` more trials cost in a new process that resumes the study."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(resume, (database, strategy, count))


class TimedStore(Store):
    """Remembers what each `add` took, in milliseconds."""

    def __init__(self, file: Path) -> None:
        super().__init__(file)
        self.took_ms: list[float] = []
        self.cpu_ms: list[float] = []

    def add(self, *args: Any, **named: Any) -> None:
        began = time.perf_counter(), time.process_time()
        super().add(*args, **named)
        self.took_ms.append((time.perf_counter() - began[0]) * 1e3)
        self.cpu_ms.append((time.process_time() - began[1]) * 1e3)


class Answers:
    """Workers that answer at once; after `count` answers the search is interrupted."""

    capacity = 20
    idle = 0

    def __init__(self, count: int) -> None:
        self.left = count
        self._waiting: list[tuple[int, Candidate]] = []

    def submit(self, number: int, candidate: Candidate) -> None:
        self._waiting.append((number, candidate))

    def remeasure(self, number: int, candidate: Candidate, earlier: int) -> None: ...

    def wait(self, timeout: float) -> list[tuple[int, Trial]]:  # noqa: ARG002
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGINT)
        number, candidate = self._waiting.pop(0)
        return [(number, answer(candidate))]

    def activity(self) -> list[str]:
        return []

    def close(self) -> None: ...


def space() -> dict[str, SearchSpace]:
    return search_spaces([load_template(TASK, "flash_mma")], Limits.of(GPU_MODEL), PROBLEM)


class Clock:
    """When each answer came: wall and CPU seconds."""

    def __init__(self) -> None:
        self.wall = [time.perf_counter()]
        self.cpu = [time.process_time()]

    def __call__(self, progress: Progress) -> None:
        if progress.latest is not None:
            self.wall.append(time.perf_counter())
            self.cpu.append(time.process_time())


def resume(database: Path, strategy: str, count: int) -> dict[str, Any]:
    """In a process of its own: what `count` more trials cost when all before are known."""
    store = TimedStore(database)
    with store:
        study = replace(store.study("scale"), strategy=strategy)
        before = len(store.rows(study))
        clock = Clock()
        search(study, store, space(), Answers(count), clock)
        last = range(before + count // 2, before + count)
        asked = [store.trial(f"scale/{n}").seconds.get("strategy", 0.0) * 1e3 for n in last]
        half, rounds = count // 2, np.diff(clock.wall) * 1e3
        found = {
            "trials": before,
            "to_first_answer_s": clock.wall[1] - clock.wall[0],
            "proposal_ms": statistics.median(asked),
            "proposal_mean_ms": statistics.fmean(asked),
            "store_ms": statistics.median(store.took_ms),
            "store_cpu_ms": statistics.median(store.cpu_ms),
            "proposal_and_store_ms": statistics.median(asked) + statistics.median(store.took_ms),
            "whole_round_ms": float(np.median(rounds[half:count])),
            "whole_round_cpu_ms": 1e3 * (clock.cpu[count] - clock.cpu[half]) / (count - half),
            "leaderboard_ms": statistics.median(leaderboard_ms(store)),
        }
    return {name: round(value, 2) for name, value in found.items()} | {
        "load_average": round(os.getloadavg()[0], 1),
        "resident_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "database_mb": round(database.stat().st_size / 1e6, 1),
    }


def leaderboard_ms(store: Store) -> Sequence[float]:
    """What the leaderboard takes, five times."""
    took = []
    for _ in range(5):
        begin = time.perf_counter()
        store.leaderboard(study="scale", limit=20)
        took.append((time.perf_counter() - begin) * 1e3)
    return took


def copy_up_to(database: Path, goal: int, points: Any, order: Any) -> None:
    """Copies all trials and sources again and again, under other numbers, digests and points, until there are
    `goal` trials."""
    with sqlite3.connect(database) as connection:
        have = connection.execute("SELECT count(*) FROM trials").fetchone()[0]
        first_source = connection.execute("SELECT max(id) FROM sources").fetchone()[0]
        names = [row[1] for row in connection.execute("PRAGMA table_info(trials)") if row[1] != "id"]
        changed = {"number": "number + :by", "program": "program || :by", "source_id": "source_id + :sources"}
        chosen = ", ".join(changed.get(name, name) for name in names)
        for turn, by in enumerate(range(have, goal, have), 1):
            connection.execute(
                "INSERT INTO sources (id, digest, template, base, packed) "
                "SELECT id + :sources, digest || :by, template, base, packed FROM sources WHERE id <= :last",
                {"sources": turn * first_source, "by": by, "last": first_source},
            )
            connection.execute(
                f"INSERT INTO trials ({', '.join(names)}) SELECT {chosen} FROM trials "
                "WHERE number < :have AND number + :by < :goal",
                {"by": by, "sources": turn * first_source, "have": have, "goal": goal},
            )
        fresh = ((json.dumps(dict(points[int(order[n])])), n) for n in range(have, goal))
        connection.executemany("UPDATE trials SET point = ? WHERE study_id = 1 AND number = ?", fresh)


def loop_s() -> float:
    """How fast this machine is: CPU seconds of ten million additions in Python, the median of five times."""
    took = []
    for _ in range(5):
        began, total = time.process_time(), 0
        for number in range(10_000_000):
            total += number
        took.append(time.process_time() - began)
    return round(statistics.median(took), 2)
