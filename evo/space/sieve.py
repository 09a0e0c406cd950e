"""What rules leave of points.

A rule looks at a few parameters alone. So the points of a product are built up while rules are asked: a rule
is asked about points that have values for the parameters that it and those before it look at. Each of these
stands for all that may become of it, and what a rule refuses is never built up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from evo.errors import BadTemplate
from evo.gpu import Gpu, Limits
from evo.space.parameters import Columns, Indices, Parameter
from evo.space.rules import Rule
from evo.trial import Problem

CHUNK_POINTS = 1 << 16
"""Points asked about at once: so few that their columns are not new memory of the system's each time."""
MOST_POINTS = 1 << 22
"""Points that a product may have while it is built up, and in the end."""
MOST_RANKED = 1 << 62
"""Points of a plain product that have numbers."""
MOST_RAISING = 16
"""A rule that raises at more points than this is broken; at fewer, these points are tried, and fail then."""
MOST_HALVES = 1024
"""Halves of many points that a rule is asked about to find these few."""

Mask = npt.NDArray[np.bool_]
Ranks = npt.NDArray[np.int64]
"""Numbers of points in the plain product, the last parameter fastest."""


class Points(Protocol):
    """Points that rules are asked about."""

    each: int
    """Points of the product that each stands for."""

    def __len__(self) -> int: ...

    def columns(self, begin: int, end: int) -> Columns:
        """Those from `begin` to before `end`; Unassigned where a column is asked for that they lack."""
        ...

    def assign(self, number: int) -> None:
        """Makes of each one for each value of a parameter, by its number."""
        ...

    def keep(self, mask: Mask) -> None:
        """Leaves out where it is False."""
        ...


class Unassigned(BaseException):
    """A rule looked at a parameter of which the points have no value yet: no error of the rule's."""

    def __init__(self, number: int) -> None:
        self.number = number


class TooManyPoints(Exception):
    """A product has too many points to be built up."""


class GivenPoints:
    """Whole points: positions, (points, parameters)."""

    each = 1

    def __init__(self, parameters: Sequence[Parameter], rows: Indices, problem: Problem, gpu: Gpu) -> None:
        self._parameters, self.rows, self._asked_for = parameters, rows, (problem, gpu)

    def __len__(self) -> int:
        return len(self.rows)

    def columns(self, begin: int, end: int) -> Columns:
        return Columns.of(self._parameters, self.rows[begin:end], *self._asked_for)

    def assign(self, number: int) -> None:
        """Nothing: they have all their values."""

    def keep(self, mask: Mask) -> None:
        self.rows = self.rows.take(np.flatnonzero(mask), axis=0)


class PartialPoints:
    """Points of the product of `parameters`: at first one, which has no values. TooManyPoints where there
    would be more than MOST_POINTS."""

    def __init__(self, parameters: Sequence[Parameter], problem: Problem, gpu: Gpu) -> None:
        self._parameters, self._asked_for = parameters, (problem, gpu)
        self._counts = [len(parameter.values) for parameter in parameters]
        self._steps = [math.prod(self._counts[number + 1 :]) for number in range(len(parameters))]
        self.each = math.prod(self._counts)
        if self.each > MOST_RANKED:
            raise TooManyPoints
        self._assigned: set[int] = set()
        self._ranks: Ranks = np.zeros(1, np.int64)
        """The number of each in the product, with position 0 where it has no value."""

    def __len__(self) -> int:
        return len(self._ranks)

    def columns(self, begin: int, end: int) -> Columns:
        ranks = self._ranks[begin:end]

        def positions(number: int) -> Ranks:
            if number not in self._assigned:
                raise Unassigned(number)
            return self._positions(ranks, number)

        return Columns(self._parameters, len(ranks), positions, *self._asked_for)

    def assign(self, number: int) -> None:
        if len(self) * self._counts[number] > MOST_POINTS:
            raise TooManyPoints
        steps = np.arange(self._counts[number], dtype=np.int64) * self._steps[number]
        self._ranks = (self._ranks[:, None] + steps).ravel()
        self._assigned.add(number)
        self.each //= self._counts[number]

    def keep(self, mask: Mask) -> None:
        self._ranks = self._ranks[mask]

    def rows(self) -> Indices:
        """All that may become of them, the last parameter fastest: positions, (points, parameters)."""
        if len(self) * self.each > MOST_POINTS:
            raise TooManyPoints
        for number in set(range(len(self._parameters))) - self._assigned:
            self.assign(number)
        self._ranks.sort()
        small = max(self._counts, default=0) <= np.iinfo(np.int16).max
        rows = np.empty((len(self), len(self._parameters)), np.int16 if small else np.int32)
        for number in range(len(self._parameters)):
            rows[:, number] = self._positions(self._ranks, number)
        return rows

    def _positions(self, ranks: Ranks, number: int) -> Ranks:
        higher: Ranks = ranks // self._steps[number]  # divided by one number, as SIMD can
        count = self._counts[number]
        return higher - higher // count * count


@dataclass(frozen=True)
class Sieved:
    """What `sieve` left out."""

    rejected: dict[str, int]
    """Points by the reason of the first rule that refuses them; every reason, also with 0."""
    raised: bool
    """Whether a rule raised at a few points: they are kept, and what it raises is told where one is tried."""


def sieve(points: Points, rules: Sequence[Rule], limits: Limits, problem: Problem) -> Sieved:
    """Keeps of `points` those that all rules allow. BadTemplate where a rule is broken."""
    rejected, raised = dict.fromkeys((one.why(limits, problem) for one in rules), 0), False
    for one in rules:
        masks = _asked(points, one, limits, problem)
        mask = np.concatenate([mask for mask, _ in masks]) if masks else np.ones(0, bool)
        raised |= any(raising for _, raising in masks)
        refused = len(mask) - int(np.count_nonzero(mask))
        if refused:
            points.keep(mask)
        rejected[one.why(limits, problem)] += refused * points.each
    return Sieved(rejected, raised)


def _asked(points: Points, one: Rule, limits: Limits, problem: Problem) -> list[tuple[Mask, int]]:
    """What a rule says of the points, part by part; parameters that it looks at get their values first."""
    while True:
        ends = range(0, len(points), CHUNK_POINTS)
        try:
            return [_mask(points, b, min(b + CHUNK_POINTS, len(points)), one, limits, problem) for b in ends]
        except Unassigned as unknown:
            points.assign(unknown.number)


def _mask(
    points: Points, begin: int, end: int, one: Rule, limits: Limits, problem: Problem
) -> tuple[Mask, int]:
    """The mask of a rule over some of the points, True at the few at which it raises, which are found by
    halving, and how many they are. BadTemplate where it does so everywhere, at more than MOST_RAISING, or
    only for many at once."""
    try:
        return one.mask(points.columns(begin, end), limits, problem), 0
    except BadTemplate as error:
        mask, parts, raising, asked = np.ones(end - begin, bool), [(begin, end)], 0, 0
        while parts and raising <= MOST_RAISING and asked < MOST_HALVES:
            first, last = parts.pop()
            asked += 1
            with suppress(BadTemplate):
                mask[first - begin : last - begin] = one.mask(points.columns(first, last), limits, problem)
                continue
            if last - first == 1:
                raising += points.each
            else:
                middle = (first + last) // 2
                parts += [(middle, last), (first, middle)]
        if parts or raising in (0, points.each * (end - begin)) or raising > MOST_RAISING:
            raise error from None
        return mask, raising
