"""What samples of a time say: intervals, and who is faster than whom when many were compared.

Samples are µs a launch. Medians of samples are compared as logarithms, so that a difference is a ratio.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from evo.trial import Interval, Round, Standing

Samples = NDArray[np.float64]
"""µs a launch."""

LEVEL = 0.99
"""Of the intervals of CONFIRMED, together for all finalists of a confirmation."""
RESAMPLES = 4000
FEWEST_ROUNDS = 6
"""Rounds below which nothing is concluded."""


def median_interval(samples: Samples, level: float = 0.95) -> Interval:
    """The interval of the median by order statistics: exact, distribution-free, without random numbers.

    Below 6 samples no such interval of 95 % exists: the range of the samples, and its true level, is given.
    """
    ordered = np.sort(samples)
    n = len(ordered)
    if n > 500:  # the binomial is a normal distribution by now
        low = int(n / 2 - NormalDist().inv_cdf((1 + level) / 2) * math.sqrt(n) / 2)
        return Interval(float(ordered[low]), float(ordered[n - 1 - low]), level)
    tail = 0.5**n
    low, chance = 0, tail
    while low + 1 < n // 2 + n % 2:
        tail *= (n - low) / (low + 1)  # P(exactly low + 1 samples below the median)
        if 2 * (chance + tail) > 1 - level:
            break
        chance += tail
        low += 1
    covered = max(0.0, 1 - 2 * chance)
    return Interval(float(ordered[low]), float(ordered[n - 1 - low]), min(level, covered))


def bootstrap_median(samples: Samples, seed: int, level: float = 0.95, resamples: int = 2000) -> Interval:
    """The percentile-bootstrap interval of the median."""
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, len(samples), (resamples, len(samples)))
    return _percentiles(np.median(samples[drawn], axis=1), level)


def bootstrap_ratio(
    over: Samples, under: Samples, seed: int, level: float = 0.95, resamples: int = 2000
) -> tuple[float, Interval]:
    """median(over) / median(under) and its interval; sample i of both was taken in the same turn, so whole
    turns are drawn."""
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, len(over), (resamples, len(over)))
    ratios = np.median(over[drawn], axis=1) / np.median(under[drawn], axis=1)
    return float(np.median(over) / np.median(under)), _percentiles(ratios, level)


def _percentiles(values: Samples, level: float) -> Interval:
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high), level)


def settled(samples: Samples, half_width: float) -> bool:
    """Whether the 95 % interval of the median is within ±`half_width` of it."""
    if len(samples) < 10:
        return False
    interval = median_interval(samples)
    return (interval.high - interval.low) / 2 <= half_width * float(np.median(samples))


def clear_loser(samples: Samples, incumbent_us: float | None, margin: float) -> bool:
    """Whether even the fastest sample is slower than the incumbent by `margin`."""
    return incumbent_us is not None and float(samples.min()) > margin * incumbent_us


# --- CONFIRMED ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Simultaneous:
    """Means of columns and half-widths such that all intervals hold at once with the level's chance."""

    means: Samples
    half_widths: Samples


def simultaneous(columns: Samples, seed: int, level: float = LEVEL) -> Simultaneous:
    """Simultaneous intervals of the means of `columns` (rounds, comparisons): the studentised bootstrap of
    the largest deviation (max-t; Romano & Wolf 2005, after Westfall & Young 1993).

    Whole rounds are drawn, for what disturbs a round disturbs all comparisons in it. Studentising makes few
    rounds count as few: 12 normal rounds and one column give about Student's t.
    """
    rounds = len(columns)
    means, errors = _mean_and_error(columns)
    rng = np.random.default_rng(seed)
    drawn = columns[rng.integers(0, rounds, (RESAMPLES, rounds))]
    drawn_means, drawn_errors = _mean_and_error(drawn.swapaxes(0, 1))
    floor = 1e-3 * errors + 1e-12  # a resample of one round alone has no spread
    largest = (np.abs(drawn_means - means) / np.maximum(drawn_errors, floor)).max(axis=-1)
    return Simultaneous(means, float(np.quantile(largest, level)) * errors)


def _mean_and_error(columns: Samples) -> tuple[Samples, Samples]:
    """Mean and standard error over the first axis."""
    return columns.mean(axis=0), columns.std(axis=0, ddof=1) / math.sqrt(len(columns))


def standings(
    rounds: Sequence[Round], finalists: Sequence[str], baselines: Sequence[str], seed: int
) -> dict[str, Standing]:
    """Where each contestant stands after `rounds` of one protocol, by name; nothing below FEWEST_ROUNDS.

    A contestant's time is the geometric mean of its rounds' medians. A finalist's speedup is against the
    baseline that was fastest on average. A finalist is `faster` only if it beats *every* baseline, so that
    which baseline happened to look best does not matter; and each comparison allows for all the finalists
    that were tried (`simultaneous`), so that picking the best of them does not matter either.
    """
    if len(rounds) < FEWEST_ROUNDS:
        return {}
    names = [*finalists, *baselines]
    logs = np.array([[math.log(np.median(r.samples_us[name])) for name in names] for r in rounds])
    mine, theirs = logs[:, : len(finalists)], logs[:, len(finalists) :]
    times = [simultaneous(mine, seed)] if finalists else []
    times += [simultaneous(theirs[:, [i]], seed) for i in range(len(baselines))]
    found = {
        name: Standing(float(np.exp(mean)), _ratio_interval(mean, half))
        for name, mean, half in zip(
            names,
            np.concatenate([t.means for t in times]),
            np.concatenate([t.half_widths for t in times]),
            strict=True,
        )
    }
    if not finalists or not baselines:
        return found
    against = [simultaneous(theirs[:, [i]] - mine, seed) for i in range(len(baselines))]
    best = int(theirs.mean(axis=0).argmin())
    lows = np.array([a.means - a.half_widths for a in against]).min(axis=0)
    highs = np.array([a.means + a.half_widths for a in against]).min(axis=0)
    for i, name in enumerate(finalists):
        mean, half = against[best].means[i], against[best].half_widths[i]
        verdict = "faster" if lows[i] > 0 else "slower" if highs[i] < 0 else "tie"
        own = found[name]
        found[name] = Standing(
            own.median_us, own.interval, float(np.exp(mean)), _ratio_interval(mean, half),
            baselines[best], verdict,
        )  # fmt: skip
    return found


def _ratio_interval(mean: float, half: float) -> Interval:
    return Interval(float(np.exp(mean - half)), float(np.exp(mean + half)), LEVEL)
