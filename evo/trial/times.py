"""Times as values: of one kernel in a search, of all contestants of a confirmation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Interval:
    """A confidence interval; `level` as a fraction."""

    low: float
    high: float
    level: float = 0.95


@dataclass(frozen=True)
class Timing:
    """A measured time: raw samples in µs a launch, their median and its interval, beside the baselines that
    were interleaved with it in the same process. `protocol` is "warm" or "cold" (L2). `clocks` are NVML's
    readings; of samples that are of several evaluations those of the last one."""

    samples_us: tuple[float, ...]
    median_us: float
    interval: Interval
    protocol: str
    baselines_us: Mapping[str, float] = field(default_factory=dict)
    speedup: float | None = None
    speedup_interval: Interval | None = None
    clocks: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Round:
    """All finalists and baselines of a confirmation timed in turns, on inputs and in memory of this round's
    own. Samples are in µs a launch, by name; a finalist is named STUDY/NUMBER. `throttled` counts how often
    all was taken again because the clock was throttled."""

    protocol: str
    seed: int
    finalists_us: Mapping[str, tuple[float, ...]]
    baselines_us: Mapping[str, tuple[float, ...]]
    clocks: Mapping[str, float] = field(default_factory=dict)
    throttled: int = 0

    @property
    def samples_us(self) -> Mapping[str, tuple[float, ...]]:
        """Those of the baselines, then those of the finalists."""
        return {**self.baselines_us, **self.finalists_us}


@dataclass(frozen=True)
class Standing:
    """What all rounds of one protocol say of one contestant: the geometric mean of its rounds' medians, and
    for a finalist its speedup over the fastest baseline, `versus`. Intervals hold for all finalists at once.

    `verdict`: "faster" than every baseline, "slower" than one of them, or a "tie"; empty for a baseline."""

    median_us: float
    interval: Interval
    speedup: float | None = None
    speedup_interval: Interval | None = None
    versus: str = ""
    verdict: str = ""
