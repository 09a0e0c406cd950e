"""A task whose reference is a file: inputs, and the outputs that are right for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from evo.dtype import dtype_named
from evo.errors import UsageError
from evo.task import BufferSpec, Families, Task, Tensors, Tolerance
from evo.task.tensors import same_order
from evo.trial import Problem

if TYPE_CHECKING:
    from torch import Tensor

GIVEN = "given"
"""The only family of such a task."""
OFF = 168
"""Units of rounding in fp32 (2^-24) that an output may be off: 1e-5 of it, numpy.allclose's default."""


class GivenTask(Task):
    """A task that is known at one problem and for one set of inputs: the weakest gate there is, as each
    candidate is compared on these alone. `file` (.npz) has an array for each buffer by its name: of inputs
    what goes in, of outputs what is right. A buffer that is both has its first content as NAME_before."""

    file: ClassVar[Path]
    families = Families(plain=GIVEN)
    tolerance = Tolerance(row_floor=OFF, few_rows_floor=OFF, element_floor=OFF)

    def validate(self, problem: Problem) -> None:
        if dict(problem.sizes) != dict(self.example.sizes):
            hint = f"{self.file.name} holds {self.example.shape}"
            raise UsageError(f"what is right is not known for {problem.shape}", hint)

    def inputs(self, problem: Problem, family: str, seed: int, torch_device: str) -> dict[str, Tensor]:  # noqa: ARG002
        arrays = {b: f"{b.name}_before" if b.written else b.name for b in self.buffers(problem) if b.read}
        return {b.name: self._tensor(b, key).to(torch_device) for b, key in arrays.items()}

    def reference(self, problem: Problem, inputs: Tensors) -> dict[str, Tensor]:
        device = next(iter(inputs.values())).device if inputs else "cpu"
        outputs = [b for b in self.buffers(problem) if b.written]
        found = {b.name: self._tensor(b, b.name).to(device) for b in outputs}
        return {name: x.double() if x.is_floating_point() else x for name, x in found.items()}

    def gate_problems(self, problem: Problem, tiles: Sequence[int]) -> tuple[Problem, ...]:  # noqa: ARG002
        return (problem,)

    def ragged_problems(
        self,
        problem: Problem,  # noqa: ARG002
        tiles: Sequence[int],  # noqa: ARG002
        far: bool = False,  # noqa: ARG002
    ) -> tuple[Problem, ...]:
        return ()

    def _tensor(self, buffer: BufferSpec, key: str) -> Tensor:
        import torch

        arrays = _arrays(self.file)
        if key not in arrays:
            raise UsageError(f"{self.file} has no array {key}", f"arrays: {', '.join(arrays)}")
        found = torch.from_numpy(arrays[key]).to(dtype_named(buffer.dtype).torch)
        if not same_order(found.shape, buffer.shape):
            raise UsageError(f"{self.file}: {key} has the shape {tuple(found.shape)}", f"{buffer.shape}")
        return found.reshape(buffer.shape)


@cache
def _arrays(file: Path) -> Mapping[str, Any]:
    import numpy as np

    with np.load(file, allow_pickle=False) as arrays:
        return {name: np.ascontiguousarray(arrays[name]) for name in arrays.files}
