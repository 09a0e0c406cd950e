"""Which cases a candidate meets: problems, families of inputs, and schedules.

What comes after the first case and its relations is planned when these have run.

Every case is of a class, which says what only cases of its kind can show: one size, lengths below a tile,
whole tiles, more independent pieces than a pair, a family on the study's own problem. The order of the plan:

1. a small problem just beyond the candidate's tiles with plain inputs, where a wrong candidate most likely
   fails; on it what must hold between two runs whatever the reference says (`Task.relations`), and the same
   launch again, at once and after other inputs; then sharp inputs. A task may name more problems for
   relations (`Task.related_problems`);
2. the cheapest case of every class: what runs of a kernel that is slow on purpose must not be what its maker
   chose;
3. the other cases of small problems, cheap ones first: boundary problems (one below, at and above the tiles;
   1), each with another family; on the emulator each under another schedule, and one under all of them; the
   ragged problems (each size that a last tile can have), others for each seed; for finalists all of them.
   Mutation testing asked for this: a mask that is wrong for one remainder is right at every boundary;
4. on the emulator, where some offset does not fit 32 bits: the last CTAs of the study's own problem;
5. the study's own problem, plain inputs last: their report counts.

A family whose role a task does not fill is left out of the plan.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from evo.device import Device
from evo.gate.far import FAR_OFFSETS, is_far
from evo.task import DEFAULT_TILE, LARGEST_TILE, Task
from evo.trial import Problem

ONE_AFTER = "one term after tiles"
"""The class of sizes that are one more than two whole tiles, or more of them."""
BOTH = 512
"""Ragged problems that finalists meet with two families of inputs."""
DRAWS = 1000
"""Of each schedule at random there are so many, drawn by the trial's seed."""
FINALIST_SEEDS = 3
"""Seeds of each family on the study's own problem in the check for finalists."""
MOST_LONE_SEEDS = 16
"""Seeds of the lone family there: as many as show every pair of a row and a term of a tile, if not more than
this."""


@dataclass(frozen=True)
class Case:
    """One set of inputs, and the schedules that it is launched under, one launch each."""

    problem: Problem
    family: str
    seed: int
    schedules: tuple[str, ...]
    kind: Literal["case", "relations", "own", "far"] = "case"
    """relations: the task's relations are checked on these inputs, and the same launch comes again, at once
    and after the others; own: the problem is the study's, and may run on a share of it; far: only the last
    CTAs of it run."""
    class_name: str = ""
    """What only such cases can show, in a few words. A kernel is GREEN if half of each class ran."""
    number: int | None = None
    """Which of its family's seeds on the study's own problem; None: the only one."""

    def __str__(self) -> str:
        return f"{self.problem.key} {self.family} seed={self.seed}"


@dataclass(frozen=True)
class Effort:
    """How many launches the gate asks a device for."""

    repeats: int
    """Launches of a boundary problem under each of its schedules."""
    own_launches: int
    """Launches of the study's own problem with plain inputs and with one term far above all others, all of
    the same inputs bitwise equal."""
    ragged: int
    """Ragged problems that a candidate is tried on at least, unless the check is thorough; the task asks for
    more where a tile is long."""
    pieces: bool
    """One piece of each boundary problem in every check, with one term far above all others."""
    draws: int
    """Of the ragged problems there are so many draws: with few of them what is kept of a problem's memory
    serves many candidates of a study."""

    @classmethod
    def of(cls, device: Device) -> Effort:
        return MANY_LAUNCHES if device.launches_are_cheap else FEW_LAUNCHES


MANY_LAUNCHES = Effort(repeats=2, own_launches=10, ragged=12, pieces=False, draws=16)
"""On a GPU, which has one schedule, its own: the same launch again may end otherwise."""
FEW_LAUNCHES = Effort(repeats=1, own_launches=1, ragged=24, pieces=True, draws=1 << 31)
"""On the emulator. There all ragged problems took half of the gate's time, and a search found half as many
kernels."""


