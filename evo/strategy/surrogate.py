"""A cheap model of what a point will take, from the trials so far: a Gaussian process.

Weights of the features follow from the trials by maximum posterior likelihood (Rasmussen and Williams,
"Gaussian Processes for Machine Learning", 2006, chapter 5). Adding a trial costs a product of a matrix and a
vector; only a new fit costs more.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

NOISE = 0.03
"""Variance of what the features do not explain, before anything is known; of the values' own variance."""
STEPS = 12
"""Steps of the ascent of a fit."""


class Surrogate:
    """Predicts mean and deviation at the points `pool` (m, features).

    Two points correlate by how far apart they are, a weighted sum over features: of distances, as
    exp(-s), for a rough landscape; or of their squares, by Matérn's function of order 5/2, for a `smooth`
    one. Of a label only equality counts.
    """

    def __init__(self, labels: Bools, smooth: bool) -> None:
        self._labels = labels
        self._smooth = smooth
        # halves of a range correlate by about 0.7; that a label differs says less
        self._prior = np.append(np.where(labels & smooth, math.log(0.2), math.log(0.7)), math.log(NOISE))
        self._theta = self._prior

    # ---- weights

    def fit(self, x: Floats, y: Floats) -> None:
        """Weights and noise for points `x` (n, features) with values `y` (n,): by sign-based ascent (Rprop,
        Riedmiller and Braun 1993) from what is expected without trials."""
        if len(y) < 4 or y.std() == 0:
            return
        apart = np.stack([self._gap(x[:, i], x[:, i], i) for i in range(x.shape[1])])
        z = (y - y.mean()) / y.std()
        theta, best, self._theta = self._prior, -math.inf, self._prior
        step, before = np.full(len(theta), 0.2), np.zeros(len(theta))
        for _ in range(STEPS):
            likelihood, slope = self._likelihood(theta, apart, z)
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

    def _likelihood(self, theta: Floats, apart: Floats, z: Floats) -> tuple[float, Floats]:
        """Log marginal likelihood (without its constant; the scale of the process is its best) and slope."""
        weights, noise = np.exp(theta[:-1]), math.exp(theta[-1])
        k, falls = self._correlate(np.tensordot(weights, apart, 1), slope=True)
        full = k + noise * np.eye(len(z))
        inverse = np.linalg.inv(full)
        alpha = inverse @ z
        power = float(z @ alpha) / len(z)
        likelihood = -0.5 * len(z) * math.log(power) - 0.5 * float(np.linalg.slogdet(full)[1])
        inner = np.outer(alpha, alpha) / power - inverse
        slope = 0.5 * weights * np.tensordot(apart, inner * falls, axes=([1, 2], [0, 1]))
        return likelihood, np.append(slope, 0.5 * noise * np.trace(inner))

    # ---- predictions

    def condition(self, x: Floats, pool: Floats) -> None:
        """Takes the points `x` (n, features) as tried and the points `pool` as those to predict."""
        self._x, self._pool = x, pool
        self._noise = math.exp(self._theta[-1])
        k = self._between(x, x) + self._noise * np.eye(len(x))
        # K = L L'; with V = inv(L) K(x, pool) the mean is (inv(L) y)' V and 1 - the sum of V^2 the variance
        self._inverse = np.linalg.inv(np.linalg.cholesky(k))
        self._v = self._inverse @ self._between(x, pool)
        self._explained = (self._v * self._v).sum(axis=0)

    def add(self, point: Floats) -> None:
        """One more tried point (features,): a row more of L."""
        new, n = point[None, :], len(self._x)
        row = self._inverse @ self._between(self._x, new)[:, 0]
        rest = math.sqrt(max(1.0 + self._noise - float(row @ row), 1e-9))
        inverse = np.zeros((n + 1, n + 1))
        inverse[:n, :n] = self._inverse
        inverse[n, :n] = -(row @ self._inverse) / rest
        inverse[n, n] = 1 / rest
        v = (self._between(new, self._pool)[0] - row @ self._v) / rest
        self._inverse, self._v, self._x = inverse, np.vstack([self._v, v]), np.vstack([self._x, new])
        self._explained += v * v

    def predict(self, y: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation at the pool, the tried points having the values `y` (n,)."""
        mean, scale = float(y.mean()), float(y.std()) or 1.0
        white = self._inverse @ ((y - mean) / scale)
        return mean + scale * (white @ self._v), scale * np.sqrt(np.maximum(1.0 - self._explained, 1e-9))

    def expectation(self, x: Floats, y: Floats) -> Callable[[Floats], Floats]:
        """The mean alone, as a function of points (m, features), from points `x` with values `y`."""
        k = self._between(x, x) + math.exp(self._theta[-1]) * np.eye(len(x))
        mean = float(y.mean())
        alpha = np.linalg.solve(k, y - mean)
        return lambda points: mean + self._between(points, x) @ alpha

    def correlation(self, points: Floats) -> Floats:
        """Of each of `points` (k, features) with each of the pool: (k, m)."""
        return self._between(points, self._pool)

    # ---- correlation

    def _between(self, x: Floats, y: Floats) -> Floats:
        apart: Floats = np.zeros((len(x), len(y)))
        for i, weight in enumerate(np.exp(self._theta[:-1])):
            apart += weight * self._gap(x[:, i], y[:, i], i)
        return self._correlate(apart)[0]

    def _gap(self, x: Floats, y: Floats, i: int) -> Floats:
        if self._labels[i]:
            return np.asarray(x[:, None] != y[None, :], float)
        gap = x[:, None] - y[None, :]
        return np.asarray(gap * gap if self._smooth else np.abs(gap))

    def _correlate(self, apart: Floats, slope: bool = False) -> tuple[Floats, Floats]:
        """The correlation, and with `slope` how it changes with what it is a function of."""
        if not self._smooth:
            k = np.exp(-apart)
            return k, -k
        r = np.sqrt(5 * apart)
        e = np.exp(-r)
        return (1 + r + r * r / 3) * e, (-5 / 6 * (1 + r) * e if slope else e)


def log_improvement(mean: Floats, deviation: Floats, best: float) -> Floats:
    """Logarithm of the expected improvement on `best` where small is good (Jones, Schonlau and Welch 1998);
    far from hope by its asymptote, so that points stay in order."""
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
