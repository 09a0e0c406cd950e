"""One candidate's way through the gate: launches in guarded memory, and what is found on them.

On a GPU the launches of a case are begun one after the other, with poison before and an image of the memory
after each; what is to be known of the case ends up in one small tensor, which is read when PENDING more cases
have been begun. A GPU that had to answer after each launch would idle for most of the gate.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from itertools import cycle
from typing import TYPE_CHECKING

from evo.device import Device, Kernel, LaunchReport, Mark
from evo.errors import CandidateError, Infeasible
from evo.gate.blame import Alive, Blame
from evo.gate.budget import Budget
from evo.gate.cases import Case, out_of_order, own_seed
from evo.gate.far import NotMet, check_last_piece, served
from evo.gate.graphs import CaseMemory, memories_of, pinned
from evo.gate.judge import COMPARED_ELEMENTS, Judge, finalist_elements, some_pieces
from evo.gate.memory import GuardedMemory
from evo.gate.relations import relations_of, same_again, titled, unrelated
from evo.gate.tolerance import Errors, Wrong, refuse_broken, refuse_difference
from evo.task import Relation, Task, Tensors
from evo.trial import CaseError, Extent, LaunchConfig, Problem

if TYPE_CHECKING:
    from torch import Tensor

KernelFor = Callable[[Problem], tuple[Kernel, LaunchConfig]]
"""The candidate's kernel and launch for another problem; raises Infeasible where it cannot serve it."""

Between = Callable[[Callable[[], None]], None]
"""Called between two cases with what ends the work that was begun on the device."""

PENDING = 3
"""On a GPU: cases that may be begun before the result of an earlier one is read."""
SLATE_NUMBERS = 256
"""Numbers that are read so; where there are more, the GPU is waited for."""


def at_once(_finish: Callable[[], None]) -> None:
    """The next case follows at once: no other process wants the device."""


@dataclass(frozen=True)
class _Look:
    """What is being found out about some launches: known once the device has reached `mark`."""

    case: Case
    memory: CaseMemory
    launches: str
    """Which they are, for a person."""
    found: Tensor
    mark: Mark | None
    examine: Callable[[Sequence[float]], None]
    """Raises what `found` says."""


