"""The last piece of a problem whose buffers have more than 2^31 elements, where launches are dear.

An offset that a kernel computes in 32 bits is wrong there and nowhere before. Such a problem is too large to
run whole on the emulator, and its memory too large to fill. But pages that nothing touches take no memory:
so its buffers are made, only the last piece (the last head of the last batch) has inputs, and only the last
CTAs of the launch run. What they write must be what the last CTAs of the piece alone write: a problem of one
piece, whose offsets are small.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from evo.device import Kernel, Region
from evo.dtype import dtype_named
from evo.errors import Hung, Infeasible
from evo.gate.tolerance import refuse_broken
from evo.launch.dispatch import MOST_ELEMENTS, is_large
from evo.task import BufferSpec, Relation, Task, Tensors
from evo.trial import LaunchConfig, Problem

if TYPE_CHECKING:
    from torch import Tensor

FAR_OFFSETS = f"offsets beyond 2^{MOST_ELEMENTS.bit_length() - 1} elements"
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)
Served = tuple[Problem, Kernel, LaunchConfig]
"""A problem, and the candidate's kernel and launch for it."""
_GAP = 16 << 30
"""Bytes before and after a buffer that belong to none: an offset that wrapped ends there."""
_UNWRITTEN = 0xFF
"""Each byte of the last piece of an output before the launch; as floating point a NaN."""


def is_far(task: Task, problem: Problem) -> bool:
    """Whether some buffer has more than 2^31 elements."""
    return is_large(buffer.shape for buffer in task.buffers(problem))


class NotMet(Exception):
    """Why the last piece cannot be launched by itself, or what of it cannot be told."""


class FarMemory:
    """The buffers of a launch, each on pages of its own that are zero and take no memory until touched."""

    def __init__(self, task: Task, problem: Problem, piece: Problem, launch: LaunchConfig) -> None:
        parts = {buffer.name: buffer for buffer in task.buffers(piece)}
        self._pages: dict[str, mmap.mmap] = {}
        self._last: dict[str, Tensor] = {}
        """The bytes of the last piece, by buffer."""
        self.specs = parts
        self.regions: dict[str, Region] = {}
        for buffer in task.buffers(problem):
            _require_last(buffer, parts[buffer.name])
            whole = self._open(buffer.name, buffer.nbytes, writable=buffer.written, initialised=buffer.read)
            self._last[buffer.name] = whole[buffer.nbytes - parts[buffer.name].nbytes :]
        for workspace in launch.workspaces:
            self._open(workspace.name, workspace.nbytes, writable=True, initialised=workspace.zeroed)

    def _open(self, name: str, nbytes: int, *, writable: bool, initialised: bool) -> Tensor:
        import torch

        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
        try:
            pages = mmap.mmap(-1, nbytes + 2 * _GAP, flags=flags)
        except OSError as error:
            raise NotMet(f"there is no room for {name}, {nbytes} bytes: {error}") from error
        content = torch.frombuffer(pages, dtype=torch.uint8, count=nbytes, offset=_GAP)
        self._pages[name] = pages
        self.regions[name] = Region(name, content.data_ptr(), nbytes, writable, initialised)
        return content

    def fill(self, inputs: Tensors) -> None:
        """Gives the last piece its inputs; its outputs count as unwritten."""
        import torch

        for name, last in self._last.items():
            if name in inputs:
                last.copy_(inputs[name].contiguous().view(torch.uint8).flatten())
            else:
                last.fill_(_UNWRITTEN)

    def outputs(self) -> dict[str, Tensor]:
        """The last piece of each output, as rows."""
        return {
            name: self._last[name].view(dtype_named(spec.dtype).torch).reshape(-1, spec.shape[-1])
            for name, spec in self.specs.items()
            if spec.written
        }


def _require_last(whole: BufferSpec, part: BufferSpec) -> None:
    """NotMet unless the piece's buffer may be the end of the whole problem's, or is the same."""
    axes = [k for k, (n, of) in enumerate(zip(part.shape, whole.shape, strict=True)) if n != of]
    if axes and any(part.shape[k] != 1 for k in range(axes[-1] + 1)):
        raise NotMet(f"the pieces of {whole.name} do not lie one behind the other")


def check_last_piece(task: Task, whole: Served, piece: Served, seed: int, torch_device: str) -> None:
    """Launches the last CTAs of the whole problem and of a piece alone, under the default schedule.

    Raises Red where they differ or an access is out of bounds, NotMet where that cannot be told."""
    inputs = task.inputs(piece[0], task.families.plain, seed, torch_device)
    alone, far = (_launched(task, *one, piece[0], inputs) for one in (piece, whole))
    compare_last(alone, far, task)


def _launched(
    task: Task, problem: Problem, kernel: Kernel, launch: LaunchConfig, piece: Problem, inputs: Tensors
) -> dict[str, Tensor]:
    """What the last CTAs leave in the last piece."""
    memory = FarMemory(task, problem, piece, launch)
    memory.fill(inputs)
    try:
        if kernel.launch_end(launch, memory.regions) is None:
            raise NotMet("this device does not launch a part of a grid")
    except Hung as hung:
        raise NotMet(f"the last CTAs of the launch take too long: {hung.detail}") from hung
    except RuntimeError as error:  # of the interpreter: no memory for what it notes of each byte
        raise NotMet(str(error)) from error
    return {name: output.clone() for name, output in memory.outputs().items()}


def compare_last(alone: Tensors, far: Tensors, task: Task) -> None:
    """Raises Red unless rows that both launches wrote are equal, NotMet where there are none."""
    import torch

    expected: dict[str, Any] = {}
    written = 0
    for name in alone:
        both = _written(alone[name]) & _written(far[name])
        expected[name] = alone[name].double().masked_fill(~both[:, None], math.nan)
        written += int(both.sum())
    if not written:
        raise NotMet("the last CTAs of the launch do not write the last piece")
    relation = Relation("the last piece alone", dict, lambda _: expected)
    with torch.no_grad():
        refuse_broken(relation, alone, far, task.tolerance)


def _written(rows: Tensor) -> Tensor:
    """Which rows hold anything but what was there before."""
    import torch

    content = rows.contiguous().view(torch.uint8).reshape(rows.shape[0], -1)
    found: Tensor = (content != _UNWRITTEN).any(1)
    return found


def served(kernel_for: Callable[[Problem], tuple[Kernel, LaunchConfig]], problem: Problem) -> Served:
    """The kernel and launch for a problem; NotMet where the candidate has none."""
    try:
        kernel, launch = kernel_for(problem)
    except Infeasible as no:
        raise NotMet(f"not served: {no.reason}") from no
    return problem, kernel, launch
