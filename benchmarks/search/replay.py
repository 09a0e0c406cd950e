"""How soon a strategy finds a fast kernel: searches replayed over recorded spaces. No GPU needed.

    python benchmarks/run.py search/replay SPACE.npz CACHE.json.gz … [--repeats 40] [--strategies evo,tpe]
    python benchmarks/run.py search/replay … --kernel-tuner VENV/bin/python   # its strategies, too
    python benchmarks/run.py search/replay … --runs runs.jsonl                # keep every run; go on later

Spaces: see recorded.py; public ones are at https://github.com/AutoTuningAssociation/benchmark_hub (download
`cachefiles/<kernel>/<GPU>.json.gz`), our own in benchmarks/spaces/. The score P is that of methodology.py:
0 random search, 1 the optimum at once; a trial costs its recorded seconds and the strategy's own time. A
search lasts until random search would have closed 95 % of the gap between the median and the optimum.

`evo@8` is `evo` with eight points under way. `after`: by how much the best found is slower than the optimum
after 10, 20, 50, 100 and 200 evaluations.

`tpe-plain` is Optuna's TPE as people use it: over the plain product, told PRUNED for what is not recorded.
Kernel Tuner's simulation refuses points that fail before they are tried: they cost it nothing.
"""

from __future__ import annotations

import os

for _library in ("OMP", "OPENBLAS", "MKL"):  # repeats run side by side: one thread each
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

import argparse
import itertools
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import ROOT, commit_and_clean
from benchmarks.search.budgets import best_after, places, slowdowns
from benchmarks.search.methodology import Trajectory
from benchmarks.search.run_log import RunLog
from benchmarks.search.runs import PLAIN, THEIRS, UNDER_WAY, Run, opened
from evo.cores import usable_cores
from evo.strategy import STRATEGIES

PROTOCOL = "searches over recorded spaces; score P of Willemsen et al., FGCS 159 (2024), see methodology.py"
GPU = False
KERNEL_TUNER = (
    "adaptive_tabu_greywolf",
    "basinhopping",
    "bayes_opt",
    "diff_evo",
    "dual_annealing",
    "firefly_algorithm",
    "genetic_algorithm",
    "greedy_ils",
    "greedy_mls",
    "hybrid_vndx",
    "mls",
    "nsga2",
    "ordered_greedy_mls",
    "pso",
    "random_sample",
    "simulated_annealing",
)
FEW = 10
"""With fewer than this part of the repeats, a strategy has no place in the table."""
TO_1_PERCENT = ("evaluations_to_1_percent", "expected_evaluations_to_1_percent")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("spaces", nargs="+", type=Path)
    parser.add_argument("--strategies", default=",".join([*STRATEGIES, PLAIN]))
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--processes", type=int, default=usable_cores())
    parser.add_argument("--kernel-tuner", metavar="PYTHON", help="an interpreter that has kernel-tuner")
    parser.add_argument("--kernel-tuner-strategies", default=",".join(KERNEL_TUNER))
    parser.add_argument("--runs", type=Path, help="where to keep every run, a line each")
    parser.add_argument("--only-kept", action="store_true", help="the table of the runs that there are")


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    paths, seeds = [str(p) for p in asked.spaces], list(range(asked.repeats))
    theirs = asked.kernel_tuner_strategies.split(",") if asked.kernel_tuner else []
    names = [name for name in asked.strategies.split(",") if name] + [THEIRS + name for name in theirs]
    wanted = [(name, path, seed) for path in paths for name in names for seed in seeds]
    log = RunLog(asked.runs, commit_and_clean(ROOT)[0])
    if not asked.only_kept:
        log.fill([job for job in wanted if not log.has(job)], asked.kernel_tuner, asked.processes)
    runs: dict[str, dict[str, list[Run]]] = {}
    for job in filter(log.has, wanted):
        runs.setdefault(job[0], {}).setdefault(job[1], []).append(log.run(job))
    results = {
        name: {
            opened(p)[0].name: summary(p, some) for p, some in each.items() if FEW * len(some) >= len(seeds)
        }
        for name, each in runs.items()
    }
    spaces = {opened(p)[0].name: {"device": opened(p)[0].device, "points": len(opened(p)[0])} for p in paths}
    print(table(results, list(spaces)), file=sys.stderr)
    yield {
        "made_by": log.made_by(wanted),
        "kernel_tuner": log.kernel_tuner,
        "seeds": seeds,
        "spaces": spaces,
        "means": means(results, list(spaces)),
        **after({n: e for n, e in runs.items() if set(results[n]) == set(spaces)}),
        "by_strategy": results,
    }


def after(runs: dict[str, dict[str, list[Run]]]) -> dict[str, Any]:
    """How slow the best found is after each of BUDGETS, of strategies that were run in all spaces."""
    found = {
        name: slowdowns(
            {p: best_after([run.values(opened(p)[0]) for run in some]) for p, some in each.items()}
        )
        for name, each in runs.items()
    }
    return {"after": found, "first_after": places({n: f for n, f in found.items() if UNDER_WAY not in n})}


