"""Spaces: the parameters of a template with their rules, and the points that the rules allow.

Rules are asked in order, and a point is counted under the *first* rule that rejects it. Later rules see only
the points that are left, and need not be meaningful for the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from evo.errors import BadTemplate, EvoError, UsageError
from evo.gpu import Gpu, Limits
from evo.space.parameters import AUTO, Columns, Filling, Indices, Parameter
from evo.space.rules import ResourceModels, Rule
from evo.space.sieve import GivenPoints, PartialPoints, Sieved, TooManyPoints, sieve
from evo.trial import Point, Problem

SAMPLED_POINTS = 1 << 18
"""So many points are drawn from a product of which rules leave too many."""


@dataclass(frozen=True)
class Space:
    """Parameters and the rules over them."""

    parameters: tuple[Parameter, ...]
    rules: tuple[Rule, ...] = ()
    models: ResourceModels | None = None
    """What the template says a point needs; the rules ask it, and strategies learn from it."""
    suited: Callable[[Problem, Limits], Point] | None = None
    """The point to begin with, where it depends on the problem."""

    def __post_init__(self) -> None:
        names = [p.name for p in self.parameters]
        if len(set(names)) != len(names):
            raise BadTemplate("a parameter is declared twice", ", ".join(names))

    def __getitem__(self, name: str) -> Parameter:
        for parameter in self.parameters:
            if parameter.name == name:
                return parameter
        known = ", ".join(p.name for p in self.parameters)
        raise UsageError(f"there is no parameter {name}", f"parameters: {known}")

    @property
    def size(self) -> int:
        """Points of the plain product, feasible or not."""
        return math.prod(len(p.values) for p in self.parameters)

    @property
    def default(self) -> Point:
        return {p.name: p.default for p in self.parameters}

    def default_for(self, problem: Problem, limits: Limits) -> Point:
        """The point to begin with: what suits the problem, where the template says that, else the default."""
        return self.default if self.suited is None else self.parse(self.suited(problem, limits))

    def parse(self, point: Mapping[str, object]) -> Point:
        """The point meant by `point`, complete and in the parameters' order. UsageError on a wrong one."""
        for name in point:
            self[name]
        missing = [p.name for p in self.parameters if p.name not in point]
        if missing:
            raise UsageError(f"point without {', '.join(missing)}", "a point has a value for every parameter")
        return {p.name: p.parse(point[p.name]) for p in self.parameters}

    def completed(self, point: Mapping[str, object]) -> Point:
        """A point of an older state of the template, which had fewer parameters: at the defaults of the newer
        ones. UsageError where it has one that is gone."""
        return self.parse({**self.default, **point})

    def neighbours(self, point: Point) -> Iterator[Point]:
        """The points that differ in one parameter by one neighbour, feasible or not."""
        for parameter in self.parameters:
            for value in parameter.neighbours(point[parameter.name]):
                yield {**point, parameter.name: value}

    def why_not(self, point: Point, limits: Limits, problem: Problem) -> str | None:
        """The reason of the first rule that rejects `point`, or None where it is feasible."""
        columns = self.columns(self.indices_of(point)[None, :], problem, limits.gpu)
        for one in self.rules:
            if not one.mask(columns, limits, problem)[0]:
                return one.why(limits, problem)
        return None

    def feasible(self, limits: Limits, problem: Problem) -> FeasibleSet:
        """The points that the rules allow: all of them, or a sample where they are too many. It takes a
        tenth of a second where a million are asked about; see `unasked`."""
        with suppress(TooManyPoints):
            points = PartialPoints(self.parameters, problem, limits.gpu)
            said = sieve(points, self.rules, limits, problem)
            rows = points.rows()
            return FeasibleSet(self, limits, problem, rows, said.rejected, True, self.size, said.raised)
        rng = np.random.default_rng(0)  # always the same sample: a resumed study sees the same set
        rows, said = self.sieve(self.draw(rng, SAMPLED_POINTS), limits, problem)
        rejected = {why: round(n / SAMPLED_POINTS * self.size) for why, n in said.rejected.items()}
        return FeasibleSet(self, limits, problem, rows, rejected, False, SAMPLED_POINTS, said.raised)

    def unasked(self, limits: Limits, problem: Problem) -> FeasibleSet:
        """The same without any points at hand: it says of a point whether the rules allow it."""
        return FeasibleSet(self, limits, problem, np.empty((0, len(self.parameters)), np.int16), {}, False, 1)

    def draw(self, rng: np.random.Generator, count: int) -> Indices:
        """`count` points of the plain product, as indices (count, parameters)."""
        columns = [rng.integers(len(p.values), size=count, dtype=np.intp) for p in self.parameters]
        return np.stack(columns, axis=1) if columns else np.zeros((count, 0), np.intp)

    def indices_of(self, point: Point) -> Indices:
        """The position of each value in its parameter's values: (parameters,)."""
        return np.array([p.position(point[p.name]) for p in self.parameters], np.intp)

    def knows(self, point: Point) -> bool:
        """Whether a point has the parameters that there are, no more and no fewer."""
        return point.keys() == self._names

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(p.name for p in self.parameters)

    def located(self, point: Point) -> Indices | None:
        """As `indices_of`; None where the space does not know the point (the template has changed)."""
        if not self.knows(point):
            return None
        try:
            return self.indices_of(point)
        except EvoError:
            return None

    def point_at(self, row: Indices) -> Point:
        """The point of one row of indices."""
        return {p.name: p.values[int(i)] for p, i in zip(self.parameters, row, strict=True)}

    def sieve(self, rows: Indices, limits: Limits, problem: Problem) -> tuple[Indices, Sieved]:
        """The rows that all rules allow, and what was left out."""
        points = GivenPoints(self.parameters, rows, problem, limits.gpu)
        said = sieve(points, self.rules, limits, problem)
        return points.rows, said

    def columns(self, rows: Indices, problem: Problem, gpu: Gpu) -> Columns:
        """The points of `rows` of indices as columns: what rules and models get."""
        return Columns.of(self.parameters, rows, problem, gpu)

    def filling(self, point: Point, problem: Problem, gpu: Gpu) -> Filling:
        """The values of a point as a template gets them: each `auto` is what it stands for, none is above
        `most`, and parameters that the point does not have yet are at their defaults. A kernel keeps what it
        was filled with when it is launched for another problem. UsageError where one of its own is gone."""
        if isinstance(point, Filling):
            return point
        values = Filling(point if self.knows(point) else self.completed(point))
        for name, auto in self._autos.items():
            if values[name] == AUTO:  # item: one that is written with np.where gives an array
                values[name] = np.asarray(auto(values, problem, gpu)).item()
        for name, most in self._mosts.items():
            values[name] = min(values[name], np.asarray(most(values, problem, gpu)).item())
        return values

    def with_auto(self, point: Point, problem: Problem, gpu: Gpu) -> Point:
        """The same kernel by the name that the rules allow: `auto` where that gives the same value."""
        if not self.knows(point):
            return point
        values = Filling(point)
        same = (name for name, auto in self._autos.items() if values[name] == auto(values, problem, gpu))
        return {**point, **dict.fromkeys(same, AUTO)}

    @cached_property
    def _autos(self) -> Mapping[str, Callable[[Any, Problem, Gpu], Any]]:
        return {p.name: p.auto for p in self.parameters if p.auto is not None}

    @cached_property
    def _mosts(self) -> Mapping[str, Callable[[Any, Problem, Gpu], Any]]:
        return {p.name: p.most for p in self.parameters if p.most is not None}


