"""A portfolio: a few kernels for many problems, which of them serves which, and what that costs.

    rows_of        a row for each problem that a champion was made for
    Times          the times of kernels on problems, as far as they were measured
    choose         the k kernels with the least regret
    leave_one_out  the regret on problems that the choice did not know

The regret of a kernel on a problem is its time there, as a multiple of the fastest kernel's there.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evo.confirm.champions import Champion
from evo.confirm.choice import distance
from evo.errors import NothingFound
from evo.trial import Problem

EXHAUSTIVE = 20_000
"""Choices of kernels that are all tried; where there are more, kernels are added one at a time."""


@dataclass(frozen=True)
class Row:
    """A decision: the champion for a problem on a GPU. `median_us` and `regret` are None where that was not
    measured."""

    problem: Problem
    gpu: str
    champion: Champion
    median_us: float | None = None
    regret: float | None = None

    def record(self, kernel: str) -> dict[str, Any]:
        """A row of dispatch.json; `kernel` is the champion's name there."""
        problem = self.problem
        return {
            "gpu": self.gpu,
            "problem": {
                "sizes": dict(problem.sizes),
                "flags": dict(problem.flags),
                "dtype": problem.dtype,
            },
            "kernel": kernel,
            "median_us": self.median_us,
            "regret": self.regret,
        }


def rows_of(champions: Sequence[Champion]) -> list[Row]:
    """Each champion for its own problem, on the GPU that it was timed on."""
    return [
        Row(one.problem, str(one.record.get("confirmed", {}).get("device") or one.gpu), one, one.median_us)
        for one in champions
    ]


@dataclass(frozen=True)
class Times:
    """`us[kernel][problem]`: the median of a kernel on a problem, by their names. What was not measured, or
    not served, is absent."""

    us: Mapping[str, Mapping[str, float]]

    @property
    def problems(self) -> list[str]:
        return list(dict.fromkeys(problem for row in self.us.values() for problem in row))

    def best(self, problem: str) -> float:
        return min(row[problem] for row in self.us.values() if problem in row)

    def regret(self, kernel: str, problem: str) -> float:
        """At least 1; infinite where the kernel was not measured there."""
        return self.us[kernel].get(problem, math.inf) / self.best(problem)


@dataclass(frozen=True)
class Portfolio:
    """The chosen kernels; for each problem the one that serves it and its regret."""

    kernels: tuple[str, ...]
    serves: Mapping[str, str]
    regrets: Mapping[str, float]

    @property
    def mean_regret(self) -> float:
        """Geometric."""
        return math.exp(math.fsum(map(math.log, self.regrets.values())) / len(self.regrets))

    @property
    def worst_regret(self) -> float:
        return max(self.regrets.values())


def choose(times: Times, most: int) -> Portfolio:
    """The `most` kernels, or fewer where more are of no use, that serve all problems with the least mean
    regret; of equal ones those with the least worst regret. NothingFound where so few cannot serve all."""
    names = list(times.us)
    if sum(math.comb(len(names), size) for size in range(1, most + 1)) <= EXHAUSTIVE:
        sizes = range(1, min(most, len(names)) + 1)
        tried = [_served(times, chosen) for size in sizes for chosen in itertools.combinations(names, size)]
        best = min(tried, key=_cost)
    else:
        best = _greedy(times, names, most)
    if best.worst_regret == math.inf:
        lost = [problem for problem, regret in best.regrets.items() if regret == math.inf]
        raise NothingFound(
            f"{most} kernels do not serve all problems: {lost[0]} is left",
            "measure more, or allow more kernels",
        )
    return best


def leave_one_out(times: Times, problems: Mapping[str, Problem], most: int) -> dict[str, float | None]:
    """By problem: the regret there of the portfolio that is chosen without it, which serves it by the nearest
    problem that it knows whose kernel was measured on it. None where there is none such."""
    found: dict[str, float | None] = {}
    for left in times.problems:
        others = {
            kernel: {problem: us for problem, us in row.items() if problem != left}
            for kernel, row in times.us.items()
        }
        known = Times({kernel: row for kernel, row in others.items() if row})
        try:
            portfolio = choose(known, most)
        except (NothingFound, ValueError):
            found[left] = None
            continue
        nearest = sorted(portfolio.serves, key=lambda name: distance(problems[name], problems[left]))
        same = [name for name in nearest if _alike(problems[name], problems[left])]
        kernels = [portfolio.serves[name] for name in same if left in times.us[portfolio.serves[name]]]
        found[left] = times.regret(kernels[0], left) if kernels else None
    return found


def _alike(a: Problem, b: Problem) -> bool:
    return a.dtype == b.dtype and a.flags == b.flags


def _cost(portfolio: Portfolio) -> tuple[float, float, int]:
    return portfolio.mean_regret, portfolio.worst_regret, len(portfolio.kernels)


def _served(times: Times, chosen: Sequence[str]) -> Portfolio:
    """Every problem by the fastest of the chosen kernels; those that serve nothing are left out."""
    serves = {
        problem: min(chosen, key=lambda kernel: times.regret(kernel, problem)) for problem in times.problems
    }
    regrets = {problem: times.regret(kernel, problem) for problem, kernel in serves.items()}
    used = tuple(kernel for kernel in chosen if kernel in serves.values())
    return Portfolio(used, serves, regrets)


def _greedy(times: Times, names: Sequence[str], most: int) -> Portfolio:
    """One kernel more at a time: the one with which least is lost. A problem that is not served yet counts as
    a thousand times the best."""
    chosen: list[str] = []

    def lost(kernel: str) -> float:
        regrets = _served(times, [*chosen, kernel]).regrets.values()
        return math.fsum(math.log(min(regret, 1000.0)) for regret in regrets)

    for _ in range(min(most, len(names))):
        chosen.append(min((name for name in names if name not in chosen), key=lost))
    return _served(times, chosen)
