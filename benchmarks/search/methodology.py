"""The score P of a search strategy: 0 for random search, 1 for finding the optimum at once.

After Willemsen, Schoonhoven, Filipovič, Tørring, van Nieuwpoort and van Werkhoven, "A methodology for
comparing optimization algorithms for auto-tuning", Future Generation Computer Systems 159 (2024). The curve
of a strategy is the mean over its repeats of the *rank* of the best point so far; the authors fit an
isotonic regression to it, here it is the step function itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Trajectory:
    """One run of a strategy: `ended_s` (evaluations,), the time at which each evaluation ended, rising;
    `value` (evaluations,): what it gave, nan for a failure."""

    ended_s: Floats
    value: Floats

    @cached_property
    def best(self) -> Floats:
        """The best so far, after each evaluation; infinite before the first success."""
        best: Floats = np.minimum.accumulate(np.where(np.isnan(self.value), np.inf, self.value))
        return best


class RandomBaseline:
    """What random search is expected to find in a space, and from that how long a search is looked at.

    `value` (points,): nan for failures; `cost_s` (points,): seconds to try a point."""

    START, END, STEPS = 0.01, 0.95, 1000
    """A search is looked at from when random search has closed 1 % of the gap between the median and the
    optimum until when it has closed 95 %, at so many equidistant times."""

    def __init__(self, value: Floats, cost_s: Floats) -> None:
        good = ~np.isnan(value)
        self.sorted = np.sort(value[good])
        self.optimum = float(self.sorted[0])
        self._median = float(np.median(self.sorted))
        self._median_cost = float(np.median(cost_s))
        failing = float((~good).mean() * cost_s[~good].mean()) if not good.all() else 0.0
        self._mean_cost = float(cost_s[good].mean()) + failing
        first, last = self._evaluations(self.START), self._evaluations(self.END)
        if last - first < 2:
            first, last = (first - 1, last + 1) if first else (first, last + 2)
        self.evaluations = last
        self.times_s: Floats = np.linspace(first * self._median_cost, last * self._median_cost, self.STEPS)

    def _evaluations(self, part: float) -> int:
        """After how many evaluations random search is expected to have closed `part` of the gap."""
        goal = self.optimum + (self._median - self.optimum) * (1 - part)
        worst_first = self.sorted[::-1]
        at = int(np.argmax(worst_first <= goal))
        if worst_first[at] == self.optimum:
            at -= 1
        return math.ceil(at / (len(self.sorted) + 1 - at))

    @cached_property
    def random(self) -> Floats:
        """The expected best of random search without replacement at `times_s`."""
        n = len(self.sorted)
        tried = np.round(np.maximum(self.times_s / self._mean_cost, 1)).astype(int)
        at = np.minimum(np.round(tried * (n + 1) / (tried + 1)).astype(int), n - 1)
        best: Floats = self.sorted[::-1][at]
        x, first = np.unique(tried, return_index=True)
        if len(x) < 2:
            return best
        return monotone_cubic(x.astype(float), best[first], np.linspace(tried[0], tried[-1], len(tried)))

    def curve(self, trajectories: Sequence[Trajectory]) -> Floats:
        """The value whose rank is the mean rank of the best so far, at `times_s`."""
        n = len(self.sorted)
        ranks = np.empty((len(trajectories), len(self.times_s)))
        for k, trajectory in enumerate(trajectories):
            at = np.searchsorted(trajectory.ended_s, self.times_s, side="right") - 1
            best = np.where(at >= 0, trajectory.best[np.maximum(at, 0)], np.inf)
            ranks[k] = np.minimum(np.searchsorted(self.sorted, best), n - 1)
        value: Floats = self.sorted[np.clip(np.round(ranks.mean(axis=0)).astype(int), 0, n - 1)]
        return value

    def performance(self, trajectories: Sequence[Trajectory]) -> Floats:
        """P at each of `times_s`; their mean is the score in this space."""
        return (self.random - self.curve(trajectories)) / (self.random - self.optimum)


def monotone_cubic(x: Floats, y: Floats, at: Floats) -> Floats:
    """Fritsch-Carlson interpolation (SIAM J. Numer. Anal. 17, 1980) through (x, y), as SciPy's PCHIP: x
    rising, at least two points."""
    h, slope = np.diff(x), np.diff(y) / np.diff(x)
    d = np.zeros(len(x))
    if len(x) == 2:
        d[:] = slope[0]
    else:
        w1, w2 = 2 * h[1:] + h[:-1], h[1:] + 2 * h[:-1]
        same = slope[:-1] * slope[1:] > 0
        with np.errstate(divide="ignore", invalid="ignore"):
            harmonic = (w1 + w2) / (w1 / slope[:-1] + w2 / slope[1:])
        d[1:-1] = np.where(same, harmonic, 0.0)
        d[0] = _edge(h[0], h[1], slope[0], slope[1])
        d[-1] = _edge(h[-1], h[-2], slope[-1], slope[-2])
    i = np.clip(np.searchsorted(x, at, side="right") - 1, 0, len(x) - 2)
    t = (at - x[i]) / h[i]
    return np.asarray(
        (1 + 2 * t) * (1 - t) ** 2 * y[i]
        + t * (1 - t) ** 2 * h[i] * d[i]
        + t**2 * (3 - 2 * t) * y[i + 1]
        + t**2 * (t - 1) * h[i] * d[i + 1]
    )


def _edge(h0: float, h1: float, m0: float, m1: float) -> float:
    """The derivative at an end: three points, kept monotone."""
    d = ((2 * h0 + h1) * m0 - h0 * m1) / (h0 + h1)
    if np.sign(d) != np.sign(m0):
        return 0.0
    if np.sign(m0) != np.sign(m1) and abs(d) > 3 * abs(m0):
        return float(3 * m0)
    return float(d)
