"""What a warm start is worth: searches replayed over recorded spaces of one kernel on two GPUs.

    python benchmarks/run.py search/warm_starts FROM.json.gz:TO.json.gz … [--repeats 20]

Each pair is searched on the second GPU from nothing (`cold`), with what a search of 200 evaluations found on
the first (`warm`), and with the same where fast and slow changed places (`misled`): that must cost little.
"""

from __future__ import annotations

import os

for _library in ("OMP", "OPENBLAS", "MKL"):  # searches run side by side: one thread each
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

import argparse
import sys
from collections.abc import Iterator, Sequence
from multiprocessing import get_context
from typing import Any

import numpy as np

from benchmarks.search.budgets import best_after, slowdowns
from benchmarks.search.methodology import Floats
from benchmarks.search.runs import Ask, opened
from evo.cores import usable_cores
from evo.strategy import Observation

PROTOCOL = """searches of `evo` over recorded spaces of one kernel on another GPU: cold, warm-started with 200
evaluations on the first GPU, and misled by the inverse of their times"""
GPU = False
KINDS = ("cold", "warm", "misled")
EVALUATIONS = 200
NEAR = 1.02

Job = tuple[str, str, int, int]
"""The paths of the first and the second space, a seed, and how many evaluations."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pairs", nargs="+", metavar="FROM:TO")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--evaluations", type=int, default=EVALUATIONS, help="of a search on the second GPU")
    parser.add_argument("--processes", type=int, default=usable_cores())


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    seeds = range(asked.repeats)
    jobs: list[Job] = [
        (before, after, seed, asked.evaluations)
        for before, after in (pair.split(":") for pair in asked.pairs)
        for seed in seeds
    ]
    found: dict[str, dict[str, list[Floats]]] = {kind: {} for kind in KINDS}
    with get_context("spawn").Pool(asked.processes) as pool:
        for pair, each in pool.imap(searches, jobs):
            for kind, gave in each.items():
                found[kind].setdefault(pair, []).append(gave)
    results = {
        kind: {
            "after": slowdowns({pair: best_after(runs) for pair, runs in pairs.items()}),
            "evaluations_to_2_percent": {pair: median_to_near(runs) for pair, runs in pairs.items()},
        }
        for kind, pairs in found.items()
    }
    print(table(results), file=sys.stderr)
    yield {"repeats": asked.repeats, "evaluations": asked.evaluations, **results}


def searches(job: Job) -> tuple[str, dict[str, Floats]]:
    """The name of a pair, and what the evaluations of the three searches gave, as multiples of the best."""
    before, after, seed, evaluations = job
    first, second = opened(before)[0].name, opened(after)[0].name
    earlier, _ = one(before, second, 1000 + seed, EVALUATIONS)
    scores = [t.score_us for t in earlier if t.score_us is not None]
    turned = max(scores) * min(scores)
    inverse = [
        Observation(t.template, t.point, None if t.score_us is None else turned / t.score_us) for t in earlier
    ]
    starts: dict[str, Sequence[Observation]] = {"cold": (), "warm": earlier, "misled": inverse}
    return f"{first}:{second}", {
        kind: one(after, second, seed, evaluations, start)[1] for kind, start in starts.items()
    }


def one(
    path: str, template: str, seed: int, evaluations: int, earlier: Sequence[Observation] = ()
) -> tuple[list[Observation], Floats]:
    """A search: its trials, as trials of `template` whose scores are fractions of their best, and what each
    evaluation gave, as a multiple of the optimum."""
    space, _, rows = opened(path)
    ask = Ask("evo", space, seed, earlier)
    found: list[int] = []
    trials: list[Observation] = []
    while len(found) < min(evaluations, len(space)) and (point := ask.next()) is not None:
        row = rows[point]
        found.append(row)
        trials.append(Observation(template, ask.point, space.score_us(row)))
        ask.tell(row)
    gave = space.time_ms[found] / space.optimum_ms
    best = 1e3 * space.optimum_ms * float(np.nanmin(gave))
    return [
        Observation(t.template, t.point, None if t.score_us is None else t.score_us / best) for t in trials
    ], gave


def median_to_near(runs: Sequence[Floats]) -> float | None:
    """The median number of evaluations to within 2 % of the optimum; None where most runs never got there."""
    firsts = [np.flatnonzero(gave <= NEAR) for gave in runs]
    median = float(np.median([f[0] + 1 if len(f) else np.inf for f in firsts]))
    return median if np.isfinite(median) else None


def table(results: dict[str, Any]) -> str:
    """A line a kind: how much slower than the optimum after so many evaluations, and evaluations to 2 %."""
    lines = []
    for kind, said in results.items():
        cells = [f"{100 * each['slowdown']:.1f} %" for each in said["after"].values()]
        nears = ["—" if n is None else f"{n:.0f}" for n in said["evaluations_to_2_percent"].values()]
        lines.append(f"| {kind} | {' | '.join(cells)} | {' / '.join(nears)} |")
    return "\n".join(lines)