@dataclass
class Run:
    """The run of one candidate's cases, and what was found on it."""

    kernel_for: KernelFor
    device: Device
    task: Task
    problem: Problem
    """The study's own."""
    seed: int
    deterministic: bool
    thorough: bool
    first: Sequence[Case]
    plan: Callable[[], Sequence[Case]]
    """All cases, the first ones too: asked for when the device is at those."""
    between: Between = at_once
    errors: list[CaseError] = field(default_factory=list)
    launches: int = 0
    _pending: deque[_Look] = field(default_factory=deque)

    def all(self) -> tuple[LaunchReport, Extent]:
        """Runs all cases. The report of the last, scaled to the whole of the study's own problem; how much of
        the plan ran."""
        report: LaunchReport | None = None
        for case in self._planned():
            if case.kind == "own":
                report = self._run_own(case) or report
            elif case.kind == "case":
                report = self.run(case) or report
            elif case.kind == "far":
                self._run_far(case)
            else:
                self.relate(case if self._serves(case.problem) else replace(case, problem=self._fewer()))
        self.settle()
        assert report is not None, "the first case is never left out"
        return self.budget.scaled(report), self.budget.extent()

    def _planned(self) -> Iterator[Case]:
        yield from self.first
        cases = self.plan()
        self.budget.plan(cases)
        yield from cases[len(self.first) :]

    @cached_property
    def budget(self) -> Budget:
        """What the cases may cost, and which have run."""
        return Budget(self.task, self.problem, self.thorough)

    def run(self, case: Case) -> LaunchReport | None:
        """Launches the case under its schedules and judges it; the first launch's report, None where it is
        left out."""
        if not self.budget.affords(case):
            return None
        try:
            kernel, launch = self.kernel_for(case.problem)
        except Infeasible as no:
            self.budget.not_served(case, no.reason)
            return None
        self.between(self._finish)
        case = self._out_of_order(case, launch)
        with self._alive(case):
            report = self._run(case, kernel, launch)
        self.budget.ran(case)
        return report

    def _out_of_order(self, case: Case, launch: LaunchConfig) -> Case:
        """The case, under a schedule besides in which CTAs start in another order, where they may meet: by a
        workspace or a barrier of the grid. That goes wrong at few problems, as where a CTA has parts of two
        tiles. Finalists run enough of them."""
        others = out_of_order(self.device.schedules)
        meets = launch.cooperative or launch.workspaces
        if case.kind != "case" or self.thorough or not meets or launch.ctas == 1 or not others:
            return case
        if out_of_order(case.schedules):
            return case
        other = others[case.seed % len(others)]
        return replace(case, schedules=(*case.schedules, other))

    def _run_own(self, case: Case) -> LaunchReport | None:
        """A case of the study's own problem, or on the emulator of the share of it that may be paid for."""
        at = self.budget.own_share(case)
        if at is None:
            return None
        at = at if self._serves(at) else self.problem
        placed = replace(case, problem=at, seed=own_seed(self.seed, at, case.family, case.number))
        self.budget.ran_own(placed)
        return self.run(placed)

    def _run_far(self, case: Case) -> None:
        """The last CTAs of the study's own problem, where offsets are largest."""
        self.settle()
        self.device.expect(1)
        try:
            both = [served(self.kernel_for, at) for at in (case.problem, self.task.share(case.problem, 0.0))]
            with self._blame(case, f"schedule={case.schedules[0]} the last CTAs"):
                check_last_piece(self.task, both[0], both[1], case.seed, self.device.torch_device)
        except NotMet as why:
            self.budget.not_met(case, str(why))
        else:
            self.launches += 2
            self.budget.ran(case)

    def _serves(self, problem: Problem) -> bool:
        try:
            self.kernel_for(problem)
        except Infeasible:
            return False
        return True

    def _finish(self) -> None:
        self.settle()
        self.device.finish()

    def _run(self, case: Case, kernel: Kernel, launch: LaunchConfig) -> LaunchReport:
        memory = self._memory(case, launch, len(case.schedules), self.deterministic)
        self.budget.compared(case, memory.judge.compared)
        self.device.expect(self.budget.expected(case))
        reports: list[LaunchReport] = []
        turns = list(enumerate(case.schedules))
        while turns:
            if reports and not self.budget.affords(case, [schedule for _, schedule in turns]):
                break
            again = bool(reports)
            batch, turns = turns[: len(memory.images)], turns[len(memory.images) :]
            for (turn, schedule), image in zip(batch, memory.images, strict=False):
                with self._blame(case, f"schedule={schedule} launch={turn}"):
                    reports.append(self._launch(kernel, launch, memory.guarded, turn, schedule))
                memory.guarded.take_image(image)
            self._look(case, memory, batch, again)
            self.settle(0 if turns else PENDING)
            for report in reports[-len(batch) :]:
                self.budget.pay(case, report)
        return reports[0]

    def _look(self, case: Case, memory: CaseMemory, batch: Sequence[tuple[int, str]], again: bool) -> None:
        """Begins to look at what the launches of `batch` left behind."""
        launches = f"launches {batch[0][0]} to {batch[-1][0]}, or just after"
        examine = partial(self._examine, case, memory, batch, again)
        self._read(case, memory, launches, memory.look(len(batch), again), examine)

    def _read(
        self,
        case: Case,
        memory: CaseMemory,
        launches: str,
        found: Tensor,
        examine: Callable[[Sequence[float]], None],
    ) -> None:
        """Begins to read what was `found`, fp64."""
        if found.is_cuda and found.numel() <= SLATE_NUMBERS:
            found = next(_slates())[: found.numel()].copy_(found, non_blocking=True)
        waits = self.device.measures and not found.is_cuda  # it is being written by the GPU
        mark = self.device.mark() if waits else None
        self._pending.append(_Look(case, memory, launches, found, mark, examine))

    def settle(self, pending: int = 0) -> None:
        """Waits for looks, oldest first, until `pending` are left; one without a mark is known at once.
        Raises what they say."""
        while self._pending and (len(self._pending) > pending or self._pending[0].mark is None):
            look = self._pending.popleft()
            with self._alive(look.case):
                with self._blame(look.case, look.launches):
                    if look.mark is not None:
                        look.mark.reach()
                look.examine(look.found.tolist())

    def _examine(
        self,
        case: Case,
        memory: CaseMemory,
        batch: Sequence[tuple[int, str]],
        again: bool,
        found: Sequence[float],
    ) -> None:
        """Looks at damage; at the numbers of the first launch (where bits may differ, of each); at other bits
        than the first. `again`: other launches of these inputs came before."""
        suspect, *numbers = found
        judged = memory.judged(len(batch), again)
        names = memory.guarded.output_names if judged else ()
        for number, ((turn, schedule), image) in enumerate(zip(batch, memory.images, strict=False)):
            with self._blame(case, f"schedule={schedule} launch={turn}"):
                if suspect:
                    memory.guarded.refuse_damage(image)
                if number < len(judged):
                    for name in names:
                        errors, numbers = Errors(*numbers[:4]), numbers[4:]
                        if not errors.within:
                            self._refuse(case, memory, name, image, errors)
                        self._note(case, errors)
                elif suspect:
                    refuse_difference(memory.first_outputs(), memory.guarded.outputs(image))

    def _refuse(self, case: Case, memory: CaseMemory, name: str, image: Tensor, found: Errors) -> None:
        """Says where the output is wrong; what was measured is noted first."""
        try:
            memory.refuse(name, image, found)
        except Wrong as red:
            if red.found is not None:
                self._note(case, red.found)
            raise

    def relate(self, case: Case) -> None:
        """Checks relations on the inputs of `case`: one launch as they are, one for each relation. On a GPU
        all are launched before any is looked at; but first all is known that came before, for most wrong
        kernels end there."""
        self.settle()
        kernel, launch = self.kernel_for(case.problem)
        where = self.device.torch_device
        relations = (None, *relations_of(self.task, case, self.deterministic, where))
        count = len(relations)
        with self._alive(case):
            memory = self._memory(case, launch, 2 * count, deterministic=False)
            guarded, both = memory.guarded, memory.befores_and_afters(count)
            if both is None:
                first, other = memory.two_images()
                images: Sequence[Tensor] = [first, *[other] * (count - 1)]
            else:
                images = list(both[1])
            inputs = {name: tensor.clone() for name, tensor in guarded.inputs().items()}
            examine = partial(self._refuse_unrelated, case, guarded, inputs, images, relations)
            look = partial(unrelated, guarded, first=images[0], tolerance=self.task.tolerance)
            for turn, (relation, image) in enumerate(zip(relations, images, strict=True)):
                with self._blame(case, titled(self.device.schedules[0], relation)):
                    if relation is not None:
                        guarded.load(relation.change(inputs))
                    if both is not None:
                        guarded.take_image(both[0][turn])
                    report = self._launch(kernel, launch, guarded, turn, self.device.schedules[0])
                    self.budget.pay(case, report)
                guarded.take_image(image)
                if both is None:
                    found = look([relation], before=guarded.expected[None], after=image[None])
                    examine([0.0] * turn + found.tolist())
            if both is not None:
                found = memory.found_by(
                    ("relations", self.deterministic),
                    lambda: look(relations, before=both[0], after=both[1]).double(),
                )
                self._read(case, memory, "relations, or just after", found, examine)
        self.settle(PENDING)
        self.budget.ran(case)

    def _refuse_unrelated(
        self,
        case: Case,
        guarded: GuardedMemory,
        inputs: Tensors,
        images: Sequence[Tensor],
        relations: Sequence[Relation | None],
        suspect: Sequence[float],
    ) -> None:
        """Raises the Red of the first launch that is suspect, if one is."""
        for turn, (relation, wrong) in enumerate(zip(relations, suspect, strict=False)):
            if wrong:
                with self._blame(case, titled(self.device.schedules[0], relation)):
                    guarded.load(inputs if relation is None else relation.change(inputs))
                    guarded.refuse_damage(images[turn])
                    if relation is not None:
                        before, after = guarded.outputs(images[0]), guarded.outputs(images[turn])
                        if same_again(relation):
                            refuse_difference(before, after)
                        refuse_broken(relation, before, after, self.task.tolerance)

    def _fewer(self) -> Problem:
        """The study's own problem; of a large one some pieces, if they are served."""
        fewer = some_pieces(self.task, self.problem)
        return fewer if self._serves(fewer) else self.problem

    def _memory(self, case: Case, launch: LaunchConfig, launches: int, deterministic: bool) -> CaseMemory:
        """A memory with the inputs of the case in its guarded memory."""
        plain = case.family == self.task.families.plain and not case.number
        most = finalist_elements(self.task, case.problem) if self.thorough else COMPARED_ELEMENTS
        judge = Judge.of(
            self.task,
            case.problem,
            case.seed,
            self.device.torch_device,
            None if self.thorough and plain and case.kind == "own" else most,
        )
        if judge.parts:
            self.settle()  # of such a memory there is room for one
        memories = memories_of(self.task, self.device)
        shifted = bool(case.seed % 2)
        memory = memories.of(case.problem, launch.workspaces, shifted, launches, deterministic, judge)
        while any(look.memory is memory for look in self._pending):
            self.settle(len(self._pending) - 1)
        inputs = self.task.inputs(case.problem, case.family, case.seed, self.device.torch_device)
        memory.guarded.fill(inputs, case.seed)
        return memory

    def _launch(
        self, kernel: Kernel, launch: LaunchConfig, guarded: GuardedMemory, turn: int, schedule: str
    ) -> LaunchReport:
        guarded.poison(turn)
        self.device.disturb(turn)
        report = kernel.start(launch, guarded.regions, schedule)
        self.launches += 1
        return report

    def abandon(self) -> None:
        """Waits for what is still running of a candidate that failed: its code is unloaded next."""
        self._pending.clear()
        with suppress(CandidateError):
            self.device.finish()

    def _note(self, case: Case, found: Errors) -> None:
        """To four digits, as it is kept: there are dozens a trial."""
        error, limit = (float(f"{number:.4g}") for number in (found.row_error, found.row_limit))
        self.errors.append(CaseError(case.problem.key, case.family, case.seed, error, limit))

    def _blame(self, case: Case, launch: str) -> Blame:
        return Blame(case, launch, self.errors)

    def _alive(self, case: Case) -> Alive:
        return Alive(self.device, self._blame(case, "some launch"))


@cache
def _slates() -> Iterator[Tensor]:
    """What is found and not kept is read from these in turns, more of them than looks are pending."""
    return cycle([pinned(SLATE_NUMBERS) for _ in range(2 * PENDING + 2)])
