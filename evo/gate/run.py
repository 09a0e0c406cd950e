"""One candidate's way through the gate: launches in an arena, and what is found on them.

On a GPU the launches of a case are begun one after the other, with poison before and an image of the memory
after each; what is to be known of the case ends up in one small tensor, which is read when PENDING more cases
have been begun. A GPU that had to answer after each launch would idle for most of the gate.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import cycle
from typing import TYPE_CHECKING

from evo.device import Device, Kernel, LaunchReport, Mark
from evo.errors import CandidateError, Infeasible, Red
from evo.gate.graphs import Scene, scenes_for
from evo.gate.memory import Arena
from evo.gate.tolerance import ROW_FACTOR, Judgement, Line, Wrong, refuse
from evo.task import Relation, Task, Tensors
from evo.trial import CaseError, LaunchConfig, Problem

if TYPE_CHECKING:
    from torch import Tensor

KernelFor = Callable[[Problem], tuple[Kernel, LaunchConfig]]
"""The candidate's kernel and launch for another problem; raises Infeasible where it cannot serve it."""

Between = Callable[[Callable[[], None]], None]
"""Called between two cases with what ends the work that was begun on the device."""

BOUNDARY_INSTRUCTIONS = 8e6
"""On the emulator: warp instructions that boundary problems may cost together (about 0.2 s of one core). Past
that they run under fewer schedules or are left out, and the verdict says which; the first three and the
study's own always run. Counted, not timed: the same candidate gets the same cases on every machine."""

PENDING = 3
"""On a GPU: cases that may be begun before the result of an earlier one is read."""
SLATE_NUMBERS = 256
"""Numbers that are read so; where there are more, the GPU is waited for."""

OWN_INSTRUCTIONS = 1.2e7
"""On the emulator: warp instructions that the study's own problem may cost (about 0.3 s of one core)."""


def at_once(_finish: Callable[[], None]) -> None:
    """The next case follows at once: nobody else wants the device."""


@dataclass(frozen=True)
class Case:
    """One set of inputs, and the schedules that it is launched under, one launch each."""

    problem: Problem
    family: str
    seed: int
    schedules: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.problem.key} {self.family} seed={self.seed}"


@dataclass(frozen=True)
class _Look:
    """What is being found out about a batch of launches: known once the device has reached `mark`."""

    case: Case
    scene: Scene
    batch: Sequence[tuple[int, str]]
    first: Tensor | None
    found: Tensor
    mark: Mark | None


