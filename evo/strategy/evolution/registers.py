"""How many registers the kernel of a point will have: expected from those of kernels that were compiled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from evo.space import FeasibleSet
from evo.strategy.evolution.distance import Floats
from evo.strategy.evolution.features import Features, Points
from evo.strategy.evolution.gaussian_process import GaussianProcess

LEAST_COMPILED = 12
"""Compiled kernels from which the registers of others are expected."""
MOST_COMPILED = 200
"""So many of them are looked at, evenly chosen: of 305 other points of `flash_wgmma` 167 told 82 % to within
8 registers."""
MOST_FITTED = 100
"""Of these, the newest that decide how much each feature counts."""


class RegisterModel:
    """Registers a thread of the kernels of a template's points: what the compiler said of a point, else what
    a Gaussian process expects, which corrects the template's own model where it has one."""

    def __init__(self, feasible: FeasibleSet, points: Points, registers: npt.NDArray[np.int64]) -> None:
        """`points` (n, parameters) that were compiled, and what their kernels have (n,), all above 0."""
        self._feasible = feasible
        self._features = Features(feasible)
        self._known = dict(zip(_keys(points), registers.tolist(), strict=True))
        some = np.unique(np.linspace(0, len(points) - 1, MOST_COMPILED).astype(int))
        x, y = self._features(points[some]), np.log2(registers[some]) - self._modelled(points[some])
        process = GaussianProcess(self._features.labels, self._features.levels, False, self._features.derived)
        process.fit(x[-MOST_FITTED:], y[-MOST_FITTED:])
        self._expected = process.mean_function(x, y)

    @classmethod
    def of(
        cls, feasible: FeasibleSet, points: Sequence[Points], registers: Sequence[int]
    ) -> RegisterModel | None:
        """Of tried points, some of which were compiled (their registers are above 0); None where too few
        were."""
        compiled = [i for i, count in enumerate(registers) if count]
        if len(compiled) < LEAST_COMPILED or feasible.space.models is None:
            return None
        return cls(
            feasible, np.stack([points[i] for i in compiled]), np.array([registers[i] for i in compiled])
        )

    def __call__(self, rows: Points) -> Floats:
        """(n,) for positions (n, parameters)."""
        expected = self._expected(self._features(rows)) + self._modelled(rows)
        expected = np.clip(2**expected, 16, 255).round()
        compiled = [i for i, key in enumerate(_keys(rows)) if key in self._known]
        expected[compiled] = [self._known[key] for key in _keys(rows[compiled])]
        return np.asarray(expected)

    def _modelled(self, rows: Points) -> Floats:
        """The logarithm of what the template's own model says; 0 where it has none."""
        space, models = self._feasible.space, self._feasible.space.models
        if models is None or models.registers is None:
            return np.zeros(len(rows))
        problem = self._feasible.problem
        columns = space.columns(rows, problem, self._feasible.limits.gpu)
        modelled = np.asarray(models.registers(columns, problem), float)
        return np.broadcast_to(np.log2(np.maximum(16, modelled)), len(rows))


def _keys(points: Points) -> list[bytes]:
    """Of each of `points` (n, parameters) something that is equal for equal points."""
    content, size = points.astype(np.int64).tobytes(), 8 * points.shape[1]
    return [content[at : at + size] for at in range(0, len(content), size)]
