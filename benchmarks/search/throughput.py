"""How many checked and timed trials a GPU gets through in a minute, and where the time goes.

It searches one template at one shape, watches the GPU with nvidia-smi, and reads the database afterwards:
trials recorded in each whole minute, seconds by stage. Then it searches copies of the template with one
planted fault each, for what the gate costs a wrong candidate; all must be RED. A search that has converged
goes on.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.faults import planted
from benchmarks.searches import a_minute, add_search_options, searched, setup_of
from evo.evaluate import EvaluatorSpec
from evo.loop import Progress
from evo.store import Store
from evo.trial import Trial

PROTOCOL = """a search as evo search does it, without CONFIRMED and without an end at convergence; stages from
the database; GPU busy as nvidia-smi samples it twice a second, without the first fifth and the last tenth
of the run"""
GPU = True


def options(parser: argparse.ArgumentParser) -> None:
    add_search_options(parser)
    parser.set_defaults(device="cuda")
    parser.add_argument("--budget", type=float, default=200.0, help="seconds of the search")
    parser.add_argument("--faulty", type=float, default=15.0, help="seconds of the search of faults; 0: none")
    parser.add_argument("--cache", type=Path, help="of built things (default: a new folder)")


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    asked.template = asked.template or ["flash_mma"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cache = asked.cache or folder / "cache"
        with Store(folder / "throughput.db") as store:
            with busy(folder / "busy") as samples:
                began = time.monotonic()
                usage = watched_search(asked, store, "honest", asked.budget, cache)
                lasted = time.monotonic() - began
            studies = ["honest"]
            if asked.faulty:
                faults = argparse.Namespace(**{**vars(asked), "template": planted(folder / "templates")})
                watched_search(faults, store, "faulty", asked.faulty, cache, folder / "templates")
                studies.append("faulty")
            found = {study: summary(store, study) for study in studies}
        disk = sum(f.stat().st_blocks * 512 for f in folder.glob("throughput.db*"))
        disk += sum(f.stat().st_blocks * 512 for f in cache.glob("??/*") if f.is_file())
    steady = samples[len(samples) // 5 : -max(1, len(samples) // 10)]
    yield {
        "wall_clock_s": round(lasted, 1),
        "gpu_busy_percent": {
            "mean": round(statistics.fmean(steady), 1) if steady else None,
            "median": statistics.median(steady) if steady else None,
            "samples": len(steady),
        },
        "usage": usage,
        "disk_bytes_a_trial": round(disk / sum(study["trials"] for study in found.values())),
        **found,
    }


@contextmanager
def busy(log: Path) -> Iterator[list[int]]:
    """Percent of the time in which the GPU was busy, twice a second; filled in at the end. Empty without
    nvidia-smi."""
    ask = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-lms", "500"]
    samples: list[int] = []
    with log.open("w") as file:
        try:
            process = subprocess.Popen(ask, stdout=file)
        except FileNotFoundError:
            yield samples
            return
        try:
            yield samples
        finally:
            process.terminate()
            process.wait()
    samples += [int(n) for n in re.findall(r"^\d+$", log.read_text(), re.M)]


class Watcher:
    """Hears how a search stands: the first times of its trials, and how often an evaluator was started."""

    def __init__(self) -> None:
        self.last: Progress | None = None
        self.first_us: dict[int, float] = {}
        self.starts = 0
        self._starting: set[int] = set()

    def __call__(self, progress: Progress) -> None:
        self.last = progress
        if progress.latest and progress.latest.median_us:
            self.first_us[progress.latest.number] = progress.latest.median_us
        now = {i for i, doing in enumerate(progress.activity) if doing.startswith("evaluator: starting")}
        self.starts += len(now - self._starting)
        self._starting = now


def watched_search(
    asked: argparse.Namespace,
    store: Store,
    name: str,
    budget_s: float,
    cache: Path,
    folder: Path | None = None,
) -> dict[str, Any]:
    """One search; where its time went, as the live view tells it."""
    setup = setup_of(asked, cache, name, budget_s, folder=folder)
    watcher = Watcher()
    began, worked = time.monotonic(), time.process_time()
    searched(setup, store, watcher, patience=sys.maxsize)
    cores = (time.process_time() - worked) / (time.monotonic() - began)
    usage = watcher.last.usage if watcher.last else None
    return {
        **(asdict(usage) if usage else {}),
        "evaluator_processes": EvaluatorSpec.of(setup).evaluators(setup.study.workers),
        "evaluator_starts": watcher.starts,
        "cores_of_the_search_process": round(cores, 2),
        "best_at_first_visit": leaders(store, name, watcher.first_us),
    }


def leaders(store: Store, study: str, first_us: Mapping[int, float], count: int = 5) -> list[dict[str, Any]]:
    """What became of those trials that were the best when they were timed first: what more visits said."""
    places = {row.trial: place for place, row in enumerate(store.leaderboard(study=study, limit=1000), 1)}
    found = []
    for number in sorted(first_us, key=lambda number: first_us[number])[:count]:
        stored = store.trial(f"{study}/{number}")
        timing = stored.timing
        found.append(
            {
                "number": number,
                "outcome": str(stored.outcome),
                "first_us": first_us[number],
                "us": timing.median_us if timing else None,
                "evaluations": stored.evaluations,
                "samples": sum(len(one.samples_us) for one in timing.times.values()) if timing else None,
                "times_us": {on: one.median_us for on, one in timing.times.items()} if timing else None,
                "place": places.get(stored.id),
            }
        )
    return found


def seconds_by_stage(trials: Sequence[Trial]) -> dict[str, dict[str, float]]:
    """Milliseconds a trial: median, and the 90th percentile."""
    found: dict[str, list[float]] = {}
    for trial in trials:
        for stage, seconds in trial.seconds.items():
            found.setdefault(stage, []).append(seconds * 1e3)
    return {
        stage: {
            "median_ms": round(statistics.median(ms), 2),
            "p90_ms": round(sorted(ms)[len(ms) * 9 // 10], 2),
            "sum_s": round(sum(ms) / 1e3, 2),
        }
        for stage, ms in found.items()
    }


def summary(store: Store, study: str) -> dict[str, Any]:
    """What the database says of one study."""
    rows = store.rows(store.study(study))
    stored = [store.trial(f"{study}/{row.number}") for row in rows if row.same_as is None]
    ends = sorted(datetime.fromisoformat(trial.created).timestamp() for trial in stored)
    minutes = Counter(int((end - ends[0]) // 60) for end in ends)
    whole = [minutes[m] for m in range(int((ends[-1] - ends[0]) // 60))]
    by_outcome: dict[str, list[Trial]] = {}
    for one in stored:
        by_outcome.setdefault(str(one.outcome), []).append(one)
    timed = [t for t in by_outcome.get("TIMED", []) if t.timing]
    best = min((t.timing.median_us for t in timed if t.timing), default=0.0)
    losers = [t for t in timed if t.timing and t.timing.median_us > 1.05 * best]
    contenders = [t for t in timed if t.timing and t.timing.median_us <= 1.05 * best]
    return {
        "trials": len(stored),
        "same_as_another": len(rows) - len(stored),
        "outcomes": {outcome: len(trials) for outcome, trials in by_outcome.items()},
        "outcomes_by_template": dict(Counter(f"{t.candidate.template} {t.outcome}" for t in stored)),
        "reasons": dict(Counter(t.reason for t in by_outcome.get("RED", []))),
        "from_first_to_last_trial_s": round(ends[-1] - ends[0], 1),
        "trials_a_minute": a_minute(ends),
        "trials_in_each_whole_minute": whole,
        "seconds_by_outcome_and_stage": {o: seconds_by_stage(trials) for o, trials in by_outcome.items()},
        "timing_of_losers": seconds_by_stage(losers).get("timing"),
        "timing_of_contenders": seconds_by_stage(contenders).get("timing"),
        "best_us": best,
    }
