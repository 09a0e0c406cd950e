"""How far compilers run ahead of the evaluators."""

from __future__ import annotations


class Lead:
    """How many candidates are compiled or ready ahead of `evaluators`: as few as keep these busy, and `most`
    at most. At first half of `most`: what both take is not known yet.

    A candidate that waits was proposed without the results that end meanwhile. On the recorded space of
    `flash_mma` a search with 28 candidates under way needs 92 trials to come within 1 % of the best, with 19
    it needs 69, with 10 it needs 53 (lab/strategies.md)."""

    def __init__(self, most: int, evaluators: int) -> None:
        self._most, self._enough = most, evaluators + 1
        self._least = min(most, evaluators + 2)
        self.count = max(self._least, most // 2)
        self.held_back = False
        """Whether compilers could do more."""

    def adjust(self, ready: int, short: bool) -> None:
        """To be called when a candidate was evaluated, while `ready` wait for an evaluator. `short`: an
        evaluator has none."""
        if short and self.count < self._most:
            self.count += 1
            self.held_back = self.held_back and self.count < self._most
        elif ready > self._enough and self.count > self._least:
            self.count -= 1
            self.held_back = True
