"""One template's points during a search: which are open, and what the tried ones gave."""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from optuna.distributions import CategoricalDistribution
from optuna.trial import FrozenTrial

from evo.errors import EvoError
from evo.space import FeasibleSet
from evo.strategy.optuna_view import frozen
from evo.trial import Point

Positions = npt.NDArray[np.intp]
"""A point as positions in its parameters' values: (parameters,)."""
Found = tuple[Positions, npt.NDArray[np.bool_]]
"""Of points (n, parameters) the rows (n,), and whether they are rows at all (n,)."""


class Field:
    """One template's points: which are open, and what the tried ones gave, as Optuna sees it."""

    SCANNED = 1 << 16
    """Open points that `nearest` and `around` look at: all of most spaces, a random part of a huge one."""
    ELITES = 16
    """The best trials that are known by rank."""
    DRIFT = 4
    """Steps that a mutation takes in micro parameters, where structure stays."""

    def __init__(self, template: str, feasible: FeasibleSet) -> None:
        self.template = template
        self.space = feasible.space
        self.tried: list[Positions] = []
        """The finished trials in the order they were told."""
        self.scores: list[float] = []
        """Of these; infinite where one failed."""
        self.occupied: list[Positions] = []
        """Points under way."""
        self.distributions: dict[str, CategoricalDistribution] = {
            # categories: ordinal positions and orders serve TPE worse here (0.46 against 0.70)
            p.name: CategoricalDistribution(tuple(range(len(p.values))))
            for p in self.space.parameters
            if len(p.values) > 1
        }
        self.feasible = feasible
        self._strides = _strides([len(p.values) for p in self.space.parameters])
        ranks, first = np.unique(feasible.indices.astype(np.int64) @ self._strides, return_index=True)
        self._ranks = ranks
        self._rows = feasible.indices[first]
        self._open = np.ones(len(ranks), bool)
        self.open_count = len(ranks)
        self._told = np.full(len(ranks), np.iinfo(np.int64).max)
        """Of each row the number of its trial, as they were told; the largest of numbers: there is none."""
        self._trials: list[FrozenTrial] = []
        self._best: list[tuple[float, int]] = []
        self._elsewhere: set[int] = set()
        """Ranks of tried points that are not among the rows (of a set that is only sampled)."""
        self._taken: list[tuple[int, int | None]] = []
        """Ranks of the points under way, and their rows where they have one."""

    def learn(self, point: Point, score_us: float | None, feasible_only: bool = False) -> None:
        """A finished trial; one that the space does not know (the template has changed) is passed over."""
        positions = self.locate(point)
        if positions is not None and (not feasible_only or self._allows(positions)):
            rank = self._rank(positions)
            row = self._row(rank)
            self._close(rank, row)
            if row is not None:
                self._told[row] = min(self._told[row], len(self.tried))
            self.tried.append(positions)
            self.scores.append(math.inf if score_us is None else score_us)
            if score_us is not None:
                insort(self._best, (score_us, len(self.scores) - 1))
                del self._best[self.ELITES :]

    @property
    def trials(self) -> list[FrozenTrial]:
        """The finished trials as Optuna sees them; made when they are first asked for."""
        for number in range(len(self._trials), len(self.tried)):
            score = self.scores[number]
            self._trials.append(self.frozen(self.tried[number], None if score == math.inf else score, number))
        return self._trials

    def occupy(self, points: Sequence[Positions]) -> None:
        """Closes points for the question at hand, until `vacate`."""
        if not points:
            return
        together = np.stack(points)
        at, known = self.find(together)
        ranks = together.astype(np.int64) @ self._strides
        rows = [row if is_row else None for row, is_row in zip(at.tolist(), known.tolist(), strict=True)]
        for point, rank, row in zip(points, ranks.tolist(), rows, strict=True):
            if self._close(rank, row):
                self._taken.append((rank, row))
                self.occupied.append(point)

    def vacate(self) -> None:
        for rank, row in self._taken:
            if row is None:
                self._elsewhere.discard(rank)
            else:
                self._open[row] = True
                self.open_count += 1
        self._taken.clear()
        self.occupied.clear()

    def is_open(self, positions: Positions) -> bool:
        """Whether this point is feasible and was never tried."""
        rank = self._rank(positions)
        row = self._row(rank)
        if row is not None:
            return bool(self._open[row])
        return rank not in self._elsewhere and self._allows(positions)

    def _allows(self, positions: Positions) -> bool:
        if self._row(self._rank(positions)) is not None:
            return True
        return not self.feasible.exact and self.feasible.contains(self.space.point_at(positions))

    def anything(self, rng: np.random.Generator) -> Positions:
        """An open point, all alike."""
        for _ in range(32):
            row = int(rng.integers(len(self._rows)))
            if self._open[row]:
                return self._at(row)
        left = np.flatnonzero(self._open)
        return self._at(int(rng.choice(left)))

    def nearest(self, positions: Positions, rng: np.random.Generator) -> Positions:
        """The open point that differs from `positions` in the fewest parameters; ties at random."""
        rows = np.flatnonzero(self._open)
        if len(rows) > self.SCANNED:
            rows = rng.choice(rows, self.SCANNED, replace=False)
        distance = (self._rows[rows] != positions).sum(axis=1)
        near = rows[distance == distance.min()]
        return self._at(int(rng.choice(near)))

    def _steps(self, positions: Positions) -> Positions:
        """The points one step away (n, parameters), feasible or not."""
        moves = [(i, to) for i, ladder in enumerate(self._moves) for to in ladder[int(positions[i])]]
        steps = np.repeat(positions[None, :], len(moves), axis=0)
        for step, (i, to) in zip(steps, moves, strict=True):
            step[i] = to
        return steps

    @cached_property
    def _moves(self) -> list[list[list[int]]]:
        """Of each parameter and each of its positions those one step away."""
        return [
            [[p.position(to) for to in p.neighbours(at)] for at in p.values] for p in self.space.parameters
        ]

    def _some(self, rng: np.random.Generator) -> tuple[Positions, npt.NDArray[np.signedinteger]]:
        """Numbers of rows (n,), and these rows by parameter (parameters, n): all, or `SCANNED` at random."""
        order, columns = self._shuffled
        if len(order) == len(self._rows):
            return order, columns
        start = int(rng.integers(len(self._rows)))
        return order[start : start + self.SCANNED], columns[:, start : start + self.SCANNED]

    @cached_property
    def _shuffled(self) -> tuple[Positions, npt.NDArray[np.signedinteger]]:
        """Numbers of rows, and the rows by parameter: of few rows as they are, of many in an order without
        meaning, its beginning again at its end, so that any `SCANNED` in a row are a sample. By parameter,
        since comparing whole columns is ten times as fast."""
        order = np.arange(len(self._rows))
        if len(order) > self.SCANNED:
            order = np.random.default_rng(0).permutation(order)
            order = np.append(order, order[: self.SCANNED])
        largest = max(len(p.values) for p in self.space.parameters)
        return order, np.ascontiguousarray(self._rows[order].T, np.int8 if largest < 128 else np.int32)

    def best(self, count: int) -> list[tuple[float, Positions]]:
        """The best correct trials with their scores, the best first: `count`, at most `ELITES`."""
        return [(score, self.tried[i]) for score, i in self._best[:count]]

    def around(self, elites: Sequence[Positions], count: int, rng: np.random.Generator) -> Positions:
        """About `count` feasible points (n, parameters), tried or not; all where there are no more. Half are
        mutations of `elites`: up to two steps, and of micro parameters alone up to `DRIFT`. Others are any.

        What is open plays no part: the answer is the same whenever it is asked for."""
        if len(self._rows) <= count:
            return self._rows.astype(np.intp)
        seen, columns = self._some(rng)
        macro = [p.layer == "macro" for p in self.space.parameters]
        near = np.zeros(len(seen), bool)
        for elite in elites:
            structural, small = np.zeros((2, len(seen)), np.uint8)
            for column, at, coarse in zip(columns, elite.tolist(), macro, strict=True):
                steps = structural if coarse else small
                steps += column != at
            near |= (structural + small <= 2) | ((structural == 0) & (small <= self.DRIFT))
        mutations, others = np.flatnonzero(near), np.flatnonzero(~near)
        some = [s if len(s) <= count // 2 else rng.choice(s, count // 2, False) for s in (mutations, others)]
        chosen = [self._rows[seen[np.concatenate(some)]].astype(np.intp)]
        chosen += [self._allowed(self._steps(elite)) for elite in elites]
        points = np.concatenate(chosen)
        return points[np.unique(points.astype(np.int64) @ self._strides, return_index=True)[1]]

    def _allowed(self, points: Positions) -> Positions:
        """Those of `points` (n, parameters) that are feasible."""
        _, known = self.find(points)
        if not self.feasible.exact:
            known[~known] = [self._allows(point) for point in points[~known]]
        return points[known]

    def were_tried(self, points: Positions, trials: int) -> npt.NDArray[np.bool_]:
        """Which of `points` (n, parameters) were among the first `trials` that were told, as far as they are
        rows."""
        at, known = self.find(points)
        return known & (self._told[at] < trials)

    def open_among(self, points: Positions, found: Found) -> npt.NDArray[np.bool_]:
        """Which of feasible `points` (n, parameters), as `find` found them, were never tried and are not
        under way."""
        at, known = found
        if known.all():
            return self._open[at]
        answer = self._open[at]
        answer[~known] = [self._rank(point) not in self._elsewhere for point in points[~known]]
        return answer

    def positions_of(self, params: Mapping[str, Any]) -> Positions:
        return np.array([params.get(p.name, 0) for p in self.space.parameters], np.intp)

    def frozen(self, positions: Positions, score_us: float | None, number: int = -1) -> FrozenTrial:
        params = {
            p.name: int(i) for p, i in zip(self.space.parameters, positions, strict=True) if len(p.values) > 1
        }
        return frozen(number, params, self.distributions, score_us)

    def _at(self, row: int) -> Positions:
        positions: Positions = self._rows[row].astype(np.intp)
        return positions

    def locate(self, point: Point) -> Positions | None:
        """Where `point` is; None where the space does not know it (the template has changed)."""
        if point.keys() != {p.name for p in self.space.parameters}:
            return None
        try:
            return self.space.indices_of(point)
        except EvoError:
            return None

    def _rank(self, positions: Positions) -> int:
        return int(positions.astype(np.int64) @ self._strides)

    def find(self, points: Positions) -> Found:
        """Rows of `points` (n, parameters), and whether they are rows at all."""
        ranks = points.astype(np.int64) @ self._strides
        at = np.minimum(np.searchsorted(self._ranks, ranks), len(self._ranks) - 1)
        return at, self._ranks[at] == ranks

    def _row(self, rank: int) -> int | None:
        at = int(np.searchsorted(self._ranks, rank))
        return at if at < len(self._ranks) and self._ranks[at] == rank else None

    def _close(self, rank: int, row: int | None) -> bool:
        """Marks a point as not open; whether it was."""
        if row is None:
            fresh = rank not in self._elsewhere
            self._elsewhere.add(rank)
            return fresh
        fresh = bool(self._open[row])
        self._open[row] = False
        self.open_count -= fresh
        return fresh


def _strides(radices: list[int]) -> npt.NDArray[np.int64]:
    """Factors that make one number of a point: mixed radix, or where that overflows, a hash."""
    if math.prod(radices) < 2**62:
        return np.array([math.prod(radices[i + 1 :]) for i in range(len(radices))], np.int64)
    return np.random.default_rng(0).integers(2**62, size=len(radices), dtype=np.int64) | 1
