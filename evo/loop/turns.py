"""One search for many problems: a study for each. They take turns, and each turn begins with what was good
elsewhere.

    first round    every problem once, the next one near to those that were searched before it
    second round   turns go where the last one gained most
    last round     every problem tries the kernels of the portfolio that it has not met

What a turn tries is a trial of its study like any other: a search that was ended goes on, and the portfolio
follows from the database alone. A kernel is a point of a template, rendered for each problem.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from evo.confirm.choice import distance
from evo.confirm.portfolio import Portfolio, Times, choose, leave_one_out
from evo.device.open import is_gpu
from evo.errors import NothingFound, UsageError
from evo.loop.first_points import Key, key_of
from evo.loop.loop import Workers, search
from evo.loop.progress import Progress
from evo.loop.spaces import SearchSpace
from evo.store import Store
from evo.strategy import Proposal
from evo.study import Study
from evo.trial import Candidate, Problem, Trial

FIRST_SHARE, LAST_SHARE = 0.5, 0.15
"""Parts of the budget for the first and the last round."""
NEIGHBOURS = 3
"""A first turn begins with the best points of so many problems."""
BEST_OF_EACH = 3
"""So many kernels of each problem may enter the portfolio."""
LEAST_TURN_S = 1.0
"""A shorter turn would be spent on beginning and ending it."""


@dataclass
class Member:
    """A problem of the search: its study and its space, from its first turn on, and how its turns went."""

    problem: Problem
    open: Callable[[], tuple[Study, Mapping[str, SearchSpace]]]
    """Gives the study, a new one where there is none, and its space. UsageError where no template serves the
    problem."""
    known: bool = False
    """Whether the study has been there before."""
    study: Study | None = None
    spaces: Mapping[str, SearchSpace] = field(default_factory=dict)
    turns: int = 0
    gain: float = math.inf
    """By what factor the last turn made the best kernel faster; infinite before the first one."""
    over: bool = False
    """Whether nothing is left to try, or no kernel of it is ever right."""
    best_us: float | None = None
    times: dict[Key, float] = field(default_factory=dict)
    """Of each correct kernel the time here, in microseconds."""
    points: dict[Key, Proposal] = field(default_factory=dict)
    """What was tried, correct or not."""

    @property
    def name(self) -> str:
        return self.problem.key

    @property
    def spent_s(self) -> float:
        return self.study.spent_s if self.study else 0.0

    def begin(self) -> Study:
        if self.study is None:
            self.study, self.spaces = self.open()
        return self.study

    def look(self, store: Store) -> None:
        """Takes in what the database has of its study."""
        self.study = store.study(self.begin().name)
        self.times.clear()
        for row in store.rows(self.study):
            proposal = Proposal(row.template, row.point)
            key = key_of(proposal)
            self.points[key] = proposal
            if row.score_us is not None:
                self.times[key] = min(row.score_us, self.times.get(key, math.inf))
        self.best_us = min(self.times.values(), default=None)

    def best(self, count: int) -> list[Proposal]:
        return [self.points[key] for key in sorted(self.times, key=self.times.__getitem__)[:count]]

    def untried(self, proposals: Sequence[Proposal]) -> list[Proposal]:
        """Those that are feasible here and were not tried."""
        return [
            one
            for one in {key_of(one): one for one in proposals}.values()
            if key_of(one) not in self.points
            and one.template in self.spaces
            and self.spaces[one.template].feasible.contains(one.point)
        ]


@dataclass(frozen=True)
class Found:
    """How the search for many problems ended. `kernels`: the points of the portfolio by their names in it,
    None where no few kernels serve all problems. `unserved`: problems without a correct kernel."""

    members: Sequence[Member]
    portfolio: Portfolio | None
    kernels: Mapping[str, Proposal]
    unserved: Sequence[str]
    interrupted: bool
    most: int

    @property
    def estimated(self) -> bool:
        """Whether times are the emulator's estimates."""
        return any(member.study is not None and not is_gpu(member.study.device) for member in self.members)

    @property
    def left_out(self) -> Mapping[str, float | None]:
        """The regret on each problem of the portfolio that is chosen without it; see `leave_one_out`."""
        problems = {member.name: member.problem for member in self.members}
        return leave_one_out(times_of(self.members), problems, self.most)


