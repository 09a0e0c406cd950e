"""GREEN or RED. `check` is the only maker of a `Green`.

What a candidate goes through, cheapest first, so that a wrong one dies early:

1. it holds no state of its own between launches;
2. a small problem just beyond the candidate's tiles, with normal and with peaky inputs;
3. what must hold between two runs whatever the reference says (`Task.relations`);
4. the other boundary problems (one below, at and above the tiles; 1; ragged), each with another family of
   inputs; on the emulator each under another hostile but legal schedule, and one under all of them;
5. a few of the lengths that a last tile can have, others for each seed; for finalists all of them. Mutation
   testing asked for this: a mask that is wrong for one remainder is right at every boundary;
6. the study's own problem: on a GPU in full, 20 launches in all, half of them beside a kernel that keeps the
   memory busy, half of them with one key far above all others; on the emulator once, and its report feeds the
   estimate. There a kernel that would need more
   than OWN_INSTRUCTIONS runs on a share of the independent pieces (`Task.share`: fewer heads), its counters
   are scaled up, and the verdict says so.

Every launch runs in an `Arena` (guards, poison, watched inputs); all outputs of a case must be equal bit for
bit where the template promises that; the first is judged (`judging`) against an fp64 reference, which is
computed after the launch. Seeds follow from the trial's seed and are part of what is stored, with every error
that was measured, also for passes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from evo.device import Device, Kernel, LaunchReport
from evo.errors import CandidateError, Red
from evo.gate.run import Between, Case, KernelFor, Visit, at_once
from evo.task import Task
from evo.trial import Binary, CaseError, LaunchConfig, Problem

__all__ = ["Case", "Green", "KernelFor", "check"]


@dataclass(frozen=True)
class Effort:
    """How many launches the gate asks a device for."""

    repeats: int
    """Launches of a boundary problem under each of its schedules."""
    own_launches: int
    """Launches of the study's own problem with each of its two families, all bitwise equal."""
    ragged: int
    """Ragged problems that a candidate is tried on at least, unless the check is thorough; the task asks for
    more where a tile is long."""
    pieces: bool
    """One piece of each boundary problem in every check, and one piece of the study's own in place of all of
    it with the family in which one term is far above all others."""

    @classmethod
    def of(cls, device: Device) -> Effort:
        return MANY_LAUNCHES if device.launches_are_cheap else FEW_LAUNCHES


MANY_LAUNCHES = Effort(repeats=2, own_launches=10, ragged=12, pieces=False)
"""On a GPU, which has one schedule, its own: the same launch again may end otherwise."""
FEW_LAUNCHES = Effort(repeats=1, own_launches=1, ragged=24, pieces=True)
"""On the emulator. There all ragged problems took half of the gate's time, and a search found half as many
kernels."""

_SEAL = object()


class Green:
    """A kernel that passed the gate, with what was measured on the way. Only `check` makes one.

    `kernel` and `launch` are the very ones that passed, for `problem`; `report` is of the first launch of
    that problem. `skipped` names what was left out, and why.
    """

    __slots__ = ("errors", "kernel", "launch", "launches", "problem", "report", "skipped")

    kernel: Kernel
    launch: LaunchConfig
    problem: Problem
    errors: tuple[CaseError, ...]
    report: LaunchReport
    skipped: tuple[str, ...]
    launches: int

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
    kernel_for: KernelFor, device: Device, task: Task, problem: Problem, tiles: Sequence[int],
    *, seed: int, deterministic: bool = True, thorough: bool = False, between: Between = at_once,
) -> Green:  # fmt: skip
    """The verdict on a candidate for `problem`. `tiles` are its tile sizes, `seed` the trial's; where
    `deterministic` is false, the bits of its results may differ from run to run. `thorough`, for finalists:
    all ragged problems, the study's own in full, whatever it costs. `between` is called between two cases,
    with what ends the work begun so far: there others may have the device.

    Raises Red (with the case, the first wrong element and the errors measured so far), and whatever a launch
    raises (Unlaunchable, Hung, Crashed).
    """
    visit = Visit(kernel_for, device, task, deterministic, thorough, between)
    kernel, launch = kernel_for(problem)
    refuse_state(kernel.binary)
    try:
        report = _go_through(visit, problem, tiles, seed)
    except CandidateError:
        visit.abandon()
        raise
    return Green(
        _SEAL, kernel=kernel, launch=launch, problem=problem, errors=tuple(visit.errors),
        report=visit.scaled(report, problem),
        skipped=tuple(visit.skipped), launches=visit.launches,
    )  # fmt: skip


