"""Where the time of a search goes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from evo.trial import Trial

STAGES = ("gate", "timing", "turn", "load", "compile", "idle")
"""What evaluators do, in the order in which it is told."""


@dataclass(frozen=True)
class Usage:
    """Shares (0 to 1). `evaluators`: of their time, by stage. `strategy`: proposing, of the wall-clock.
    `compilers`: how many cores compiled ahead, on average. `gpu_busy`: of the time that NVML looked at, a
    kernel was running; None where nothing was timed. `revisits`: how often leaders were timed again."""

    evaluators: Mapping[str, float]
    strategy: float = 0.0
    compilers: float = 0.0
    gpu_busy: float | None = None
    revisits: int = 0


class Meter:
    """Sums up the seconds that trials tell of, since it was made."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._seconds: Counter[str] = Counter()
        self._busy: list[float] = [0.0, 0.0]
        self._revisits = 0

    def add(self, trial: Trial, again: bool = False) -> None:
        """`again`: it is another visit of a candidate that was here before."""
        self._revisits += again
        self._seconds.update(trial.seconds)
        busy = trial.timing.clocks.get("busy_percent") if trial.timing else None
        if busy is not None:
            self._busy[0] += busy / 100
            self._busy[1] += 1

    def usage(self) -> Usage:
        lasted = max(1e-9, time.monotonic() - self._began)
        spent = {stage: self._seconds[stage] for stage in STAGES if self._seconds[stage]}
        total = sum(spent.values())
        return Usage(
            {stage: seconds / total for stage, seconds in spent.items()},
            self._seconds["strategy"] / lasted,
            self._seconds["ahead"] / lasted,
            self._busy[0] / self._busy[1] if self._busy[1] else None,
            self._revisits,
        )
