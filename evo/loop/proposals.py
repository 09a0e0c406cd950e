"""What to try next: the first points, then what the strategy proposes, in an order that can be repeated.

With one worker the sequence of points is a function of the seed and the results alone: the proposal for trial
n is made when trials 0 to n - lookahead have ended, no earlier and no later, and the strategy learns of them
in the order of their numbers. With more workers it learns of a trial as soon as that has ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evo.loop.first_points import FirstPoints, Key, key_of
from evo.loop.stopping import EarlyStopping
from evo.space import FeasibleSet
from evo.store import TrialRow
from evo.strategy import Observation, Proposal, make_strategy
from evo.study import Study


class Proposals:
    """The proposals of one run of a search. `rows`: all trials by number, which grows with the search;
    `earlier`: trials of other studies, for a warm start; `patience`: see `EarlyStopping`."""

    def __init__(
        self,
        study: Study,
        spaces: Mapping[str, FeasibleSet],
        rows: Mapping[int, TrialRow],
        earlier: Sequence[Observation],
        patience: int,
    ) -> None:
        self.ordered = study.workers == 1
        self.first_points = True
        """Whether the last proposal came before the strategy was asked."""
        self.early_stopping = EarlyStopping(patience)
        self._lookahead = study.lookahead
        self._strategy = make_strategy(study.strategy, spaces, study.seed, earlier)
        self._first_points = FirstPoints(spaces)
        self._rows = rows
        self._history: list[Observation] = []
        """What the strategy knows."""
        self._tried: set[Key] = set()
        """What was proposed so far; with one worker, for the numbers before the next one."""
        if not self.ordered:
            self._history = [_observation(row) for row in rows.values()]
            self._tried = {key_of(_proposal(row)) for row in rows.values()}

    def repeat(self, number: int) -> None:
        """Takes in that trial `number` is known from an earlier run."""
        self._tried.add(key_of(_proposal(self._rows[number])))

    def observe(self, row: TrialRow) -> None:
        """Takes in a trial that has ended."""
        if not self.ordered:
            self._history.append(_observation(row))

    def may_propose(self, number: int, under_way: int, capacity: int) -> bool:
        """Whether it is time for the proposal of trial `number`, while so many candidates are `under_way`.

        Proposals that are under way at the same time know nothing of each other's results: there are no more
        of them than trials are known. The first points need no knowledge."""
        if number in self._rows:
            return True
        if self.ordered:
            return self._all_ended(number - self._lookahead)
        if under_way >= capacity:
            return False
        return under_way < max(1, len(self._rows)) or self._next_first_point() is not None

    def propose(self, number: int, under_way: Mapping[int, Proposal]) -> Proposal | None:
        """What to try as trial `number`; None where every feasible point was tried."""
        if self.ordered:
            # trials that may have ended but are not in the history count as under way, as they did when this
            # was first asked
            unknown = range(len(self._history), number)
            pending = [under_way.get(n) or _proposal(self._rows[n]) for n in unknown]
        else:
            pending = list(under_way.values())
        proposal = self._next_first_point()
        self.first_points = proposal is not None
        if proposal is None:
            proposal = self._strategy.ask(self._history, pending, number)
            self.early_stopping.add(self._strategy.expected_gain)
        if proposal is not None:
            self._tried.add(key_of(proposal))
        return proposal

    def _next_first_point(self) -> Proposal | None:
        return self._first_points.next(self._history, self._tried)

    def _all_ended(self, number: int) -> bool:
        """Whether trials 0 to `number` have ended; adds those of them that the strategy does not know."""
        while len(self._history) <= number and len(self._history) in self._rows:
            self._history.append(_observation(self._rows[len(self._history)]))
        return len(self._history) > number


def _observation(row: TrialRow) -> Observation:
    return Observation(row.template, row.point, row.score_us)


def _proposal(row: TrialRow) -> Proposal:
    return Proposal(row.template, row.point)