def plan(
    task: Task, problem: Problem, tiles: Sequence[int], device: Device, *, seed: int, thorough: bool = False
) -> list[Case]:
    """All cases of a candidate for `problem`, in their order. `tiles` are its tile sizes, `seed` the trial's;
    `thorough`, for finalists: all ragged problems, and every family on the study's own problem."""
    opening = plan_first(task, problem, tiles, seed, device)
    sharp, *others = plan_boundary(task, problem, tiles, seed, device)
    others += plan_related(task, problem, tiles, seed, device)
    others += plan_pieces(task, problem, tiles, seed, device)
    others += plan_lone(task, problem, tiles, seed, device, thorough)
    others += plan_ragged(task, problem, tiles, seed, device, thorough)
    others.sort(key=lambda case: task.flop(case.problem))
    by_class: dict[str, Case] = {}
    for case in others:
        by_class.setdefault(case.class_name, case)
    early = list(by_class.values())
    chosen = {id(case) for case in early}
    rest = [case for case in others if id(case) not in chosen]
    *own, last = plan_own(task, problem, seed, device, tiles, thorough)
    # a finalist has passed small problems before, with other seeds
    late = [*own, *rest] if thorough else [*rest, *own]
    cases = [sharp, *early, *plan_far(task, problem, seed, device), *late, last]
    return [*opening, *(_drawn(case, seed) for case in cases)]


def out_of_order(schedules: Sequence[str]) -> tuple[str, ...]:
    """Those under which CTAs do not start in the order of their numbers."""
    return tuple(name for name in schedules if name.startswith(("reversed", "seeded")))


def _drawn(case: Case, seed: int) -> Case:
    """Schedules at random are others for each candidate; N of `seeded:N` stays odd or even."""
    if not any(name.startswith("seeded:") for name in case.schedules):
        return case
    draw = 2 * (seed % DRAWS)
    drawn = (f"seeded:{int(s[7:]) + draw}" if s.startswith("seeded:") else s for s in case.schedules)
    return replace(case, schedules=tuple(drawn))


def plan_first(
    task: Task, problem: Problem, tiles: Sequence[int], seed: int, device: Device
) -> tuple[Case, Case]:
    """The first case, and the relations on its inputs. They take no time to plan, and most wrong kernels end
    at them."""
    at, plain = task.gate_problems(problem, tiles)[0], task.families.plain
    schedules = device.schedules[:1] * Effort.of(device).repeats
    first = Case(at, plain, case_seed(seed, at, plain), schedules, class_name="beyond a tile")
    first = _drawn(first, seed)
    return first, replace(first, kind="relations", class_name="relations")


def plan_boundary(
    task: Task, problem: Problem, tiles: Sequence[int], seed: int, device: Device
) -> list[Case]:
    """The boundary problems: that of `plan_first` with sharp inputs; a piece of the longest one under every
    schedule, for a pipeline must run full to go wrong, with inputs that add up roundings; all of them
    with families and schedules in turn.

    Which problem meets which family turns with the seed: over many trials each meets each."""
    problems = task.gate_problems(problem, tiles)
    longest = task.share(max(problems, key=task.flop), 0.0)
    families = task.families
    early = [name for name in (families.plain, families.sharp, families.even) if name]
    turn = (*(name for name in families.names if name not in early), *early)
    default, *others = device.schedules
    sharp = families.sharp or families.plain
    vary = [name for name in problem.sizes if len({at[name] for at in problems}) > 1]
    placed: list[tuple[Problem, str, tuple[str, ...], str]] = [
        (problems[0], sharp, (others[0] if others else default,), "beyond a tile"),
        (longest, families.even or families.plain, device.schedules, "every schedule"),
    ]
    if families.large:
        placed.append((problems[0], families.large, (default,), "largest values"))
    if families.tiny:
        placed.append((problems[0], families.tiny, (default,), "smallest values"))
    after_tiles = [at for at in problems if _class_of([at[name] for name in vary], tiles) == ONE_AFTER]
    placed += [(at, families.plain, (default,), ONE_AFTER) for at in after_tiles]
    for number, at in enumerate(problems, 1):
        schedule = others[number % len(others)] if others else default
        family = turn[(number + seed) % len(turn)]
        placed.append((at, family, (schedule,), _class_of([at[name] for name in vary], tiles)))
    repeats = Effort.of(device).repeats
    return [
        Case(at, f, case_seed(seed, at, f), schedules * repeats, class_name=name)
        for at, f, schedules, name in placed
    ]


def plan_related(task: Task, problem: Problem, tiles: Sequence[int], seed: int, device: Device) -> list[Case]:
    """The relations where a kernel may have other code than for the first case. Mutation testing asked for
    this: whole chunks of -inf made a row NaN."""
    plain, at_first = task.families.plain, device.schedules[:1]
    return [
        Case(at, plain, case_seed(seed, at, plain), at_first, kind="relations", class_name="relations")
        for at in task.related_problems(problem, tiles)
    ]


