"""How long kernels are expected to take on problems where they were not tried."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from evo.space import FeasibleSet
from evo.strategy.evolution.distance import Floats
from evo.strategy.evolution.features import Features, Points
from evo.strategy.evolution.gaussian_process import GaussianProcess
from evo.strategy.threads import one_thread
from evo.trial import Problem

Numbers = npt.NDArray[np.intp]

MOST_TRIED = 2000
"""So many of them are looked at."""
MOST_FITTED = 600
"""Of these, the ones that decide how much each feature counts."""
NEAR, NEAR_SHARE = 1.25, 0.8
"""Of those that are looked at so large a part took at most so many times as long as the best of their
problem: what matters is which kernels are near the best."""
SLOW = 1.5
"""A kernel that took more times as long counts as if it had taken so many."""
DOUBLINGS = 4.0
"""Of a size: so many are one step of a feature."""


class AcrossProblems:
    """A Gaussian process, over the points of a template and over problems, of how many times as long as the
    best kernel of a problem a point takes there. Of the trials of one search for 200 products of matrices a
    fifth, which it did not know, came out within 5 % (standard deviation, where a kernel took less than 1.3
    times as long as the best)."""

    LEAST_TRIED = 50
    """Trials from which something can be expected."""

    def __init__(self, problems: Sequence[FeasibleSet], of: Numbers, tried: Points, slowness: Floats) -> None:
        """From trials: `of` which of the `problems` each is (n,), what was `tried` (n, parameters), and how
        many times as long as the problem's best kernel it took (n,)."""
        self._features = [Features(one) for one in problems]
        self._problems = _columns_of([one.problem for one in problems])
        more = self._problems.shape[1]
        first = self._features[0]
        self._process = GaussianProcess(
            np.append(first.labels, np.zeros(more, bool)),
            [*first.levels, *[None] * more],
            True,
            np.append(first.derived, np.zeros(more, bool)),
        )
        rng = np.random.default_rng(0)
        used = _representative(slowness, rng)
        x = np.empty((len(used), len(first.labels) + more))
        for number in np.unique(of[used]):
            here = of[used] == number
            x[here] = self._columns(int(number), tried[used[here]])
        y = np.log(np.minimum(slowness[used], SLOW))
        some = rng.permutation(len(y))[:MOST_FITTED]
        with one_thread():
            self._process.fit(x[some], y[some])
            self._expected = self._process.mean_function(x, y, np.float32)

    def slowness(self, number: int, points: Points) -> Floats:
        """How many times as long as the best kernel of problem `number` its `points` (n, parameters) are
        expected to take: (n,), at least 1."""
        with one_thread():
            return np.exp(np.maximum(self._expected(self._columns(number, points)), 0.0))

    def _columns(self, number: int, points: Points) -> Floats:
        own = self._features[number](points)
        return np.concatenate([own, np.tile(self._problems[number], (len(points), 1))], axis=1)


def _columns_of(problems: Sequence[Problem]) -> Floats:
    """Of each problem its sizes, and its flags and dtype as numbers from 0 to 1: (problems, columns)."""
    sizes = [[math.log2(size) / DOUBLINGS for size in one.sizes.values()] for one in problems]
    kinds = [[*map(repr, one.flags.values()), one.dtype] for one in problems]
    known = [sorted(set(column)) for column in zip(*kinds, strict=True)]
    codes = [
        [all_of.index(kind) / max(1, len(all_of) - 1) for all_of, kind in zip(known, kind_of, strict=True)]
        for kind_of in kinds
    ]
    return np.array([[*a, *b] for a, b in zip(sizes, codes, strict=True)])


def _representative(slowness: Floats, rng: np.random.Generator) -> Numbers:
    """The numbers of MOST_TRIED of the trials, most of them near the best of their problem."""
    near, far = (rng.permutation(np.flatnonzero(side)) for side in (slowness <= NEAR, slowness > NEAR))
    of_near = min(len(near), max(round(NEAR_SHARE * MOST_TRIED), MOST_TRIED - len(far)))
    return np.concatenate([near[:of_near], far[: MOST_TRIED - of_near]])