def summary(path: str, runs: Sequence[Run]) -> dict[str, Any]:
    """What one strategy did in one space, over its repeats."""
    space, baseline, _ = opened(path)
    trajectories = [run.trajectory(space) for run in runs]
    performance = baseline.performance(trajectories)
    proposals = sum(run.proposals for run in runs) or 1
    return {
        "repeats": len(runs),
        "P": round(float(performance.mean()), 4),
        "P_over_time": [round(float(p), 3) for p in performance[49::50]],
        "evaluations_to_5_percent": reached(trajectories, 1.05 * space.optimum_ms),
        "evaluations_to_1_percent": reached(trajectories, 1.01 * space.optimum_ms),
        "expected_evaluations_to_1_percent": expected(trajectories, 1.01 * space.optimum_ms),
        "best_over_optimum": round(float(np.mean([j.best[-1] for j in trajectories])) / space.optimum_ms, 4),
        "evaluations": round(float(np.mean([len(run.rows) for run in runs])), 1),
        "infeasible": round(float(np.mean([run.infeasible for run in runs])), 1),
        "repeated": round(float(np.mean([run.repeated for run in runs])), 1),
        "ms_a_proposal": round(1e3 * sum(run.seconds for run in runs) / proposals, 2),
    }


def reached(trajectories: Sequence[Trajectory], goal: float) -> float | None:
    """The median number of evaluations to a time of at most `goal`; None where most runs never get there."""
    median = float(np.median([first or math.inf for first in firsts(trajectories, goal)]))
    return median if math.isfinite(median) else None


def expected(trajectories: Sequence[Trajectory], goal: float) -> float | None:
    """The expected number of evaluations to a time of at most `goal`, were a run that has ended without it
    followed by another: all evaluations before the goal by the runs that got there (Hansen et al., COCO,
    2021, "expected runtime"). None where no run did."""
    found = firsts(trajectories, goal)
    spent = sum(first or len(j.best) for first, j in zip(found, trajectories, strict=True))
    hits = len(found) - found.count(None)
    return round(spent / hits, 1) if hits else None


def firsts(trajectories: Sequence[Trajectory], goal: float) -> list[int | None]:
    """Of each run the number of its first evaluation with a time of at most `goal`, from 1."""
    found = [np.flatnonzero(j.best <= goal) for j in trajectories]
    return [int(f[0]) + 1 if len(f) else None for f in found]


def means(results: dict[str, dict[str, dict[str, Any]]], spaces: Sequence[str]) -> dict[str, Any]:
    """Mean P of the strategies that were run in all spaces, and what they took to 1 % of the optimum, in the
    median and by expectation, as a share of what TPE took, constrained and told PRUNED: the median over
    spaces where both have such a number."""
    found: dict[str, Any] = {}
    for name, each in results.items():
        if not all(space in each for space in spaces):
            continue
        found[name] = {"P": round(float(np.mean([each[space]["P"] for space in spaces])), 4)}
        for what, rival in itertools.product(TO_1_PERCENT, ("tpe", PLAIN)):
            pairs = [(each[space][what], its[what]) for space, its in results.get(rival, {}).items()]
            shares = [mine / its for mine, its in pairs if mine is not None and its is not None]
            key = f"{what}_over_{rival.replace('-', '_')}"
            found[name][key] = round(float(np.median(shares)), 3) if shares else None
    return dict(sorted(found.items(), key=lambda item: -item[1]["P"]))


def table(results: dict[str, dict[str, dict[str, Any]]], spaces: Sequence[str]) -> str:
    """The strategies, best first: P in each space, means over spaces. Those that were not run in all spaces
    come last."""
    lines = [
        "| strategy | " + " | ".join(spaces) + " | mean P | to 5 % | to 1 % | expected to 1 % |"
        " best / optimum | wasted | ms |",
        "|---" * (len(spaces) + 8) + "|",
    ]
    whole = {name for name, each in results.items() if all(space in each for space in spaces)}
    order = sorted(
        results, key=lambda name: (name not in whole, -np.mean([r["P"] for r in results[name].values()]))
    )
    for name in order:
        each = results[name]
        cells = [f"{each[s]['P']:.3f}" if s in each else "" for s in spaces]
        means = [
            f"{np.mean([r['P'] for r in each.values()]):.3f}" if name in whole else "",
            *(
                " / ".join("—" if r[key] is None else f"{r[key]:.0f}" for r in each.values())
                for key in ("evaluations_to_5_percent", *TO_1_PERCENT)
            ),
            f"{np.mean([r['best_over_optimum'] for r in each.values()]):.3f}",
            f"{np.mean([r['infeasible'] + r['repeated'] for r in each.values()]):.0f}",
            f"{np.mean([r['ms_a_proposal'] for r in each.values()]):.1f}",
        ]
        lines.append("| " + " | ".join([name, *cells, *means]) + " |")
    return "\n".join(lines)
