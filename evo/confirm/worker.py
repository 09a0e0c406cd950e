"""Gates and times finalists in a process of its own: fresh, and free to hang or to die.

`GpuWorker` works in that process. `WorkerProcess` asks it from outside, with a deadline for each answer.
After a hang or a death the next question goes to a new process, in which no finalist is loaded yet.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, Self

from evo.calls import OwnCalls
from evo.child import Child, Report
from evo.confirm.on_emulator import Emulators, GateRequest
from evo.confirm.rounds import Fallen, Rounds
from evo.confirm.sanitizing import sanitized
from evo.device.open import gpu_id
from evo.errors import CandidateError, Crashed
from evo.evaluate import Evaluator, EvaluatorSpec
from evo.gate import Green
from evo.gpu import Gpu, Limits
from evo.study import Setup
from evo.trial import Candidate, CaseError, Problem, Round

ANSWER_S = 600.0
"""How long an answer may take: the first round may compile baselines, a thorough gate launches thousands of
kernels."""


@dataclass(frozen=True)
class Surroundings:
    """What the times depend on besides the kernels."""

    device: str
    compiler: str
    versions: Mapping[str, str]
    gpu: str = ""
    """The id of the GPU; "" where it has none."""


class ConfirmWorker(Protocol):
    """What a confirmation asks: of a WorkerProcess, or of a GpuWorker in this process.

    Every method may raise MachineError; Fallen and CandidateError where a finalist is to blame."""

    @property
    def loaded(self) -> Sequence[str]:
        """The finalists that are GREEN in the process as it is now."""
        ...

    def surroundings(self) -> Surroundings: ...

    def expect(self, coming: Sequence[GateRequest], asked_at: float) -> None:
        """Those will be asked for by `gate`, thoroughly, in this order, from `asked_at` on (time.time, which
        machines of a cluster agree on): what can be done before begins. Others, which were expected until
        now, are not any more."""
        ...

    def gate_s(self, name: str, seed: int) -> float:
        """Seconds that the thorough gate of a finalist will take: as long as the longest one so far, the
        emulator's too, or none where all is known of it."""
        ...

    def gate(self, name: str, candidate: Candidate, seed: int, thorough: bool) -> tuple[CaseError, ...]:
        """Checks and loads a finalist. What it passed, or the CandidateError that stands in the way."""
        ...

    def sanitize(self, name: str) -> str:
        """What compute-sanitizer and the emulator say of a loaded finalist that is clean, or why they were
        not asked."""
        ...

    def round(self, protocol: str, seed: int, names: Sequence[str]) -> Round:
        """A round of those finalists and the baselines; Fallen where one of them is to blame, Hung or Crashed
        where the process is lost and no kernel is to blame."""
        ...

    def skipped(self) -> Mapping[str, str]: ...

    def kernels(self) -> Mapping[str, Sequence[str]]: ...

    def close(self) -> None: ...


