"""The best trials of a study, which evaluators that have nothing to do gate and time again.

The best of thousands of noisy times, each of one visit to one process, is the luckiest of the good ones; and
a kernel that is only now and then wrong passes one gate. More visits tell both before CONFIRMED does.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Container
from dataclasses import replace

from evo.store import TrialRow
from evo.timing.statistics import joined
from evo.trial import GREEN_VISITS, Candidate, Outcome, Timing, Trial

MOST = 32
"""Leaders: twice as many as CONFIRMED has contenders, for some of them change places or are one program."""
ENOUGH = 2048
"""Samples of a leader that has had its visits."""


class Leaders:
    """The MOST best timed trials among those it heard of; `whole` reads one of them from the store."""

    def __init__(self, whole: Callable[[int], Trial]) -> None:
        self._whole = whole
        self._order: list[tuple[float, int]] = []
        """Medians and numbers, best first."""
        self._known: dict[int, Trial] = {}
        """Those of them that were asked for."""

    def hear(self, row: TrialRow) -> None:
        """A trial was recorded, now or in an earlier run. One that shares another's result cannot lead."""
        if row.outcome is Outcome.TIMED and row.median_us is not None and row.same_as is None:
            self._place(row.number, row.median_us)

    def next(self, busy: Container[int]) -> tuple[int, Candidate, int] | None:
        """Whom to visit: number, candidate, and how often it was visited. The one of the fewest visits, and
        of these the best; nobody in `busy`, nobody of whom ENOUGH is known."""
        open_ = []
        for median_us, number in self._order:
            if number not in busy:
                timing = _timing(self._trial(number))
                if len(timing.samples_us) < ENOUGH:
                    open_.append((timing.visits, median_us, number))
        if not open_:
            return None
        visits, _, number = min(open_)
        return number, self._trial(number).candidate, visits

    def again(self, number: int, visit: Trial) -> Trial:
        """What is known of trial `number` after another visit: more of its time, or that it is RED after all;
        then it leads no more. Nor does one that ended otherwise (it hung, say), but as the machine may have
        had a part in that, its trial stays as it is: CONFIRMED will see."""
        earlier = self._trial(number)
        self._order = [entry for entry in self._order if entry[1] != number]
        self._known.pop(number, None)
        timing = _timing(earlier)
        if visit.timing is not None:
            more = joined(timing, visit.timing)
            known = self._known[number] = replace(earlier, timing=more)
            self._place(number, more.median_us)
            return known
        if visit.outcome is Outcome.RED:
            times = "once" if timing.visits == 1 else f"{timing.visits} times"
            return replace(
                earlier,
                outcome=visit.outcome,
                reason=visit.reason,
                detail=f"(it had been GREEN {times} before) {visit.detail}".rstrip(),
                where=visit.where,
                errors=visit.errors,
                counters={**earlier.counters, GREEN_VISITS: float(timing.visits)},
                timing=None,
            )
        return earlier

    def _place(self, number: int, median_us: float) -> None:
        insort(self._order, (median_us, number))
        for _, dropped in self._order[MOST:]:
            self._known.pop(dropped, None)
        del self._order[MOST:]

    def _trial(self, number: int) -> Trial:
        if number not in self._known:
            self._known[number] = self._whole(number)
        return self._known[number]


def _timing(trial: Trial) -> Timing:
    assert trial.timing is not None
    return trial.timing
