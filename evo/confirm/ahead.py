"""A confirmation's worker that starts while the search still goes on.

Three parts of a confirmation need no quiet GPU: its process imports torch and sets itself up, the emulator
checks the finalists, and they pass the gate. On an H200 the first two took 8 s and more of the seconds that a
search of a minute keeps for it, and the gate of a row kernel another 2 to 14 s for each finalist.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from evo.confirm.confirmation import TOP, fresh_seed, gate_request, is_hurried, most_reserve_s, reserve_s
from evo.store import Store
from evo.study import Study

if TYPE_CHECKING:
    from evo.confirm.worker import ConfirmWorker

LEAD_S = 20.0
"""So long before its search ends the worker starts."""
LOOK_S = 1.0
"""The least time between two looks at the best trials."""
STEADY_S = 3.0
"""A trial is checked ahead when it has been among the best for so long. Most that come among them are soon
overtaken, and a thorough gate takes the GPU, and the emulator cores, from the search (lab/throughput.md)."""


class Ahead:
    """The worker of a confirmation that is to come. `make` makes it of the seconds that it will have; None
    where nothing will be confirmed. Closes what it made."""

    def __init__(self, study: Study, store: Store, make: Callable[[float], ConfirmWorker] | None) -> None:
        self._study, self._store, self._make = study, store, make
        self._budget_s = max(0.0, study.budget_s - study.spent_s)
        """Of this run: a study that was resumed has spent the rest."""
        self.hurried = False
        """Whether the worker leaves out baselines that take long."""
        self.reserve_s = reserve_s(self._budget_s) if make is not None else 0.0
        """Seconds of the budget that are kept for the confirmation."""
        self.seed = fresh_seed()
        """Of the confirmation: what is checked ahead is what it will ask for."""
        self._leading_since: dict[int, float] = {}
        """When each of the best trials was first seen among them."""
        self._expected: list[int] = []
        self._asked_at = 0.0
        """When the worker will be asked for those, as it was told."""
        self._looked = float("-inf")
        self._worker: ConfirmWorker | None = None

    def look(self, left_s: float) -> None:
        """Has those checked that lead the study and have done so for STEADY_S, or will at its end; it has
        `left_s` seconds left. Does not wait."""
        study, now = self._study, time.monotonic()
        early = left_s > most_reserve_s(self._budget_s) + LEAD_S
        if self._make is None or early or now < self._looked + LOOK_S:
            return
        self._looked = now
        leading = self._store.confirmations.contenders(study, TOP)
        trials = [self._store.trial(f"{study.name}/{number}") for number in leading]
        self.reserve_s = reserve_s(self._budget_s, trials)
        if left_s > self.reserve_s + LEAD_S:
            return
        self._leading_since = {number: self._leading_since.get(number, now) for number in leading}
        searches_s = max(0.0, left_s - self.reserve_s)
        latest = now if searches_s <= STEADY_S else now - STEADY_S
        steady = [number for number in leading if self._leading_since[number] <= latest]
        asked_at = time.time() + searches_s
        told = steady == self._expected and abs(asked_at - self._asked_at) < LOOK_S
        if leading and (self._worker is None or not told):
            self._expected, self._asked_at = steady, asked_at
            requests = [gate_request(self._store, study.name, number, self.seed) for number in steady]
            # what is kept for slow rounds is no time for baselines that must be compiled
            self.worker(reserve_s(self._budget_s)).expect(requests, asked_at)

    def worker(self, left_s: float) -> ConfirmWorker:
        """The worker; it is made now, of `left_s`, where it has not been made before."""
        if self._worker is None:
            assert self._make is not None
            self._worker = self._make(left_s)
            self.hurried = is_hurried(self._study.budget_s, left_s)
        return self._worker

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._worker is not None:
            self._worker.close()
