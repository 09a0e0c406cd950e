"""GREEN, RED or UNPROVEN. `check` is the only maker of a `Green`.

A candidate must hold no state of its own between launches, and pass every case that is planned for it
(evo.gate.cases). The study's own problem comes last: on a GPU in full, more than 20 launches in all, half of
them beside a kernel that keeps the memory busy; on the emulator once with each of its families, and the
report feeds the estimate. There a dear kernel runs on a share of the independent pieces (`Task.share`: fewer
heads), its counters are scaled up, and of small problems only what evo.gate.budget pays for; the verdict says
so. Where less than half of some class of cases ran, it is UNPROVEN.

Every launch runs in guarded memory (evo.gate.memory: guards, poison, watched inputs). All outputs of a case
must be equal bit for bit where the template promises that; the first is compared (evo.gate.tolerance) with
the task's reference, which is computed after the launch. Seeds follow from the trial's seed and are part of
what is stored, with every error that was measured, also for passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from evo.device import Device, Kernel, LaunchReport
from evo.errors import CandidateError, Red, Unproven
from evo.gate.cases import plan, plan_first
from evo.gate.run import Between, KernelFor, Run, at_once
from evo.task import Task
from evo.trial import Binary, CaseError, Extent, LaunchConfig, Problem

_SEAL = object()


class Green:
    """A kernel that passed the gate, with what was measured on the way. Only `check` makes one.

    `kernel` and `launch` are the very ones that passed, for `problem`; `report` is of the first launch of
    that problem. `extent` says how much of the plan ran.
    """

    __slots__ = ("errors", "extent", "kernel", "launch", "launches", "problem", "report")

    kernel: Kernel
    launch: LaunchConfig
    problem: Problem
    errors: tuple[CaseError, ...]
    report: LaunchReport
    launches: int
    extent: Extent

    def __init__(self, seal: object, **verdict: Any) -> None:
        if seal is not _SEAL:
            raise TypeError("only gate.check makes a Green")
        for name in self.__slots__:
            object.__setattr__(self, name, verdict[name])

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a verdict does not change: {name}")

    def __reduce__(self) -> Any:
        raise TypeError("a Green stays in the process that gated its kernel")


def check(
    kernel_for: KernelFor,
    device: Device,
    task: Task,
    problem: Problem,
    tiles: Sequence[int],
    *,
    seed: int,
    deterministic: bool = True,
    thorough: bool = False,
    accept_unproven: bool = False,
    between: Between = at_once,
) -> Green:
    """The verdict on a candidate for `problem`. `tiles` are its tile sizes, `seed` the trial's; where
    `deterministic` is false, the bits of its results may differ from run to run. `thorough`, for finalists:
    all ragged problems, and every family on the study's own. `accept_unproven`: GREEN also where some class
    of cases hardly ran. `between` is called between two cases, with what ends the work begun so far: there
    others may have the device.

    Raises Red (with the case, the first wrong element and the errors measured so far), Unproven, and whatever
    a launch raises (Unlaunchable, Hung, Crashed).
    """
    kernel, launch = kernel_for(problem)
    refuse_state(kernel.binary)
    first = plan_first(task, problem, tiles, seed, device)
    others = partial(plan, task, problem, tiles, device, seed=seed, thorough=thorough)
    run = Run(kernel_for, device, task, problem, seed, deterministic, thorough, first, others, between)
    try:
        report, extent = run.all()
    except CandidateError:
        run.abandon()
        raise
    if extent.missed and not accept_unproven:
        raise unproven(extent, tuple(run.errors))
    return Green(
        _SEAL,
        kernel=kernel,
        launch=launch,
        problem=problem,
        errors=tuple(run.errors),
        report=report,
        launches=run.launches,
        extent=extent,
    )


def unproven(extent: Extent, errors: tuple[CaseError, ...]) -> Unproven:
    """What is said of a kernel in which nothing wrong was seen, but of some class less than half ran."""
    listed = ", ".join(extent.missed)
    detail = f"{extent.run} of {extent.planned} cases ran; {'; '.join(extent.left_out)}"
    return Unproven(f"hardly ran: {listed}", detail, errors=errors, extent=extent)


def refuse_state(binary: Binary) -> None:
    """Raises Red if the kernel may write what lives on between launches, where no guard and poison reach:
    a module-level variable, its own parameters, the heap. Scratch belongs in a workspace."""
    for name in binary.state:
        raise Red("module-level state", f"the kernel may write {name}, which lives on between launches", name)
