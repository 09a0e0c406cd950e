"""Which outputs of a case are compared with the reference: all of them, or of a large problem some pieces.

A reference in fp64 and the honest computation take a hundred times the memory and the time of a row kernel.
So where a task says that its pieces do not depend on each other (`Task.pieces`), a problem of more than
COMPARED_ELEMENTS is judged by pieces that the case's seed draws: as the problem that they are by themselves,
with the line of that problem. All of its elements must be numbers, in every launch the same ones, and what
lies around them untouched: that is looked at in full. Of a finalist more pieces are compared, and with plain
inputs all of them, one part after the other.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from evo.gate.tolerance import (
    ErrorLimits,
    Errors,
    errors_of,
    expected_of,
    limits_of,
    refuse,
    refuse_nonfinite,
)
from evo.task import BufferSpec, Pieces, Task, Tensors
from evo.trial import Problem

if TYPE_CHECKING:
    from torch import Tensor

COMPARED_ELEMENTS = 1 << 22
"""Elements of all buffers up to which a problem is compared whole; of a larger one so many are."""
FINALIST_ELEMENTS = 1 << 26
"""The same for finalists."""
FINALIST_FLOP = 2.5e11
"""The most work of what is compared of a finalist in a case, if that is no less than of another candidate.
References of all queries of attention (1, 16, 16384, 128) are nine times as much, in some 40 cases."""
PART_ELEMENTS = 1 << 24
"""Elements of a part: some 100 bytes are needed for each."""
LOOKED_AT_ONCE = 1 << 28
"""Elements: some reductions of torch count with 32 bits."""
FEWEST_PIECES = 64
"""Pieces that are compared at least: with fewer rows other floors hold (evo.task.Tolerance)."""


class Part(NamedTuple):
    """A problem of some pieces, or of all."""

    task: Task
    problem: Problem
    inputs: Tensors
    pieces: Pieces | None
    which: Tensor | None

    def limits(self) -> dict[str, ErrorLimits]:
        """What each output must be. `ErrorLimits.wipe` it after use."""
        references = self.task.reference(self.problem, self.inputs)
        limits = {}
        for name, honest in self.task.honest(self.problem, self.inputs).items():
            limits[name] = limits_of(references[name], honest, self.task.tolerance)
            honest.zero_()  # as good as an answer, and its memory goes to the next allocation
        return limits

    def outputs(self, whole: Tensors) -> Tensors:
        if self.pieces is None or self.which is None:
            return whole
        return self.pieces.parts(whole, self.which)

    def place(self, name: str, at: tuple[int, ...]) -> str:
        """Where in the whole output the element `at` of the part's lies."""
        found = list(at)
        if self.pieces is not None and self.which is not None:
            along = self.pieces.dimensions[name]
            if along < len(found):
                found[along] = int(self.which[found[along]])
        return f"{name}{found}"


@dataclass(frozen=True)
class Judge:
    """Compares outputs of a problem with what they must be. `parts`: numbers of pieces, (n,) each, one part
    after the other; none: all of the problem at once."""

    task: Task
    problem: Problem
    parts: tuple[Tensor, ...] = ()

    @classmethod
    def of(
        cls,
        task: Task,
        problem: Problem,
        seed: int,
        torch_device: str,
        most: int | None = COMPARED_ELEMENTS,
    ) -> Judge:
        """Of a problem with more elements than `most` (None: than no number) pieces that the seed draws."""
        drawn = drawn_parts(task, problem, seed, most)
        if not drawn:
            return cls(task, problem)
        import torch

        return cls(task, problem, tuple(torch.tensor(part, device=torch_device) for part in drawn))

    @property
    def compared(self) -> str:
        """How much of the problem is compared, for a person; "" where all of it is."""
        if not self.parts:
            return ""
        pieces, count = self.task.pieces(self.problem), sum(len(part) for part in self.parts)
        if pieces is None or count == self.problem.sizes[pieces.size]:
            return ""
        return f"{count:,} of {self.problem.sizes[pieces.size]:,} {pieces.size} compared with the reference"

    def errors(self, inputs: Tensors, outputs: Sequence[Tensors]) -> list[Tensor]:
        """What `errors_of` says of each of the outputs of each launch, of the worst part; NaN where an output
        has elements that are no numbers. Starts work on their device and does not wait."""
        if not outputs:
            return []
        found: list[Tensor] = []
        for part in self.each(inputs):
            limits = part.limits()
            fresh = [
                errors_of(out, limits[name]) for one in outputs for name, out in part.outputs(one).items()
            ]
            for limit in limits.values():
                limit.wipe()
            found = [_worse(*both) for both in zip(found, fresh, strict=True)] if found else fresh
        if self.parts:
            whole = [out for one in outputs for out in one.values()]
            found = [_if_finite(*both) for both in zip(found, whole, strict=True)]
        return found

    def refuse(self, inputs: Tensors, outputs: Tensors, name: str, found: Errors) -> None:
        """Raises the Red of the output `name` with the place where it is wrong; what is wrong was `found`."""
        if not self.parts:
            every = {n: expected_of(x) for n, x in self.task.reference(self.problem, inputs).items()}
            try:
                refuse(name, outputs[name], every[name], found)
            finally:
                for expected in every.values():
                    expected.wipe()
            return
        refuse_nonfinite(name, outputs[name])
        for part in self.each(inputs):
            limits, out = part.limits(), part.outputs({name: outputs[name]})[name]
            try:
                found = Errors(*errors_of(out, limits[name]).tolist())
                if not found.within:
                    refuse(name, out, limits[name], found, part.place)
            finally:
                for limit in limits.values():
                    limit.wipe()

    def each(self, inputs: Tensors) -> Iterator[Part]:
        """The parts, or the whole problem; `inputs`: all of its, by name."""
        pieces = self.task.pieces(self.problem)
        if pieces is None or not self.parts:
            yield Part(self.task, self.problem, inputs, None, None)
            return
        own = {name: x for name, x in inputs.items() if name not in self.task.packings}
        for which in self.parts:
            at = pieces.only(self.problem, which)
            yield Part(self.task, at, pieces.parts(own, which), pieces, which)


