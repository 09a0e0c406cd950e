"""What a search knows of its trials, and what follows from that: outcomes, the best, leaders, twins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

from evo.search.remeasure import Leaders
from evo.store import TrialRow
from evo.trial import Outcome, Trial


class Ledger:
    """The rows of a study by number, as they are in the store. `whole` reads a trial from there."""

    def __init__(self, rows: Iterable[TrialRow], whole: Callable[[int], Trial]) -> None:
        self.rows: dict[int, TrialRow] = {}
        self.outcomes: Counter[str] = Counter()
        self.best: TrialRow | None = None
        self.programs: dict[str, int] = {}
        """Which trial ran a program first: whoever is the same program shares its result."""
        self.leaders = Leaders(whole)
        self._twins: dict[int, list[int]] = {}
        """Those that share the result of a trial."""
        for row in rows:
            self.note(row)

    @property
    def correct(self) -> int:
        """How many trials are correct kernels."""
        return sum(count for outcome, count in self.outcomes.items() if Outcome(outcome).correct)

    def note(self, row: TrialRow) -> None:
        """Takes in a new row."""
        self.rows[row.number] = row
        self.outcomes[str(row.outcome)] += 1
        self.leaders.hear(row)
        if row.same_as is not None:
            self._twins.setdefault(row.same_as, []).append(row.number)
        if row.outcome not in (Outcome.HUNG, Outcome.CRASHED):  # the machine may have had a part in these
            self.programs.setdefault(row.program, row.number)
        self._rival(row)

    def revise(self, number: int, visit: Trial) -> tuple[Trial, list[int]]:
        """Takes in another visit of leader `number`: what is known of it now, and whose rows say so, its own
        and its twins'."""
        trial = self.leaders.again(number, visit)
        changed = [number, *self._twins.get(number, [])]
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
                self._rival(row)
        else:
            self._rival(self.rows[number])
        return trial, changed

    def _rival(self, row: TrialRow) -> None:
        if row.score_us is not None and (self.best is None or row.score_us < (self.best.score_us or 0.0)):
            self.best = row
