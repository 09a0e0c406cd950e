"""What `evo.kernel` gives: a task's champions as one call, and the task's fallback where none serves."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling, is_dynamo_compiling

from evo.api.arguments import Call, Outputs, Reader, check_outputs, problem_of_tensors
from evo.api.fallen_calls import FallenCalls
from evo.api.known_calls import KnownCalls
from evo.api.launching import Launcher, launcher_at
from evo.api.operator import operators
from evo.confirm.champions import Champion
from evo.confirm.choice import Choice, Considered, consider, first_of
from evo.device import Kernel
from evo.device.open import gpu_named, is_gpu, real_gpu
from evo.dtype import dtype_named
from evo.errors import CandidateError, MachineError, NothingFound, UsageError
from evo.gpu import Gpu, Limits
from evo.launch.reading import OUTPUT, output_and_flags
from evo.launch.traced import Means, usual_calls
from evo.task import BufferSpec, Fallback, Task
from evo.task.modules import module_beside
from evo.trial import Problem, Value

MOST_DECISIONS = 4096
"""Kept at once; the oldest gives way."""
MOST_LINES = 100
"""Reasons that are logged; a program with more of them has seen enough."""
_log = logging.getLogger("evo.kernel")


@dataclass(frozen=True)
class Decision:
    """What serves a problem on a GPU, and why: `kernel` is a champion's name, "" where the `fallback` serves
    (its name; "" where there is none). `gpu` is "" where tensors lie on none."""

    problem: str
    gpu: str
    kernel: str
    fallback: str
    why: str

    @property
    def serves(self) -> str:
        return self.kernel or self.fallback or "nothing"

    def __str__(self) -> str:
        return f"{self.problem} on {self.gpu or 'no GPU'}: {self.serves}: {self.why}"


@dataclass(frozen=True)
class Explanation:
    """What `TaskKernel.explain` tells: the decision, and every champion of the task, best first."""

    decision: Decision
    considered: tuple[Considered, ...]

    def __str__(self) -> str:
        others = [
            f"  {'after it' if one.launch else 'not'} {one.champion.name}: {one.why}"
            for one in self.considered
            if one.champion.name != self.decision.kernel
        ]
        return "\n".join([str(self.decision), *others])


@dataclass(frozen=True)
class _Served:
    """A decision, and what runs it: the launcher and the loaded kernel where a champion serves; the fallback
    serves what they cannot take."""

    problem: Problem
    specs: tuple[BufferSpec, ...]
    fallback: Fallback | None
    decision: Decision
    loaded: tuple[Launcher, Kernel, Choice] | None = None


class TaskKernel:
    """A task as one call: `o = attention(q, k, v, causal=True)`. `evo.kernel` makes it."""

    def __init__(
        self,
        task: Task,
        found: Sequence[Champion],
        folders: Sequence[Path],
        cache: Path,
        *,
        nvcc: Path | None = None,
        emulated: Gpu | None = None,
    ) -> None:
        self.task = task
        self.champions = tuple(one for one in found if one.problem.task == task.name)
        self._folders, self._cache, self._nvcc, self._emulated = tuple(folders), cache, nvcc, emulated
        self._reader, self._flag_out = Reader(task), OUTPUT in task.flags
        self._known = KnownCalls(self._reader.names, cache)
        self._served: dict[tuple[object, ...], _Served] = {}
        self._fallen = FallenCalls[_Served](MOST_DECISIONS)
        self._lock = threading.RLock()
        self._said: set[str] = set()
        own = None if self.champions else module_beside(task, "fallback.py")
        plain = own.fallback if own else None
        means = Means(self._run, self._backward, self._writer, self._serves, plain)
        self._operators = operators(task, means)
        defaults = {name: flag.default for name, flag in task.flags.items()}
        self._usual = usual_calls(self._operators, self._reader.lone, defaults, self._reader.tensors)

    def __call__(self, *tensors: Any, out: Tensor | Outputs | Value | None = None, **named: Any) -> Any:
        """Computes it: a champion where one serves, else the task's fallback.

        By place are the buffers that the task reads; by name any buffer, its flags, and sizes that no shape
        tells. `out`: the output, or several by name; with it no memory is allocated, but for workspaces.
        Where the task has a flag `out`, a text or a number is the flag, and an output can be given by its
        name besides. What is changed in place changes. A kernel runs on torch's current stream, and nothing
        waits for it. Gives the output, or several by name.

        The fallback serves: tensors on no GPU, those that require a gradient, that are not contiguous or do
        not begin at a multiple of 16 bytes, problems that no champion serves, and kernels that this machine
        cannot compile or load. The log (`evo.kernel`) says so once for each reason.

        UsageError where the tensors are not the task's, and the first time within a CUDA graph's capture;
        NothingFound where there is no fallback."""
        if self._flag_out:
            out, named = output_and_flags(out, named)
        if is_dynamo_compiling():
            usual = self._usual.get((len(tensors), *named)) if out is None else None
            if usual is not None and (*named.values(),) in usual:
                return usual[*named.values(),](*tensors)
        else:
            known = self._known.call(tensors, out, named)
            if known is not None:
                return known
            if out is None and not is_compiling() and (fallen := self._fallen.find(tensors, named)):
                call, served = fallen
                return _one_or_all(self._fall_back(call, served, served.decision.why))
        if is_compiling():
            return _one_or_all(self._traced(self._reader.read(tensors, out, named)))
        return self._computed(tensors, out, named)

    def _computed(self, tensors: tuple[Any, ...], out: Any, named: dict[str, Any]) -> Any:
        """What the call gives; the next such call is known."""
        call = self._reader.read(tensors, out, named)
        written = self._written(call)
        self._learn(call, tensors, out, named)
        return _one_or_all(written)

    def pack(self, **named: Any) -> dict[str, Tensor]:
        """What a call takes besides, made once of the tensors that it is of, with flags: for weights of 4
        bits, `w4a16(x, w4, scales, **w4a16.pack(w4=w4, scales=scales))`. {} where the task packs nothing."""
        flags, tensors = self._reader.told(named)
        if own := module_beside(self.task, "pack.py"):
            return dict(own.pack(tensors, flags))
        if not self.task.packings:
            return {}
        problem = problem_of_tensors(self.task, tensors, flags, {})
        return {name: one.pack(problem, tensors) for name, one in self.task.packings.items()}

    def explain(self, *tensors: Any, gpu: str | None = None, **named: Any) -> Explanation:
        """What would serve such a call and why, and why not the other champions; nothing is computed. `gpu`:
        as on the GPU of that name ("H200"), wherever the tensors lie. It prints as text."""
        call = self._reader.read(tensors, None, named)
        if gpu is None:
            served = self._serve(call)
            decision, at = served.decision, self._gpu(call.place)
            if served.loaded and call.obstacle:
                decision = self._without(served.problem, at, call.obstacle)
        else:
            at = gpu_named(gpu)
            problem = problem_of_tensors(self.task, call.read, call.flags, call.sizes)
            decision = self._decision(problem, at, call.obstacle)
        if at is None:
            return Explanation(decision, ())
        problem = problem_of_tensors(self.task, call.read, call.flags, call.sizes)
        return Explanation(decision, tuple(self._considered(problem, at)))

    def table(self, gpu: str | None = None) -> list[Decision]:
        """The decisions for the GPU of that name, one for each problem that a champion was made for; without
        a GPU those that were made in this process."""
        if gpu is None:
            return [served.decision for served in list(self._served.values())]
        problems = {one.problem.key: one.problem for one in self.champions}
        return [self._decision(problem, gpu_named(gpu)) for problem in problems.values()]

    def __repr__(self) -> str:
        fallback = self._fallback_name(self.task.example)
        return f"<evo.kernel {self.task.name}: {len(self.champions)} champions, else {fallback or 'nothing'}>"

    # ---- decisions

    def _serve(self, call: Call) -> _Served:
        """The decision for calls like this one, made once."""
        key = call.key
        found = self._served.get(key)
        if found is None:
            with self._lock:
                found = self._served.get(key) or self._decided(call)
                while len(self._served) >= MOST_DECISIONS:
                    del self._served[next(iter(self._served))]
                self._served[key] = found
        return found

    def _decided(self, call: Call) -> _Served:
        problem = problem_of_tensors(self.task, call.read, call.flags, call.sizes)
        served = problem, self.task.buffers(problem), self.task.fallback(problem)
        gpu = self._gpu(call.place)
        if gpu is None:
            return _Served(*served, self._without(problem, None, f"the tensors lie on {call.place}"))
        considered = self._considered(problem, gpu)
        try:
            choice = first_of(problem, Limits.of(gpu), considered)
            place = call.place if is_gpu(call.place) else "emulator"
            launcher = launcher_at(place, gpu, self._cache, self._nvcc)
            kernel = launcher.load(choice.candidate(problem))
        except NothingFound as error:
            return _Served(*served, self._without(problem, gpu, error.message))
        except (CandidateError, MachineError) as error:
            why = f"{choice.champion.name} does not run here: {error}"
            return _Served(*served, self._without(problem, gpu, why))
        decision = self._by(choice, problem, gpu)
        _log.info("%s", decision)
        return _Served(*served, decision, (launcher, kernel, choice))

    def _decision(self, problem: Problem, gpu: Gpu, obstacle: str = "") -> Decision:
        """What would serve on `gpu`, if it can be compiled and loaded there."""
        if obstacle:
            return self._without(problem, gpu, obstacle)
        try:
            choice = first_of(problem, Limits.of(gpu), self._considered(problem, gpu))
        except NothingFound as error:
            return self._without(problem, gpu, error.message)
        return self._by(choice, problem, gpu)

    def _by(self, choice: Choice, problem: Problem, gpu: Gpu) -> Decision:
        name, fallback = choice.champion.name, self._fallback_name(problem)
        return Decision(problem.key, gpu.name, name, fallback, choice.why)

    def _considered(self, problem: Problem, gpu: Gpu) -> list[Considered]:
        return consider(problem, Limits.of(gpu), self.champions, self._folders)

    def _without(self, problem: Problem, gpu: Gpu | None, why: str) -> Decision:
        return Decision(problem.key, gpu.name if gpu else "", "", self._fallback_name(problem), why)

    def _fallback_name(self, problem: Problem) -> str:
        fallback = self.task.fallback(problem)
        return fallback.name if fallback else ""

    def _gpu(self, place: str) -> Gpu | None:
        """The GPU that tensors of a place run on; None where there is none."""
        if is_gpu(place):
            return real_gpu(place if ":" in place else "cuda:0")
        return self._emulated if place == "cpu" else None

    # ---- what is computed

    def _written(self, call: Call) -> dict[str, Tensor]:
        """What the call writes, by name."""
        served = self._serve(call)
        if call.outputs:
            check_outputs(call, served.specs)
        why = call.obstacle if served.loaded else served.decision.why
        if why or served.loaded is None:
            return self._fall_back(call, served, why)
        launcher, kernel, choice = served.loaded
        buffers = {**call.read, **call.outputs}
        for spec in served.specs:
            if spec.name not in buffers:
                kind = dtype_named(spec.dtype).torch
                buffers[spec.name] = torch.empty(spec.shape, dtype=kind, device=call.place)
        launcher.start(kernel, choice.launch, served.specs, buffers, ())
        return {spec.name: buffers[spec.name] for spec in served.specs if spec.written}

    def _fall_back(self, call: Call, served: _Served, why: str) -> dict[str, Tensor]:
        """By the task's fallback, whose outputs have a gradient where the inputs have."""
        fallback = served.fallback
        if fallback is None:
            raise NothingFound(f"no kernel serves this call of {self.task.name}: {why}", "it has no fallback")
        self._say(why, fallback.name)
        written = {}
        for name, value in outputs_of(fallback, served.specs, call.read).items():
            given = call.outputs.get(name, call.read.get(name))
            gradient = value.requires_grad or (given is not None and given.requires_grad)
            if given is not None and gradient and torch.is_grad_enabled():
                hint = "call it within torch.no_grad(), or without out="
                raise UsageError(f"{name} is written in place, which has no gradient", hint)
            written[name] = value if given is None else given.copy_(value)
        return written

    def _learn(self, call: Call, tensors: tuple[Any, ...], out: Any, named: dict[str, Any]) -> None:
        """The next such call is known, if a champion served this one on a GPU, or if none ever does."""
        served = self._serve(call)
        if served.loaded is None:
            self._fallen.add(call, tensors, named, served)
        elif not call.obstacle:
            _, kernel, choice = served.loaded
            self._known.add(kernel, choice.launch, served.specs, call, (tensors, out, named))

    def _say(self, why: str, fallback: str) -> None:
        """One line for each reason."""
        with self._lock:
            if why in self._said or len(self._said) >= MOST_LINES:
                return
            self._said.add(why)
        _log.warning("%s: %s serves, not a champion: %s", self.task.name, fallback, why)

    def _traced(self, call: Call) -> dict[str, Tensor]:
        """By the operator, which torch.compile takes as it is; into `out=` it is copied afterwards."""
        if call.sizes:
            raise UsageError("sizes by name are not traced", "call it outside of torch.compile")
        specs = self._reader.buffers(call.flags)
        names = [spec.name for spec in specs if spec.role == "out"]
        found = self._operators[tuple(call.flags.values())](*call.read.values())
        several = (found,) if len(names) == 1 else found or ()
        made = dict(zip(names, several, strict=True))
        for name, given in call.outputs.items():
            made[name] = given.copy_(made[name])
        return {spec.name: made.get(spec.name, call.read.get(spec.name)) for spec in specs if spec.written}

    def _run(self, tensors: tuple[Tensor, ...], flags: dict[str, Value]) -> Any:
        """For an operator, what `__call__` gives."""
        known = self._known.call(tensors, None, flags)
        if known is not None:
            return known
        names = [spec.name for spec in self._reader.buffers(flags) if spec.read]
        read = dict(zip(names, tensors, strict=True))
        call = Call(read, {}, flags, {}, str(tensors[0].device))
        written = self._written(call)
        self._learn(call, tensors, None, flags)
        return _one_or_all(written)

    def _writer(self, flags: dict[str, Value]) -> Callable[..., None]:
        """For an operator, `__call__` with these flags and an output."""
        known = self._known

        def write(*tensors: Tensor, out: Tensor) -> None:
            if known.call(tensors, out, flags) is None:
                with torch.no_grad():
                    self._computed(tensors, out, flags)

        return write

    def _serves(self, tensors: tuple[Tensor, ...], flags: dict[str, Value]) -> bool:
        """For an operator: whether a champion is made for such tensors, which need no content."""
        names = [spec.name for spec in self._reader.buffers(flags) if spec.read]
        problem = problem_of_tensors(self.task, dict(zip(names, tensors, strict=True)), flags, {})
        gpu = self._gpu(str(tensors[0].device))
        return gpu is not None and bool(self._decision(problem, gpu).kernel)

    def _backward(
        self, read: Mapping[str, Tensor], flags: Mapping[str, Value], grads: Sequence[Tensor]
    ) -> list[Tensor]:
        """For an operator: the gradient of the fallback, computed again."""
        problem = problem_of_tensors(self.task, read, flags, {})
        fallback = self.task.fallback(problem)
        if fallback is None:
            hint = "call it within torch.no_grad()"
            raise NothingFound(f"{self.task.name} has no fallback, and so no gradient", hint)
        with torch.enable_grad():
            again = {name: x.detach().requires_grad_(x.is_floating_point()) for name, x in read.items()}
            outputs = outputs_of(fallback, self.task.buffers(problem), again)
            wanted = [x for x in again.values() if x.requires_grad]
            found = iter(torch.autograd.grad(list(outputs.values()), wanted, list(grads), allow_unused=True))
        pulled = [next(found) if x.requires_grad else None for x in again.values()]
        return [
            torch.zeros_like(x) if grad is None else grad.contiguous()
            for grad, x in zip(pulled, read.values(), strict=True)
        ]


def _one_or_all(written: dict[str, Tensor]) -> Any:
    return next(iter(written.values())) if len(written) == 1 else written


def outputs_of(
    fallback: Fallback, specs: Sequence[BufferSpec], read: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """What a fallback computes, by name, in the shapes and types of the buffers that are written."""
    found = fallback.run(read)
    written = [spec for spec in specs if spec.written]
    if not isinstance(found, Mapping):
        several = found if isinstance(found, tuple) else (found,)
        found = dict(zip((spec.name for spec in written), several, strict=True))
    return {
        spec.name: found[spec.name].reshape(spec.shape).to(dtype_named(spec.dtype).torch) for spec in written
    }