@dataclass(frozen=True)
class FeasibleSet:
    """The feasible points of a space for given limits and problem.

    `indices` has a row a point (n, parameters). `exact`: the rules saw all points; otherwise `count` and
    `rejected` are estimates from a sample of the product, and `indices` holds the sample's feasible points.
    """

    space: Space
    limits: Limits
    problem: Problem
    indices: Indices
    rejected: Mapping[str, int]
    exact: bool
    asked: int
    """How many points the rules saw."""
    raised: bool = False
    """Whether a rule raised at a few of them."""

    @property
    def size(self) -> int:
        """Points of the plain product."""
        return self.space.size

    @property
    def count(self) -> int:
        """Feasible points: exact, or an estimate (see `exact`)."""
        return len(self.indices) if self.exact else round(len(self.indices) / self.asked * self.size)

    @property
    def without_points(self) -> FeasibleSet:
        return self.space.unasked(self.limits, self.problem)

    @property
    def points(self) -> Sequence[Point]:
        """The feasible points at hand by number; each is made when it is read."""
        return _Points(self.space, self.indices)

    def sample(self, rng: np.random.Generator) -> Point:
        """A feasible point, all equally likely. UsageError where there is none (or none was ever seen)."""
        if self.exact:
            self.require_some()
            return self.space.point_at(self.indices[int(rng.integers(len(self.indices)))])
        for _ in range(64):  # fresh draws, so that a search is not confined to the sample
            rows, _ = self.space.sieve(self.space.draw(rng, 256), self.limits, self.problem)
            if len(rows):
                return self.space.point_at(rows[0])
        self.require_some()  # feasible points are rarer than 1 in 16,384: fall back on those that were seen
        return self.space.point_at(self.indices[int(rng.integers(len(self.indices)))])

    def covering(self, rng: np.random.Generator, least: int) -> list[Point]:
        """A small sample, at least `least` points where there are so many, in which every two values of two
        parameters that occur together in some feasible point occur together (pairwise coverage).

        Greedy over a random pool of at most 20,000 feasible points, so that it stays fast."""
        self.require_some()
        rows = self.indices[rng.permutation(len(self.indices))[:20_000]].astype(np.int64)
        ids, base = [], 0
        for i, a in enumerate(self.space.parameters):  # one number for each pair of values
            for j, b in enumerate(self.space.parameters[:i]):
                ids.append(base + rows[:, i] * len(b.values) + rows[:, j])
                base += len(a.values) * len(b.values)
        pairs = np.stack(ids, axis=1) if ids else np.zeros((len(rows), 1), np.int64)
        missing = np.zeros(max(base, 1), bool)
        missing[pairs] = True
        chosen: list[int] = []
        while missing.any() and len(chosen) < len(rows):
            chosen.append(int(missing[pairs].sum(axis=1).argmax()))
            missing[pairs[chosen[-1]]] = False
        taken = set(chosen)
        chosen += [i for i in range(len(rows)) if i not in taken][: max(0, least - len(chosen))]
        return [self.space.point_at(rows[i]) for i in chosen]

    def contains(self, point: Point) -> bool:
        """Whether the rules allow `point`; they are asked again, so that it may lie outside the sample. Where
        one raises: yes, so that the point is tried, and what is raised is told. No point of another state of
        the template is allowed."""
        if not self.space.knows(point):
            return False
        try:
            return self.space.why_not(point, self.limits, self.problem) is None
        except BadTemplate:
            return True

    def named(self, point: Point) -> Point:
        """See `Space.with_auto`."""
        return self.space.with_auto(point, self.problem, self.limits.gpu)

    def ask_rules(self, point: Point) -> None:
        """Raises what a rule raises at `point`. It need not be asked where none did at any point."""
        if self.raised or not self.exact:
            self.space.why_not(point, self.limits, self.problem)

    def require_some(self) -> None:
        """UsageError, with the counts by reason, where no point is feasible."""
        if not len(self.indices):
            refused = sorted(self.rejected.items(), key=lambda item: -item[1])
            reasons = "; ".join(f"{count} × {why}" for why, count in refused if count)
            raise UsageError(f"no point is feasible: the rules reject all {self.size}", reasons)


@dataclass(frozen=True)
class _Points(Sequence[Point]):
    space: Space
    indices: Indices

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self.space.point_at(row) for row in self.indices[i]]
        return self.space.point_at(self.indices[i])
