"""The points of one template during a search: which are open, and what the tried ones scored."""

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

from evo.space import FeasibleSet
from evo.strategy.optuna_view import frozen_trial
from evo.trial import Point

Positions = npt.NDArray[np.intp]
"""A point as positions in its parameters' values: (parameters,)."""
RowsFound = tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]
"""Of points (n, parameters) the rows (n,), and whether they are rows at all (n,)."""


class Candidates:
    """The feasible points of one template, each a row, with what is known of them.

    A point is open where it is feasible, was never tried and is not under way. The feasible set may be only a
    sample of all feasible points: then a point can be feasible, or tried, without being a row.
    """

    SCANNED = 1 << 16
    """RowsFound that `nearest_open` and `sample_around` look at: all of most spaces, a random part of a huge
    one."""
    ELITES = 16
    """So many of the best trials are kept in order."""
    MICRO_STEPS = 4
    """Steps that a mutation may take in micro parameters, where the macro parameters stay."""

    def __init__(self, template: str, feasible: FeasibleSet) -> None:
        self.template = template
        self.space = feasible.space
        self.tried: list[Positions] = []
        """The finished trials in the order of the history."""
        self.scores: list[float] = []
        """Their scores; infinite where a trial failed."""
        self.registers: list[int] = []
        """Registers a thread of their kernels; 0 where that is not known."""
        self.pending: list[Positions] = []
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
        self._trial_of_row = np.full(len(ranks), np.iinfo(np.int64).max)
        """Of each row the number of its trial in the history; the largest integer where it was not tried."""
        self._trials: list[FrozenTrial] = []
        self._best: list[tuple[float, int]] = []
        self._closed_ranks: set[int] = set()
        """Ranks of the points that are not open and are no rows."""
        self._pending_ranks: list[tuple[int, int | None]] = []
        """Ranks of the points under way, and their rows where they have one."""

    # ---- trials

    def observe(self, point: Point, score_us: float | None, registers: int | None = None) -> Positions | None:
        """Takes in a finished trial, and returns its positions. A point that the space does not know is
        ignored (None): the template has changed."""
        positions = self.locate(point)
        if positions is not None:
            rank = self._rank(positions)
            row = self._row(rank)
            self._close(rank, row)
            if row is not None:
                self._trial_of_row[row] = min(self._trial_of_row[row], len(self.tried))
            self.tried.append(positions)
            self.scores.append(math.inf if score_us is None else score_us)
            self.registers.append(registers or 0)
            if score_us is not None:
                insort(self._best, (score_us, len(self.scores) - 1))
                del self._best[self.ELITES :]
        return positions

    def close(self, point: Point) -> None:
        """Closes a point of which nothing is known. One that the space does not know is ignored."""
        positions = self.locate(point)
        if positions is not None:
            rank = self._rank(positions)
            self._close(rank, self._row(rank))

    @property
    def trials(self) -> list[FrozenTrial]:
        """The finished trials as Optuna sees them; made when they are first asked for."""
        for number in range(len(self._trials), len(self.tried)):
            score = self.scores[number]
            self._trials.append(
                self.frozen_trial(self.tried[number], None if score == math.inf else score, number)
            )
        return self._trials

    def frozen_trial(self, positions: Positions, score_us: float | None, number: int = -1) -> FrozenTrial:
        """The trial of a point as Optuna sees it; `score_us` None: it failed, or is not wanted."""
        params = {
            p.name: int(i) for p, i in zip(self.space.parameters, positions, strict=True) if len(p.values) > 1
        }
        return frozen_trial(number, params, self.distributions, score_us)

    def positions_of(self, params: Mapping[str, Any]) -> Positions:
        """The point that Optuna means by `params`."""
        return np.array([params.get(p.name, 0) for p in self.space.parameters], np.intp)

    def best(self, count: int) -> list[tuple[float, Positions]]:
        """The best correct trials with their scores, best first: `count`, at most `ELITES`."""
        return [(score, self.tried[i]) for score, i in self._best[:count]]

    def mark_pending(self, points: Sequence[Positions]) -> None:
        """Closes the points under way, until `clear_pending`."""
        if not points:
            return
        together = np.stack(points)
        at, known = self.rows_of(together)
        ranks = together.astype(np.int64) @ self._strides
        rows = [row if is_row else None for row, is_row in zip(at.tolist(), known.tolist(), strict=True)]
        for point, rank, row in zip(points, ranks.tolist(), rows, strict=True):
            if self._close(rank, row):
                self._pending_ranks.append((rank, row))
                self.pending.append(point)

    def clear_pending(self) -> None:
        """Opens the points again that `mark_pending` closed."""
        for rank, row in self._pending_ranks:
            if row is None:
                self._closed_ranks.discard(rank)
            else:
                self._open[row] = True
                self.open_count += 1
        self._pending_ranks.clear()
        self.pending.clear()

    # ---- open points

    def is_open(self, positions: Positions) -> bool:
        """Whether this point is feasible, untried and not under way."""
        rank = self._rank(positions)
        row = self._row(rank)
        if row is not None:
            return bool(self._open[row])
        return rank not in self._closed_ranks and self.allows(positions)

    def are_open(self, points: Positions, rows: RowsFound) -> npt.NDArray[np.bool_]:
        """Which of feasible `points` (n, parameters) are open. `rows`: what `rows_of` gave for them."""
        at, known = rows
        if known.all():
            return self._open[at]
        answer = self._open[at]
        answer[~known] = [self._rank(point) not in self._closed_ranks for point in points[~known]]
        return answer

    def were_tried(self, points: Positions, trials: int) -> npt.NDArray[np.bool_]:
        """Which of `points` (n, parameters) were among the first `trials` of the history; False where a point
        is no row."""
        at, known = self.rows_of(points)
        return known & (self._trial_of_row[at] < trials)

    def any_open(self, rng: np.random.Generator) -> Positions:
        """An open point, all equally likely."""
        for _ in range(32):
            row = int(rng.integers(len(self._rows)))
            if self._open[row]:
                return self._positions_at(row)
        left = np.flatnonzero(self._open)
        return self._positions_at(int(rng.choice(left)))

    def some_open(self, count: int, rng: np.random.Generator) -> Positions:
        """`count` open rows at random, or all where there are no more, in any order: (n, parameters)."""
        rows = np.flatnonzero(self._open)
        some = rng.choice(rows, min(count, len(rows)), replace=False)
        positions: Positions = self._rows[some].astype(np.intp)
        return positions

    def nearest_open(self, positions: Positions, rng: np.random.Generator) -> Positions:
        """The open point that differs from `positions` in the fewest parameters; ties at random."""
        rows = np.flatnonzero(self._open)
        if len(rows) > self.SCANNED:
            rows = rng.choice(rows, self.SCANNED, replace=False)
        distance = (self._rows[rows] != positions).sum(axis=1)
        near = rows[distance == distance.min()]
        return self._positions_at(int(rng.choice(near)))

    # ---- mutations

    def sample_around(self, elites: Sequence[Positions], count: int, rng: np.random.Generator) -> Positions:
        """About `count` feasible points (n, parameters), tried or not; all points where there are no more.
        Half are mutations of `elites`: they differ in up to two parameters, or in up to `MICRO_STEPS` micro
        parameters alone. The other half are any points.

        The answer does not depend on which points are open: it is the same whenever it is asked for."""
        if len(self._rows) <= count:
            return self._rows.astype(np.intp)
        scanned, columns = self._scan(rng)
        macro = [p.layer == "macro" for p in self.space.parameters]
        near = np.zeros(len(scanned), bool)
        for elite in elites:
            macro_steps, micro_steps = np.zeros((2, len(scanned)), np.uint8)
            for column, at, is_macro in zip(columns, elite.tolist(), macro, strict=True):
                steps = macro_steps if is_macro else micro_steps
                steps += column != at
            near |= (macro_steps + micro_steps <= 2) | (
                (macro_steps == 0) & (micro_steps <= self.MICRO_STEPS)
            )
        mutations, others = np.flatnonzero(near), np.flatnonzero(~near)
        some = [s if len(s) <= count // 2 else rng.choice(s, count // 2, False) for s in (mutations, others)]
        chosen = [self._rows[scanned[np.concatenate(some)]].astype(np.intp)]
        chosen += [self._feasible_among(self._neighbours(elite)) for elite in elites]
        points = np.concatenate(chosen)
        return points[np.unique(points.astype(np.int64) @ self._strides, return_index=True)[1]]

    def _neighbours(self, positions: Positions) -> Positions:
        """The points one step away (n, parameters), feasible or not."""
        moves = [(i, to) for i, moves_of in enumerate(self._moves) for to in moves_of[int(positions[i])]]
        neighbours = np.repeat(positions[None, :], len(moves), axis=0)
        for neighbour, (i, to) in zip(neighbours, moves, strict=True):
            neighbour[i] = to
        return neighbours

    @cached_property
    def _moves(self) -> list[list[list[int]]]:
        """Of each parameter and each of its positions those one step away."""
        return [
            [[p.position(to) for to in p.neighbours(at)] for at in p.values] for p in self.space.parameters
        ]

    def _scan(self, rng: np.random.Generator) -> tuple[Positions, npt.NDArray[np.signedinteger]]:
        """Numbers of rows (n,), and these rows by parameter (parameters, n): all, or `SCANNED` at random."""
        order, columns = self._shuffled
        if len(order) == len(self._rows):
            return order, columns
        start = int(rng.integers(len(self._rows)))
        return order[start : start + self.SCANNED], columns[:, start : start + self.SCANNED]

    @cached_property
    def _shuffled(self) -> tuple[Positions, npt.NDArray[np.signedinteger]]:
        """Numbers of rows, and these rows by parameter. Few rows stay in order. Many rows are shuffled, and
        the first `SCANNED` are repeated at the end, so that any `SCANNED` in a row are a random sample. They
        lie by parameter because comparing whole columns is ten times as fast."""
        order = np.arange(len(self._rows))
        if len(order) > self.SCANNED:
            order = np.random.default_rng(0).permutation(order)
            order = np.append(order, order[: self.SCANNED])
        largest = max(len(p.values) for p in self.space.parameters)
        return order, np.ascontiguousarray(self._rows[order].T, np.int8 if largest < 128 else np.int32)

    def _feasible_among(self, points: Positions) -> Positions:
        """Those of `points` (n, parameters) that are feasible."""
        _, known = self.rows_of(points)
        if not self.feasible.exact:
            known[~known] = [self.allows(point) for point in points[~known]]
        return points[known]

    # ---- points, ranks and rows

    def locate(self, point: Point) -> Positions | None:
        """The positions of `point`; None where the space does not know it (the template has changed)."""
        return self.space.located(point)

    def rows_of(self, points: Positions) -> RowsFound:
        """The rows of `points` (n, parameters), and whether they are rows at all."""
        ranks = points.astype(np.int64) @ self._strides
        at = np.minimum(np.searchsorted(self._ranks, ranks), len(self._ranks) - 1)
        return at, self._ranks[at] == ranks

    def allows(self, positions: Positions) -> bool:
        if self._row(self._rank(positions)) is not None:
            return True
        return not self.feasible.exact and self.feasible.contains(self.space.point_at(positions))

    def _positions_at(self, row: int) -> Positions:
        positions: Positions = self._rows[row].astype(np.intp)
        return positions

    def _rank(self, positions: Positions) -> int:
        return int(positions.astype(np.int64) @ self._strides)

    def _row(self, rank: int) -> int | None:
        at = int(np.searchsorted(self._ranks, rank))
        return at if at < len(self._ranks) and self._ranks[at] == rank else None

    def _close(self, rank: int, row: int | None) -> bool:
        """Marks a point as not open. Returns whether it was open."""
        if row is None:
            was_open = rank not in self._closed_ranks
            self._closed_ranks.add(rank)
            return was_open
        was_open = bool(self._open[row])
        self._open[row] = False
        self.open_count -= was_open
        return was_open


def _strides(radices: list[int]) -> npt.NDArray[np.int64]:
    """Factors that turn a point into one number, its rank: mixed radix, or a hash where that overflows."""
    if math.prod(radices) < 2**62:
        return np.array([math.prod(radices[i + 1 :]) for i in range(len(radices))], np.int64)
    return np.random.default_rng(0).integers(2**62, size=len(radices), dtype=np.int64) | 1
