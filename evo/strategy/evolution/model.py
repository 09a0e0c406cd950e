"""A model of one template's times: a Gaussian process, the trials it is built on, and the points it ranks."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from evo.strategy.candidates import Candidates, Positions
from evo.strategy.evolution.distance import Floats
from evo.strategy.evolution.features import Features
from evo.strategy.evolution.gaussian_process import GaussianProcess, log_improvement
from evo.strategy.selection import representative

TRAINING_TRIALS = 300
"""Trials that a model is built on: the better half, the newest, and some of the others."""
FITTED_TRIALS = 160
"""Of these, the trials that the weights of its features are fitted to."""
REBUILT_EVERY = 150
"""A model is built anew, with a new pool, when its trials have grown by a quarter, or by so many."""
SCREENED_POINTS = 8192
"""Points that are screened for a pool; a pool of as many random points instead took a tenth more trials."""
POOL_POINTS = 1024
"""Points of a pool; with twice as many a search took as many trials."""
SLOW_QUANTILE = 0.8
"""Trials slower than this quantile count as if they were at it: how slow the slow ones are says little."""
LEAST_CORRELATION = 0.3
"""What earlier studies expect counts only while it orders the trials of this one at least so well. When it
always counted, a search that was misled was 11 % off the best at 50 trials, and a cold one 6 %."""


WIDER = 1.5
"""The deviation is taken so many times as large: late in a search a model that is taken at its word expects
gains of a thousandth of what is still to be gained. With twice as large a search took as long as before."""
FEW_TRIALS = 20
"""The deviation of n trials is taken sqrt(1 + FEW_TRIALS / n) times as large, too: weights that are fitted to
few trials are the most sure of themselves."""


class TrainingSet:
    """The trials of a template up to a milestone on which models are built, and the points they screen."""

    def __init__(
        self, candidates: Candidates, milestone: int, features: Features, rng: np.random.Generator
    ) -> None:
        self.milestone = milestone
        self.features = features
        scores = np.array(candidates.scores[:milestone])
        order = np.argsort(scores, kind="stable")
        self.used = representative(scores, TRAINING_TRIALS, TRAINING_TRIALS // 2, order).tolist()
        self.scores = scores[self.used]
        elites = [candidates.tried[i] for i in order[:8] if scores[i] < math.inf]
        points = candidates.sample_around(elites, SCREENED_POINTS, rng)
        fresh = ~candidates.were_tried(points, milestone)
        self.screened = points[fresh] if fresh.any() else points
        self.screened_features = features(self.screened)


class Model:
    """A Gaussian process of one template's times, and the pool of points that it ranks."""

    def __init__(self, candidates: Candidates, training: TrainingSet, smooth: bool) -> None:
        self.milestone = training.milestone
        self._features = features = training.features
        known = features(np.asarray([candidates.tried[i] for i in training.used]))
        self._columns = np.ones(len(features.labels), bool) if smooth else features.plain.copy()
        self._columns[features.extra] = predicts(known[:, features.extra].sum(axis=1), training.scores)
        levels = [levels for levels, used in zip(features.levels, self._columns, strict=True) if used]
        self._scores = training.scores
        """Of the process's points: infinite where a trial failed, nan where it is under way."""
        x = known[:, self._columns]
        fitted = representative(training.scores, FITTED_TRIALS, FITTED_TRIALS // 2)
        self._process = GaussianProcess(
            features.labels[self._columns], levels, smooth, features.derived[self._columns]
        )
        self._process.fit(x[fitted], targets(training.scores)[fitted])
        chosen = self._most_promising(
            x[fitted], training.scores[fitted], training.screened_features.T[self._columns].T
        )
        self.pool = training.screened[chosen]
        self._pool_features = training.screened_features[chosen]
        self._pool_rows = candidates.rows_of(self.pool)
        self._process.condition(x, self._pool_features[:, self._columns], REBUILT_EVERY)
        self._observed = training.milestone
        self._pending: dict[bytes, int] = {}
        """Which of the process's points are under way."""

    def _most_promising(self, x: Floats, scores: Floats, points: Floats) -> npt.NDArray[np.intp]:
        """Which `POOL_POINTS` of `points` (n, features) promise the largest improvement, by the trials at `x`
        with their `scores`."""
        if len(points) <= POOL_POINTS:
            return np.arange(len(points))
        y = targets(scores)
        gains = log_improvement(*self._process.predict_many(x, y, points), float(y.min())).round(3)
        bound = np.partition(gains, -POOL_POINTS)[-POOL_POINTS]
        above, level = gains > bound, np.flatnonzero(gains == bound)
        above[level[: POOL_POINTS - int(above.sum())]] = True
        return np.flatnonzero(above)

    def update(self, candidates: Candidates) -> bool:
        """Takes in the trials that have ended since, and what is under way. False where it cannot: something
        that was under way is gone."""
        fresh: list[Positions] = []
        scores: list[float] = []
        observed = slice(self._observed, None)
        for point, score in zip(candidates.tried[observed], candidates.scores[observed], strict=True):
            row = self._pending.pop(point.tobytes(), None)
            if row is None:
                fresh.append(point)
                scores.append(score)
            else:
                self._scores[row] = score
        self._observed = len(candidates.tried)
        pending = {point.tobytes(): point for point in candidates.pending}
        if not self._pending.keys() <= pending.keys():
            return False
        for key, point in pending.items():
            if key not in self._pending:
                self._pending[key] = len(self._scores) + len(fresh)
                fresh.append(point)
                scores.append(math.nan)
        if fresh:
            self._process.add(self._features.of_few(fresh)[:, self._columns])
            self._scores = np.append(self._scores, scores)
        return True

    def log_gains(self, candidates: Candidates) -> Floats:
        """Of each point of the pool the logarithm of the expected improvement, as a part of the best time;
        minus infinity where a point is not open."""
        known = ~np.isnan(self._scores)
        y = np.full(len(known), math.nan)
        y[known] = targets(self._scores[known])
        mean, deviation = self._process.predict(y)
        deviation *= WIDER * math.sqrt(1 + FEW_TRIALS / int(known.sum()))
        gains = log_improvement(mean, deviation, float(y[known].min()))
        return np.where(candidates.are_open(self.pool, self._pool_rows), gains, -math.inf)

    def take(self, number: int) -> Positions:
        """Point `number` of the pool, which will be under way soon: its features are kept for then."""
        point: Positions = self.pool[number]
        self._features.keep(point, self._pool_features[number])
        return point


def predicts(expected: Floats, scores: Floats) -> bool:
    """Whether what earlier studies `expected` of trials (n,) orders their `scores` (n,), of which some are
    infinite, well enough to be believed (Spearman's rank correlation)."""
    if not np.ptp(expected) or not np.ptp(targets(scores)):
        return False
    one, other = (np.argsort(np.argsort(values, kind="stable")) for values in (expected, scores))
    return float(np.corrcoef(one, other)[0, 1]) >= LEAST_CORRELATION


def targets(scores: Floats) -> Floats:
    """What a process learns of scores (n,) of which some are infinite: logarithms, where slow trials and
    failures are at one bound."""
    good = scores < math.inf
    y = np.log(np.where(good, scores, 1.0))
    if not good.any():
        return np.zeros(len(scores))
    slow = _quantile(y[good], SLOW_QUANTILE)
    return np.asarray(np.where(good, np.minimum(y, slow), slow))


def _quantile(values: Floats, part: float) -> float:
    """As np.quantile, in an eighth of the time: np.quantile was a twentieth of a proposal."""
    rank = part * (len(values) - 1)
    below = int(rank)
    above = min(below + 1, len(values) - 1)
    ordered = np.partition(values, (below, above))
    return float(ordered[below] + (rank - below) * (ordered[above] - ordered[below]))
