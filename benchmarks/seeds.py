"""How many trials does a search need that knows nothing? Searches from empty databases. Writes JSON.

    python benchmarks/seeds.py --commit COMMIT --out seeds.json      # on a GPU

Each seed is a search as `evo search` does it, on all cores and all templates, from an empty database, without
CONFIRMED, and with an empty cache. Then the best points of all of them, and those that are known from
elsewhere (`--known`), are gated and timed again beside each other, three times each: the fastest median is
the best known. Counted are the trials, and the seconds from the start of a search, until one is within 1 %
(and 5 %) of it: by its second times (`again`), and by the time that the search saw, which has luck in it.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as `evo` does, before NumPy is there

import argparse
import json
import math
import platform
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from evo.rig import choose_device, evaluator_of, limits_of, templates_of

from evo.errors import NothingFound
from evo.evaluate.pool import Pool
from evo.search import Progress, SearchSpace, search, search_spaces
from evo.store import Store, Study, TrialRow
from evo.task import load_task
from evo.trial import Candidate, Value

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


def asked_for(options: argparse.Namespace, seed: int) -> tuple[Study, dict[str, SearchSpace]]:
    """The study of a seed, not in a store yet, and where it may look."""
    task = load_task("attention")
    problem = task.problem(options.shape)
    device, gpu = choose_device(options.device, options.gpu, None)
    asked = Study(
        f"seed-{seed}", problem, device, gpu.name, tuple(options.template), options.budget, options.strategy,
        seed, workers=options.workers or os.cpu_count() or 1, settings={"templates": ""},
    )  # fmt: skip
    return asked, search_spaces(templates_of(task, asked.templates, ()), limits_of(gpu, "", None), problem)


def searched(options: argparse.Namespace, seed: int, folder: Path) -> tuple[list[Step], dict[str, Any]]:
    """One search of `options.trials` trials, and where its time went."""
    asked, grounds = asked_for(options, seed)
    steps: list[Step] = []
    usage: dict[str, Any] = {}

    def watch(progress: Progress) -> None:
        if progress.usage is not None:
            usage.update(asdict(progress.usage))
        if progress.latest is not None:
            steps.append((progress.spent_s, progress.latest))
            if len(steps) == options.trials:
                os.kill(os.getpid(), signal.SIGINT)  # as a person ends a search

    with Store(folder / "evo.db") as store:
        study = store.create(asked)
        workers = Pool(evaluator_of(study, folder / "cache", None), study.workers)
        with suppress(NothingFound):
            search(study, store, grounds, workers, watch)
        if steps:
            trial = store.trial(f"{study.name}/{steps[0][1].number}")
            usage |= {"versions": dict(trial.versions), "compiler": trial.compiler, "device": trial.device}
    return steps, usage


def again(options: argparse.Namespace, runs: Sequence[Run], folder: Path) -> list[dict[str, Any]]:
    """The fastest points of all searches and the known ones, timed again in turns; fastest first."""
    asked, grounds = asked_for(options, 0)
    origins: dict[str, list[str]] = {}
    candidates: dict[str, Candidate] = {}

    def enter(origin: str, template: str, changes: Mapping[str, Value]) -> None:
        ground = grounds.get(template)
        if ground is not None:
            point = {**ground.template.space.default, **changes}
            candidate = ground.template.candidate(point, asked.problem)
            candidates[candidate.program] = candidate
            named = origins.setdefault(candidate.program, [])
            if origin not in named:
                named.append(origin)

    if options.known.exists():
        for name, template, changes in json.loads(options.known.read_text()).get(options.shape, []):
            enter(f"known {name}", template, changes)
    found = [(row.score_us, seed, row) for seed, steps, _ in runs for _, row in steps if row.score_us]
    found.sort(key=lambda each: each[0])
    for us, seed, row in found:
        if us <= CLOSE * found[0][0] and (row.program in candidates or len(candidates) < AGAIN):
            enter(f"seed {seed}", row.template, row.point)
    times: dict[str, list[float]] = {program: [] for program in candidates}
    failed: dict[str, str] = {}
    with Pool(evaluator_of(asked, folder / "cache", None), asked.workers) as pool:
        for turn in range(ROUNDS):
            for number, candidate in enumerate(candidates.values(), turn * len(candidates)):
                pool.submit(number, candidate)
        while pool.in_flight:
            for _, trial in pool.wait(1.0):
                if trial.score_us is None:
                    failed[trial.candidate.program] = f"{trial.outcome} {trial.reason}"
                else:
                    times[trial.candidate.program].append(trial.score_us)
    measured = [
        {
            "us": round(statistics.median(times[program]), 4) if times[program] else None,
            "each_us": [round(us, 4) for us in times[program]],
            "by": origins[program], "template": candidate.template, "point": dict(candidate.point),
            "program": program, "failed": failed.get(program, ""),
        }
        for program, candidate in candidates.items()
    ]  # fmt: skip
    return sorted(measured, key=lambda one: one["us"] or math.inf)


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
            better.append({
                "trials": count, "seconds": round(seconds, 2), "us": round(best, 4),
                "again_us": second.get(row.program), "template": row.template, "point": dict(row.point),
            })  # fmt: skip
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


def record(options: argparse.Namespace, runs: Sequence[Run], measured: Sequence[dict[str, Any]]) -> None:
    """Writes what is known so far; `measured`: what `again` found, once it has."""
    second = {one["program"]: one["us"] for one in measured if one["us"]}
    first = [row.score_us for _, steps, _ in runs for _, row in steps if row.score_us is not None]
    known = min(second.values() or first, default=math.inf)
    each = [summary(seed, steps, usage, known, second) for seed, steps, usage in runs]
    found: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d"),
        "commit": options.commit,
        "command": "python benchmarks/seeds.py " + " ".join(sys.argv[1:]),
        "protocol": "searches from empty databases and caches, all cores, without CONFIRMED; warm L2, CUDA "
        f"graph replays interleaved with the baselines; again: medians of {ROUNDS} times of each of the "
        "fastest and the known points, gated and timed in turns after the searches",
        "problem": options.shape, "strategy": options.strategy, "cores": os.cpu_count(),
        "python": platform.python_version(),
        "best_known": measured[0] if second else {"us": known, "by": ["first times of the searches"]},
    }  # fmt: skip
    for name in (f"within_{percent}_percent{end}" for end in ("_again", "") for percent in GOALS):
        counts = [one[name] for one in each]
        found[name] = {"median_trials": median(counts, 0), "median_seconds": median(counts, 1)}
    text = json.dumps(found | {"again": list(measured), "searches": each}, indent=1)
    options.out.write_text(text + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--shape", default="1,8,512,64")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--trials", type=int, default=250, help="of each search")
    parser.add_argument("--budget", type=float, default=120.0, help="seconds of each search at most")
    parser.add_argument("--template", action="append", default=[])
    parser.add_argument("--strategy", default="evo")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--gpu")
    parser.add_argument("--known", type=Path, default=Path(__file__).with_name("attention_points.json"))
    parser.add_argument("--commit", default="")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    runs: list[Run] = []
    for seed in range(options.seeds):
        with tempfile.TemporaryDirectory() as folder:
            steps, usage = searched(options, seed, Path(folder))
        runs.append((seed, steps, usage))
        record(options, runs, [])
        best = min((row.score_us for _, row in steps if row.score_us is not None), default=math.inf)
        print(f"seed {seed}: {len(steps)} trials, {best:.3f} us", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        measured = again(options, runs, Path(folder))
    record(options, runs, measured)
    for one in measured[:5]:
        print(one["us"], one["by"], one["template"], one["point"], one["failed"], file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
