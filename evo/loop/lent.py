"""Workers that many searches use, one after the other, without a pause between them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Protocol

from evo.errors import NotEnoughMemory
from evo.loop.loop import TICK_S, Workers
from evo.loop.member import Member
from evo.loop.stopping import GRACE_S
from evo.trial import Candidate, Trial


class Lends(Workers, Protocol):
    """Workers that can give up some candidates: evo.evaluate.pool.Pool."""

    def withdraw(self, numbers: Collection[int]) -> set[int]:
        """Gives up those of the candidates that no evaluator has; which these are."""
        ...


class Lent:
    """Workers that a search does not close: they serve the next turn.

    When a turn ends, candidates that no evaluator has are given up: a later turn tries them again. Evaluators
    finish what they have while the next turn begins, and `late` hears of it."""

    def __init__(self, workers: Lends, late: Callable[[Member, int, Trial], None]) -> None:
        self._workers, self._late = workers, late
        self._of: Member | None = None
        """Whose turn it is."""
        self._under_way: dict[int, tuple[Member, int, bool]] = {}
        """By the number that the workers know: whose it is, its own number, whether it is new."""
        self._given = 0

    def begin(self, member: Member) -> None:
        """The turn of `member` begins. What it has under way from its last turn is waited for, a while."""
        self._settle(lambda: any(of is member for of, _, _ in self._under_way.values()))
        self._under_way = {n: one for n, one in self._under_way.items() if one[0] is not member}
        self._of = member

    def settle(self) -> None:
        """All turns are over: waits for what evaluators have, a while."""
        self._of = None
        self._settle(lambda: bool(self._under_way))

    def _settle(self, more: Callable[[], bool]) -> None:
        end = time.monotonic() + GRACE_S
        while more() and time.monotonic() < end:
            self.wait(TICK_S)

    # ---- as a search sees it

    @property
    def capacity(self) -> int:
        return self._workers.capacity

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
        for given in self._workers.withdraw(self._under_way.keys()):
            del self._under_way[given]
        self._of = None
