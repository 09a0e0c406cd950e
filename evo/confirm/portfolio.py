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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from evo.confirm.champions import Champion
from evo.confirm.choice import distance
from evo.errors import NothingFound
from evo.trial import Problem

EXHAUSTIVE = 20_000
"""Choices of kernels that are all tried; where there are more, kernels are added one at a time, and then
exchanged one at a time."""
BATCH = 256
"""So many choices are tried at once."""


@dataclass(frozen=True)
class Row:
    """A decision: the champion for a problem on a GPU. `median_us` and `regret` are None where that was not
    measured, and so is `left_out`, the regret of a portfolio that does not know the problem."""

    problem: Problem
    gpu: str
    champion: Champion
    median_us: float | None = None
    regret: float | None = None
    left_out: float | None = None

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
            "left_out_regret": self.left_out,
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
    return _Regrets.of(times).chosen(most)


def leave_one_out(times: Times, problems: Mapping[str, Problem], most: int) -> dict[str, float | None]:
    """By problem: the regret there of the portfolio that is chosen without it, which serves it by the nearest
    problem that it knows whose kernel was measured on it. None where there is none such."""
    every, found = _Regrets.of(times), dict[str, float | None]()
    for left in times.problems:
        try:
            portfolio = every.without(left).chosen(most)
        except NothingFound:
            found[left] = None
            continue
        same = [name for name in portfolio.serves if _alike(problems[name], problems[left])]
        nearest = sorted(same, key=lambda name: distance(problems[name], problems[left]))
        kernels = [portfolio.serves[name] for name in nearest if left in times.us[portfolio.serves[name]]]
        found[left] = times.regret(kernels[0], left) if kernels else None
    return found


def _alike(a: Problem, b: Problem) -> bool:
    return a.dtype == b.dtype and a.flags == b.flags


@dataclass(frozen=True)
class _Regrets:
    """The regrets of `kernels` (k,) on `problems` (p,) as an array (k, p), infinite where a kernel was not
    measured: hundreds of both are chosen among in a second."""

    kernels: Sequence[str]
    problems: Sequence[str]
    table: npt.NDArray[np.float64]

    @classmethod
    def of(cls, times: Times) -> _Regrets:
        kernels, problems = list(times.us), times.problems
        table = np.full((len(kernels), len(problems)), math.inf)
        places = {problem: column for column, problem in enumerate(problems)}
        for row, us in zip(table, times.us.values(), strict=True):
            row[[places[problem] for problem in us]] = list(us.values())
        return cls(kernels, problems, table / table.min(axis=0, initial=math.inf))

    def without(self, problem: str) -> _Regrets:
        """All but one problem, and but the kernels that were measured there alone."""
        table = np.delete(self.table, self.problems.index(problem), axis=1)
        known = np.flatnonzero(np.isfinite(table).any(axis=1))
        kernels = [self.kernels[int(row)] for row in known]
        return _Regrets(kernels, [one for one in self.problems if one != problem], table[known])

    def chosen(self, most: int) -> Portfolio:
        """See `choose`."""
        if not self.kernels:
            raise NothingFound("no kernel was measured", "measure some")
        count = len(self.kernels)
        sizes = range(1, min(most, count) + 1)
        every = sum(math.comb(count, size) for size in sizes) <= EXHAUSTIVE
        rows = self._best_of_all(sizes) if every else self._exchanged(self._one_at_a_time(most))
        best = self._portfolio(rows)
        if best.worst_regret == math.inf:
            lost = [problem for problem, regret in best.regrets.items() if regret == math.inf]
            raise NothingFound(
                f"{most} kernels do not serve all problems: {lost[0]} is left",
                "measure more, or allow more kernels",
            )
        return best

    def _best_of_all(self, sizes: Iterable[int]) -> Sequence[int]:
        best: tuple[tuple[float, float], Sequence[int]] | None = None
        for size in sizes:
            for some in pieces(itertools.combinations(range(len(self.kernels)), size), BATCH):
                least = self.table[np.array(some)].min(axis=1)
                means, worst = np.log(least).mean(axis=1), least.max(axis=1)
                first = np.lexsort((worst, means))[0]
                cost = round(float(means[first]), 12), float(worst[first])
                if best is None or cost < best[0]:
                    best = cost, some[first]
        assert best is not None
        return best[1]

    def _one_at_a_time(self, most: int) -> Sequence[int]:
        """One kernel more at a time: the one with which least is lost."""
        losses = self._losses
        chosen: list[int] = []
        least = np.full(len(self.problems), math.inf)
        for _ in range(min(most, len(self.kernels))):
            lost = np.minimum(losses, least).sum(axis=1)
            lost[chosen] = math.inf
            chosen.append(int(lost.argmin()))
            least = np.minimum(least, losses[chosen[-1]])
        return chosen

    def _exchanged(self, rows: Sequence[int]) -> Sequence[int]:
        """Each of the chosen for the kernel with which least is lost, as long as that is less."""
        losses, chosen = self._losses, list(rows)
        least, before = float(losses[chosen].min(axis=0).sum()), math.inf
        while least < before - 1e-9:
            before = least
            for number in range(len(chosen)):
                others = chosen[:number] + chosen[number + 1 :]
                lost = np.minimum(losses, losses[others].min(axis=0, initial=math.inf)).sum(axis=1)
                if lost.min() < least - 1e-9:
                    chosen[number], least = int(lost.argmin()), float(lost.min())
        return chosen

    @property
    def _losses(self) -> npt.NDArray[np.float64]:
        """As logarithms. A problem that is not served counts as a thousand times the best."""
        found: npt.NDArray[np.float64] = np.log(np.minimum(self.table, 1000.0))
        return found

    def _portfolio(self, rows: Sequence[int]) -> Portfolio:
        """Every problem by the fastest of the chosen kernels; those that serve nothing are left out."""
        table = self.table[list(rows)]
        served_by = table.argmin(axis=0)
        serves = {
            problem: self.kernels[rows[one]] for problem, one in zip(self.problems, served_by, strict=True)
        }
        regrets = dict(zip(self.problems, table.min(axis=0).tolist(), strict=True))
        used = set(serves.values())
        return Portfolio(
            tuple(self.kernels[row] for row in rows if self.kernels[row] in used), serves, regrets
        )


def pieces(every: Iterable[tuple[int, ...]], count: int) -> Iterator[list[tuple[int, ...]]]:
    """As lists of `count`, the last one shorter."""
    left = iter(every)
    while found := list(itertools.islice(left, count)):
        yield found