class GpuWorker:
    """Loads GREEN finalists and holds rounds, on the GPU of this process."""

    def __init__(
        self,
        evaluator: Evaluator,
        problem: Problem,
        patient: bool,
        on_emulator: bool = True,
        hurried: bool = False,
    ) -> None:
        self._evaluator = evaluator
        ranking = evaluator.spec.ranking
        self._rounds = Rounds(evaluator.device, evaluator.task, problem, patient, ranking, hurried)
        self._loaded: dict[str, Green] = {}
        self._asked: dict[str, tuple[Candidate, int]] = {}
        self._coming: list[GateRequest] = []
        self._first, self._asked_at = "", 0.0
        """What will be asked for first, and when, by time.time."""
        self._longest_s = 0.0
        """Of a thorough gate, or of waiting for what the emulator says."""
        self._ahead: dict[tuple[str, int], Green | CandidateError] = {}
        """What the gate said of finalists that have not been asked for, by name and seed."""
        self._emulators = Emulators(evaluator.spec, evaluator.task) if on_emulator else None

    @property
    def loaded(self) -> Sequence[str]:
        return tuple(self._loaded)

    def surroundings(self) -> Surroundings:
        evaluator = self._evaluator
        device, gpu = evaluator.device, gpu_id(evaluator.spec.device)
        return Surroundings(device.name, evaluator.compiler.version, evaluator.versions, gpu)

    def expect(self, coming: Sequence[GateRequest], asked_at: float) -> None:
        if self._emulators is not None:
            self._emulators.forget_all_but(coming)
        for asked in coming:
            self._emulation(*asked)
        self._coming = [*coming]
        self._first = coming[0][0] if coming else ""
        self._asked_at = asked_at

    def gate_s(self, name: str, seed: int) -> float:
        ahead = self._ahead.get((name, seed))
        checked = ahead is not None or name in self._loaded
        # of one that is refused already the emulator is not heard
        heard = self._emulators is None or self._emulators.has_said(name, seed)
        return 0.0 if checked and (heard or isinstance(ahead, CandidateError)) else self._longest_s

    def meanwhile(self) -> bool:
        """While nothing is asked: gates one of those that are expected. Whether more of them are. One that
        will not be asked for first is left where its gate may not have ended by then: the question would
        wait."""
        late = time.time() + self._longest_s > self._asked_at
        if late and self._coming and self._coming[0][0] != self._first:
            self._coming.clear()
        if self._coming:
            name, candidate, seed = self._coming.pop(0)
            if name not in self._loaded and (name, seed) not in self._ahead:
                self._ahead[name, seed] = self._said_of(candidate, seed)
            if not self._evaluator.usable:
                os._exit(1)  # a new process asks again, and says what it was
        return bool(self._coming)

    def _said_of(self, candidate: Candidate, seed: int) -> Green | CandidateError:
        began = time.monotonic()
        try:
            return self._evaluator.gate(candidate, seed, thorough=True)
        except CandidateError as error:
            return error
        finally:
            self._longest_s = max(self._longest_s, time.monotonic() - began)

    def gate(self, name: str, candidate: Candidate, seed: int, thorough: bool) -> tuple[CaseError, ...]:
        """On the GPU; if `thorough` and `on_emulator`, beside it there too."""
        began = time.monotonic()
        emulation = self._emulation(name, candidate, seed) if thorough else None
        self._coming = [asked for asked in self._coming if asked[0] != name]
        green: Green | CandidateError
        if thorough:
            green = self._ahead.pop((name, seed), None) or self._said_of(candidate, seed)
        else:
            green = self._evaluator.gate(candidate, seed, thorough)
        if isinstance(green, CandidateError):
            raise green
        if emulation is not None:
            try:
                emulation.result()
            finally:
                self._longest_s = max(self._longest_s, time.monotonic() - began)
        self._loaded[name] = green
        self._asked[name] = candidate, seed
        return green.errors

    def sanitize(self, name: str) -> str:
        said = sanitized(self._evaluator, self._asked[name][0], self._loaded[name])
        # one that was loaded anew after a resume is asked only now
        emulation = self._emulation(name, *self._asked[name])
        return f"{said}; {emulation.result()}" if emulation is not None else said

    def _emulation(self, name: str, candidate: Candidate, seed: int) -> Future[str] | None:
        return self._emulators.ask(name, candidate, seed) if self._emulators is not None else None

    def round(self, protocol: str, seed: int, names: Sequence[str]) -> Round:
        self._coming.clear()  # nothing runs between rounds
        finalists = {name: self._loaded[name] for name in names}
        return self._rounds.round("cold" if protocol == "cold" else "warm", seed, finalists)

    def skipped(self) -> Mapping[str, str]:
        return self._rounds.skipped

    def kernels(self) -> Mapping[str, Sequence[str]]:
        return self._rounds.kernels()

    def close(self) -> None:
        self._loaded.clear()
        self._evaluator.close()
        if self._emulators is not None:
            self._emulators.close()


