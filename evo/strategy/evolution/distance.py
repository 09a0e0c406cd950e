"""Weighted distances between many points at once: a product of matrices wherever that is possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]
"""Double precision, except points that were embedded in single precision."""
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Embedded:
    """Points in coordinates whose squared distances count, and in `plain` ones (p, n), whose distances do.
    `squared` (s + 2, n) are the first, then 1 and the sum of their squares."""

    squared: Floats
    plain: Floats

    def __getitem__(self, some: slice) -> Embedded:
        return Embedded(self.squared[:, some], self.plain[:, some])

    def with_points(self, other: Embedded) -> Embedded:
        return Embedded(
            np.concatenate([self.squared, other.squared], axis=1),
            np.concatenate([self.plain, other.plain], axis=1),
        )

    def distances_to(self, other: Embedded) -> Floats:
        """How far each point is from each of `other`: (n, m)."""
        # |a - b|^2 = -2 a b + |a|^2 1 + 1 |b|^2
        mine = np.concatenate([-2 * self.squared[:-2], self.squared[:-3:-1]])
        apart: Floats = mine.T @ other.squared
        np.maximum(apart, 0.0, out=apart)
        for here, there in zip(self.plain, other.plain, strict=True):
            apart += np.abs(here[:, None] - there)
        return apart


class Metric:
    """A weighted sum over features: of a label whether it differs, of a number the distance, or its square
    where `squares`. `levels`: of each feature the values that it has, ascending; None: any.

    A label becomes one indicator per level, a number one indicator per level that it is above: the squared
    distances between such indicators are the wanted ones.
    """

    def __init__(self, labels: Bools, levels: Sequence[Floats | None], squares: bool) -> None:
        each: list[list[tuple[int, float, float]]] = [[], [], [], []]
        equal, above, square, plain = each
        for i, (label, values) in enumerate(zip(labels.tolist(), levels, strict=True)):
            if label:
                assert values is not None, "a label has levels"
                equal += [(i, value, 0.5) for value in values]
            elif squares:
                square.append((i, 0.0, 1.0))
            elif values is not None:
                above += [(i, value, step) for value, step in zip(values, np.diff(values), strict=False)]
            else:
                plain.append((i, 0.0, 1.0))
        self._equal, self._above, self._square, self._plain = map(_Coordinates, each)

    def weigh(self, weights: Floats) -> None:
        """Gives the features their weights (features,)."""
        roots = np.sqrt(weights)
        for coordinates in (self._equal, self._above, self._square):
            coordinates.factors = (coordinates.shares * roots[coordinates.features])[:, None]
        self._plain.factors = weights[self._plain.features, None]

    def embed(self, x: Floats, precision: type[np.floating] = np.float64) -> Embedded:
        """Points given as features (n, features); quickest where these lie column by column."""
        columns, equal, above, square, plain = x.T, self._equal, self._above, self._square, self._plain
        parts = [
            (columns[equal.features] == equal.levels) * equal.factors.astype(precision, copy=False),
            (columns[above.features] > above.levels) * above.factors.astype(precision, copy=False),
            columns[square.features] * square.factors,
        ]
        norms = sum(np.einsum("ij,ij->j", part, part) for part in parts)
        squared = np.concatenate(
            [*parts, np.ones((1, len(x))), norms[None]], dtype=precision, casting="same_kind"
        )
        return Embedded(squared, (columns[plain.features] * plain.factors).astype(precision))


class _Coordinates:
    """Coordinates of one kind: what feature each is of (n,), its level and what a distance of 1 becomes in it
    (n, 1), and the root of its share of the feature's weight (n,)."""

    def __init__(self, each: Sequence[tuple[int, float, float]]) -> None:
        """`each`: feature, level, and share of the feature's weight."""
        self.features = np.array([feature for feature, _, _ in each], np.intp)
        self.levels = np.array([level for _, level, _ in each])[:, None]
        self.shares = np.sqrt([share for _, _, share in each])
        self.factors: Floats = self.shares[:, None]
