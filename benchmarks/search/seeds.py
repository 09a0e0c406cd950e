"""How many trials a search needs that knows nothing.

Each seed is a search as `evo search` does it, on all cores and all templates, from an empty database, without
CONFIRMED, and with an empty cache. Then the best points of all of them, and those that are known from
elsewhere (`--known`), are gated and timed again beside each other, three times each: the fastest median is
the best known. Counted are the trials, and the seconds from the start of a search, until one is within 1 %
(and 5 %) of it: by its second times (`again`), and by the time that the search saw, which has luck in it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.searches import add_search_options, evaluated, searched, setup_of, spaces_of
from evo.loop import Progress
from evo.store import Store, TrialRow
from evo.trial import Candidate, Value

PROTOCOL = """searches from empty databases and caches, all cores, without CONFIRMED; warm L2, CUDA graph
replays interleaved with the baselines; again: medians of 3 times of each of the fastest and the known points,
gated and timed in turns after the searches"""
GPU = True
KNOWN = Path(__file__).parents[1] / "attention" / "points.json"

Step = tuple[float, TrialRow]
"""A trial as it ended: the seconds that the search had taken, and what the trial gave."""

Run = tuple[int, list[Step], dict[str, Any]]
"""A seed, its search, and where the search's time went."""
Reached = tuple[int, float]
"""Trials and seconds."""

GOALS = (5, 1)
"""Percent above the best known."""
AGAIN = 40
"""Points that are timed again at most: the fastest of all searches, if within `CLOSE` of the fastest."""
CLOSE = 1.06
ROUNDS = 3


def options(parser: argparse.ArgumentParser) -> None:
    add_search_options(parser)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--trials", type=int, default=250, help="of each search")
    parser.add_argument("--budget", type=float, default=120.0, help="seconds of each search at most")
    parser.add_argument("--known", type=Path, default=KNOWN, help="points that are known to be good")


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    runs: list[Run] = []
    for seed in range(asked.seeds):
        with tempfile.TemporaryDirectory() as folder:
            steps, usage = one_search(asked, seed, Path(folder))
        runs.append((seed, steps, usage))
        best = min((row.score_us for _, row in steps if row.score_us is not None), default=math.inf)
        print(f"seed {seed}: {len(steps)} trials, {best:.3f} us", file=sys.stderr, flush=True)
        yield results(asked, runs, [])
    with tempfile.TemporaryDirectory() as folder:
        measured = again(asked, runs, Path(folder))
    for one in measured[:5]:
        print(one["us"], one["by"], one["template"], one["point"], one["failed"], file=sys.stderr)
    yield results(asked, runs, measured)


def one_search(asked: argparse.Namespace, seed: int, folder: Path) -> tuple[list[Step], dict[str, Any]]:
    """One search of `asked.trials` trials, and where its time went."""
    steps: list[Step] = []
    usage: dict[str, Any] = {}

    def watch(progress: Progress) -> None:
        if progress.usage is not None:
            usage.update(asdict(progress.usage))
        if progress.latest is not None:
            steps.append((progress.spent_s, progress.latest))
            if len(steps) == asked.trials:
                os.kill(os.getpid(), signal.SIGINT)  # as a person ends a search

    with Store(folder / "evo.db") as store:
        searched(setup_of(asked, folder / "cache", f"seed-{seed}", asked.budget, seed), store, watch)
    return steps, usage


class Contestants:
    """The points that are timed again, and where each comes from."""

    def __init__(self) -> None:
        self.candidates: dict[str, Candidate] = {}
        self.origins: dict[str, list[str]] = {}

    def add(self, origin: str, candidate: Candidate) -> None:
        self.candidates[candidate.program] = candidate
        named = self.origins.setdefault(candidate.program, [])
        if origin not in named:
            named.append(origin)


def contestants(asked: argparse.Namespace, runs: Sequence[Run], folder: Path) -> Contestants:
    """The points that are known, and the fastest of all searches."""
    setup = setup_of(asked, folder / "cache", "again", 0.0)
    spaces, problem = spaces_of(setup), setup.study.problem
    chosen = Contestants()

    def add(origin: str, template: str, changes: Mapping[str, Value]) -> None:
        if template in spaces:
            ours = spaces[template].template
            chosen.add(origin, ours.candidate({**ours.space.default, **changes}, problem))

    if asked.known.exists():
        for name, template, changes in json.loads(asked.known.read_text()).get(asked.shape, []):
            add(f"known {name}", template, changes)
    found = [(row.score_us, seed, row) for seed, steps, _ in runs for _, row in steps if row.score_us]
    found.sort(key=lambda each: each[0])
    for us, seed, row in found:
        known = row.program in chosen.candidates
        if us <= CLOSE * found[0][0] and (known or len(chosen.candidates) < AGAIN):
            add(f"seed {seed}", row.template, row.point)
    return chosen


