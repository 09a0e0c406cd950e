"""How far compilers run ahead of the evaluators."""

from __future__ import annotations

import math
from collections import deque
from statistics import fmean, median

LATEST, FEWEST = 24, 6
"""Of so many of the latest candidates it is known what they took; with fewer than these nothing is known."""
RESERVE = 0.5
"""So many candidates more than needed for each evaluator: compilers take longer for some than for others."""


class Lead:
    """How many candidates are compiled or ready ahead of `evaluators`: as few as keep these busy, and `most`
    at most. At first half of `most`: what both take is not known yet.

    It is Little's law: of candidates that each take `ahead_s` in a compiler and that evaluators take at a
    rate of `evaluators` / `busy_s`, so many are with compilers. A candidate that waits was proposed without
    the results that end meanwhile. On the recorded space of `flash_mma` a search with 28 candidates under way
    needs 92 trials to come within 1 % of the best, with 19 it needs 69, with 10 it needs 53
    (lab/strategies.md)."""

    def __init__(self, most: int, evaluators: int) -> None:
        self._most, self._evaluators = most, evaluators
        self._ahead_s: deque[float] = deque(maxlen=LATEST)
        self._busy_s: deque[float] = deque(maxlen=LATEST)
        self.count = max(min(most, evaluators + 2), most // 2)

    @property
    def held_back(self) -> bool:
        """Whether compilers could do more than is needed."""
        return len(self._busy_s) >= FEWEST and self.count < self._most

    def learn(self, ahead_s: float, busy_s: float) -> None:
        """Takes in that a candidate was with a compiler for `ahead_s` seconds, and with an evaluator, waits
        for the GPU included, for `busy_s`."""
        self._ahead_s.append(ahead_s)
        self._busy_s.append(busy_s)
        if len(self._busy_s) >= FEWEST:
            # by the median: a process takes much longer for its first candidate
            rate = self._evaluators / max(median(self._busy_s), 1e-3)
            needed = math.ceil(rate * fmean(self._ahead_s) + RESERVE * self._evaluators)
            self.count = min(self._most, max(needed, self._evaluators + 2))
