"""Weighted distances between many points at once: a product of matrices wherever that is possible."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Spread:
    """Points in coordinates `squared` (n, s), whose squared distances count, and `plain` (n, p), whose
    distances do."""

    squared: Floats
    plain: Floats
    norms: Floats

    def rows(self, some: slice) -> Spread:
        return Spread(self.squared[some], self.plain[some], self.norms[some])

    def with_rows(self, other: Spread) -> Spread:
        return Spread(
            np.concatenate([self.squared, other.squared]),
            np.concatenate([self.plain, other.plain]),
            np.concatenate([self.norms, other.norms]),
        )

    def apart_from(self, other: Spread) -> Floats:
        """How far each point is from each of `other`: (n, m)."""
        apart = self.squared @ other.squared.T
        apart *= -2
        apart += self.norms[:, None]
        apart += other.norms
        np.maximum(apart, 0.0, out=apart)
        for mine, theirs in zip(self.plain.T, other.plain.T, strict=True):
            apart += np.abs(mine[:, None] - theirs)
        return apart


class Metric:
    """A weighted sum over features: of a label whether it differs, of a number the distance, or its square
    where `squares`. `levels`: of each feature the values that it has, ascending; None: any.

    A label is spread over indicators, a number over the levels that it is above: squared distances there are
    what is wanted.
    """

    def __init__(
        self, weights: Floats, labels: Bools, levels: Sequence[Floats | None], squares: bool
    ) -> None:
        equal, above, square, plain = _Coordinates(), _Coordinates(), _Coordinates(), _Coordinates()
        features = zip(weights.tolist(), labels.tolist(), levels, strict=True)
        for i, (weight, label, values) in enumerate(features):
            if label:
                assert values is not None, "a label has levels"
                equal.extend(i, values, np.full(len(values), math.sqrt(weight / 2)))
            elif squares:
                square.extend(i, np.zeros(1), np.array([math.sqrt(weight)]))
            elif values is not None:
                above.extend(i, values[:-1], np.sqrt(weight * np.diff(values)))
            else:
                plain.extend(i, np.zeros(1), np.array([weight]))
        self._equal, self._above, self._square, self._plain = equal, above, square, plain

    def spread(self, x: Floats) -> Spread:
        """Points given as features (n, features)."""
        equal, above = self._equal, self._above
        parts = [
            (x[:, equal.features] == equal.levels) * equal.factors,
            (x[:, above.features] > above.levels) * above.factors,
            x[:, self._square.features] * self._square.factors,
        ]
        squared = np.concatenate(parts, axis=1)
        plain = x[:, self._plain.features] * self._plain.factors
        return Spread(squared, plain, (squared * squared).sum(axis=1))


class _Coordinates:
    """Coordinates of one kind: what feature each is of, its level and its factor."""

    def __init__(self) -> None:
        self.features = np.zeros(0, np.intp)
        self.levels = np.zeros(0)
        self.factors = np.zeros(0)

    def extend(self, feature: int, levels: Floats, factors: Floats) -> None:
        self.features = np.append(self.features, np.full(len(levels), feature))
        self.levels = np.append(self.levels, levels)
        self.factors = np.append(self.factors, factors)
