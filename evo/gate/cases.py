"""Which cases a candidate meets: problems, families of inputs, and schedules. Planned before anything runs.

The order is by what a wrong candidate most likely fails first, cheapest first:

1. a small problem just beyond the candidate's tiles, with plain and with sharp inputs, and on it what must
   hold between two runs whatever the reference says (`Task.relations`);
2. the other boundary problems (one below, at and above the tiles; 1; ragged), each with another family; on
   the emulator each under another schedule, and one under all of them;
3. a few of the ragged problems (each size that a last tile can have), others for each seed; for finalists
   all of them. Mutation testing asked for this: a mask that is wrong for one remainder is right at every
   boundary;
4. the study's own problem, last: its report counts.

A family whose role a task does not fill is left out of the plan.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from evo.device import Device
from evo.task import Task
from evo.trial import Problem

MUST_RUN = 3
"""Boundary cases that run whatever they cost."""


@dataclass(frozen=True)
class Case:
    """One set of inputs, and the schedules that it is launched under, one launch each."""

    problem: Problem
    family: str
    seed: int
    schedules: tuple[str, ...]
    kind: Literal["case", "relations", "own"] = "case"
    """relations: the task's relations are checked on these inputs; own: the problem is the study's, and may
    run on a share of it."""
    may_skip: bool = False
    """Whether it may be left out where it costs too much."""

    def __str__(self) -> str:
        return f"{self.problem.key} {self.family} seed={self.seed}"


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


def plan(
    task: Task, problem: Problem, tiles: Sequence[int], device: Device, *, seed: int, thorough: bool = False
) -> list[Case]:
    """All cases of a candidate for `problem`, in their order. `tiles` are its tile sizes, `seed` the trial's;
    `thorough`, for finalists: all ragged problems."""
    first, *boundary = plan_boundary(task, problem, tiles, seed, device)
    ragged = plan_ragged(task, problem, tiles, seed, device, thorough)
    return [
        first,
        replace(first, kind="relations"),
        *(replace(case, may_skip=number >= MUST_RUN) for number, case in enumerate(boundary, 1)),
        *(replace(case, may_skip=True) for case in ragged),
        *plan_own(task, problem, seed, device),
    ]


def plan_boundary(
    task: Task, problem: Problem, tiles: Sequence[int], seed: int, device: Device
) -> list[Case]:
    """The boundary problems: the first one with plain and with sharp inputs; the longest one under every
    schedule, for a pipeline must run full to go wrong, with inputs that add up roundings; all of them with
    families and schedules in turn.

    Which problem meets which family turns with the seed: over many trials each meets each."""
    problems = task.gate_problems(problem, tiles)
    longest = max(problems, key=task.flop)
    families = task.families
    early = [name for name in (families.plain, families.sharp, families.even) if name]
    turn = (*(name for name in families.names if name not in early), *early)
    default, *others = device.schedules
    placed: list[tuple[Problem, str, tuple[str, ...]]] = [
        (problems[0], families.plain, (default,)),
        (problems[0], families.sharp or families.plain, (others[0] if others else default,)),
        (longest, families.even or families.plain, device.schedules),
    ]
    for number, at in enumerate(problems, 1):
        schedule = others[number % len(others)] if others else default
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
    lone = task.families.lone
    if lone and (effort.pieces or thorough):
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
    default, effort = device.schedules[0], Effort.of(device)
    piece = task.share(problem, 0.0) if effort.pieces else problem
    schedules = (default,) * effort.own_launches
    placed = [(problem, task.families.plain)]
    if task.families.lone:
        placed.insert(0, (piece, task.families.lone))
    return [Case(at, f, case_seed(seed, at, f), schedules, kind="own") for at, f in placed]


def case_seed(seed: int, problem: Problem, family: str) -> int:
    """The seed of one case: fresh for every trial seed, the same whenever that one is checked again."""
    raw = hashlib.sha256(f"{seed} {problem.key} {family}".encode()).digest()
    return int.from_bytes(raw[:4], "little") >> 1