@dataclass
class Visit:
    """One candidate's way through the gate, and what was found on it."""

    kernel_for: KernelFor
    device: Device
    task: Task
    deterministic: bool
    thorough: bool
    between: Between = at_once
    errors: list[CaseError] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    launches: int = 0
    spent: float = 0.0
    """Warp instructions of boundary problems so far (emulator)."""
    prices: list[tuple[int, float]] = field(default_factory=list)
    """(FLOP, warp instructions) of the launches so far (emulator)."""
    _pending: deque[_Look] = field(default_factory=deque)

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
        self.between(self._finish)
        with self._alive(case):
            return self._run(case, kernel, launch)

    def _finish(self) -> None:
        self.settle()
        self.device.finish()

    def _run(self, case: Case, kernel: Kernel, launch: LaunchConfig) -> LaunchReport:
        scene = self._scene(case, launch, len(case.schedules), self.deterministic)
        reports: list[LaunchReport] = []
        first: Tensor | None = None
        turns = list(enumerate(case.schedules))
        while turns:
            if reports and self._too_dear(case):
                left_out = ", ".join(schedule for _, schedule in turns)
                self.skipped.append(f"{case} {left_out}: over {BOUNDARY_INSTRUCTIONS:.0e} instructions")
                break
            batch, turns = turns[: len(scene.images)], turns[len(scene.images) :]
            for (turn, schedule), image in zip(batch, scene.images, strict=False):
                with self._blame(case, f"schedule={schedule} launch={turn}"):
                    reports.append(self._launch(kernel, launch, scene.arena, turn, schedule))
                scene.arena.take_image(image)
            self._look(case, scene, batch, first)
            self.settle(0 if turns else PENDING)
            if first is None and turns:
                first = scene.images[0].clone()
            for report in reports[-len(batch) :]:
                instructions = report.counters.get("instructions", 0.0)
                self.spent += instructions
                self.prices.append((self.task.flop(case.problem), instructions))
        return reports[0]

    def _look(self, case: Case, scene: Scene, batch: Sequence[tuple[int, str]], first: Tensor | None) -> None:
        """Begins to look at what the launches of `batch` left behind."""
        found, mark = scene.look(len(batch), first), None
        if found.is_cuda and found.numel() <= SLATE_NUMBERS:
            slate = next(_slates())[: found.numel()]
            found, mark = slate.copy_(found, non_blocking=True), self.device.mark()
        self._pending.append(_Look(case, scene, batch, first, found, mark))

    def settle(self, pending: int = 0) -> None:
        """Waits for looks, oldest first, until `pending` are left; one without a mark is known at once.
        Raises what they say."""
        while self._pending and (len(self._pending) > pending or self._pending[0].mark is None):
            look = self._pending.popleft()
            with self._alive(look.case):
                self._examine(look)

    def _examine(self, look: _Look) -> None:
        """Reads what was found: damage; the numbers of the first launch (where bits may differ, of each);
        other bits than the first."""
        case, scene, batch, first = look.case, look.scene, look.batch, look.first
        with self._blame(case, f"launches {batch[0][0]} to {batch[-1][0]}, or just after"):
            if look.mark is not None:
                look.mark.reach()
        suspect, *numbers = look.found.tolist()
        judged = scene.judged(len(batch), first)
        names = scene.arena.output_names if judged else ()
        of_first = scene.images[0] if first is None else first
        lines: Mapping[str, Line] = {}
        for number, ((turn, schedule), image) in enumerate(zip(batch, scene.images, strict=False)):
            with self._blame(case, f"schedule={schedule} launch={turn}"):
                if suspect:
                    scene.arena.refuse_damage(image)
                if number < len(judged):
                    for name in names:
                        found, numbers = Judgement(*numbers[:4]), numbers[4:]
                        if not found.within:
                            lines = lines or scene.lines()
                            self._refuse(case, name, scene.arena.outputs(image)[name], lines[name], found)
                        self._note(case, found)
                elif suspect:
                    refuse_difference(scene.arena.outputs(of_first), scene.arena.outputs(image))

    def _refuse(self, case: Case, name: str, out: Tensor, line: Line, found: Judgement) -> None:
        """Says where the output is wrong; what was measured is noted first."""
        try:
            refuse(name, out, line, found)
        except Wrong as red:
            if red.found is not None:
                self._note(case, red.found)
            raise
        finally:
            line.wipe()

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
        """Checks the task's relations on the inputs of `case`: one launch as they are, one for each relation.
        On a GPU all are launched before any is looked at."""
        import torch

        self.settle()
        kernel, launch = self.kernel_for(case.problem)
        relations = (None, *self.task.relations(case.problem))
        with self._alive(case):
            scene = self._scene(case, launch, len(relations), deterministic=False)
            arena = scene.arena
            images = [*scene.images, *arena.room_for_images(len(relations) - len(scene.images))]
            inputs = {name: tensor.clone() for name, tensor in arena.inputs().items()}
            schedule = self.device.schedules[0]
            suspect: list[Tensor] = []
            for turn, (relation, image) in enumerate(zip(relations, images, strict=True)):
                with self._blame(case, _titled(schedule, relation)):
                    if relation is not None:
                        arena.load(relation.change(inputs))
                    self._launch(kernel, launch, arena, turn, schedule)
                arena.take_image(image)
                found = [arena.unlike([image], None)]
                if relation is not None:
                    before, after = arena.outputs(images[0]), arena.outputs(image)
                    found += [rows.any().reshape(1) for *_, rows in broken(relation, before, after)]
                suspect.append(torch.cat(found).any().reshape(1))
                if not self.device.launches_are_cheap:
                    self._refuse_unrelated(case, arena, inputs, images, relations, suspect)
            self.device.finish()
            self._refuse_unrelated(case, arena, inputs, images, relations, suspect)

    def _refuse_unrelated(
        self, case: Case, arena: Arena, inputs: Tensors, images: Sequence[Tensor],
        relations: Sequence[Relation | None], suspect: Sequence[Tensor],
    ) -> None:  # fmt: skip
        """Raises the Red of the first launch that is suspect, if one is."""
        import torch

        for turn, wrong in enumerate(torch.cat(list(suspect)).tolist()):
            if wrong:
                relation = relations[turn]
                with self._blame(case, _titled(self.device.schedules[0], relation)):
                    arena.load(inputs if relation is None else relation.change(inputs))
                    arena.refuse_damage(images[turn])
                    if relation is not None:
                        refuse_broken(relation, arena.outputs(images[0]), arena.outputs(images[turn]))

    def _scene(self, case: Case, launch: LaunchConfig, launches: int, deterministic: bool) -> Scene:
        """A scene with the inputs of the case in its arena."""
        shift = 16 * (case.seed % 2)
        scenes = scenes_for(self.task, self.device)
        scene = scenes.of(case.problem, launch.workspaces, shift, launches, deterministic)
        if any(look.scene is scene for look in self._pending):
            self.settle()
        inputs = self.task.inputs(case.problem, case.family, case.seed, self.device.torch_device)
        scene.arena.fill(inputs, case.seed)
        return scene

    def _launch(
        self, kernel: Kernel, launch: LaunchConfig, arena: Arena, turn: int, schedule: str
    ) -> LaunchReport:
        arena.poison(turn)
        self.device.disturb(turn)
        report = kernel.start(launch, arena.regions, schedule)
        self.launches += 1
        return report

    def abandon(self) -> None:
        """Waits for what is still running of a candidate that failed: its code is unloaded next."""
        self._pending.clear()
        with suppress(CandidateError):
            self.device.finish()

    def _note(self, case: Case, found: Judgement) -> None:
        """To four digits, as it is kept: there are dozens a trial."""
        error, limit = (float(f"{number:.4g}") for number in (found.row_error, found.row_limit))
        self.errors.append(CaseError(case.problem.key, case.family, case.seed, error, limit))

    def _too_dear(self, case: Case) -> bool:
        """Whether another launch of the case may break the budget: it takes no more than a larger one did."""
        flop = self.task.flop(case.problem)
        cost = min((spent for other, spent in self.prices if other >= flop), default=0.0)
        return not self.thorough and self.spent + cost > BOUNDARY_INSTRUCTIONS

    @contextmanager
    def _blame(self, case: Case, launch: str) -> Iterator[None]:
        """Adds the case, and the errors measured so far, to a failure that passes through."""
        try:
            yield
        except CandidateError as error:
            place = f"{case} {launch}"
            error.where = f"{place}: {error.where}" if error.where else place
            if isinstance(error, Red):
                error.errors = tuple(self.errors)
            raise

    @contextmanager
    def _alive(self, case: Case) -> Iterator[None]:
        """Where torch is the first to meet the error of a kernel that was still running, it is Crashed."""
        try:
            yield
        except RuntimeError:
            with self._blame(case, "some launch"):
                self.device.finish()
            raise


