"""What the emulator says of finalists, beside their gate on a GPU."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue

from evo.child import Child, Report
from evo.cores import usable_cores
from evo.device.emulator import built_interpreter
from evo.errors import MachineError
from evo.evaluate import Evaluator, EvaluatorSpec
from evo.gate.emulator_check import second_opinion
from evo.task import Task
from evo.trial import Candidate, Problem

EMULATED_FLOP = 2e10
"""The most work in one independent piece of a problem for which the emulator is asked: a few seconds."""

TOO_LARGE = "the emulator was not asked: the problem is too large for it"

GateRequest = tuple[str, Candidate, int]
"""A finalist's name, what it is, and the seed of its gate."""


class Emulators:
    """Asks the emulator about several finalists at once, each in a thread with an emulator of its own."""

    def __init__(self, spec: EvaluatorSpec, task: Task) -> None:
        self._task = task
        # a GPU has run the whole plan: what is too slow for all of it here is judged by what runs
        self._spec = replace(spec, device="emulator", problem=None, accept_unproven=True)
        self._threads = ThreadPoolExecutor(max(1, usable_cores() // 2), initializer=_give_way)
        self._said: dict[tuple[str, int], Future[str]] = {}
        self._idle: SimpleQueue[Evaluator] = SimpleQueue()

    def ask(self, name: str, candidate: Candidate, seed: int) -> Future[str]:
        """What the emulator says of a finalist that is clean, or why it was not asked; the CandidateError
        of one that is not. Asked once of each seed."""
        if (name, seed) not in self._said:
            self._said[name, seed] = self._threads.submit(self._emulate, candidate, seed)
        return self._said[name, seed]

    def has_said(self, name: str, seed: int) -> bool:
        """Whether it is known what the emulator says of a finalist."""
        said = self._said.get((name, seed))
        return said is not None and said.done()

    def forget_all_but(self, coming: Sequence[GateRequest]) -> None:
        """Does not ask about others with which it has not begun."""
        wanted = {(name, seed) for name, _, seed in coming}
        for key in self._said.keys() - wanted:
            if self._said[key].cancel():
                del self._said[key]

    def _emulate(self, candidate: Candidate, seed: int) -> str:
        if too_large(self._task, candidate.problem):
            return TOO_LARGE
        try:
            try:
                emulator = self._idle.get_nowait()
            except Empty:
                emulator = self._spec.build()  # it may have to be compiled
            try:
                return emulate(emulator, candidate, seed)
            finally:
                self._idle.put(emulator)
        except MachineError as error:
            return f"the emulator was not asked: {error.message}"

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)
        while not self._idle.empty():
            self._idle.get().close()


def _give_way() -> None:
    """For a thread: whatever else the machine does comes first. A search may still be going on."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)


class EmulatorAhead:
    """Has the emulator built while a search goes on, where the cache has none: its finalists will want it.

    The build takes its own process, which gives way to all others and ends with this one."""

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._child: Child | None = None

    def build(self) -> None:
        """Begins, unless it has begun; does not wait."""
        self._child = self._child or Child(_build_emulator, self._cache)

    def close(self) -> None:
        if self._child is not None:
            self._child.close()


def _build_emulator(cache: Path, _report: Report) -> None:
    """What runs in the process."""
    os.nice(19)
    # compilers of the search have what others leave: it would leave them nothing for 5 s
    built_interpreter(cache, jobs=max(1, usable_cores() // 2))


def too_large(task: Task, problem: Problem) -> bool:
    """Whether not even a piece of the problem is for the emulator: it is not built for that."""
    return task.flop(task.share(problem, 0.0)) > EMULATED_FLOP


def emulate(emulator: Evaluator, candidate: Candidate, seed: int) -> str:
    """What the emulator says of a finalist that passes the gate there too, where every access is checked,
    under every legal schedule of it. Raises Red, with the emulator's reason, if it does not pass;
    MachineError if the emulator cannot run it."""
    if too_large(emulator.task, candidate.problem):
        return TOO_LARGE
    green = second_opinion(lambda: emulator.gate(candidate, seed, thorough=False))
    extent, schedules = green.extent, len(emulator.device.schedules)
    cases = f"{extent.run} of {extent.planned} cases, {green.launches} launches, {schedules} schedules"
    missed = f"; hardly ran: {', '.join(extent.missed)}" if extent.missed else ""
    return f"clean on the emulator: {cases}{missed}"
