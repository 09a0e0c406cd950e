"""One search for many problems: a study for each. They take turns, and each turn begins with what was good
elsewhere.

    first round    every problem once, the next one near to those that were searched before it
    second round   turns go where the last one gained most
    last round     every problem tries the kernels of the portfolio that it has not met

Between two turns nothing stands still: evaluators finish what they have while the next turn begins, and all
that lies between is spent, too. What a turn tries is a trial of its study like any other: a search that was
ended goes on, and the portfolio follows from the database alone. A kernel is a point of a template, rendered
for each problem.

On several GPUs each has a search of its own for a part of the problems. Those of the other parts are looked
at in the database now and then: their kernels are tried here, and the portfolio serves them, too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from evo.confirm.choice import distance
from evo.confirm.portfolio import Portfolio, choose, leave_one_out
from evo.device.open import is_gpu
from evo.errors import NotEnoughMemory, NothingFound, UsageError
from evo.loop.chosen import Chosen, times_of
from evo.loop.lent import Lends, Lent
from evo.loop.loop import search
from evo.loop.member import Member
from evo.loop.progress import Progress
from evo.loop.spaces import SearchSpace
from evo.loop.stopping import GRACE_S, Stopped, Turn, interrupts
from evo.store import Store, TrialRow
from evo.strategy import Proposal
from evo.trial import Trial

FIRST_SHARE, LAST_SHARE = 0.5, 0.15
"""Parts of the budget for the first and the last round."""
NEIGHBOURS = 3
"""A first turn begins with the best points of so many problems."""
BEST_OF_EACH = 3
"""So many kernels of each of these problems are tried then."""
LEAST_TURN_S = 1.0
"""A shorter turn would be spent on beginning and ending it."""
NEAR_PASSES, LAST_PASSES = 4, 6
"""So many times at most are kernels of the portfolio chosen in a last round; in the first so many passes a
problem tries only those that are expected to be near the fastest. By a model of one search's times 12 kernels
for 200 products lose 4.3 % without such passes, 3.7 with two, 3.6 with four or seven."""
FIRST_TURN_S = LEAST_TURN_S + GRACE_S
"""A short first turn is over by then: as long as no kernel is correct, candidates under way get GRACE_S."""
PATIENT_TURNS = 3
"""So many turns of a problem without a correct kernel come before those that made one faster."""
NEARBY_PROBLEMS = 16
"""A later turn begins with the best point of each of so many. All of 200 took a quarter of a second, and left
nothing of the turn to the strategy."""
POINTS_BYTES = 1 << 30
"""The latest problems keep their points between their turns, as far as this goes: to find those of a product
of matrices again took 0.4 s of turns of 1.6."""
LOOK_S = 10.0
"""Seconds between two looks at the problems of other searches."""
LOSES, WITNESSES, NEARBY = 6.0, 2, 3.0
"""A template is left out of a problem where its best kernels took so many times as long as the best on the
nearest so many problems; ones of another size tell if they are at most so many doublings away."""


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
    def refused(self) -> Mapping[str, str]:
        """Problems that do not fit in memory, each with the reason."""
        return {member.name: member.refused for member in self.members if member.refused}

    @property
    def left_out(self) -> Mapping[str, float | None]:
        """The regret on each problem of the portfolio that is chosen without it; see `leave_one_out`."""
        problems = {member.name: member.problem for member in self.members}
        return leave_one_out(times_of(self.members), problems, self.most)


class Turns:
    """The turns of one run. `most`: kernels of the portfolio. `on_turn` hears of each turn: how many there
    were, and whose it is. `elsewhere`: problems that other searches have, by the names of their studies."""

    def __init__(
        self,
        members: Sequence[Member],
        store: Store,
        workers: Lends,
        most: int,
        on_turn: Callable[[Member, str], None],
        on_progress: Callable[[Progress], None],
        elsewhere: Mapping[str, Member] | None = None,
    ) -> None:
        self._members, self._store, self._most = list(members), store, most
        self._elsewhere, self._looked = dict(elsewhere or {}), -math.inf
        self._workers, self._on_turn, self._on_progress = Lent(workers, self._late), on_turn, on_progress
        self._stopped: Callable[[], bool] = lambda: False
        self._latest: list[Member] = []
        """Those that had turns, the latest one last."""
        self._ended = 0.0
        """When the last turn ended: what lies between two turns is spent, too."""
        for member in self._all:
            if member.study is not None:
                member.look(store)

    def run(self, budget_s: float) -> Found:
        """Searches all problems for `budget_s` seconds in all. Ctrl-C ends the turn, and the search with it.
        NothingFound where no problem has a correct kernel."""
        with interrupts() as self._stopped:
            self._ended = time.monotonic()
            self._first_round(budget_s)
            each_s, until_s = budget_s / len(self._members), budget_s * (1 - LAST_SHARE)
            while not self._stopped():
                self._second_round(until_s, each_s)
                before_s = self._spent_s
                self._last_round(budget_s)
                took_s, left_s = self._spent_s - before_s, budget_s - self._spent_s
                if left_s < 2 * LEAST_TURN_S or not self._going:
                    break
                # what it did not need buys more turns, and what these find takes another one
                until_s = budget_s - min(1.5 * took_s, left_s / 2)
            self._workers.settle(self._stopped())
            return self._found()

    def short_of(self, budget_s: float) -> tuple[float, list[Member]]:
        """With which budget every new problem surely gets a turn, and which may get none with this one."""
        new = self._new()
        least_s = self._spent_s + FIRST_TURN_S * len(new)
        sure = max(0, math.floor((budget_s - self._spent_s) / FIRST_TURN_S))
        return least_s, new[sure:]

    def _new(self) -> list[Member]:
        """Those that had no turn, in the order of their first ones."""
        return order_of(self._all, [member for member in self._members if not member.points])

    @property
    def _all(self) -> list[Member]:
        """The problems of this search, and those of the others."""
        return [*self._members, *self._elsewhere.values()]

    def _look_elsewhere(self) -> None:
        """Takes in what other searches have found since the last look."""
        if not self._elsewhere or time.monotonic() < self._looked + LOOK_S:
            return
        for study in self._store.studies():
            member = self._elsewhere.get(study.name)
            if member is not None and (member.study is None or member.study.spent_s != study.spent_s):
                member.study = study
                member.look(self._store)
        self._looked = time.monotonic()

    def _first_round(self, budget_s: float) -> None:
        """Every problem gets LEAST_TURN_S at least: where the budget is enough for that, whatever the others
        took, else as long as there is time."""
        new, enough = self._new(), not self.short_of(budget_s)[1]
        for number, member in enumerate(new):
            left, left_s = len(new) - number, budget_s - self._spent_s
            share_s = (budget_s * FIRST_SHARE - self._spent_s) / left
            if enough:
                share_s = min(share_s, left_s - FIRST_TURN_S * (left - 1) - GRACE_S)
            known = self._nearest(member)
            wanted = partial(promising, member, known[:NEIGHBOURS], BEST_OF_EACH)
            seconds = min(max(share_s, LEAST_TURN_S), math.inf if enough else left_s)
            text = f"first round, {number + 1} of {len(new)}"
            self._turn(member, wanted, seconds, text, without=losing(member, known))

    def _second_round(self, until_s: float, usual_s: float) -> None:
        while not self._stopped():
            left_s = until_s - self._spent_s
            if left_s < LEAST_TURN_S or not self._going:
                return
            member = max(self._going, key=lambda one: (one.gain, -one.spent_s))
            wanted = partial(promising, member, self._nearest(member)[:NEARBY_PROBLEMS], 1)
            seconds = min(left_s, max(LEAST_TURN_S, usual_s * (1 - FIRST_SHARE - LAST_SHARE) / 2))
            self._turn(member, wanted, seconds, f"turn {member.turns + 1}")

    def _last_round(self, until_s: float) -> None:
        """Problems try kernels of the portfolio: those that are expected to be near the fastest there, while
        what is met changes which these are, then all. One problem's kernels are evaluated while those of the
        next are proposed."""
        tried = True
        for number in range(LAST_PASSES):
            self._workers.settle(self._stopped())
            if self._stopped() or self._spent_s >= until_s:
                return
            self._looked = -math.inf
            self._look_elsewhere()
            chosen = Chosen(self._all, self._most, self._spaces)
            all_of_them, tried = number >= NEAR_PASSES or not tried, False
            for member in self._members:
                new, left_s = chosen.for_problem(member, all_of_them), until_s - self._spent_s
                if new and member.study is not None and left_s > 0 and not member.refused:
                    tried |= self._turn(member, partial(list, new), left_s, "last round", these_alone=True)
            if all_of_them and not tried:
                return

    @property
    def _spaces(self) -> Mapping[str, SearchSpace]:
        """A space of each template."""
        for member in self._members:  # a search that goes on has not opened them
            if member.study is not None:
                with suppress(UsageError):
                    member.begin(points=False)
        return {name: space for member in self._members for name, space in member.spaces.items()}

    @property
    def _going(self) -> list[Member]:
        return [member for member in self._members if not member.over]

    def _nearest(self, member: Member) -> list[Member]:
        """The other problems with a correct kernel, nearest first."""
        self._look_elsewhere()
        known = [other for other in self._all if other.times and other is not member]
        return sorted(known, key=lambda other: distance(other.problem, member.problem))

    @property
    def _spent_s(self) -> float:
        return math.fsum(member.spent_s for member in self._members)

    def _turn(
        self,
        member: Member,
        wanted: Callable[[], Sequence[Proposal]],
        seconds: float,
        text: str,
        these_alone: bool = False,
        without: Collection[str] = (),
    ) -> bool:
        """Searches one problem for some seconds, beginning with the points that are `wanted`, which are asked
        for when its space is known. Whether there was anything to try."""
        if self._stopped() or seconds <= 0:
            return False
        self._workers.begin(member, stay=these_alone)
        before, spent_s = member.best_us, member.spent_s
        try:
            member.begin(without, points=not these_alone)
        except UsageError as error:  # no template serves it
            member.over, member.unserved = True, error
            return False
        untried = member.untried(wanted())
        if these_alone and not untried:
            return False
        assert member.study is not None
        self._on_turn(member, f"{text}, {len(untried)} kernels of the portfolio" if these_alone else text)
        if not member.points:  # its space may have taken all the time that a short turn has
            seconds = max(seconds, time.monotonic() - self._ended + LEAST_TURN_S)
        self._workers.ends_at = math.inf if these_alone else self._ended + seconds
        stopped: Stopped
        try:
            stopped = search(
                replace(member.study, budget_s=spent_s + seconds),
                self._store,
                member.only(untried) if these_alone else member.spaces,
                self._workers,
                self._on_progress,
                turn=Turn(
                    untried,
                    these_alone,
                    began=self._ended,
                    grace_s=0.0,
                    first_s=0.0 if these_alone else GRACE_S,
                    brief=True,
                ),
            ).stopped
        except NotEnoughMemory:
            if not member.refused:  # it is not the problem that does not fit
                raise
            stopped = "hopeless"
        member.look(self._store)
        self._let_go(member)
        self._ended += member.spent_s - spent_s
        member.turns += 1
        if before and member.best_us:
            member.gain = before / member.best_us
        elif member.times or member.turns == PATIENT_TURNS:
            member.gain = 1.0
        if not these_alone:
            member.over = stopped in ("trials", "exhausted", "converged", "hopeless", "unrenderable")
        return True

    def _let_go(self, last: Member) -> None:
        """Of the points of the problems whose turns were longest ago, where there are too many."""
        self._latest = [*(one for one in self._latest if one is not last), last]
        held = 0
        for member in reversed(self._latest):
            held += member.nbytes
            if held > POINTS_BYTES:
                member.let_go()

    def _late(self, member: Member, number: int, trial: Trial) -> None:
        """A candidate of an earlier turn has ended."""
        assert member.study is not None
        self._store.add(member.study, number, trial)
        member.take(TrialRow.of(number, trial))

    def _found(self) -> Found:
        if not any(member.times for member in self._all) and not self._stopped():
            why = next((one.unserved for one in self._all if one.unserved), None)
            hint = f"{why.message}; {why.hint}" if why else "evo studies"
            raise NothingFound(f"none of {len(self._all)} problems has a correct kernel", hint)
        return found_of(self._all, self._most, self._stopped())


def promising(member: Member, others: Sequence[Member], count: int) -> list[Proposal]:
    """For a problem `count` kernels of each of the `others`."""
    return [one for other in others for one in member.promising(other, count)]


def found_of(members: Sequence[Member], most: int, interrupted: bool = False) -> Found:
    """What is known of these problems, and the portfolio of at most so many kernels."""
    unserved = [member.name for member in members if not member.times]
    every = {str(key): one for member in members for key, one in member.points.items()}
    try:
        portfolio = choose(times_of(members), most) if len(unserved) < len(members) else None
    except NothingFound:
        portfolio = None
    kernels = {name: every[name] for name in portfolio.kernels} if portfolio else {}
    return Found(members, portfolio, kernels, unserved, interrupted, most)


def losing(member: Member, known: Sequence[Member]) -> set[str]:
    """Templates that lose by far on the nearest of the `known` problems where they were tried (these are in
    order of nearness): on a problem that is larger in every way they would lose by more, and nearby not by
    much less. Their first kernels would take the time of many others."""

    def tells(other: Member) -> bool:
        sizes = member.problem.sizes
        smaller = all(size <= sizes[name] for name, size in other.problem.sizes.items())
        return smaller or distance(other.problem, member.problem) <= NEARBY

    said: dict[str, list[float]] = {}
    for other in filter(tells, known):
        for template in {str(key[0]) for key in other.times}:
            said.setdefault(template, []).append(other.slowness(template) or 1.0)
    return {template for template, slow in said.items() if min(slow[:WITNESSES]) > LOSES}


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