def finalist_elements(task: Task, problem: Problem) -> int:
    """Elements of the pieces that are compared of a finalist, but with plain inputs."""
    pieces = task.pieces(problem)
    if pieces is None:
        return FINALIST_ELEMENTS
    affordable = problem.sizes[pieces.size] * FINALIST_FLOP / max(1, task.flop(problem))
    elements = int(affordable * pieces.elements(problem, _compared_buffers(task, problem)))
    return min(FINALIST_ELEMENTS, max(COMPARED_ELEMENTS, elements))


def _compared_buffers(task: Task, problem: Problem) -> list[BufferSpec]:
    return [buffer for buffer in task.buffers(problem) if buffer.name not in task.packings]


def drawn_parts(task: Task, problem: Problem, seed: int, most: int | None) -> list[list[int]]:
    """Numbers of the pieces that are compared, in parts; none where the problem is compared whole, at once.
    The first piece and the last one are always among them."""
    pieces = task.pieces(problem)
    if pieces is None:
        return []
    buffers = _compared_buffers(task, problem)
    elements = sum(math.prod(buffer.shape) for buffer in buffers)
    if elements <= min(most or PART_ELEMENTS, PART_ELEMENTS):
        return []
    count, each = problem.sizes[pieces.size], pieces.elements(problem, buffers)
    wanted = count if most is None else min(count, max(FEWEST_PIECES, most // each))
    if wanted < count:
        inner = random.Random(seed).sample(range(1, count - 1), wanted - 2)
        chosen = [0, *sorted(inner), count - 1]
    else:
        chosen = list(range(count))
    size = max(FEWEST_PIECES, PART_ELEMENTS // each)
    parts = -(-wanted // size)
    if parts == 1 and wanted == count:
        return []
    ends = [wanted * part // parts for part in range(parts + 1)]
    return [chosen[begin:end] for begin, end in pairwise(ends)]


def some_pieces(task: Task, problem: Problem) -> Problem:
    """A problem of no more than COMPARED_ELEMENTS, of the same pieces; itself where it has none."""
    pieces = task.pieces(problem)
    if pieces is None:
        return problem
    each = pieces.elements(problem, task.buffers(problem))
    fewer = min(problem.sizes[pieces.size], max(FEWEST_PIECES, COMPARED_ELEMENTS // each))
    return problem.replace(**{pieces.size: fewer})


def _worse(one: Tensor, other: Tensor) -> Tensor:
    """Of two that `errors_of` gave the one that is farther beyond its limits, or nearer to them."""
    return one.where(_badness(one) >= _badness(other), other)


def _badness(found: Tensor) -> Tensor:
    errors, limits = found[0::2], found[1::2]
    return (errors / limits).nan_to_num(0.0, math.inf).where(errors <= limits, math.inf).max()


def _if_finite(found: Tensor, out: Tensor) -> Tensor:
    """`found`, with NaN in the place of the row error if an element of `out` is NaN or infinite."""
    import torch

    finite = all_finite(out).double()
    return torch.cat((found[:1] * (0 / finite + 1), found[1:]))


def all_finite(out: Tensor) -> Tensor:
    """Whether no element is NaN or infinite; of no dimension. Takes no memory, and does not wait."""
    import torch

    if not out.is_floating_point():
        return torch.ones((), dtype=torch.bool, device=out.device)
    found = []
    for some in out.reshape(-1).split(LOOKED_AT_ONCE):
        found += torch.aminmax(some if some.element_size() > 1 else some.float())
    return torch.stack(found).isfinite().all()
