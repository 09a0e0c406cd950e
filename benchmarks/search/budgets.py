"""How good the best point is after so many evaluations, of searches over recorded spaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.search.methodology import Floats

BUDGETS = (10, 20, 50, 100, 200)
"""Evaluations after which searches are compared."""
WORST = 100.0
"""A run that has found nothing yet counts as so many times the optimum."""
RESAMPLES = 2000
"""Of the spaces, and of the repeats of each, for an interval of 95 %."""

Best = Mapping[str, Floats]
"""Of each space what the runs of a strategy had found after each of BUDGETS, as multiples of the optimum:
(runs, budgets)."""


def best_after(values: Sequence[Floats]) -> Floats:
    """The best of the first evaluations of each run, for each of BUDGETS: (runs, budgets). `values`: what
    each evaluation of a run gave, as a multiple of the optimum; nan for a failure. A run that ended earlier
    keeps its last best."""
    found = np.empty((len(values), len(BUDGETS)))
    for run, gave in zip(found, values, strict=True):
        best = np.minimum.accumulate(np.append(WORST, np.where(np.isnan(gave), WORST, gave)))
        run[:] = best[np.minimum(BUDGETS, len(gave))]
    return found


def slowdowns(best: Best) -> dict[str, dict[str, Any]]:
    """Of each budget by how much the best found is slower than the optimum: geometric means over runs and
    spaces, less 1, with an interval of 95 % over resampled runs of the same spaces."""
    rng = np.random.default_rng(0)
    logs = [np.log(each) for each in best.values()]
    means = np.mean([each.mean(axis=0) for each in logs], axis=0)
    drawn = [
        np.mean([each[rng.integers(len(each), size=len(each))].mean(axis=0) for each in logs], axis=0)
        for _ in range(RESAMPLES)
    ]
    low, high = np.quantile(drawn, (0.025, 0.975), axis=0)
    return {
        str(budget): {
            "slowdown": round(float(np.expm1(m)), 4),
            "interval": [round(float(np.expm1(bound)), 4) for bound in (lo, hi)],
        }
        for budget, m, lo, hi in zip(BUDGETS, means, low, high, strict=True)
    }


def places(by_strategy: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> dict[str, str]:
    """Of each budget which is first, and which others have an interval that reaches that of the first."""
    said = {}
    for budget in map(str, BUDGETS):
        order = sorted(by_strategy, key=lambda name: by_strategy[name][budget]["slowdown"])
        high = by_strategy[order[0]][budget]["interval"][1]
        level = [name for name in order[1:] if by_strategy[name][budget]["interval"][0] <= high]
        said[budget] = f"{order[0]} is first" + (f"; not told from it: {', '.join(level)}" if level else "")
    return said
