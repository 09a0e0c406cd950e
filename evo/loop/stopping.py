"""Why a search ends: its budget, a person, or nothing more that could be found."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, TypeVar

from evo.strategy import Proposal
from evo.study import Study

Stopped = Literal[
    "budget", "trials", "exhausted", "converged", "interrupted", "tried", "hopeless", "unrenderable"
]

GRACE_S, GRACE_SHARE = 5.0, 0.1
"""Candidates under way get so long to finish when a search ends, and no more than that share of what is kept
for CONFIRMED."""
LEAST_GAIN = 1e-3
"""An expected improvement below this part of the best time is less than the noise of the measurement."""
STOPPING_PATIENCE = 100
"""So many proposals in a row must promise less than LEAST_GAIN."""
STOPPING_TRIALS = 1000
"""With fewer trials a model of the space is not trusted: less than a minute on a GPU. With 400 a search of
one template ended after 21 s of three minutes, and of five templates the model knows less."""
LEAST_ESTIMATED_GAIN = 1e-2
"""The same for estimates of the emulator. Where they are nearly equal they tell less: the kernel with the
lowest one was 11 % slower on an H200 than the study's fastest (benchmarks/results/estimate-h200.json)."""
STOPPING_ESTIMATES = 300
"""So many trials are enough where times are estimates: more of them sort kernels that only a GPU can sort."""


class EarlyStopping:
    """Whether the strategy expects nothing more that could be measured: of `patience` proposals in a row.
    `estimated`: times are the emulator's estimates, which tell less."""

    def __init__(self, patience: int = STOPPING_PATIENCE, estimated: bool = False) -> None:
        self._patience = patience
        self._least_gain = LEAST_ESTIMATED_GAIN if estimated else LEAST_GAIN
        self._trials = STOPPING_ESTIMATES if estimated else STOPPING_TRIALS
        self._in_a_row = 0

    def add(self, gain: float | None) -> None:
        """`gain`: by what part of the best time a proposal may improve it; None: the strategy does not
        say."""
        self._in_a_row = self._in_a_row + 1 if gain is not None and gain < self._least_gain else 0

    def reached(self, trials: int) -> bool:
        return trials >= self._trials and self._in_a_row >= self._patience


@dataclass(frozen=True)
class Turn:
    """What is special about one search of several that take turns. `wanted` points are tried before all
    others; `these_alone`: it ends when all are under way. `began`: since when its budget is spent, by
    time.monotonic; None: when it begins. `grace_s`: how long candidates under way may take at its end; then
    they are given up, and a resumed search tries them again. `first_s`: the same as long as no kernel is
    correct. `brief`: whether nothing is asked but why it stopped."""

    wanted: Sequence[Proposal] = ()
    these_alone: bool = False
    began: float | None = None
    grace_s: float = GRACE_S
    first_s: float = 0.0
    brief: bool = False


ALONE = Turn()


class Clock:
    """What a study has spent over all its runs. The search may not spend the last `reserve_s` of the
    budget. `began`: since when it is spending, by time.monotonic (default: now)."""

    def __init__(self, study: Study, reserve_s: float, began: float | None = None) -> None:
        self.study = study
        self.reserve_s = reserve_s
        self._began = time.monotonic() if began is None else began

    @property
    def spent_s(self) -> float:
        return self.study.spent_s + time.monotonic() - self._began

    @property
    def left_s(self) -> float:
        return self.study.budget_s - self.spent_s

    @property
    def search_is_over(self) -> bool:
        return self.left_s <= self.reserve_s

    def grace_s(self, turn: Turn, found: bool) -> float:
        """How long candidates under way may take at the end. `found`: whether some kernel is correct."""
        if not found:
            return max(turn.grace_s, turn.first_s)
        return min(turn.grace_s, GRACE_SHARE * self.reserve_s) if self.reserve_s else turn.grace_s


Result = TypeVar("Result")


class _First(KeyboardInterrupt):
    """The first signal, within `Interrupts.at_once`."""


class Interrupts:
    """Whether SIGINT or SIGTERM came. A second signal is a KeyboardInterrupt. `around`: in whose use this
    one is; both hear of a signal, whichever is in use then."""

    def __init__(self, around: Interrupts | None = None) -> None:
        self._came = around is not None and around()
        self._around = around
        self._at_once = False

    def __call__(self) -> bool:
        return self._came

    def at_once(self, work: Callable[[], Result]) -> Result | None:
        """What `work` gives, or None: it is left at the first signal, for a template may take for ever."""
        self._at_once = True
        try:
            return None if self._came else work()
        except _First:
            return None
        finally:
            self._at_once = False

    def hear(self) -> None:
        """A signal has come."""
        self._came = True
        if self._around is not None:
            self._around.hear()

    def on_signal(self, _number: int, _frame: object) -> None:
        if self._came:
            raise KeyboardInterrupt
        self.hear()
        if self._at_once:
            raise _First


@contextmanager
def interrupts() -> Iterator[Interrupts]:
    """Gives what says whether a signal came, while it is in use."""
    if threading.current_thread() is not threading.main_thread():  # only there can signals be handled
        yield Interrupts()
        return
    around = getattr(signal.getsignal(signal.SIGINT), "__self__", None)
    given = Interrupts(around if isinstance(around, Interrupts) else None)
    before = {number: signal.signal(number, given.on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield given
    finally:
        for number, action in before.items():
            signal.signal(number, action)
