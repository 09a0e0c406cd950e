"""What a trial costs in a study of 100,000: the proposal, the store, memory, the leaderboard. Writes JSON.

    python benchmarks/scale.py --trials 100000 --out scale.json

Points of the flash_mma space at the mission shape, each once, with a source of its own, go into a real SQLite
file through `Store.add`, with times made up from the point. At each checkpoint a process of its own resumes
the study with a strategy for some trials more, as after a crash, and answers are made up again:
what is measured is all that happens between two results, but no compiler and no GPU.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as `evo` does, before NumPy is there

import argparse
import json
import multiprocessing
import platform
import random
import resource
import signal
import sqlite3
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from evo.gpu import KNOWN_GPUS, Limits
from evo.search import Progress, SearchSpace, search, search_spaces
from evo.store import Store, Study
from evo.strategy import Strategy
from evo.task import load_task
from evo.template import load_template
from evo.trial import Candidate, CaseError, Interval, Outcome, Resources, Timing, Trial, digest_of

TASK = load_task("attention")
PROBLEM = TASK.example
GPU = KNOWN_GPUS["H200"]
CHECKPOINTS = (0, 1_000, 3_000, 10_000, 30_000, 100_000)


def answer(candidate: Candidate) -> Trial:
    """A made-up trial of the size of a real one: 15 samples, 30 errors, 6 baselines."""
    code = digest_of(dict(candidate.point))
    rng = random.Random(code)
    if rng.random() < 0.05:
        return Trial(candidate, Outcome.RED, "row error", "made up", "nowhere", machine_code=code)
    us = 4.5 * (1 + rng.expovariate(2.0))
    samples = tuple(us * rng.gauss(1, 0.002) for _ in range(15))
    baselines = {name: 9.0 + i for i, name in enumerate(("sdpa", "flash", "cudnn", "efficient", "math", "x"))}
    return Trial(
        candidate, Outcome.TIMED, resources=Resources(128, 0, 0, 0), machine_code=code,
        compiler="nvrtc 13.0.88",
        errors=tuple(CaseError(PROBLEM.key, "normal", rng.randrange(2**31), 2e-4, 9e-4) for _ in range(30)),
        timing=Timing(samples, us, Interval(us * 0.999, us * 1.001), "warm", baselines, 9 / us,
                      Interval(8.9 / us, 9.1 / us), {"sm_mhz": 1980.0}),
        seconds={"ahead": 0.2, "gate": 0.02, "timing": 0.008}, device=GPU.name, versions={"evo": "made up"},
    )  # fmt: skip


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

    def remeasure(self, number: int, candidate: Candidate, visit: int) -> None: ...

    def wait(self, timeout: float) -> list[tuple[int, Trial]]:  # noqa: ARG002
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGINT)
        number, candidate = self._waiting.pop(0)
        return [(number, answer(candidate))]

    def activity(self) -> list[str]:
        return []

    def close(self) -> None: ...


@contextmanager
def asked_ms() -> Iterator[list[float]]:
    """What each proposal takes while it lasts: milliseconds of CPU."""
    took: list[float] = []
    plain = Strategy.ask

    def timed(self: Strategy, *args: Any) -> Any:
        began = time.process_time()
        try:
            return plain(self, *args)
        finally:
            took.append((time.process_time() - began) * 1e3)

    with patch.object(Strategy, "ask", timed):
        yield took


def ground() -> dict[str, SearchSpace]:
    return search_spaces([load_template(TASK, "flash_mma")], Limits.of(GPU), PROBLEM)


def resume(database: Path, strategy: str, count: int, results: Any) -> None:
    """In a process of its own: what `count` more trials cost when all before are known."""
    store = TimedStore(database)
    with store:
        study = replace(store.study("scale"), strategy=strategy)
        before = len(store.rows(study))
        began = time.perf_counter()
        first: list[float] = []
        rounds: list[float] = []
        cpu: list[float] = [time.process_time()]

        def watch(progress: Progress) -> None:
            if progress.latest is not None:
                now = time.perf_counter()
                rounds.append((now - (first[-1] if first else began)) * 1e3)
                first.append(now)
                cpu.append(time.process_time())

        with asked_ms() as thought:
            search(study, store, ground(), Answers(count), watch)
        ranked = []
        for _ in range(5):
            begin = time.perf_counter()
            store.leaderboard(study="scale", limit=20)
            ranked.append((time.perf_counter() - begin) * 1e3)
        last = range(before + count // 2, before + count)
        asked = [store.trial(f"scale/{n}").seconds.get("strategy", 0.0) * 1e3 for n in last]
    results.put({
        "trials": before,
        "to_first_answer_s": round(first[0] - began, 2),
        "proposal_ms": round(statistics.median(asked), 2),
        "proposal_mean_ms": round(statistics.fmean(asked), 2),
        "proposal_cpu_ms": round(statistics.median(thought[count // 2 :]), 2),
        "proposal_mean_cpu_ms": round(statistics.fmean(thought[count // 2 :]), 2),
        "store_ms": round(statistics.median(store.took_ms), 2),
        "proposal_and_store_ms": round(statistics.median(asked) + statistics.median(store.took_ms), 2),
        "store_cpu_ms": round(statistics.median(store.cpu_ms), 2),
        "proposal_and_store_mean_cpu_ms": round(
            statistics.fmean(thought[count // 2 :]) + statistics.fmean(store.cpu_ms), 2
        ),
        "whole_round_cpu_ms": round(1e3 * (cpu[count] - cpu[count // 2]) / (count - count // 2), 2),
        "load_average": round(os.getloadavg()[0], 1),
        "whole_round_ms": round(statistics.median(rounds[count // 2 : count]), 2),
        "leaderboard_ms": round(statistics.median(ranked), 1),
        "resident_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 0),
        "database_mb": round(database.stat().st_size / 1e6, 1),
    })  # fmt: skip


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


def write(options: argparse.Namespace, curve: list[dict[str, Any]]) -> None:
    """What is known so far, as JSON."""
    record = {
        "date": time.strftime("%Y-%m-%d"), "commit": options.commit,
        "command": "python benchmarks/scale.py " + " ".join(sys.argv[1:]),
        "protocol": "medians over the second half of each checkpoint's trials, in a process of its own; cpu: "
        "seconds of that process alone, whatever else the machine did",
        "strategy": options.strategy, "cores": os.cpu_count(), "python": platform.python_version(),
        "machine": platform.machine(), "ten_million_additions_s": options.loop_s, "curve": curve,
    }  # fmt: skip
    options.out.write_text(json.dumps(record, indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--real", type=int, default=100_000, help="beyond it trials are copies of the first")
    parser.add_argument("--more", type=int, default=100, help="trials searched at each checkpoint")
    parser.add_argument("--strategy", default="evo")
    parser.add_argument("--commit", default="")
    parser.add_argument("--database", type=Path, default=Path("/tmp/evo-scale.db"))
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.loop_s = loop_s()
    for end in ("", "-wal", "-shm"):
        Path(f"{options.database}{end}").unlink(missing_ok=True)
    template, feasible = ground()["flash_mma"].template, ground()["flash_mma"].feasible
    order = np.random.default_rng(1).permutation(len(feasible.indices))
    base = template.candidate(template.space.default, PROBLEM)
    curve: list[dict[str, Any]] = []
    store = TimedStore(options.database)
    with store:
        study = store.create(Study("scale", PROBLEM, "cuda:0", GPU.name, ("flash_mma",), 1e9, workers=16))
        number = 0
        for goal in (c for c in CHECKPOINTS if c <= options.trials):
            store.took_ms.clear()
            store.cpu_ms.clear()
            if goal > options.real:
                copy_up_to(options.database, goal, feasible.points, order)
                number = goal
            while number < goal:
                point = feasible.points[int(order[number])]
                source = f"// point {dict(point)}\n{base.source}// variant {number}\n"
                launch = replace(base.launch, smem_bytes=base.launch.smem_bytes + number)
                store.add(study, number, answer(replace(base, point=point, source=source, launch=launch)))
                number += 1
            adding = list(store.took_ms)
            context = multiprocessing.get_context("spawn")
            results = context.Queue()
            child = context.Process(
                target=resume, args=(options.database, options.strategy, options.more, results)
            )
            child.start()
            curve.append(results.get())
            child.join()
            number = len(store.rows(study))
            if adding:
                curve[-1]["store_since_last_ms"] = round(statistics.median(adding), 2)
                curve[-1]["store_since_last_cpu_ms"] = round(statistics.median(store.cpu_ms), 2)
            print(curve[-1], flush=True)
            write(options, curve)
    return 0


if __name__ == "__main__":
    sys.exit(main())
