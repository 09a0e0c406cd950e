"""Times for tests: of kernels that were timed on one timing input, or on several."""

from __future__ import annotations

from collections.abc import Mapping

from evo.trial import WORST, InputTime, Interval, Standing, Timing


def timing(
    samples_us: tuple[float, ...],
    median_us: float,
    interval: Interval,
    baselines_us: Mapping[str, float] | None = None,
    speedup: float | None = None,
    speedup_interval: Interval | None = None,
    clocks: Mapping[str, float] | None = None,
    protocol: str = "warm",
) -> Timing:
    """A time on the only timing input, `normal`."""
    beside = dict(baselines_us or {})
    versus = min(beside, key=lambda name: beside[name], default="") if speedup is not None else ""
    one = InputTime(median_us, interval, speedup, speedup_interval, versus, beside, samples_us)
    return Timing.ranked({"normal": one}, protocol=protocol, clocks=dict(clocks or {}))


def timing_on(
    inputs_us: Mapping[str, float],
    baselines_us: Mapping[str, float],
    ranking: str = WORST,
    inputs: int | None = None,
) -> Timing:
    """Times on several timing inputs, beside baselines that take the same on all; `inputs`: how many there
    were to be timed on."""
    times = {}
    for name, us in inputs_us.items():
        versus = min(baselines_us, key=lambda baseline: baselines_us[baseline], default="")
        ratio = baselines_us[versus] / us if versus else None
        around = Interval(0.99 * ratio, 1.01 * ratio) if ratio else None
        own = Interval(0.995 * us, 1.005 * us)
        times[name] = InputTime(us, own, ratio, around, versus, baselines_us, (us,) * 5)
    return Timing.ranked(times, ranking, inputs=inputs or len(times))


def standing(
    median_us: float,
    interval: Interval,
    speedup: float | None = None,
    speedup_interval: Interval | None = None,
    versus: str = "",
    verdict: str = "",
) -> Standing:
    """A standing on the only timing input, `normal`."""
    one = InputTime(median_us, interval, speedup, speedup_interval, versus)
    return Standing.ranked({"normal": one}, verdict=verdict)