def _go_through(visit: Visit, problem: Problem, tiles: Sequence[int], seed: int) -> LaunchReport | None:
    """All cases in their order; the report of the last, which is the study's own."""
    task, device = visit.task, visit.device
    for number, case in enumerate(plan_boundary(task, problem, tiles, seed, device)):
        visit.run(case, may_skip=number > 2)
        if number == 0:
            visit.relate(case if visit.launches else replace(case, problem=problem))
    for case in plan_ragged(task, problem, tiles, seed, device, visit.thorough):
        visit.run(case, may_skip=True)
    own = [visit.run(case) for case in plan_own(task, visit.affordable(problem), seed, device)]
    visit.settle()
    return own[-1]


def plan_boundary(
    task: Task, problem: Problem, tiles: Sequence[int], seed: int, device: Device
) -> list[Case]:
    """The boundary problems: the first one with plain and with peaky inputs; the longest one under every
    schedule, for a pipeline must run full to go wrong, with inputs that add up roundings; all of them with
    families and schedules in turn.

    Which problem meets which family turns with the seed: over many trials each meets each."""
    problems = task.gate_problems(problem, tiles)
    longest = max(problems, key=task.flop)
    plain, peaky, even, *others = task.families.names
    turn = (*others, plain, peaky, even)
    default, *hostile = device.schedules
    placed: list[tuple[Problem, str, tuple[str, ...]]] = [
        (problems[0], plain, (default,)),
        (problems[0], peaky, (hostile[0] if hostile else default,)),
        (longest, even, device.schedules),
    ]
    for number, at in enumerate(problems, 1):
        schedule = hostile[number % len(hostile)] if hostile else default
        placed.append((at, turn[(number + seed) % len(turn)], (schedule,)))
    repeats = Effort.of(device).repeats
    return [Case(at, f, case_seed(seed, at, f), schedules * repeats) for at, f, schedules in placed]


def plan_ragged(
    task: Task, problem: Problem, tiles: Sequence[int], seed: int, device: Device, thorough: bool
) -> list[Case]:
    """Ragged problems, schedules in turn: a few, drawn by the seed; for finalists all. Half of them, the
    smaller or the larger ones, have inputs in which a mask that is wrong anywhere shows, the others families
    in turn; for finalists all have both, and longer ones the first. On the emulator and for finalists one
    piece of each boundary problem comes first, with one term far above all others: there may be code of its
    own for so many tiles."""
    every = task.ragged_problems(problem, tiles)
    effort = Effort.of(device)
    chosen = every if thorough else task.some_ragged(problem, tiles, effort.ragged, seed, effort.pieces)
    cases: list[Case] = []
    mask = task.families.masked or task.families.plain
    if effort.pieces or thorough:
        lone = task.families.lone or task.families.plain
        pieces = [task.share(at, 0.0) for at in task.gate_problems(problem, tiles)]
        cases += [Case(at, lone, case_seed(seed, at, lone), (device.schedules[0],)) for at in pieces]
    for number, at in enumerate(chosen):
        masked = (2 * number < len(chosen)) == bool(seed % 2)
        schedule = device.schedules[(number + seed) % len(device.schedules)]
        turn = task.families.names[(number + seed) % len(task.families.names)]
        families = (mask, turn) if thorough else (mask if masked else turn,)
        cases += [Case(at, f, case_seed(seed, at, f), (schedule,)) for f in dict.fromkeys(families)]
    far = task.ragged_problems(problem, tiles, far=True)[len(every) :] if thorough else ()
    cases += [
        Case(at, mask, case_seed(seed, at, mask), (device.schedules[index % len(device.schedules)],))
        for index, at in enumerate(far, seed)
    ]
    return cases


def plan_own(task: Task, problem: Problem, seed: int, device: Device) -> list[Case]:
    """The study's own problem: with plain inputs, whose report counts, last; before that with one term far
    above all others (on the emulator one piece of it, for that is cheap). Mutation testing asked for those: a
    maximum that overlooks a key shows only where that key is, and a kernel may have code of its own for keys
    that no boundary problem has."""
    plain, lone = task.families.plain, task.families.lone or task.families.plain
    default, effort = device.schedules[0], Effort.of(device)
    piece = task.share(problem, 0.0) if effort.pieces else problem
    schedules = (default,) * effort.own_launches
    return [Case(at, f, case_seed(seed, at, f), schedules) for at, f in ((piece, lone), (problem, plain))]


def case_seed(seed: int, problem: Problem, family: str) -> int:
    """The seed of one case: fresh for every trial seed, the same whenever that one is checked again."""
    raw = hashlib.sha256(f"{seed} {problem.key} {family}".encode()).digest()
    return int.from_bytes(raw[:4], "little") >> 1


def refuse_state(binary: Binary) -> None:
    """Raises Red if the kernel uses a module-level `__device__` variable: it would live on between launches,
    where no guard and no poison reaches it. Tables belong in `__constant__`, scratch in a workspace."""
    for name in binary.state:
        raise Red("module-level state", f"the kernel uses the __device__ variable {name}", name)
