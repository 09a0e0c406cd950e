"""What to try next: the first points, then what the strategy proposes, in an order that can be repeated.

When the strategy expects nothing more, the search may start again: a fresh strategy with another seed, which
does not know what the earlier starts learnt, and does not try again what they tried.

With one worker the sequence of points is a function of the seed and the results alone: the proposal for trial
n is made when trials 0 to n - lookahead have ended, no earlier and no later, and the strategy learns of them
in the order of their numbers. With more workers it learns of a trial as soon as that has ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from evo.device.open import is_emulator
from evo.loop.first_points import FirstPoints, Key, first_points, key_of
from evo.loop.stopping import ALONE, EarlyStopping, Turn
from evo.space import FeasibleSet
from evo.store import TrialRow
from evo.strategy import Observation, Proposal, Strategy, make_strategy
from evo.study import Study

UNINFORMED = 8
"""Of one template so many trials need no knowledge of each other: the design that fills its space."""
AT_ONCE = 0.6
"""Of one template this part of what the workers take is under way from the start, about one for each
compiler: a proposal that knows less costs less than compilers that wait (lab/strategies.md)."""


def most_under_way(capacity: int, known: int, templates: int) -> int:
    """No more of the strategy's proposals are under way at the same time, for they know nothing of each
    other's results: as many as trials are `known`, of one template more at first. `capacity`: what the
    workers take."""
    return max(1, int(AT_ONCE * capacity) if templates == 1 else 1, known)


class Proposals:
    """The proposals of one run of a search. `rows`: all trials by number, which grows with the search;
    `earlier`: trials of other studies, for a warm start; `patience`: see `EarlyStopping`; `turn`: points
    that are tried before all others."""

    def __init__(
        self,
        study: Study,
        spaces: Mapping[str, FeasibleSet],
        rows: Mapping[int, TrialRow],
        earlier: Sequence[Observation],
        patience: int,
        turn: Turn = ALONE,
    ) -> None:
        self.ordered = study.workers == 1
        self.first_points = True
        """Whether the last proposal came before the strategy was asked."""
        self._study, self._spaces, self._patience = study, spaces, patience
        self._lookahead = study.lookahead
        self._first = 0
        """The first trial of the present start."""
        self._before: set[int] = set()
        """The trials of the starts before it."""
        self._asks: Strategy | None = None
        self._begins: tuple[int, Sequence[Observation], Sequence[Proposal]] = study.seed, earlier, ()
        """What the strategy of the present start is made of."""
        self._early_stopping = self._stopping()
        self._starts = list(study.starts)
        """The first trials of the starts that are to come."""
        self._turn, self._earlier = turn, earlier
        self._rows = rows
        self._history: list[Observation] = []
        """What the strategy knows."""
        self._tried: set[Key] = set()
        """What was proposed so far; with one worker, for the numbers before the next one."""
        if not self.ordered:
            if self._starts:
                self.start_again(self._starts[-1], {})
            self._history = [_observation(row) for n, row in rows.items() if n not in self._before]
            self._tried = {key_of(_proposal(row)) for row in rows.values()}

    def repeat(self, number: int) -> None:
        """Takes in that trial `number` is known from an earlier run."""
        self._tried.add(key_of(_proposal(self._rows[number])))

    @property
    def converged(self) -> bool:
        """Whether the present start expects nothing more."""
        return self._early_stopping.reached(len(self._rows) - len(self._before))

    def start_again(self, first: int, under_way: Mapping[int, Proposal]) -> None:
        """Begins another start with trial `first`. `under_way`: proposals by number, of earlier ones."""
        self._starts = [start for start in self._starts if start > first]
        earlier = {n: _proposal(row) for n, row in self._rows.items() if n < first}
        earlier |= {n: proposal for n, proposal in under_way.items() if n < first}
        self._first, self._before = first, set(earlier)
        closed = [earlier[n] for n in sorted(earlier)]
        self._asks, self._begins = None, (self._study.seed + first, (), closed)
        self._early_stopping = self._stopping()
        if not self.ordered:
            self._history = []

    @property
    def _strategy(self) -> Strategy:
        """Made when it is asked first: its view of the space takes a tenth of a second, and a turn may have
        points enough without it."""
        if self._asks is None:
            self._asks = make_strategy(self._study.strategy, self._spaces, *self._begins)
        return self._asks

    def _stopping(self) -> EarlyStopping:
        return EarlyStopping(self._patience, estimated=is_emulator(self._study.device))

    def observe(self, row: TrialRow) -> None:
        """Takes in a trial that has ended."""
        if not self.ordered and row.number not in self._before:
            self._history.append(_observation(row))

    def may_propose(self, number: int, under_way: int, capacity: int) -> bool:
        """Whether it is time for the proposal of trial `number`, while so many candidates are `under_way`.

        The first points need no knowledge, and with one template the first `UNINFORMED` trials. For the
        others see `most_under_way`."""
        if number in self._rows:
            return True
        if self.ordered:
            return self._all_ended(number - self._lookahead)
        if under_way >= capacity:
            return False
        if self._next_first_point(number) is not None or (len(self._spaces) == 1 and number < UNINFORMED):
            return True
        return under_way < most_under_way(capacity, len(self._rows), len(self._spaces))

    def propose(self, number: int, under_way: Mapping[int, Proposal]) -> Proposal | None:
        """What to try as trial `number`; None where every feasible point was tried."""
        while self._starts and self._starts[0] <= number:  # begun by an earlier run
            self.start_again(self._starts[0], under_way)
        if self.ordered:
            # trials that may have ended but are not in the history count as under way, as they did when this
            # was first asked
            unknown = range(len(self._history), number)
            pending = [under_way.get(n) or _proposal(self._rows[n]) for n in unknown]
        else:
            pending = list(under_way.values())
        proposal = self._next_first_point(number)
        self.first_points = proposal is not None
        if proposal is None:
            known = self._history[self._first :] if self.ordered else self._history
            strategy = self._strategy
            proposal = strategy.ask(known, pending, number)
            self._early_stopping.add(strategy.expected_gain)
        if proposal is not None:
            self._tried.add(key_of(proposal))
        return proposal

    @property
    def wanted(self) -> Proposal | None:
        """The next of the points that are tried before all others; None where none is left."""
        return self._untried(self._turn.wanted)

    @property
    def over(self) -> bool:
        """Whether no others are to be tried, and these all were proposed."""
        return self._turn.these_alone and self.wanted is None

    @cached_property
    def _defaults(self) -> FirstPoints:
        return first_points(self._spaces, self._earlier)

    def _next_first_point(self, number: int) -> Proposal | None:
        return self.wanted or (None if self._first else self._untried(self._defaults.due(number)))

    def _untried(self, points: Sequence[Proposal]) -> Proposal | None:
        return next((one for one in points if key_of(one) not in self._tried), None)

    def _all_ended(self, number: int) -> bool:
        """Whether trials 0 to `number` have ended; adds those of them that the strategy does not know."""
        while len(self._history) <= number and len(self._history) in self._rows:
            self._history.append(_observation(self._rows[len(self._history)]))
        return len(self._history) > number


def _observation(row: TrialRow) -> Observation:
    return Observation(row.template, row.point, row.score_us, registers=row.registers)


def _proposal(row: TrialRow) -> Proposal:
    return Proposal(row.template, row.point)