class Turns:
    """The turns of one run. `most`: kernels of the portfolio. `on_turn` hears of each turn: how many there
    were, and whose it is."""

    def __init__(
        self,
        members: Sequence[Member],
        store: Store,
        workers: Workers,
        most: int,
        on_turn: Callable[[Member, str], None],
        on_progress: Callable[[Progress], None],
    ) -> None:
        self._members, self._store, self._most = list(members), store, most
        self._workers, self._on_turn, self._on_progress = _Lent(workers), on_turn, on_progress
        self._interrupted = False

    def run(self, budget_s: float) -> Found:
        """Searches all problems for `budget_s` seconds in all. Ctrl-C ends the turn, and the search with it.
        NothingFound where no problem has a correct kernel."""
        for member in self._members:
            if member.known:
                member.look(self._store)
        self._first_round(max(0.0, budget_s * FIRST_SHARE - self._spent_s))
        self._second_round(budget_s * (1 - LAST_SHARE), budget_s / len(self._members))
        self._last_round(budget_s)
        return self._found()

    def _first_round(self, seconds: float) -> None:
        new = [member for member in self._members if not member.points]
        for number, member in enumerate(order_of(self._members, new)):
            known = [other for other in self._members if other.times]
            known.sort(key=lambda other: distance(other.problem, member.problem))
            wanted = [one for other in known[:NEIGHBOURS] for one in other.best(BEST_OF_EACH)]
            self._turn(member, wanted, seconds / len(new), f"first round, {number + 1} of {len(new)}")

    def _second_round(self, until_s: float, usual_s: float) -> None:
        while not self._interrupted:
            left_s = until_s - self._spent_s
            going = [member for member in self._members if not member.over]
            if left_s < LEAST_TURN_S or not going:
                return
            member = max(going, key=lambda one: (one.gain, -one.spent_s))
            wanted = [one for other in self._members if other is not member for one in other.best(1)]
            seconds = min(left_s, max(LEAST_TURN_S, usual_s * (1 - FIRST_SHARE - LAST_SHARE) / 2))
            self._turn(member, wanted, seconds, f"turn {member.turns + 1}")

    def _last_round(self, until_s: float) -> None:
        """Twice: what is met first may change which kernels are chosen."""
        for _ in range(2):
            chosen = list(self._kernels().values())
            missing = [(one, one.untried(chosen)) for one in self._members if one.turns and not one.over]
            for member, wanted in missing:
                left_s = until_s - self._spent_s
                if wanted and not self._interrupted and left_s > 0:
                    text = f"last round, {len(wanted)} kernels of the portfolio"
                    self._turn(member, wanted, left_s, text, these_alone=True)

    @property
    def _spent_s(self) -> float:
        return math.fsum(member.spent_s for member in self._members)

    def _turn(
        self,
        member: Member,
        wanted: Sequence[Proposal],
        seconds: float,
        text: str,
        these_alone: bool = False,
    ) -> None:
        """Searches one problem for some seconds, beginning with the points that are `wanted`."""
        if self._interrupted or seconds <= 0:
            return
        self._on_turn(member, text)
        before, result = member.best_us, None
        try:
            study = replace(member.begin(), budget_s=member.spent_s + seconds)
            result = search(
                study,
                self._store,
                member.spaces,
                self._workers,
                self._on_progress,
                wanted=member.untried(wanted),
                these_alone=these_alone,
            )
        except NothingFound:  # so far: others may have what serves it
            pass
        except UsageError:  # no template serves it
            member.over = True
            return
        member.look(self._store)
        member.turns += 1
        member.gain = before / member.best_us if before and member.best_us else 1.0
        if result is not None:
            self._interrupted = result.stopped == "interrupted"
            member.over = result.stopped in ("exhausted", "converged", "hopeless")

    def _kernels(self) -> dict[str, Proposal]:
        """The kernels of the best portfolio that is known, by name."""
        times = times_of(self._members)
        if not times.us:
            return {}
        every = self._every()
        try:
            return {name: every[name] for name in choose(times, self._most).kernels}
        except NothingFound:  # not yet: the best of each may serve the others
            ranked = sorted(self._members, key=lambda one: -len(one.times))
            return {str(key_of(one)): one for member in ranked[: self._most] for one in member.best(1)}

    def _every(self) -> dict[str, Proposal]:
        """All kernels that were tried, by name."""
        return {str(key): one for member in self._members for key, one in member.points.items()}

    def _found(self) -> Found:
        served = [member for member in self._members if member.times]
        if not served and not self._interrupted:
            raise NothingFound(f"none of {len(self._members)} problems has a correct kernel", "evo studies")
        unserved = [member.name for member in self._members if not member.times]
        every = self._every()
        try:
            portfolio = choose(times_of(self._members), self._most) if served else None
        except NothingFound:
            portfolio = None
        kernels = {name: every[name] for name in portfolio.kernels} if portfolio else {}
        return Found(self._members, portfolio, kernels, unserved, self._interrupted, self._most)


def times_of(members: Sequence[Member]) -> Times:
    """The times of the best kernels of each problem, on all problems where they were tried."""
    kept = {key_of(one) for member in members for one in member.best(BEST_OF_EACH)}
    found: dict[str, dict[str, float]] = {}
    for member in members:
        for key in kept & member.times.keys():
            found.setdefault(str(key), {})[member.name] = member.times[key]
    return Times(found)


def order_of(members: Sequence[Member], new: Sequence[Member]) -> list[Member]:
    """The new ones in the order of their first turns: each is the nearest to one that comes before it. Where
    none is known, the one in the middle of all comes first."""

    def apart(one: Member, other: Member) -> float:
        return distance(one.problem, other.problem)

    known = [member for member in members if member.times]
    left, found = list(new), []
    if left and not known:
        found.append(min(left, key=lambda one: math.fsum(apart(one, other) for other in left)))
        left.remove(found[0])
    while left:
        following = min(left, key=lambda one: min(apart(one, other) for other in [*known, *found]))
        left.remove(following)
        found.append(following)
    return found


class _Lent:
    """Workers that a search does not close: they serve the next turn. What an earlier turn gave up is dropped
    when it ends."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._numbers: dict[int, int] = {}
        """What this turn waits for: the number that the workers know, and its own."""
        self._given = 0

    @property
    def capacity(self) -> int:
        return self._workers.capacity

    @property
    def idle(self) -> int:
        return self._workers.idle

    def submit(self, number: int, candidate: Candidate) -> None:
        self._workers.submit(self._as(number), candidate)

    def remeasure(self, number: int, candidate: Candidate, earlier: int) -> None:
        self._workers.remeasure(self._as(number), candidate, earlier)

    def _as(self, number: int) -> int:
        self._given += 1
        self._numbers[self._given] = number
        return self._given

    def wait(self, timeout: float) -> list[tuple[int, Trial]]:
        ended = self._workers.wait(timeout)
        return [(self._numbers.pop(given), trial) for given, trial in ended if given in self._numbers]

    def activity(self) -> list[str]:
        return self._workers.activity()

    def close(self) -> None:
        self._numbers.clear()
