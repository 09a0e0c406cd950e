"""A Gaussian process: a cheap model of how long a point will take, from the trials so far.

Weights of the features follow from the trials by maximum posterior likelihood (Rasmussen and Williams,
"Gaussian Processes for Machine Learning", 2006, chapter 5). Adding a trial costs a product of a matrix and a
vector; only a new fit costs more.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from evo.strategy.evolution.distance import Bools, Embedded, Floats, Metric

NOISE_PRIOR = 0.03
"""Variance that the features do not explain, as a part of the values' own variance, before trials are
known."""
BLOCK_POINTS = 512
"""Points of a pool that are handled at once: so many fit into a core's cache."""
FIT_STEPS = 12
"""Steps of the ascent of a fit."""
PENDING_PENALTY = 0.5
"""Points under way count as so many deviations worse than expected: with 0 a batch keeps a wrong belief."""


class GaussianProcess:
    """Predicts mean and deviation at the points `pool` (m, features).

    Two points correlate by how far apart they are, a weighted sum over features: of distances, as
    exp(-s), for a rough landscape; or of their squares, by Matérn's function of order 5/2, for a `smooth`
    one. Of a label only equality counts.
    """

    def __init__(
        self, labels: Bools, levels: Sequence[Floats | None], smooth: bool, derived: Bools | None = None
    ) -> None:
        """`levels`: of each feature the values that it has, ascending; None: any. `derived`: which features
        are expected to say little beside the others; None: none."""
        self._labels = labels
        self._smooth = smooth
        self._metric = Metric(labels, levels, smooth)
        # halves of a range correlate by about 0.7; that a label differs says less, and so do derived features
        minor = labels & smooth if derived is None else labels & smooth | derived
        self._prior = np.append(np.where(minor, math.log(0.2), math.log(0.7)), math.log(NOISE_PRIOR))
        self._theta = self._prior
        self._metric.weigh(np.exp(self._theta[:-1]))

    # ---- weights

    def fit(self, x: Floats, y: Floats) -> None:
        """Weights and noise for points `x` (n, features) with values `y` (n,): by sign-based ascent (Rprop,
        Riedmiller and Braun 1993) from what is expected without trials."""
        if len(y) < 4 or y.std() == 0:
            return
        pairs = np.tri(len(y), k=-1, dtype=bool)  # each pair of points once, in a matrix of all
        apart = np.array(
            [self._gap(column, label)[pairs] for column, label in zip(x.T, self._labels, strict=True)]
        )
        z = (y - y.mean()) / y.std()
        theta, best, self._theta = self._prior, -math.inf, self._prior
        step, before = np.full(len(theta), 0.2), np.zeros(len(theta))
        for _ in range(FIT_STEPS):
            likelihood, slope = self._likelihood(theta, apart, pairs, z)
            away = (theta - self._prior) / 1.2
            # rounded: only orders and signs count, and they must not hang on the last bits of a product
            likelihood = round(likelihood - 0.5 * float(away @ away), 6)
            slope = (slope - away / 1.2).round(6)
            if likelihood > best:
                best, self._theta = likelihood, theta
            turn = slope * before
            step = np.clip(np.where(turn > 0, step * 1.3, np.where(turn < 0, step * 0.5, step)), 0.02, 0.8)
            before = slope
            theta = np.clip(theta + step * np.sign(slope), -6.0, 4.0)
        self._metric.weigh(np.exp(self._theta[:-1]))

    def _likelihood(self, theta: Floats, apart: Floats, pairs: Bools, z: Floats) -> tuple[float, Floats]:
        """Log marginal likelihood (without its constant; the scale of the process is its best) and slope.
        `apart` (features, pairs): how far the two points of each of the `pairs` (n, n) are apart."""
        weights, noise = np.exp(theta[:-1]), math.exp(theta[-1])
        k, falls = self._correlate(weights @ apart, slope=True)
        full = (1 + noise) * np.eye(len(z))
        full[pairs] = k
        factor = np.linalg.cholesky(full)  # which reads the lower half
        root = inverse_of_lower(factor)
        inverse = root.T @ root
        alpha = inverse @ z
        power = float(z @ alpha) / len(z)
        half_log_det = float(np.log(np.diag(factor)).sum())
        likelihood = -0.5 * len(z) * math.log(power) - half_log_det
        inner = np.outer(alpha, alpha / power)[pairs] - inverse[pairs]
        slope = weights * (apart @ (inner * falls))
        trace = float(alpha @ alpha) / power - float(inverse.trace())
        return likelihood, np.append(slope, 0.5 * noise * trace)

    # ---- predictions

    def condition(self, x: Floats, pool: Floats, more: int) -> None:
        """Takes the points `x` (n, features) as tried and those of `pool` as the ones to predict, with room
        for `more` that are tried later."""
        n = self._count = len(x)
        self._tried, self._pool = self._metric.embed(x), self._metric.embed(pool)
        # K = L L'; with V = inv(L) K(x, pool) the mean is (inv(L) y)' V and 1 - the sum of V^2 the variance
        self._inverse = np.zeros((n + more, n + more))
        self._v = np.empty((n + more, len(pool)))
        inverse = self._inverse[:n, :n] = self._whitening(self._tried)
        for some in _blocks(len(pool)):
            self._v[:n, some] = lower_times(inverse, self._between(self._tried, self._pool[some]))
        self._explained = np.einsum("ij,ij->j", self._v[:n], self._v[:n])
        self._added = x[:0]

    def add(self, points: Floats) -> None:
        """More tried points (k, features): `predict` takes them in."""
        self._added = np.concatenate([self._added, points])

    def predict(self, y: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation at the pool, the tried points having the values `y` (n,); nan where a
        value is not there yet: it is taken to be `PENDING_PENALTY` deviations above what is expected."""
        before = self._count
        rows, corner, beside = self._extend()
        n = self._count
        known = ~np.isnan(y)
        values = y[known]
        mean, scale = float(values.mean()), float(values.std()) or 1.0
        inverse, z = self._inverse[:n, :n], np.where(known, (y - mean) / scale, 0.0)
        white = inverse @ z
        if not known.all():
            # what is expected is what has no weight of its own: of inv(K) z that part is zero
            missing = inverse[:, ~known]
            doubt = np.linalg.inv(missing.T @ missing)
            expected = -doubt @ (missing.T @ white)
            white += missing @ (expected + PENDING_PENALTY * np.sqrt(np.diag(doubt)))
        # V is large: it is read once, for its own new rows and for the mean
        products = np.concatenate([rows.T, white[None, :before]]) @ self._v[:before]
        fresh = self._v[before:n] = corner @ (beside - products[:-1])
        self._explained += np.einsum("ij,ij->j", fresh, fresh)
        mean_at_pool = mean + scale * (products[-1] + white[before:] @ fresh)
        return mean_at_pool, scale * np.sqrt(np.maximum(1.0 - self._explained, 1e-9))

    def _extend(self) -> tuple[Floats, Floats, Floats]:
        """Grows inv(L) by a row for each of the k late points. What the same rows of V follow from: as
        `corner` (k, k) times (`beside` (k, m) less the transpose of `rows` (n, k) times V)."""
        n, more = self._count, len(self._added)
        embedded = self._metric.embed(self._added)
        self._added = self._added[:0]
        self._tried, end = self._tried.with_points(embedded), n + more
        if end > len(self._v):
            self._inverse = np.pad(self._inverse, (0, end))
            self._v = np.pad(self._v, ((0, end), (0, 0)))
        self._count = end
        inverse, k = self._inverse[:n, :n], self._between(embedded, self._tried).T
        rows = inverse @ k[:n]
        rest = k[n:] + self._noise() * np.eye(more) - rows.T @ rows
        corner = np.linalg.inv(np.linalg.cholesky(rest))
        self._inverse[n:end, :n] = -corner @ (rows.T @ inverse)
        self._inverse[n:end, n:end] = corner
        return rows, corner, self._between(embedded, self._pool)

    def predict_many(self, x: Floats, y: Floats, points: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation at many `points` (m, features), from points `x` with values `y`, in
        single precision: enough to choose a pool. Equal points get equal answers: each is asked once. The
        columns at the end of a product may differ from the others in their last digit, by the machine."""
        first, group = distinct(points)
        if len(first) < len(points):
            of_first = self.predict_many(x, y, points[first])
            return of_first[0][group], of_first[1][group]
        inverse = self._whitening(self._metric.embed(x))
        mean, scale = float(y.mean()), float(y.std()) or 1.0
        white = (inverse @ ((y - mean) / scale)).astype(np.float32)
        inverse, known = inverse.astype(np.float32), self._metric.embed(x, np.float32)
        means, explained = np.empty((2, len(points)))
        embedded = self._metric.embed(points, np.float32)
        for some in _blocks(len(points)):
            v = lower_times(inverse, self._between(known, embedded[some]))
            means[some], explained[some] = white @ v, np.einsum("ij,ij->j", v, v)
        return mean + scale * means, scale * np.sqrt(np.maximum(1.0 - explained, 1e-6))

    def mean_function(
        self, x: Floats, y: Floats, precision: type[np.floating] = np.float64
    ) -> Callable[[Floats], Floats]:
        """The mean alone, as a function of points (m, features), from points `x` with values `y`."""
        known = self._metric.embed(x)
        k = self._between(known, known) + self._noise() * np.eye(len(x))
        mean = float(y.mean())
        alpha = np.linalg.solve(k, y - mean).astype(precision)
        if precision is not np.float64:
            known = self._metric.embed(x, precision)
        return lambda points: mean + self._between(self._metric.embed(points, precision), known) @ alpha

    # ---- correlation

    def _noise(self) -> float:
        return math.exp(self._theta[-1])

    def _whitening(self, points: Embedded) -> Floats:
        """inv(L), where L L' are the correlations of tried points, noise included."""
        k = self._between(points, points) + self._noise() * np.eye(points.squared.shape[1])
        return inverse_of_lower(np.linalg.cholesky(k))

    def _between(self, a: Embedded, b: Embedded) -> Floats:
        return self._correlate(a.distances_to(b))[0]

    def _gap(self, column: Floats, label: bool) -> Floats:
        """How far points (n,) are apart in one feature: (n, n)."""
        gap = np.subtract.outer(column, column)
        if label:
            return np.asarray(gap != 0, float)
        return np.asarray(gap * gap if self._smooth else np.abs(gap))

    def _correlate(self, apart: Floats, slope: bool = False) -> tuple[Floats, Floats]:
        """The correlation, and with `slope` how it changes with what it is a function of."""
        if not self._smooth:
            k = np.negative(apart)
            np.exp(k, out=k)
            return k, (-k if slope else k)
        k = 5 * apart  # in place: most of the time goes into memory
        r = np.sqrt(k)
        e = np.exp(-r)
        falls = -5 / 6 * (1 + r) * e if slope else e
        k /= 3
        k += r
        k += 1
        k *= e
        return k, falls


def log_improvement(mean: Floats, deviation: Floats, best: float) -> Floats:
    """Logarithm of the expected improvement on `best` where small is good (Jones, Schonlau and Welch 1998);
    where it is tiny by its asymptote, so that points stay in order."""
    u = (best - mean) / deviation
    near = np.maximum(u, -4.0)
    near_density = np.exp(-0.5 * near * near) / math.sqrt(2 * math.pi)
    # Abramowitz and Stegun 7.1.26
    t = 1 / (1 + 0.3275911 * np.abs(near) / math.sqrt(2))
    series = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t
    below = 0.5 * (1 + np.sign(near) * (1 - series * np.exp(-0.5 * near * near)))
    direct = np.log(np.maximum(near_density + near * below, 1e-30))
    far = np.minimum(u, -4.0)
    tail = -0.5 * far * far - 0.5 * math.log(2 * math.pi) - 2 * np.log(-far) + np.log1p(-3 / far**2)
    return np.asarray(np.log(deviation) + np.where(u < -4.0, tail, direct))


def distinct(points: Floats) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Of `points` (n, features) the number of each one's first occurrence (m,), in their order, and of each
    point which of these it equals (n,)."""
    content, size = np.ascontiguousarray(points).tobytes(), points.shape[1] * points.itemsize
    known: dict[bytes, int] = {}
    rows = (content[at : at + size] for at in range(0, len(content), size))
    group = np.fromiter((known.setdefault(row, len(known)) for row in rows), np.intp, len(points))
    return np.unique(group, return_index=True)[1], group


def _blocks(count: int) -> list[slice]:
    return [slice(first, first + BLOCK_POINTS) for first in range(0, count, BLOCK_POINTS)]


def inverse_of_lower(lower: Floats) -> Floats:
    """The inverse of a lower triangular matrix (n, n), by halves: `numpy.linalg.inv`, which does not use
    the zeros, took 5 to 15 times as long at 300 rows."""
    n, half = len(lower), len(lower) // 2
    if n <= 32:
        return np.linalg.inv(lower)
    inverse = np.zeros_like(lower)
    inverse[:half, :half] = inverse_of_lower(lower[:half, :half])
    inverse[half:, half:] = inverse_of_lower(lower[half:, half:])
    inverse[half:, :half] = -inverse[half:, half:] @ (lower[half:, :half] @ inverse[:half, :half])
    return inverse


def lower_times(lower: Floats, other: Floats) -> Floats:
    """A lower triangular matrix (n, n) times `other` (n, m), without three quarters of the zeros."""
    product = np.empty_like(other)
    ends = [len(lower) * quarter // 4 for quarter in range(5)]
    for first, end in itertools.pairwise(ends):
        np.matmul(lower[first:end, :end], other[:end], out=product[first:end])
    return product