def _titled(schedule: str, relation: Relation | None) -> str:
    """Which launch of a relation is meant."""
    return f"schedule={schedule}{'' if relation is None else f' {relation.name}'}"


def refuse_difference(first: Tensors, outputs: Tensors) -> None:
    """Raises Red unless both runs gave the same bits."""
    import torch

    for name, one in first.items():
        bits, other = one.view(torch.uint8), outputs[name].view(torch.uint8)
        if not torch.equal(bits, other):
            differ = (one.view(torch.int16) != outputs[name].view(torch.int16)).nonzero()
            detail = f"{len(differ)} of {one.numel()} elements of {name} differ between two launches"
            raise Red("runs differ", detail, f"{name}{differ[0].tolist()}")


def broken(
    relation: Relation, before: Tensors, after: Tensors
) -> Iterator[tuple[str, Tensor, Tensor, Tensor]]:
    """By output: its name, what it is after the change and what it should be (fp64), and which rows are not
    what the relation expects of the outputs `before`."""
    import torch

    norm = torch.linalg.vector_norm
    for name, expected in relation.expected(before).items():
        out, due = after[name].double(), expected.double()
        unit = torch.finfo(expected.dtype).eps / 2
        # both runs may be a whole line off the truth, in opposite directions
        line = 0.0 if relation.exact else 2 * ROW_FACTOR * unit
        right = norm(out - due, dim=-1) <= line * norm(due, dim=-1)
        yield name, out, due, ~(right | expected.isnan().any(-1))


def refuse_broken(relation: Relation, before: Tensors, after: Tensors) -> None:
    """Raises Red unless the outputs `after` a change are what the relation expects of those `before`."""
    for name, out, due, wrong in broken(relation, before, after):
        if wrong.any():
            row = tuple(wrong.nonzero()[0].tolist())
            element = int((out[row] - due[row]).abs().nan_to_num(float("inf")).argmax())
            at = [*row, element]
            got, wanted = float(out[row][element]), float(due[row][element])
            detail = f"{int(wrong.sum())} rows, there {got:.6g} instead of {wanted:.6g}"
            raise Red(f"relation broken: {relation.name}", detail, f"{name}{at}")


@cache
def _slates() -> Iterator[Tensor]:
    """Memory of the host that a GPU writes to by itself, in turns, more of it than looks are pending. It is
    never given back: where a context is dead, torch cannot free it and ends the process."""
    import torch

    return cycle(torch.empty((2 * PENDING + 2, SLATE_NUMBERS), dtype=torch.float64, pin_memory=True))
