"""What samples of a time say: intervals, and which is faster when many are compared.

Samples are µs a launch. Medians of samples are compared as logarithms, so that a difference is a ratio.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from evo.trial import WORST, InputTime, Interval, Round, Standing, Timing, counting

Samples = NDArray[np.float64]
"""µs a launch."""

LEVEL = 0.99
"""Of the intervals of CONFIRMED, together for all finalists of a confirmation."""
FEWEST_ROUNDS = 10
"""Rounds below which nothing is concluded: what LEVEL needs for five finalists on one timing input; for four
inputs it needs 12."""


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


def drifted(earlier: Samples, later: Samples, within: float) -> bool:
    """Whether the median of what was sampled `later` differs by more than `within`, relative."""
    return abs(float(np.median(later) / np.median(earlier)) - 1) > within


def joined(earlier: Timing, later: Timing) -> Timing:
    """One timing of the samples of two evaluations; beside it stands what stood beside the later one.

    On an input that both were timed on, the interval is that of all samples. The speedup, of ratios within
    either one, is their geometric mean by numbers of samples, and its interval holds both of theirs: what
    differs between two evaluations is no sample's noise. ValueError if the protocols differ."""
    if earlier.protocol != later.protocol:
        raise ValueError(f"{earlier.protocol} samples cannot be joined with {later.protocol} ones")
    longer, shorter = sorted((earlier.times, later.times), key=len, reverse=True)
    both = {
        name: _joined_times(earlier.times[name], later.times[name])
        for name in earlier.times.keys() & later.times.keys()
    }
    more = {"protocol": later.protocol, "inputs": later.inputs, "clocks": later.clocks}
    return Timing.ranked({**longer, **shorter, **both}, later.ranking, **more)


def _joined_times(earlier: InputTime, later: InputTime) -> InputTime:
    samples = earlier.samples_us + later.samples_us
    every = np.array(samples)
    speedup, interval = _both_speedups(earlier, later)
    return InputTime(
        float(np.median(every)),
        median_interval(every),
        speedup,
        interval,
        later.versus or earlier.versus,
        later.baselines_us,
        samples,
    )


def _both_speedups(earlier: InputTime, later: InputTime) -> tuple[float | None, Interval | None]:
    if earlier.speedup is None or later.speedup is None:
        only = later if earlier.speedup is None else earlier
        return only.speedup, only.speedup_interval
    weights = [len(earlier.samples_us), len(later.samples_us)]
    mean = math.exp(np.average([math.log(earlier.speedup), math.log(later.speedup)], weights=weights))
    found = [t.speedup_interval for t in (earlier, later) if t.speedup_interval is not None]
    if not found:
        return mean, None
    low, high = min(i.low for i in found), max(i.high for i in found)
    return mean, Interval(low, high, min(i.level for i in found))


# --- CONFIRMED ---------------------------------------------------------------------------------------------


def standings(
    rounds: Sequence[Round], finalists: Sequence[str], baselines: Sequence[str], ranking: str = WORST
) -> dict[str, Standing]:
    """Where each contestant stands after `rounds` of one protocol, by name; nothing below FEWEST_ROUNDS.

    On each timing input a contestant's time is the median of its rounds' medians, a ratio the median of the
    rounds' ratios. Their intervals are exact whatever the rounds' distribution is (order statistics), hold
    for all finalists and inputs together (Bonferroni), and leave the outermost rounds out: of 20 rounds with
    five finalists and four inputs two on each side, so that an odd round is not all that is told.

    A finalist's speedup is against the baseline that was fastest on that input; of its speedups the smallest
    is told. It is `faster` only if it beats *every* baseline on every input that counts by `ranking`, so that
    which baseline happened to look best does not matter; and each comparison allows for all the finalists
    that were tried, so that picking the best of them does not matter either.
    """
    if len(rounds) < FEWEST_ROUNDS:
        return {}
    inputs = [on for on in rounds[0].inputs if all(on in taken.inputs for taken in rounds)]
    if not inputs:
        return {}
    logs = {
        (name, on): np.array([math.log(np.median(r.samples_us[name][on])) for r in rounds])
        for name in [*finalists, *baselines]
        for on in inputs
    }
    together = len(finalists) * len(inputs)
    beside = {
        name: {on: InputTime(*_of_rounds(logs[name, on], len(inputs))) for on in inputs} for name in baselines
    }
    found = {name: Standing.ranked(times, ranking) for name, times in beside.items()}
    for name in finalists:
        times, low, high = {}, [], []
        for on in inputs:
            own = InputTime(*_of_rounds(logs[name, on], together))
            ratios = {rival: _of_rounds(logs[rival, on] - logs[name, on], together) for rival in baselines}
            if baselines:
                versus = min(baselines, key=lambda rival: beside[rival][on].median_us)
                own = replace(
                    own, speedup=ratios[versus][0], speedup_interval=ratios[versus][1], versus=versus
                )
            times[on] = own
            if on in counting(dict.fromkeys(inputs), ranking):
                low += [interval.low for _, interval in ratios.values()]
                high += [interval.high for _, interval in ratios.values()]
        found[name] = Standing.ranked(times, ranking, verdict=_verdict(low, high))
    return found


def _verdict(low: Sequence[float], high: Sequence[float]) -> str:
    """What the ends of the intervals of all ratios say; empty where there are none."""
    if not low:
        return ""
    return "faster" if min(low) > 1 else "slower" if min(high) < 1 else "tie"


def _of_rounds(logs: Samples, together: int) -> tuple[float, Interval]:
    """exp of the median of one figure of each round, and its interval: of so many `together` that all hold at
    LEVEL, or at what the rounds suffice for."""
    within = median_interval(logs, 1 - (1 - LEVEL) / together)
    level = max(0.0, min(LEVEL, 1 - together * (1 - within.level)))
    return math.exp(np.median(logs)), Interval(math.exp(within.low), math.exp(within.high), level)