def _class_of(sizes: Sequence[int], tiles: Sequence[int]) -> str:
    """The class of a boundary problem by the sizes in which such problems differ."""
    low = min((t for t in tiles if t > 1), default=DEFAULT_TILE)
    if min(sizes, default=0) == 1:
        return "size 1"
    if min(sizes, default=0) < low:
        return "below a tile"
    if max(sizes, default=0) > 2 * low and max(sizes) % low == 1:
        return ONE_AFTER
    return "whole tiles" if all(size % low == 0 for size in sizes) else "beyond a tile"


def plan_pieces(task: Task, problem: Problem, tiles: Sequence[int], seed: int, device: Device) -> list[Case]:
    """Small problems of more independent pieces than the others have: one whose largest terms come last, and
    one with another family for each seed. What goes wrong from the third piece on, or only in the second
    batch, goes wrong there."""
    families = task.families
    growing = families.growing or families.sharp or families.plain
    turn = [name for name in families.names if name != growing] or [growing]
    problems = task.piece_problems(problem, tiles)
    placed = [(problems[0], growing), (problems[-1], turn[seed % len(turn)])] if problems else []
    schedules = device.schedules
    return [
        Case(
            at, f, case_seed(seed, at, f), (schedules[(n + seed) % len(schedules)],), class_name="many pieces"
        )
        for n, (at, f) in enumerate(placed)
    ]


def plan_ragged(
    task: Task, problem: Problem, tiles: Sequence[int], seed: int, device: Device, thorough: bool
) -> list[Case]:
    """Ragged problems, schedules in turn: a few, drawn by the seed; for finalists all. Half of them, the
    smaller or the larger ones, have inputs in which a mask that is wrong anywhere shows, the others families
    in turn; for finalists the first BOTH have both, and longer ones the first."""
    every = task.ragged_problems(problem, tiles) if thorough else ()
    effort = Effort.of(device)
    draw = seed % effort.draws
    chosen = every if thorough else task.some_ragged(problem, tiles, effort.ragged, draw, effort.pieces)
    placed: list[tuple[Problem, str, int, str]] = []
    """Problem, family, number of the schedule, class."""
    mask = task.families.masked or task.families.plain
    far = task.ragged_problems(problem, tiles, far=True)[len(every) :] if thorough else ()
    classes = _RaggedClasses(task, problem, tiles, (*chosen, *far))
    for number, at in enumerate(chosen):
        masked = (2 * number < len(chosen)) == bool(seed % 2)
        turn = task.families.names[(number + seed) % len(task.families.names)]
        families = (mask, turn)[: 1 + (number < BOTH)] if thorough else (mask if masked else turn,)
        placed += [(at, f, number + seed, classes.of(at)) for f in dict.fromkeys(families)]
    placed += [(at, mask, index, classes.of(at)) for index, at in enumerate(far, seed)]
    return [
        Case(
            at,
            f,
            case_seed(seed, at, f),
            (device.schedules[number % len(device.schedules)],),
            class_name=name,
        )
        for at, f, number, name in placed
    ]


def plan_lone(
    task: Task, problem: Problem, tiles: Sequence[int], seed: int, device: Device, thorough: bool
) -> list[Case]:
    """On the emulator and for finalists: one piece of each boundary problem with one term far above all
    others, for there may be code of its own for so many tiles. For finalists all of each, at several seeds:
    a mutant overlooked one score in such code, which one seed hardly shows."""
    lone, at_first = task.families.lone, device.schedules[:1]
    if not lone or not (thorough or Effort.of(device).pieces):
        return []
    problems = task.gate_problems(problem, tiles)
    pieces = [task.share(at, 0.0) for at in problems]
    placed = [(at, case_seed(seed, at, lone)) for at in pieces]
    if thorough:
        counts = [(at, _lone_seeds(task, at, tiles)) for at in task.lone_problems(problem, tiles)]
        placed = [(at, own_seed(seed, at, lone, n)) for at, count in counts for n in range(count)]
    return [Case(at, lone, one, at_first, class_name="lone term") for at, one in placed]


