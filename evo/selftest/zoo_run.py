"""The gate's own test: is every planted kernel of a zoo refused, and for its reason, and is no honest one?

On the emulator kernels run in this process, where none can do harm. On a GPU they run in a child process,
which they may hang or kill; what passes there goes to the emulator, as finalists do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from evo.cache import Cache
from evo.calls import OwnCalls, with_calls
from evo.child import Child, Report
from evo.compile import Compiler, find_compiler, undeclared
from evo.device import Device, Kernel
from evo.device.open import is_gpu, open_device
from evo.errors import CandidateError, Crashed, Hung, Unproven
from evo.gate import Green, check
from evo.gate.emulator_check import second_opinion
from evo.gate.tolerance import compare
from evo.gpu import Gpu
from evo.selftest.zoo import FLAWLESS, Planted, Zoo
from evo.task import Task, load_task
from evo.trial import Binary, Extent, LaunchConfig, Outcome, Problem

MARKED = "MARKED"
"""How a kernel ended that is GREEN, but reads clocks or places: it makes no champion."""
DEADLINE_S = 8.0
"""How long a kernel may take on a GPU until it counts as hung."""
Stage = Literal["candidates", "finalists"]


@dataclass(frozen=True)
class Finding:
    """How one planted kernel ended, and which stage refused it: what every candidate goes through, or what
    only finalists do. `right`: refused if planted, GREEN if honest; `reasoned`: for the reason that it should
    have."""

    name: str
    says: str
    outcome: str
    reason: str
    where: str
    right: bool
    reasoned: bool
    seconds: float
    launches: int = 0
    cases_run: int | None = None
    """Of `cases_planned`; None where the gate did not come to its end."""
    cases_planned: int | None = None
    stage: Stage = "candidates"

    @property
    def honest(self) -> bool:
        """Whether the kernel should be GREEN."""
        return self.right == (self.outcome == Outcome.GREEN)


def try_zoo(
    zoo: Zoo,
    folders: tuple[Path, ...],
    device: str,
    gpu: Gpu,
    cache: Path,
    nvcc: Path | None,
    seed: int = 0,
    accept_unproven: bool = False,
    own: tuple[Problem, OwnCalls] | None = None,
) -> Iterator[Finding]:
    """The whole zoo on a device ("cuda:0", "emulator"); its task is looked for in `folders` first. `own`: a
    problem, and recorded calls that kernels of this problem meet, too."""
    task = with_calls(zoo.task, *(own or (None, None)))
    planted = [one for one in zoo.planted() if one.runs_on(gpu.arch)]
    emulator, compiler = open_tools("emulator", gpu, cache, nvcc)
    try:
        if is_gpu(device):
            bench = Bench(task.name, folders, device, gpu, cache, nvcc, own)
            second = partial(try_finalist, emulator=emulator, compiler=compiler, task=task, seed=seed)
            yield from try_isolated(planted, bench, seed, second)
        else:
            for one in planted:
                yield try_planted(one, emulator, compiler, task, seed, accept_unproven)
            yield from try_baselines(zoo, emulator.torch_device, seed)
    finally:
        compiler.close()


def open_tools(device: str, gpu: Gpu, cache: Path, nvcc: Path | None) -> tuple[Device, Compiler]:
    """A device ("cuda:0", or "emulator", which stands for `gpu`), and a compiler to be closed."""
    compiler = find_compiler(nvcc, Cache(cache))
    return open_device(device, gpu, cache=cache, compiler=compiler), compiler


# ---- one kernel


def try_planted(
    planted: Planted,
    device: Device,
    compiler: Compiler,
    task: Task,
    seed: int,
    accept_unproven: bool = False,
) -> Finding:
    """One kernel through compiler, device and gate."""
    gate = partial(_gate, planted, device, compiler, task, seed, accept_unproven)
    return _finding(planted, device.checks_accesses, gate)


def try_finalist(planted: Planted, emulator: Device, compiler: Compiler, task: Task, seed: int) -> Finding:
    """One kernel that is GREEN on a GPU as a finalist: on the emulator too, compiled for that GPU."""
    # a GPU has run the whole plan: what is too slow for all of it here is judged by what runs
    gate = partial(_gate, planted, emulator, compiler, task, seed, accept_unproven=True)
    return replace(_finding(planted, False, lambda: second_opinion(gate)), stage="finalists")


def _finding(planted: Planted, checked: bool, verdict: Callable[[], Green]) -> Finding:
    start = time.perf_counter()
    launches, outcome, reason, where = 0, Outcome.GREEN.value, "", ""
    extent: Extent | None = None
    try:
        green = verdict()
        launches, extent = green.launches, green.extent
        if reads := undeclared(green.kernel.binary.reads, (), green.launch):
            outcome, reason = MARKED, f"reads {' '.join(reads)}"
    except CandidateError as error:
        outcome, reason, where = error.outcome, error.reason, error.where
        extent = error.extent if isinstance(error, Unproven) else None
    took = time.perf_counter() - start
    found = _compared(planted, checked, outcome, reason, where, seconds=took, launches=launches)
    return replace(found, cases_run=extent.run, cases_planned=extent.planned) if extent else found


def _gate(
    planted: Planted,
    device: Device,
    compiler: Compiler,
    task: Task,
    seed: int,
    accept_unproven: bool = False,
) -> Green:
    binary: Binary = compiler.compile(planted.source, planted.entry, planted.arch or device.gpu.arch)

    def kernel_for(problem: Problem) -> tuple[Kernel, LaunchConfig]:
        launch = planted.launch(problem)
        return device.load(binary, launch), launch

    return check(
        kernel_for,
        device,
        task,
        planted.problem,
        planted.tiles,
        seed=seed,
        thorough=planted.thorough,
        accept_unproven=accept_unproven,
    )


def _compared(
    planted: Planted,
    checked: bool,
    outcome: str,
    reason: str,
    where: str = "",
    *,
    seconds: float,
    launches: int = 0,
) -> Finding:
    """Compares how a kernel ended with how it should have; `checked`: on a device that checks accesses."""
    expected = planted.expected if checked else planted.expected_on_gpu
    right = (outcome == Outcome.GREEN) == planted.honest
    reasoned = bool(expected & {outcome, reason})
    return Finding(
        planted.name, planted.says, outcome, reason, where, right, right and reasoned, seconds, launches
    )


# ---- on a GPU, where a kernel may end the process


@dataclass(frozen=True)
class Bench:
    """What a child process makes its device, compiler and task of. Picklable."""

    task: str
    folders: tuple[Path, ...]
    device: str
    gpu: Gpu
    cache: Path
    nvcc: Path | None
    own: tuple[Problem, OwnCalls] | None = None


class Trier:
    """Tries one kernel after the other, in a process that may hang or die."""

    def __init__(self, bench: Bench, _report: Report) -> None:
        self._task = with_calls(load_task(bench.task, bench.folders), *(bench.own or (None, None)))
        self._device, self._compiler = open_tools(bench.device, bench.gpu, bench.cache, bench.nvcc)

    def attempt(self, planted: Planted, seed: int) -> Finding:
        return try_planted(planted, self._device, self._compiler, self._task, seed)


def try_isolated(
    planted: Sequence[Planted], bench: Bench, seed: int, second: Callable[[Planted], Finding]
) -> Iterator[Finding]:
    """The kernels, one after the other, in a child process. When one ends it, the next child, which is made
    ready meanwhile, goes on. What is GREEN there goes to the `second` stage, in this process."""
    child, spare = Child(Trier, bench), Child(Trier, bench)
    try:
        for one in planted:
            if one.emulator_only:
                continue
            start = time.perf_counter()
            try:
                found: Finding = child.ask("attempt", one, seed, deadline=DEADLINE_S)
            except (Hung, Crashed) as error:
                reason = "no answer" if isinstance(error, Hung) else error.reason
                took = time.perf_counter() - start
                found = _compared(one, False, error.outcome, reason, seconds=took)
            if found.outcome == Outcome.GREEN:
                last = second(one)
                launches, seconds = found.launches + last.launches, found.seconds + last.seconds
                found = replace(last, launches=launches, seconds=seconds)
            yield found
            if found.outcome in (Outcome.HUNG, Outcome.CRASHED):
                child.close()
                child, spare = spare, Child(Trier, bench)
    finally:
        child.close()
        spare.close()


# ---- the libraries' own kernels


def try_baselines(zoo: Zoo, torch_device: str, seed: int, seeds: int = 1) -> Iterator[Finding]:
    """The task's baselines through the numeric checks, for each control of the zoo: none may be refused."""
    for control, problem in zoo.controls.items():
        for name, run in zoo.task.baselines(problem, torch_device).items():
            if name in zoo.loose_baselines:
                continue
            start = time.perf_counter()
            refused = _refusal(zoo.task, problem, run, torch_device, range(seed, seed + seeds))
            outcome, reason, where = refused or (Outcome.GREEN.value, "", "")
            seconds = time.perf_counter() - start
            title = f"baseline {name} {control}"
            yield Finding(title, FLAWLESS, outcome, reason, where, not refused, not refused, seconds)


def _refusal(
    task: Task, problem: Problem, run: Callable[[Mapping[str, Any]], Any], torch_device: str, seeds: range
) -> tuple[str, str, str] | None:
    """How the judge refuses an implementation first, on all families: outcome, reason and where."""
    import torch

    for at in seeds:
        for family in task.families.names:
            inputs = task.inputs(problem, family, at, torch_device)
            with torch.no_grad():
                out = run(inputs)
            reference, honest = task.reference(problem, inputs), task.honest(problem, inputs)
            several = out if isinstance(out, tuple) else (out,)
            outputs = out if isinstance(out, Mapping) else dict(zip(reference, several, strict=True))
            try:
                for name, tensor in outputs.items():
                    compare(name, tensor, reference[name], honest[name], task.tolerance)
            except CandidateError as error:
                return error.outcome, error.reason, f"{family} seed={at}: {error}"
    return None
