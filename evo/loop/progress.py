"""How a search stands, and where its time goes."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from evo.store import TrialRow
from evo.study import Study
from evo.trial import Outcome, Trial

STAGES = ("gate", "timing", "turn", "load", "compile", "idle")
"""What evaluators do, in the order in which it is shown."""

Phase = Literal["first points", "searching", "finishing", "confirming", "over"]


@dataclass(frozen=True)
class Usage:
    """Shares of time (0 to 1). `evaluators`: of their time, by stage. `strategy`: proposing, of the
    wall-clock. `compilers`: how many cores compiled ahead, on average. `gpu_busy`: the part of the time NVML
    looked at in which a kernel was running; None where nothing was timed. `remeasured`: how often one of the
    best trials was measured again."""

    evaluators: Mapping[str, float]
    strategy: float = 0.0
    compilers: float = 0.0
    gpu_busy: float | None = None
    remeasured: int = 0


@dataclass(frozen=True)
class Progress:
    """How a search stands. `latest`: the trial that just ended, None where only time has passed."""

    study: Study
    phase: Phase
    spent_s: float
    outcomes: Mapping[str, int]
    best: TrialRow | None
    baselines_us: Mapping[str, float]
    per_minute: float
    activity: Sequence[str]
    latest: TrialRow | None = None
    step: str = ""
    """What CONFIRMED does, in words."""
    usage: Usage | None = None

    @property
    def left_s(self) -> float:
        return max(0.0, self.study.budget_s - self.spent_s)

    @property
    def trials(self) -> int:
        return sum(self.outcomes.values())

    @property
    def correct(self) -> int:
        return sum(n for outcome, n in self.outcomes.items() if Outcome(outcome).correct)


class Meter:
    """Sums up what the trials of this run say of the machine. `baselines_us`: the newest known."""

    def __init__(self, baselines_us: Mapping[str, float]) -> None:
        self.baselines_us = dict(baselines_us)
        self._began = time.monotonic()
        self._seconds: Counter[str] = Counter()
        self._busy: list[float] = []
        self._remeasured = 0
        self._ends: deque[float] = deque(maxlen=4096)

    def add(self, trial: Trial, remeasured: bool = False) -> None:
        """Takes in a trial that has just ended. `remeasured`: it is another measurement of an earlier one."""
        if remeasured:
            self._remeasured += 1
        else:
            self._ends.append(time.monotonic())
        self._seconds.update(trial.seconds)
        if trial.timing:
            if "busy_percent" in trial.timing.clocks:
                self._busy.append(trial.timing.clocks["busy_percent"] / 100)
            if trial.timing.baselines_us:
                self.baselines_us = dict(trial.timing.baselines_us)

    @property
    def per_minute(self) -> float:
        """Trials a minute, by the last minute."""
        if not self._ends:
            return 0.0
        now = time.monotonic()
        lasted = min(60.0, max(1.0, now - self._ends[0]))
        return sum(now - end <= 60 for end in self._ends) / lasted * 60

    def usage(self) -> Usage:
        lasted = max(1e-9, time.monotonic() - self._began)
        spent = {stage: self._seconds[stage] for stage in STAGES if self._seconds[stage]}
        total = sum(spent.values())
        return Usage(
            {stage: seconds / total for stage, seconds in spent.items()},
            self._seconds["strategy"] / lasted,
            self._seconds["ahead"] / lasted,
            sum(self._busy) / len(self._busy) if self._busy else None,
            self._remeasured,
        )
