"""What a search knows of its trials, and what follows from it: outcomes, the best, equal programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

from evo.loop.remeasure import BestTrials
from evo.store import TrialRow
from evo.trial import Outcome, Trial


class History:
    """The trials of a study by number, as they are in the store. `load` reads a whole trial from there."""

    def __init__(self, rows: Iterable[TrialRow], load: Callable[[int], Trial]) -> None:
        self.rows: dict[int, TrialRow] = {}
        self.outcomes: Counter[str] = Counter()
        self.best: TrialRow | None = None
        self.programs: dict[str, int] = {}
        """Which trial ran a program first: later trials of the same program share its result."""
        self.best_trials = BestTrials(load)
        self._copies: dict[int, list[int]] = {}
        """The trials that share the result of a trial."""
        for row in rows:
            self.add(row)

    @property
    def correct(self) -> int:
        """How many trials are correct kernels."""
        return sum(count for outcome, count in self.outcomes.items() if Outcome(outcome).correct)

    def add(self, row: TrialRow) -> None:
        """Takes in a new trial."""
        self.rows[row.number] = row
        self.outcomes[str(row.outcome)] += 1
        self.best_trials.add(row)
        if row.same_as is not None:
            self._copies.setdefault(row.same_as, []).append(row.number)
        # the machine may be the cause of the first two; of the last there may be no program
        if row.outcome not in (Outcome.HUNG, Outcome.CRASHED, Outcome.UNRENDERABLE):
            self.programs.setdefault(row.program, row.number)
        self._compare_with_best(row)

    def update(self, number: int, measured: Trial) -> tuple[Trial, list[int]]:
        """Takes in another measurement of trial `number`. Returns what is known of it now, and the numbers of
        the trials whose rows changed: its own and those of its copies."""
        trial = self.best_trials.update(number, measured)
        changed = [number, *self._copies.get(number, [])]
        now = TrialRow.of(number, trial)
        for one in changed:
            before = self.rows[one]
            self.outcomes -= Counter([str(before.outcome)])
            self.outcomes[str(now.outcome)] += 1
            self.rows[one] = replace(
                before, outcome=now.outcome, reason=now.reason, median_us=now.median_us, speedup=now.speedup
            )
        if self.best is not None and self.best.number in changed:  # it may be worse than it seemed
            self.best = None
            for row in self.rows.values():
                self._compare_with_best(row)
        else:
            self._compare_with_best(self.rows[number])
        return trial, changed

    def _compare_with_best(self, row: TrialRow) -> None:
        if row.score_us is not None and (self.best is None or row.score_us < (self.best.score_us or 0.0)):
            self.best = row
