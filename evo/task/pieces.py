"""Parts of a problem that do not depend on each other: what a large one may be judged by."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evo.task.tensors import DRAWN_AT_ONCE, BufferSpec, DeclaredTensor, Tensors
from evo.trial import Problem

if TYPE_CHECKING:  # importing torch takes seconds: only what computes imports it
    from torch import Tensor


@dataclass(frozen=True)
class Pieces:
    """A problem is made of as many pieces as its `size` says, and none depends on another. `dimensions`: of
    each tensor that has a part for every piece, along which dimension they lie; any other tensor belongs to
    all of them. Every output has such parts."""

    size: str
    dimensions: Mapping[str, int]

    @classmethod
    def of_rows(cls, tensors: Mapping[str, DeclaredTensor]) -> Pieces | None:
        """The rows: the first dimension of the first output, and of every tensor that begins with it. None
        where an output does not, or where that dimension is no size."""
        outputs = [tensor.dimensions[:1] for tensor in tensors.values() if tensor.role != "in"]
        rows = outputs[0][0] if outputs and outputs[0] else None
        if not isinstance(rows, str) or any(first != (rows,) for first in outputs):
            return None
        return cls(rows, {name: 0 for name, tensor in tensors.items() if tensor.dimensions[:1] == (rows,)})

    def elements(self, problem: Problem, buffers: Iterable[BufferSpec]) -> int:
        """Elements that one piece has of all `buffers` of the problem."""
        own = sum(math.prod(b.shape) for b in buffers if b.name in self.dimensions)
        return max(1, own // problem.sizes[self.size])

    def only(self, problem: Problem, which: Tensor) -> Problem:
        """The problem of some pieces alone. `which`: (n,), their numbers."""
        return problem.replace(**{self.size: len(which)})

    def parts(self, tensors: Tensors, which: Tensor) -> dict[str, Tensor]:
        """What some pieces have of `tensors`, by name: copies, in the order of `which`, (n,), which is on the
        tensors' device; what belongs to all pieces is given as it is."""
        return {
            name: x.index_select(self.dimensions[name], which) if name in self.dimensions else x
            for name, x in tensors.items()
        }


def split(pieces: Pieces | None, problem: Problem, tensors: Tensors) -> Iterator[tuple[Problem, Tensors]]:
    """The problem in parts of about DRAWN_AT_ONCE elements, one after the other, with what is theirs of the
    `tensors`, not copied; all at once where it is no larger, or has no pieces."""
    own = pieces.dimensions.keys() & tensors.keys() if pieces else set()
    elements = sum(tensors[name].numel() for name in own)
    if pieces is None or elements <= DRAWN_AT_ONCE:
        yield problem, tensors
        return
    count = problem.sizes[pieces.size]
    step = max(1, count * DRAWN_AT_ONCE // elements)
    for first in range(0, count, step):
        size = min(step, count - first)
        some = {name: tensors[name].narrow(pieces.dimensions[name], first, size) for name in own}
        yield problem.replace(**{pieces.size: size}), {**tensors, **some}
