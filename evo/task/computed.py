"""What an author of a task may get wrong in what it computes: looked at on a small problem, before a search
begins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evo.dtype import dtype_named
from evo.errors import UsageError, kind_of
from evo.task.author import Author
from evo.task.task import Task
from evo.task.tensors import BufferSpec, precise, same_order
from evo.trial import Problem

if TYPE_CHECKING:
    from torch import Tensor

_INPUTS = "it gets the inputs by name; rows may be zeros, all equal or have an outlier: else define `inputs`"
_SIGNATURE = "def compute(self, problem, tensors): with the tensors by name"


def check_tensors(task: Task, path: Path) -> None:
    """Raises BadTemplate for the first thing that is wrong with the inputs and outputs of a task, which are
    looked at on its first gate problem, on the CPU."""
    author = Author(task, path)
    problem = task.gate_problems(task.example, (16, 32))[0]
    read = {buffer.name: buffer for buffer in task.buffers(problem) if buffer.read}
    written = {buffer.name: buffer for buffer in task.buffers(problem) if buffer.written}
    for family in task.families.names:
        inputs = _inputs(author, problem, family)
        again = _inputs(author, problem, family)
        _check_named(author, "inputs", inputs, read, family)
        for name, packing in task.packings.items():
            hint = f"unpack of {name} gives back, bit for bit, what pack was given"
            if wrong := author.ask("packings", partial(packing.broken, problem, inputs), hint):
                author.refuse("packings", f"{name} does not hold {wrong} as it was ({family})", hint)
        for name, tensor in inputs.items():
            if not _same(tensor, again[name]):
                hint = "draw from torch.Generator(device=torch_device).manual_seed(seed)"
                author.refuse("inputs", f"two calls with one seed give another {name}", hint)
        kept = {name: tensor.clone() for name, tensor in inputs.items()}
        place = "compute" if type(task).reference is Task.reference else "reference"
        if place == "compute" and family == task.families.plain:
            _check_computed(author, problem, inputs, written)
        exact = author.ask(place, partial(task.reference, problem, inputs), _INPUTS)
        _check_named(author, place, exact, written, family, exact=True)
        honest = author.ask("honest", partial(task.honest, problem, inputs), "as `reference`, rounded")
        _check_named(author, "honest", honest, written, family)
        if place == "compute":
            author.ask(place, partial(task.compute, problem, inputs), _INPUTS)
        if any(not _same(kept[name], inputs[name]) for name in kept):
            author.refuse(place, f"{place} changes its inputs", "work on a clone: x.clone()")
    _check_timing_tensors(author, problem, read)


def _check_computed(
    author: Author, problem: Problem, inputs: Mapping[str, Tensor], written: Mapping[str, BufferSpec]
) -> None:
    """Whether `compute` gives a tensor for each output, and the same when it is asked again."""
    import torch

    def computed() -> Any:
        wide = precise(inputs, "fp64")
        try:
            return author.task.compute(problem, wide)
        except (TypeError, KeyError, AttributeError) as error:
            what = f"compute failed: {type(error).__name__}: {error}"
            hint = _hint_of(author.task, error, wide, written)
            raise author.error("compute", what, hint, error) from error

    found, again = author.ask("compute", computed, _INPUTS), author.ask("compute", computed, _INPUTS)
    names, form = list(written), ", ".join(f'"{name}": …' for name in written)
    if not isinstance(found, (Mapping, tuple, list)):
        found, again = (found,), (again,)
    if not isinstance(found, Mapping):
        if len(found) != len(names):
            what = f"compute gives {len(found)} outputs, the task has {len(names)}: {', '.join(names)}"
            author.refuse(
                "compute", what, f"return {{{form}}}; of several that torch gives, the one: .values"
            )
        found, again = dict(zip(names, found, strict=True)), dict(zip(names, again, strict=True))
    if set(found) != set(names):
        hint = f"tensors by name: {', '.join(names)}"
        author.refuse("compute", f"compute gives {', '.join(map(str, found)) or 'nothing'}", hint)
    for name, buffer in written.items():
        tensor = found[name]
        if not isinstance(tensor, torch.Tensor):
            what = "nothing" if tensor is None else f"{name} as {kind_of(tensor)}"
            author.refuse("compute", f"compute gives {what}", f"return {{{form}}}, each a torch.Tensor")
        if not same_order(tensor.shape, buffer.shape):
            what = f"compute gives {name} the shape {tuple(tensor.shape)}"
            author.refuse("compute", what, f"the tensor's shape: {buffer.shape}")
        if not _same(tensor, again[name]):
            what = f"compute gives another {name} when it is asked again"
            author.refuse("compute", what, "nothing random: inputs alone decide")


def _hint_of(task: Task, error: Exception, inputs: Mapping[str, Tensor], written: Iterable[str]) -> str:
    """What to write where `compute` raised this."""
    said = str(error)
    if isinstance(error, KeyError):
        missing = error.args[0]
        if missing in written:
            return f'"{missing}": InOut(…), for what is read and written; Out is only written'
        sizes = f", sizes: {', '.join(task.sizes)}: problem[…]" if missing in task.sizes else ""
        return f"tensors: {', '.join(inputs)}{sizes}"
    if isinstance(error, TypeError) and "positional argument" in said and "compute()" in said:
        return _SIGNATURE
    if "'dict' object" in said:
        return f'tensors["{next(iter(inputs), "x")}"]'
    if "'Problem' object" in said:
        return f'a size is problem["{next(iter(task.sizes))}"], a flag problem.flags["…"]'
    return _INPUTS


def _check_timing_tensors(author: Author, problem: Problem, read: Mapping[str, BufferSpec]) -> None:
    hint = f"timing_tensors takes every timing input: {', '.join(author.task.timing_inputs)}"
    place = "timing_inputs" if type(author.task).timing_tensors is Task.timing_tensors else "timing_tensors"
    for name in author.task.timing_inputs:
        ask = partial(author.task.timing_tensors, problem, name, 1, "cpu")
        try:
            found = author.ask(place, ask, hint)
        except UsageError as error:
            raise author.error(place, error.message, hint) from error
        _check_named(author, place, found, read, name)


def _inputs(author: Author, problem: Problem, family: str) -> dict[str, Tensor]:
    hint = f"inputs takes every family: {', '.join(author.task.families.names)}"
    found = author.ask("inputs", lambda: author.task.inputs(problem, family, 1, "cpu"), hint)
    if not isinstance(found, Mapping):
        author.refuse("inputs", f"inputs gives {kind_of(found)}", 'tensors by name: {"x": x}')
    return dict(found)


def _check_named(
    author: Author,
    place: str,
    found: object,
    buffers: Mapping[str, BufferSpec],
    family: str,
    exact: bool = False,
) -> None:
    """Whether there is a tensor for each buffer, with its shape and type (`exact`: fp64), and finite."""
    import torch

    if not isinstance(found, Mapping) or set(found) != set(buffers):
        got = ", ".join(map(str, found)) if isinstance(found, Mapping) else kind_of(found)
        author.refuse(place, f"{place} gives {got or 'nothing'}", f"tensors by name: {', '.join(buffers)}")
    for name, buffer in buffers.items():
        tensor, kind = found[name], dtype_named(buffer.dtype)
        if not isinstance(tensor, torch.Tensor):
            author.refuse(place, f"{place} gives {name} as {kind_of(tensor)}", "a torch.Tensor")
        if tuple(tensor.shape) != buffer.shape:
            hint = f"the buffer's shape: {buffer.shape}"
            author.refuse(place, f"{place} gives {name} the shape {tuple(tensor.shape)}", hint)
        if exact and kind.floating and tensor.dtype != torch.float64:
            hint = "compute it in fp64: inputs[...].double()"
            author.refuse(place, f"{place} gives {name} in {tensor.dtype}, not in fp64", hint)
        if not exact and tensor.dtype != kind.torch:
            author.refuse(place, f"{place} gives {name} in {tensor.dtype}", f".to({kind.torch})")
        if exact and not kind.floating and tensor.is_floating_point():
            author.refuse(place, f"{place} gives {name} in {tensor.dtype}", "whole numbers: .long()")
        if tensor.is_floating_point() and not tensor.isfinite().all():
            hint = f"family {family}: inputs and outputs that the storage type holds"
            author.refuse(place, f"{place} gives {name} with NaN or infinity ({family})", hint)


def _same(one: Tensor, other: Tensor) -> bool:
    import torch

    return bool(one.shape == other.shape and torch.equal(one.nan_to_num(), other.nan_to_num()))
