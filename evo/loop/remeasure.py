"""The best trials of a study, which evaluators that have nothing to do gate and time again.

The best of thousands of noisy times, each measured once in one process, is the luckiest of the good ones; and
a kernel that is wrong only now and then passes one gate. More measurements show both before CONFIRMED does.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Container
from dataclasses import replace

from evo.store import TrialRow
from evo.timing.statistics import joined
from evo.trial import Candidate, Outcome, Timing, Trial

REMEASURED_TRIALS = 32
"""So many of the best trials are measured again: twice as many as CONFIRMED has contenders, for some of them
change places or are the same program."""
SAMPLES_WANTED = 2048
"""Samples of a trial on each timing input after which it is not measured again."""


REMEASURED_EVERY_S = 0.05
"""One is measured again so often, in the mean of a second: each takes 3 ms of the search's process, for which
compilers would wait where evaluators of several GPUs are idle (lab/throughput.md)."""


class Pace:
    """Lets something happen every `every_s` seconds, in the mean of a second."""

    def __init__(self, every_s: float) -> None:
        self._every_s, self._due_s = every_s, 0.0

    def allows(self, now_s: float) -> bool:
        """Whether it may happen once more at `now_s`; then it counts as done."""
        if now_s < self._due_s:
            return False
        self._due_s = max(self._due_s, now_s - 1) + self._every_s
        return True


class BestTrials:
    """The REMEASURED_TRIALS best timed trials of a study. `load` reads one of them from the store."""

    def __init__(self, load: Callable[[int], Trial]) -> None:
        self._load = load
        self._order: list[tuple[float, int]] = []
        """Medians and numbers, best first."""
        self._loaded: dict[int, Trial] = {}

    def add(self, row: TrialRow) -> None:
        """Takes in a stored trial, of this run or an earlier one. A trial that shares another's result is
        ignored."""
        if row.outcome is Outcome.TIMED and row.median_us is not None and row.same_as is None:
            self._insert(row.number, row.median_us)

    def next(self, busy: Container[int]) -> tuple[int, Candidate, int] | None:
        """What to measure again: number, candidate, and how often it was measured. Of the trials that are not
        in `busy` and have fewer than SAMPLES_WANTED samples on an input, the one that was measured least
        often, and of these the best."""
        wanted = []
        for median_us, number in self._order:
            if number not in busy:
                trial = self._trial(number)
                if _samples(_timing(trial)) < SAMPLES_WANTED:
                    wanted.append((trial.evaluations, median_us, number))
        if not wanted:
            return None
        times, _, number = min(wanted)
        return number, self._trial(number).candidate, times

    def update(self, number: int, measured: Trial) -> Trial:
        """Trial `number` after another measurement: with more samples, or RED after all. A trial that is RED
        is not measured again. Nor is one that ended otherwise (it hung, for example), but its result stays as
        it is, as the machine may be the cause: CONFIRMED will show."""
        earlier = self._trial(number)
        self._order = [entry for entry in self._order if entry[1] != number]
        self._loaded.pop(number, None)
        timing = _timing(earlier)
        if measured.timing is not None:
            more = joined(timing, measured.timing)
            known = self._loaded[number] = replace(earlier, timing=more, evaluations=earlier.evaluations + 1)
            self._insert(number, more.median_us)
            return known
        if measured.outcome is Outcome.RED:
            times = "once" if earlier.evaluations == 1 else f"{earlier.evaluations} times"
            return replace(
                earlier,
                outcome=measured.outcome,
                reason=measured.reason,
                detail=f"(it had been GREEN {times} before) {measured.detail}".rstrip(),
                where=measured.where,
                errors=measured.errors,
                evaluations=earlier.evaluations + 1,
                timing=None,
            )
        return earlier

    def _insert(self, number: int, median_us: float) -> None:
        insort(self._order, (median_us, number))
        for _, dropped in self._order[REMEASURED_TRIALS:]:
            self._loaded.pop(dropped, None)
        del self._order[REMEASURED_TRIALS:]

    def _trial(self, number: int) -> Trial:
        if number not in self._loaded:
            self._loaded[number] = self._load(number)
        return self._loaded[number]


def _timing(trial: Trial) -> Timing:
    assert trial.timing is not None
    return trial.timing


def _samples(timing: Timing) -> int:
    """How many there are on the timing input that has the fewest."""
    if not timing.complete:
        return 0
    return min(len(time.samples_us) for time in timing.times.values())
