"""Workers that many searches use, one after the other, without a pause between them."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Collection
from typing import Protocol

from evo.errors import NotEnoughMemory
from evo.loop.loop import TICK_S, Workers
from evo.loop.member import Member
from evo.loop.stopping import GRACE_S
from evo.trial import Candidate, Trial

RATED = 16
"""So many candidates that ended say how fast they end."""
SHORTEST_S = 1e-3
"""They took longer than that, whatever the clock says."""


class Lends(Workers, Protocol):
    """Workers that can give up some candidates: evo.evaluate.pool.Pool."""

    def withdraw(self, numbers: Collection[int]) -> set[int]:
        """Gives up those of the candidates that no evaluator has; which these are."""
        ...


class Lent:
    """Workers that a search does not close: they serve the next turn.

    When a turn ends, candidates that no evaluator has are given up, unless they stay: a later turn tries them
    again. Evaluators finish what they have while the next turn begins, and `late` hears of it."""

    def __init__(self, workers: Lends, late: Callable[[Member, int, Trial], None]) -> None:
        self._workers, self._late = workers, late
        self._of: Member | None = None
        """Whose turn it is."""
        self._under_way: dict[int, tuple[Member, int, bool]] = {}
        """By the number that the workers know: whose it is, its own number, whether it is new."""
        self._given, self._stay = 0, False
        self.ends_at = math.inf
        """When the turn ends, by time.monotonic."""
        self._left = 0
        """What evaluators had when the last turn ended."""
        self._ended_at: deque[float] = deque(maxlen=RATED)
        """When the latest candidates ended."""

    def begin(self, member: Member, stay: bool = False) -> None:
        """The turn of `member` begins. What it has under way from its last turn is waited for, a while.
        `stay`: its candidates stay under way when it ends; such a turn waits, too, while there are many."""
        most = self._workers.capacity // 2 if stay else math.inf
        self._settle(lambda: len(self._under_way) > most or bool(self._numbers_of(member)))
        self._give_up(self._numbers_of(member))
        for given in self._numbers_of(member):  # its next turn has other numbers
            del self._under_way[given]
        self._of, self._stay, self.ends_at = member, stay, math.inf

    def settle(self, at_once: bool = False) -> None:
        """All turns are over: waits for what is under way, a while. `at_once`: for what evaluators have."""
        self._of = None
        if at_once:
            self._give_up(self._under_way.keys())
        self._settle(lambda: bool(self._under_way))

    def _numbers_of(self, member: Member) -> set[int]:
        return {given for given, (of, _, _) in self._under_way.items() if of is member}

    def _give_up(self, numbers: Collection[int]) -> None:
        """Those that no evaluator has."""
        for given in self._workers.withdraw(numbers):
            del self._under_way[given]

    def _settle(self, more: Callable[[], bool]) -> None:
        end = time.monotonic() + GRACE_S
        while more() and time.monotonic() < end:
            self.wait(TICK_S)

    # ---- as a search sees it

    @property
    def capacity(self) -> int:
        """Towards the end of a turn no more than ends before it does, by the rate of the latest."""
        most, now = self._workers.capacity, time.monotonic()
        if self.ends_at == math.inf or len(self._ended_at) < RATED:
            return most
        rate = RATED / max(now - self._ended_at[0], SHORTEST_S)
        return max(1, min(most, self._left + math.ceil(rate * max(0.0, self.ends_at - now))))

    @property
    def idle(self) -> int:
        return self._workers.idle

    def submit(self, number: int, candidate: Candidate) -> None:
        self._workers.submit(self._as(number, True), candidate)

    def remeasure(self, number: int, candidate: Candidate, earlier: int) -> None:
        self._workers.remeasure(self._as(number, False), candidate, earlier)

    def _as(self, number: int, new: bool) -> int:
        assert self._of is not None
        self._given += 1
        self._under_way[self._given] = self._of, number, new
        return self._given

    def wait(self, timeout: float) -> list[tuple[int, Trial]]:
        """As that of the workers; NotEnoughMemory only where the problem whose turn it is does not fit."""
        try:
            ended = self._workers.wait(timeout)
        except NotEnoughMemory as short:
            if short.number is None:
                raise
            of, *_ = self._under_way.pop(short.number, (None, 0, False))
            if of is not None:
                of.refuse(short.message)
            if of is not None and of is self._of:
                raise
            return []
        found = []
        self._ended_at.extend([time.monotonic()] * len(ended))
        for given, trial in ended:
            of, number, new = self._under_way.pop(given, (None, 0, False))
            if of is not None and of is self._of:
                found.append((number, trial))
            elif of is not None and new:
                self._late(of, number, trial)
        return found

    def activity(self) -> list[str]:
        return self._workers.activity()

    def close(self) -> None:
        if not self._stay:
            self._give_up(self._under_way.keys())
            self._left = len(self._under_way)
        self._of = None
