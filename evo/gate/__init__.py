"""GREEN or RED. `check` is the only maker of a `Green`.

What a candidate goes through, cheapest first, so that a wrong one dies early:

1. its PTX holds no state of its own between launches;
2. a small problem just beyond the candidate's tiles, with normal and with peaky inputs;
3. what must hold between two runs whatever the reference says (`Task.relations`);
4. the other boundary problems (one below, at and above the tiles; 1; ragged), each with another family of
   inputs; on the emulator each under another hostile but legal schedule, and one under all of them;
5. a few of the lengths that a last tile can have, others for each seed; on the emulator, where they are
   cheap, as many as BOUNDARY_INSTRUCTIONS pay for, for finalists all of them. Mutation testing asked for
   this: a mask that is wrong for one remainder is right at every boundary;
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
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from evo.device import Device, Kernel, LaunchReport
from evo.errors import CandidateError, Infeasible, Red
from evo.gate.arena import Arena
from evo.gate.judging import ROW_FACTOR, Judgement, Wrong, judge
from evo.task import Relation, Task, Tensors
from evo.trial import CaseError, LaunchConfig, Problem

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Green", "KernelFor", "check"]

KernelFor = Callable[[Problem], tuple[Kernel, LaunchConfig]]
"""The candidate's kernel and launch for another problem; raises Infeasible where it cannot serve it."""

REPEATS = 20
"""Launches of the study's own problem on a GPU, all bitwise equal."""
RAGGED = 12
"""Ragged problems that a candidate is tried on on a GPU, unless the check is thorough."""
BOUNDARY_INSTRUCTIONS = 8e6
"""On the emulator: warp instructions that boundary problems may cost together (about 0.2 s of one core). Past
that they run under fewer schedules or are left out, and the verdict says which; the first three and the
study's own always run. Counted, not timed: the same candidate gets the same cases on every machine."""

OWN_INSTRUCTIONS = 1.2e7
"""On the emulator: warp instructions that the study's own problem may cost (about 0.3 s of one core)."""

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


@dataclass(frozen=True)
class Case:
    """One set of inputs, and the schedules that it is launched under, one launch each."""

    problem: Problem
    family: str
    seed: int
    schedules: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.problem.key} {self.family} seed={self.seed}"


def check(
    kernel_for: KernelFor, device: Device, task: Task, problem: Problem, tiles: Sequence[int],
    *, seed: int, deterministic: bool = True, thorough: bool = False,
) -> Green:  # fmt: skip
    """The verdict on a candidate for `problem`. `tiles` are its tile sizes, `seed` the trial's; where
    `deterministic` is false, the bits of its results may differ from run to run. `thorough`, for finalists:
    all ragged problems, the study's own in full, whatever it costs.

    Raises Red (with the case, the first wrong element and the errors measured so far), and whatever a launch
    raises (Unlaunchable, Hung, Crashed).
    """
    visit = _Visit(kernel_for, device, task, deterministic, thorough)
    kernel, launch = kernel_for(problem)
    refuse_state(kernel.binary.ptx)
    boundary = plan_boundary(task, problem, tiles, seed, device)
    for number, case in enumerate(boundary):
        visit.run(case, may_skip=number > 2)
        if number == 0:
            visit.relate(case if visit.launches else replace(case, problem=problem))
    for case in plan_ragged(task, problem, tiles, seed, device, thorough):
        visit.run(case, may_skip=True)
    own = [visit.run(case) for case in plan_own(task, visit.affordable(problem), seed, device)]
    return Green(
        _SEAL, kernel=kernel, launch=launch, problem=problem, errors=tuple(visit.errors),
        report=visit.scaled(own[-1], problem),
        skipped=tuple(visit.skipped), launches=visit.launches,
    )  # fmt: skip


def plan_boundary(
    task: Task, problem: Problem, tiles: Sequence[int], seed: int, device: Device
) -> list[Case]:
    """The boundary problems: the first one with plain and with peaky inputs; the longest one under every
    schedule, for a pipeline must run full to go wrong, with inputs that add up roundings; all of them with
    families and schedules in turn.

    Which problem meets which family turns with the seed: over many trials each meets each."""
    problems = task.gate_problems(problem, tiles)
    longest = max(problems, key=task.flop)
    plain, peaky, even, *others = task.families
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
    twice = 2 if device.kind == "cuda" else 1  # a GPU has one schedule: its own
    return [Case(at, f, case_seed(seed, at, f), schedules * twice) for at, f, schedules in placed]


def plan_ragged(
    task: Task, problem: Problem, tiles: Sequence[int], seed: int, device: Device, thorough: bool
) -> list[Case]:
    """Ragged problems, families and schedules in turn: on a GPU a few; on the emulator all, in an order that
    the seed shuffles, for whoever runs out of budget on the way."""
    every = task.ragged_problems(problem, tiles)
    chosen = random.Random(seed).sample(every, len(every))
    if device.kind == "cuda" and not thorough:
        chosen = sorted(chosen[:RAGGED], key=task.flop)
    cases = []
    for number, at in enumerate(chosen, seed):
        family = task.families[number % len(task.families)]
        schedule = device.schedules[number % len(device.schedules)]
        cases.append(Case(at, family, case_seed(seed, at, family), (schedule,)))
    return cases