def again(asked: argparse.Namespace, runs: Sequence[Run], folder: Path) -> list[dict[str, Any]]:
    """The fastest points of all searches and the known ones, timed again in turns; fastest first."""
    chosen = contestants(asked, runs, folder)
    times: dict[str, list[float]] = {program: [] for program in chosen.candidates}
    failed: dict[str, str] = {}
    setup = setup_of(asked, folder / "cache", "again", 0.0)
    for trial in evaluated(setup, [*chosen.candidates.values()] * ROUNDS):
        if trial.score_us is None:
            failed[trial.candidate.program] = f"{trial.outcome} {trial.reason}"
        else:
            times[trial.candidate.program].append(trial.score_us)
    measured = [
        {
            "us": round(statistics.median(times[program]), 4) if times[program] else None,
            "each_us": [round(us, 4) for us in times[program]],
            "by": chosen.origins[program],
            "template": candidate.template,
            "point": dict(candidate.point),
            "program": program,
            "failed": failed.get(program, ""),
        }
        for program, candidate in chosen.candidates.items()
    ]
    return sorted(measured, key=lambda one: one["us"] or math.inf)


def results(
    asked: argparse.Namespace, runs: Sequence[Run], measured: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """What is known so far; `measured`: what `again` found, once it has."""
    second = {one["program"]: one["us"] for one in measured if one["us"]}
    first = [row.score_us for _, steps, _ in runs for _, row in steps if row.score_us is not None]
    known = min(second.values() or first, default=math.inf)
    each = [summary(seed, steps, usage, known, second) for seed, steps, usage in runs]
    found: dict[str, Any] = {
        "problem": asked.shape,
        "strategy": asked.strategy,
        "best_known": measured[0] if second else {"us": known, "by": ["first times of the searches"]},
    }
    for name in (f"within_{percent}_percent{end}" for end in ("_again", "") for percent in GOALS):
        counts = [one[name] for one in each]
        found[name] = {"median_trials": median(counts, 0), "median_seconds": median(counts, 1)}
    return found | {"again": list(measured), "searches": each}


def within(steps: Sequence[Step], goal_us: float, us: Callable[[TrialRow], float | None]) -> Reached | None:
    """Trials and seconds until one's time, as `us` tells it, was at most `goal_us`; None where none's was."""
    for count, (seconds, row) in enumerate(steps, 1):
        time_us = us(row)
        if time_us is not None and time_us <= goal_us:
            return count, round(seconds, 2)
    return None


def summary(
    seed: int, steps: Sequence[Step], usage: dict[str, Any], known_us: float, second: Mapping[str, float]
) -> dict[str, Any]:
    """What one search found, and when. `second`: the times of the programs that were timed again."""
    better: list[dict[str, Any]] = []
    best = math.inf
    for count, (seconds, row) in enumerate(steps, 1):
        if row.score_us is not None and row.score_us < best:
            best = row.score_us
            better.append(
                {
                    "trials": count,
                    "seconds": round(seconds, 2),
                    "us": round(best, 4),
                    "again_us": second.get(row.program),
                    "template": row.template,
                    "point": dict(row.point),
                }
            )
    found: dict[str, Any] = {
        "seed": seed,
        "trials": len(steps),
        "seconds": round(steps[-1][0], 1) if steps else 0.0,
    }
    for percent in GOALS:
        goal = (1 + percent / 100) * known_us
        found[f"within_{percent}_percent"] = within(steps, goal, lambda row: row.score_us)
        found[f"within_{percent}_percent_again"] = within(steps, goal, lambda row: second.get(row.program))
    return found | {
        "outcomes": dict(Counter(str(row.outcome) for _, row in steps)),
        "templates": dict(Counter(row.template for _, row in steps)),
        "better": better,
        "usage": usage,
    }


def median(counts: Sequence[Reached | None], which: int) -> float | None:
    """Of trials (0) or seconds (1); None where most never got there."""
    middle = statistics.median(math.inf if c is None else c[which] for c in counts)
    return middle if math.isfinite(middle) else None
