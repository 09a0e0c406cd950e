"""Tensors in an order that suits kernels: weights of four bits as the lanes of a warp take them.

A packing holds what other inputs hold. It is made once, where inputs are made: no launch pays for it, and
what the gate says of a kernel holds for what its packing holds. So a task may have many, and each template
reads the one that it likes. `unpack` is the other way, written by itself: the two are checked against each
other wherever a task is loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evo.task.tensors import BufferSpec, Tensors
from evo.trial import Problem

if TYPE_CHECKING:  # importing torch takes seconds: only what computes imports it
    from torch import Tensor


@dataclass(frozen=True)
class Packing:
    """A tensor of `shape` in elements of `dtype`, contiguous, that `pack` makes of a task's inputs by name,
    on their device. `unpack` gives back those inputs that it holds, by name, bit for bit."""

    shape: Callable[[Problem], tuple[int, ...]]
    dtype: str
    pack: Callable[[Problem, Tensors], Tensor]
    unpack: Callable[[Problem, Tensor], dict[str, Tensor]]

    def buffer(self, name: str, problem: Problem) -> BufferSpec:
        """The buffer that it is for `problem`."""
        return BufferSpec(name, self.shape(problem), self.dtype, "in")

    def broken(self, problem: Problem, inputs: Tensors) -> str | None:
        """The name of an input that does not come back as it was; None where all do."""
        import torch

        given_back = self.unpack(problem, self.pack(problem, inputs))
        for name, tensor in given_back.items():
            if tensor.dtype != inputs[name].dtype or not torch.equal(tensor, inputs[name]):
                return name
        return None if given_back else "anything"