def plan_own(task: Task, problem: Problem, seed: int, device: Device) -> list[Case]:
    """The study's own problem: with plain inputs, whose report counts, last; before that with one term far
    above all others (on the emulator one piece of it, for that is cheap). Mutation testing asked for those: a
    maximum that overlooks a key shows only where that key is, and a kernel may have code of its own for keys
    that no boundary problem has."""
    plain, lone = task.families[0], task.families[-1]
    default = device.schedules[0]
    if device.kind == "cuda":
        shares = ((problem, lone, REPEATS // 2), (problem, plain, REPEATS // 2))
    else:
        shares = ((task.share(problem, 0.0), lone, 1), (problem, plain, 1))
    return [Case(at, f, case_seed(seed, at, f), (default,) * n) for at, f, n in shares]


def case_seed(seed: int, problem: Problem, family: str) -> int:
    """The seed of one case: fresh for every trial seed, the same whenever that one is checked again."""
    raw = hashlib.sha256(f"{seed} {problem.key} {family}".encode()).digest()
    return int.from_bytes(raw[:4], "little") >> 1


_GLOBAL = re.compile(r"^[ \t]*(?:\.(?:visible|weak|extern|common)[ \t]+)*\.global\b([^;=]*)", re.MULTILINE)
_TEXT_CONSTANTS = ("$str", "__func__", "__PRETTY_FUNCTION__")


def refuse_state(ptx: str) -> None:
    """Raises Red if the kernel uses a module-level `__device__` variable: it would live on between launches,
    where no guard and no poison reaches it. Tables belong in `__constant__`, scratch in a workspace."""
    for match in _GLOBAL.finditer(ptx):
        name = re.sub(r"\[.*", "", match[1], flags=re.DOTALL).split()[-1]
        if ptx.count(name) == 1 or name.startswith(_TEXT_CONSTANTS):
            continue  # libraries declare some that nobody uses
        if len(re.findall(rf"(?<![\w$]){re.escape(name)}(?![\w$])", ptx)) > 1:
            raise Red("module-level state", f"the kernel uses the __device__ variable {name}", name)


@dataclass
class _Visit:
    """One candidate's way through the gate, and what was found on it."""

    kernel_for: KernelFor
    device: Device
    task: Task
    deterministic: bool
    thorough: bool
    errors: list[CaseError] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    launches: int = 0
    spent: float = 0.0
    """Warp instructions of boundary problems so far (emulator)."""
    prices: list[tuple[int, float]] = field(default_factory=list)
    """(FLOP, warp instructions) of the launches so far (emulator)."""

    def run(self, case: Case, may_skip: bool = False) -> LaunchReport | None:
        """Launches the case under its schedules and judges it; the first launch's report, None if skipped."""
        if may_skip and self._too_dear(case):
            self.skipped.append(f"{case}: over {BOUNDARY_INSTRUCTIONS:.0e} instructions")
            return None
        try:
            kernel, launch = self.kernel_for(case.problem)
        except Infeasible as no:
            self.skipped.append(f"{case}: {no.reason}")
            return None
        inputs = self.task.inputs(case.problem, case.family, case.seed, self.device.torch_device)
        arena = self._arena(case, launch, inputs)
        reports: list[LaunchReport] = []
        first = None
        for turn, schedule in enumerate(case.schedules):
            if reports and self._too_dear(case):
                left_out = ", ".join(case.schedules[turn:])
                self.skipped.append(f"{case} {left_out}: over {BOUNDARY_INSTRUCTIONS:.0e} instructions")
                break
            with self._blame(case, f"schedule={schedule} launch={turn}"):
                reports.append(self._launch(kernel, launch, arena, turn, schedule))
                outputs = arena.outputs()
                if first is None or not self.deterministic:
                    self._judge(case, inputs, outputs)
                else:
                    refuse_difference(first, outputs)
                first = first or outputs
            instructions = reports[-1].counters.get("instructions", 0.0)
            self.spent += instructions
            self.prices.append((self.task.flop(case.problem), instructions))
        return reports[0]

    def affordable(self, problem: Problem) -> Problem:
        """The study's own problem, or on the emulator the share of it that OWN_INSTRUCTIONS pay for: judged
        by what an operation cost in the largest launch so far."""
        flop, instructions = max(self.prices, default=(1, 0.0))
        cost = instructions * self.task.flop(problem) / flop
        if self.thorough or cost <= OWN_INSTRUCTIONS:
            return problem
        share = self.task.share(problem, OWN_INSTRUCTIONS / cost)
        if share != problem:
            self.skipped.append(f"{problem.key}: ran {share.key}, for it takes {cost:.1e} instructions")
        return share

    def scaled(self, report: LaunchReport | None, problem: Problem) -> LaunchReport:
        """`report`, of a share of `problem`, with the counts of all of it."""
        assert report is not None, "the study's own problem is never skipped"
        factor = self.task.flop(problem) / self.prices[-1][0]
        if factor == 1:
            return report
        return replace(report, counters={name: n * factor for name, n in report.counters.items()})

    def relate(self, case: Case) -> None:
        """Checks the task's relations on the inputs of `case`."""
        kernel, launch = self.kernel_for(case.problem)
        inputs = self.task.inputs(case.problem, case.family, case.seed, self.device.torch_device)
        arena = self._arena(case, launch, inputs)
        schedule = self.device.schedules[0]
        with self._blame(case, f"schedule={schedule}"):
            self._launch(kernel, launch, arena, 0, schedule)
        before = arena.outputs()
        for turn, relation in enumerate(self.task.relations(case.problem), 1):
            changed = relation.change(inputs)
            arena.load(changed)
            with self._blame(case, f"schedule={schedule} {relation.name}"):
                self._launch(kernel, launch, arena, turn, schedule)
                refuse_broken(relation, before, arena.outputs())

    def _arena(self, case: Case, launch: LaunchConfig, inputs: Tensors) -> Arena:
        shift = 16 * (case.seed % 2)
        buffers = self.task.buffers(case.problem)
        where = self.device.torch_device
        return Arena(buffers, launch.workspaces, inputs, torch_device=where, seed=case.seed, shift=shift)

    def _launch(
        self, kernel: Kernel, launch: LaunchConfig, arena: Arena, turn: int, schedule: str
    ) -> LaunchReport:
        arena.poison(turn)
        dirty = getattr(self.device, "dirty_shared_memory", None)
        if dirty is not None:
            dirty()
        if self.device.kind == "cuda" and turn % 2:
            _keep_memory_busy(self.device.torch_device)
        report = kernel.launch(launch, arena.regions, schedule)
        self.launches += 1
        arena.refuse_damage()
        return report

    def _judge(self, case: Case, inputs: Tensors, outputs: Mapping[str, Tensor]) -> None:
        reference = self.task.reference(case.problem, inputs)
        honest = self.task.honest(case.problem, inputs)
        for name, out in outputs.items():
            try:
                found = judge(name, out, reference[name], honest[name])
            except Wrong as red:
                if red.found is not None:
                    self._note(case, red.found)
                raise
            self._note(case, found)

    def _note(self, case: Case, found: Judgement) -> None:
        self.errors.append(
            CaseError(case.problem.key, case.family, case.seed, found.row_error, found.row_limit)
        )

    def _too_dear(self, case: Case) -> bool:
        """Whether another launch of the case may break the budget: it takes no more than a larger one did."""
        flop = self.task.flop(case.problem)
        cost = min((spent for other, spent in self.prices if other >= flop), default=0.0)
        return not self.thorough and self.spent + cost > BOUNDARY_INSTRUCTIONS

    def _blame(self, case: Case, launch: str) -> _Blame:
        return _Blame(self, f"{case} {launch}")


@dataclass(frozen=True)
class _Blame:
    """Adds the case, and the errors measured so far, to a failure that passes through."""

    visit: _Visit
    place: str

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, CandidateError):
            error.where = f"{self.place}: {error.where}" if error.where else self.place
        if isinstance(error, Red):
            error.errors = tuple(self.visit.errors)


def refuse_difference(first: Tensors, outputs: Tensors) -> None:
    """Raises Red unless both runs gave the same bits."""
    import torch

    for name, one in first.items():
        bits, other = one.view(torch.uint8), outputs[name].view(torch.uint8)
        if not torch.equal(bits, other):
            differ = (one.view(torch.int16) != outputs[name].view(torch.int16)).nonzero()
            detail = f"{len(differ)} of {one.numel()} elements of {name} differ between two launches"
            raise Red("runs differ", detail, f"{name}{differ[0].tolist()}")


def refuse_broken(relation: Relation, before: Tensors, after: Tensors) -> None:
    """Raises Red unless the outputs `after` a change are what the relation expects of those `before`."""
    import torch

    for name, expected in relation.expected(before).items():
        kept = ~expected.isnan().any(-1)
        out, due = after[name].double()[kept], expected.double()[kept]
        unit = torch.finfo(expected.dtype).eps / 2
        # both runs may be a whole line off the truth, in opposite directions
        line = 0.0 if relation.exact else 2 * ROW_FACTOR * unit
        wrong = ~((out - due).norm(dim=-1) <= line * due.norm(dim=-1))
        if wrong.any():
            row = int(wrong.nonzero()[0])
            element = int((out[row] - due[row]).abs().nan_to_num(torch.inf).argmax())
            at = [*kept.nonzero()[row].tolist(), element]
            got, wanted = float(out[row, element]), float(due[row, element])
            detail = f"{int(wrong.sum())} rows, there {got:.6g} instead of {wanted:.6g}"
            raise Red(f"relation broken: {relation.name}", detail, f"{name}{at}")


def _keep_memory_busy(torch_device: str) -> None:
    """Starts copies of 64 MB on a stream of their own, and does not wait: they run beside the next launch."""
    import torch

    stream = torch.cuda.Stream(torch_device)
    with torch.cuda.stream(stream):
        source = torch.empty(64 << 20, dtype=torch.uint8, device=torch_device)
        for _ in range(2):
            source.clone()
