"""Times as values: of one kernel in a search, and of the contestants of a confirmation.

A kernel is timed on several timing inputs. The ranking of its study says which of these times counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Self

WORST, MEAN = "worst", "mean"
"""Rankings by all timing inputs; the name of one of them is a ranking, too."""
PLAIN = "plain"
"""The ranking of studies of before there were timing inputs, and the name of the only input they timed on:
the plain family."""
DATA_DEPENDENT = 0.03
"""A kernel whose times on two timing inputs differ by more than this part depends on its data."""


@dataclass(frozen=True)
class Interval:
    """A confidence interval; `level` as a fraction."""

    low: float
    high: float
    level: float = 0.95


@dataclass(frozen=True)
class InputTime:
    """A time on one timing input: a median in µs a launch and its interval. `speedup` is over `versus`, the
    fastest baseline on the same inputs.

    Of a search there are the raw samples, and the medians of all `baselines_us` on these inputs."""

    median_us: float
    interval: Interval
    speedup: float | None = None
    speedup_interval: Interval | None = None
    versus: str = ""
    baselines_us: Mapping[str, float] = field(default_factory=dict)
    samples_us: tuple[float, ...] = ()


@dataclass(frozen=True)
class RankedTime:
    """Times by timing input, and what follows from them by `ranking`: `median_us` is the largest of them
    (worst), their mean, or that on the input which the ranking names. `speedup` is the smallest of the
    speedups on the inputs that count; it is `on` this one, over the baseline `versus`."""

    median_us: float
    interval: Interval
    speedup: float | None = None
    speedup_interval: Interval | None = None
    versus: str = ""
    on: str = ""
    ranking: str = WORST
    times: Mapping[str, InputTime] = field(default_factory=dict)

    @classmethod
    def ranked(cls, times: Mapping[str, InputTime], ranking: str = WORST, **more: Any) -> Self:
        """What `times` say by `ranking`; `more`: the fields of a subclass."""
        over = _over(ranking)
        counted = {name: times[name] for name in counting(times, ranking)}
        ratios = {name: (t.speedup, t) for name, t in counted.items() if t.speedup is not None}
        on = min(ratios, key=lambda name: ratios[name][0], default="")
        return cls(
            over([t.median_us for t in counted.values()]),
            _joint([t.interval for t in counted.values()], over),
            ratios[on][0] if on else None,
            _joint([t.speedup_interval for _, t in ratios.values() if t.speedup_interval], min)
            if on and times[on].speedup_interval
            else None,
            ratios[on][1].versus if on else "",
            on,
            ranking,
            times,
            **more,
        )

    @property
    def varies(self) -> bool:
        """Whether the times on two inputs differ by more than DATA_DEPENDENT."""
        return varies([time.median_us for time in self.times.values()])


@dataclass(frozen=True)
class Timing(RankedTime):
    """A time of a search: beside it the baselines that were interleaved with it in the same process.

    `inputs` is how many timing inputs there were. A kernel that lost was timed on fewer: by the ranking
    "worst", its time is then no more than a lower bound. `protocol` is "warm" or "cold" (L2). `clocks` are
    NVML's readings; of samples that are of several evaluations those of the last one."""

    protocol: str = "warm"
    inputs: int = 1
    clocks: Mapping[str, float] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether it was timed on all inputs."""
        return len(self.times) >= self.inputs

    @property
    def baselines_us(self) -> dict[str, float]:
        """The times of the baselines by the same ranking, on the inputs that were timed."""
        counted = [self.times[name].baselines_us for name in counting(self.times, self.ranking)]
        names = dict.fromkeys(name for one in counted for name in one)
        over = _over(self.ranking)
        return {name: over([one[name] for one in counted if name in one]) for name in names}


@dataclass(frozen=True)
class Standing(RankedTime):
    """What all rounds of one protocol say of one contestant. A time is the median of its rounds'
    medians. Intervals hold for all finalists and inputs at once.

    `verdict`: "faster" than every baseline on every input that counts, "slower" than one of them, or a "tie";
    empty for a baseline."""

    verdict: str = ""


@dataclass(frozen=True)
class Round:
    """All finalists and baselines of a confirmation timed in turns, on one timing input after the other, in
    memory of this round's own. Samples are in µs a launch, by name and timing input; a finalist is named
    STUDY/NUMBER. `throttled` counts how often all was taken again because the clock was throttled."""

    protocol: str
    seed: int
    finalists_us: Mapping[str, Mapping[str, tuple[float, ...]]]
    baselines_us: Mapping[str, Mapping[str, tuple[float, ...]]]
    clocks: Mapping[str, float] = field(default_factory=dict)
    throttled: int = 0

    @property
    def samples_us(self) -> Mapping[str, Mapping[str, tuple[float, ...]]]:
        """Those of the baselines, then those of the finalists."""
        return {**self.baselines_us, **self.finalists_us}

    @property
    def inputs(self) -> tuple[str, ...]:
        """The timing inputs."""
        return tuple(dict.fromkeys(name for own in self.samples_us.values() for name in own))


def counting(times: Mapping[str, object], ranking: str) -> tuple[str, ...]:
    """The timing inputs that count by `ranking`: the one that it names, else all."""
    return (ranking,) if ranking in times else tuple(times)


def varies(medians_us: Sequence[float]) -> bool:
    """Whether two of a kernel's times on the timing inputs differ by more than DATA_DEPENDENT."""
    return bool(medians_us) and max(medians_us) > (1 + DATA_DEPENDENT) * min(medians_us)


def _over(ranking: str) -> Callable[[list[float]], float]:
    return fmean if ranking == MEAN else max


def _joint(intervals: list[Interval], over: Callable[[list[float]], float]) -> Interval:
    """The interval of the least, the largest or the mean of several figures."""
    ends = ([i.low for i in intervals], [i.high for i in intervals])
    return Interval(over(ends[0]), over(ends[1]), min(i.level for i in intervals))