class _RaggedClasses:
    """The classes of ragged problems: how many whole tiles come before the last one, and those that are
    hardly smaller than a piece of the study's own."""

    def __init__(self, task: Task, problem: Problem, tiles: Sequence[int], ragged: Sequence[Problem]) -> None:
        self._task = task
        self._own = task.flop(task.share(problem, 0.0))
        self._high = max((t for t in tiles if 1 < t <= LARGEST_TILE), default=DEFAULT_TILE)
        self._vary = [name for name in problem.sizes if len({at[name] for at in ragged}) > 1]

    def of(self, at: Problem) -> str:
        before = max((at[name] for name in self._vary), default=0) // self._high
        if before > 2 and self._own / 2 < self._task.flop(at) < self._own:
            return "just below its own size"
        return ("ragged", "ragged after a tile", "ragged after tiles")[min(before, 2)]


def plan_own(
    task: Task,
    problem: Problem,
    seed: int,
    device: Device,
    tiles: Sequence[int] = (),
    thorough: bool = False,
) -> list[Case]:
    """The study's own problem: with plain inputs, whose report counts, last; before that, either first, with
    one term far above all others and with a family that the seed draws; for finalists with every family and
    several seeds. Inputs that a user recorded come first. Mutation testing asked for the lone term: a maximum
    that overlooks a key shows only where that key is, and a kernel may have code of its own for keys that no
    boundary problem has."""
    families, effort = task.families, Effort.of(device)
    rest = [name for name in families.names if name not in (families.plain, families.lone)]
    lone = [families.lone] if families.lone else []
    if thorough:
        seeds = dict.fromkeys(lone, _lone_seeds(task, problem, tiles)) | dict.fromkeys(rest, FINALIST_SEEDS)
    else:
        drawn = [*lone, *(rest[seed // 2 % len(rest) :][:1] if rest else [])]
        seeds = dict.fromkeys(drawn[:: 1 if seed % 2 else -1], 1)
    placed: list[tuple[str, int | None]] = [
        (f, number) for number in range(MOST_LONE_SEEDS) for f, count in seeds.items() if number < count
    ]
    placed += [(families.plain, number) for number in reversed(range(FINALIST_SEEDS))]
    if not thorough:
        placed = [(family, None) for family in (*seeds, families.plain)]
    own = task.own_families(problem)
    placed = [*((family, None) for family in own), *placed]
    many = (families.plain, families.lone)
    named = (families.plain, *own)
    default, *others = (
        device.schedules if thorough else (device.schedules[0], *out_of_order(device.schedules))
    )
    found = []
    for turn, (f, number) in enumerate(placed, seed):
        # the estimate is made of what ran in order with plain inputs
        schedule = default if f in named or not others else others[turn % len(others)]
        launches = effort.own_launches if f in many and not number else effort.repeats
        found.append(
            Case(
                problem,
                f,
                own_seed(seed, problem, f, number),
                (schedule,) * launches,
                kind="own",
                class_name=f"own problem, {f if thorough or f in named else 'another family'}",
                number=number,
            )
        )
    return found


def plan_far(task: Task, problem: Problem, seed: int, device: Device) -> list[Case]:
    """Where launches are dear: the last piece of a problem whose offsets do not fit 32 bits."""
    if device.launches_are_cheap or not is_far(task, problem):
        return []
    plain, at_first = task.families.plain, device.schedules[:1]
    return [Case(problem, plain, case_seed(seed, problem, plain), at_first, "far", FAR_OFFSETS)]


def _lone_seeds(task: Task, problem: Problem, tiles: Sequence[int]) -> int:
    """So many seeds that the rows of the outputs, each with one lone term, are eight times the pairs of a row
    and a term of a tile."""
    known = sorted(t for t in tiles if 1 < t <= LARGEST_TILE) or [DEFAULT_TILE]
    pairs = known[-1] * known[-2:][0]
    rows = sum(math.prod(buffer.shape[:-1]) for buffer in task.buffers(problem) if buffer.written)
    return min(MOST_LONE_SEEDS, 8 * math.ceil(pairs / rows))


def own_seed(seed: int, problem: Problem, family: str, number: int | None) -> int:
    """The seed of a case of the study's own problem. Where it is one of several of its family, they are
    consecutive from a multiple of MOST_LONE_SEEDS on: a task may make that together they show more."""
    first = case_seed(seed, problem, family)
    return first if number is None else first - first % MOST_LONE_SEEDS + number


def case_seed(seed: int, problem: Problem, family: str) -> int:
    """The seed of one case: fresh for every trial seed, the same whenever that one is checked again."""
    raw = hashlib.sha256(f"{seed} {problem.key} {family}".encode()).digest()
    return int.from_bytes(raw[:4], "little") >> 1