@dataclass(frozen=True)
class WorkerSpec:
    """What makes a GpuWorker in any process of this machine; picklable. `patient`: with the baselines that
    take seconds to set up. `on_emulator`: finalists must pass the emulator's schedules too. `hurried`:
    without baselines that are much slower than others."""

    evaluator: EvaluatorSpec
    problem: Problem
    patient: bool = True
    on_emulator: bool = True
    hurried: bool = False

    @classmethod
    def of(cls, setup: Setup, patient: bool = True) -> WorkerSpec:
        """For the finalists of a study. Where there is no patience slow baselines are left out, too."""
        return cls(EvaluatorSpec.of(setup), setup.study.problem, patient, hurried=not patient)

    @classmethod
    def of_problem(
        cls,
        problem: Problem,
        device: str,
        gpu: Gpu,
        cache: Path,
        nvcc: Path | None,
        patient: bool,
        folders: tuple[Path, ...] = (),
    ) -> WorkerSpec:
        """For a problem that belongs to no study; its task is looked for in `folders` first."""
        spec = EvaluatorSpec(problem.task, device, gpu, Limits.of(gpu), cache, nvcc=nvcc, folders=folders)
        return cls(spec, problem, patient, on_emulator=False)

    def on_calls(self, calls: OwnCalls | None) -> WorkerSpec:
        """The same, with recorded calls of the problem."""
        return replace(self, evaluator=replace(self.evaluator, calls=calls, of_calls=self.problem))

    def build(self) -> GpuWorker:
        # the evaluator's own timing session would hold memory and time for nothing
        evaluator = replace(self.evaluator, problem=None).build()
        return GpuWorker(evaluator, self.problem, self.patient, self.on_emulator, self.hurried)


class BuildsWorker(Protocol):
    """Picklable; what a WorkerProcess needs to know."""

    def build(self) -> ConfirmWorker: ...


class WorkerProcess:
    """A worker in a process of its own, started with the first question. Hung or Crashed where it did not
    survive one; then no finalist is loaded any more."""

    def __init__(self, spec: BuildsWorker, answer_s: float = ANSWER_S) -> None:
        self._spec = spec
        self._answer_s = answer_s
        self._child: Child | None = None
        self._loaded: list[str] = []

    @property
    def loaded(self) -> Sequence[str]:
        return tuple(self._loaded)

    def surroundings(self) -> Surroundings:
        found: Surroundings = self._ask("surroundings")
        return found

    def expect(self, coming: Sequence[GateRequest], asked_at: float) -> None:
        """Does not wait, not even for the process to start."""
        self._child = self._child or Child(_worker, self._spec)
        self._child.tell("expect", tuple(coming), asked_at)

    def gate_s(self, name: str, seed: int) -> float:
        try:
            return float(self._ask("gate_s", name, seed))
        except CandidateError:  # it died: what is asked next begins anew
            return 0.0

    def gate(self, name: str, candidate: Candidate, seed: int, thorough: bool) -> tuple[CaseError, ...]:
        found: tuple[CaseError, ...] = self._ask("gate", name, candidate, seed, thorough)
        self._loaded.append(name)
        return found

    def sanitize(self, name: str) -> str:
        return str(self._ask("sanitize", name))

    def round(self, protocol: str, seed: int, names: Sequence[str]) -> Round:
        found: Round = self._ask("round", protocol, seed, tuple(names))
        return found

    def skipped(self) -> Mapping[str, str]:
        found: Mapping[str, str] = self._ask("skipped")
        return found

    def kernels(self) -> Mapping[str, Sequence[str]]:
        found: Mapping[str, Sequence[str]] = self._ask("kernels")
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process; the next question would start another."""
        self._loaded.clear()
        if self._child is not None:
            self._child.close()
            self._child = None

    def _ask(self, method: str, *words: object) -> Any:
        if self._child is not None and self._child.dead and not self._loaded:
            self.close()  # it died while nothing was asked of it but to prepare
        if self._child is None:
            self._child = Child(_worker, self._spec)
        try:
            return self._child.ask(method, *words, deadline=self._answer_s)
        except (CandidateError, Fallen) as error:
            blamed = error.error if isinstance(error, Fallen) else error
            if self._child.dead or isinstance(blamed, Crashed):  # the process is gone, or its CUDA context
                self.close()
            raise
        except BaseException:
            self.close()
            raise


def _worker(spec: BuildsWorker, _report: Report) -> ConfirmWorker:
    """What runs in the process."""
    return spec.build()
