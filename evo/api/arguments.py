"""What a task's kernel is called with: buffers by place or name, flags and sizes by name, and outputs; and
which problem that is."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evo.calls import Entry, RecordedCall, problem_of
from evo.dtype import DTYPES, dtype_named
from evo.errors import UsageError, kind_of
from evo.task import BufferSpec, Task
from evo.trial import Problem, Value

if TYPE_CHECKING:
    from torch import Tensor

ALIGNMENT = 16
"""Bytes: where the gate lets the buffers of a kernel begin."""

Outputs = Mapping[str, "Tensor"]


@dataclass(frozen=True)
class Call:
    """One call: the tensors that are read, the outputs that were given, and what the shapes do not say.
    `place` is where all the tensors lie."""

    read: Mapping[str, Tensor]
    outputs: Outputs
    flags: Mapping[str, Value]
    sizes: Mapping[str, int]
    place: str

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for calls of one problem in one place."""
        form = tuple((tensor.shape, tensor.dtype) for tensor in self.read.values())
        return self.place, form, tuple(self.flags.items()), tuple(self.sizes.items())

    @property
    def obstacle(self) -> str:
        """Why no kernel may take these tensors, whatever their problem; "" where one may."""
        import torch

        gradients = torch.is_grad_enabled()
        for name, tensor in (*self.read.items(), *self.outputs.items()):
            if gradients and tensor.requires_grad:
                return f"{name} requires a gradient"
            if not tensor.is_contiguous():
                return f"{name} is not contiguous"
            if tensor.data_ptr() % ALIGNMENT:
                return f"{name} does not begin at a multiple of {ALIGNMENT} bytes"
        return ""


class Reader:
    """Reads the arguments of a task's calls. torch.compile traces it: nothing here changes with a call."""

    def __init__(self, task: Task) -> None:
        self._task = task
        every = itertools.product(*(flag.values for flag in task.flags.values()))
        self._specs = {
            values: task.buffers(task.example.replace(**dict(zip(task.flags, values, strict=True))))
            for values in every
        }
        names = {spec.name for specs in self._specs.values() for spec in specs}
        self.tensors = frozenset(names)
        self._own = names - set(task.flags)
        self.names = tuple(sorted(names | set(task.flags)))
        """Of all buffers and flags."""
        self.lone = {
            flags: sum(spec.read for spec in specs)
            for flags, specs in self._specs.items()
            if [spec.role for spec in specs if spec.written] == ["out"]
        }
        """By the values of the flags: how many tensors are read, where one output is all that is written."""

    def read(self, places: tuple[Any, ...], out: Tensor | Outputs | None, named: Mapping[str, Any]) -> Call:
        """The call. UsageError where something is missing, unknown or no tensor, or lies elsewhere."""
        import torch

        flags, buffers = self.told(named)
        sizes = {name: named[name] for name in self._task.sizes if name in named}
        specs = self.buffers(flags)
        given = named_buffers(specs, places, buffers)
        read = {spec.name: given[spec.name] for spec in specs if spec.read}
        outputs = {name: tensor for name, tensor in given.items() if name not in read}
        outputs |= _outputs(specs, out)
        found = {}
        for name, tensor in (*read.items(), *outputs.items()):
            if not isinstance(tensor, torch.Tensor):
                raise UsageError(f"{name} is {kind_of(tensor)}", "a torch tensor")
            if tensor.layout != torch.strided:
                raise UsageError(f"{name} has the layout {tensor.layout}", f"{name}.to_dense()")
            found[str(tensor.device)] = name
        if len(found) > 1:
            raise UsageError(f"tensors lie on {', '.join(sorted(found))}", "one device for all")
        return Call(read, outputs, flags, sizes, next(iter(found), "cpu"))

    def told(self, named: Mapping[str, Any]) -> tuple[dict[str, Value], dict[str, Any]]:
        """The flags and the buffers of what is given by name. UsageError where something is unknown."""
        import torch

        buffers = {
            name: value
            for name, value in named.items()
            if name in self._own or isinstance(value, torch.Tensor)
        }
        task = self._task
        known = [*task.flags, *task.sizes]
        for name, value in named.items():
            if name in buffers:
                continue
            if name not in known:
                hint = f"buffers: {', '.join(sorted(self._own))}; besides: {', '.join(known)}"
                raise UsageError(f"{task.name} has no {name}", hint)
            if name not in task.flags and not isinstance(value, int):
                raise UsageError(f"{name} is {kind_of(value)}", "a size is a whole number")
        said = {name: named[name] for name in task.flags if name in named and name not in buffers}
        for name in buffers:  # a tensor that depends on a flag sets it
            if name in task.tensors and (flag := task.tensors[name].when):
                said.setdefault(flag, True)
        flags = {
            name: flag.parse(name, said[name]) if name in said else flag.default
            for name, flag in task.flags.items()
        }
        return flags, buffers

    def buffers(self, flags: Mapping[str, Value]) -> tuple[BufferSpec, ...]:
        """The task's buffers for these flags, of some problem: only names and roles count."""
        return self._specs[tuple(flags.values())]


def _outputs(specs: Sequence[BufferSpec], out: Tensor | Outputs | None) -> dict[str, Tensor]:
    """What `out=` gives, by name."""
    if out is None:
        return {}
    names = [spec.name for spec in specs if spec.role == "out"]
    if not isinstance(out, Mapping):
        if len(names) != 1:
            raise UsageError(f"out= is one tensor, and there are {len(names)} outputs", f"by name: {names}")
        return {names[0]: out}
    if unknown := [name for name in out if name not in names]:
        raise UsageError(f"there is no output {unknown[0]}", f"outputs: {', '.join(names) or 'none'}")
    return dict(out)


def check_outputs(call: Call, specs: Sequence[BufferSpec]) -> None:
    """UsageError where a given output is not the problem's, or shares memory with what is read."""
    for spec in specs:
        tensor = call.outputs.get(spec.name)
        if tensor is None:
            continue
        wanted = dtype_named(spec.dtype).torch
        if tuple(tensor.shape) != spec.shape or tensor.dtype != wanted:
            is_now = f"{spec.name} is {tuple(tensor.shape)} of {tensor.dtype}"
            raise UsageError(is_now, f"it is {spec.shape} of {wanted} here")
        begin, end = tensor.data_ptr(), tensor.data_ptr() + spec.nbytes
        for name, other in call.read.items():
            first = other.data_ptr()
            if first < end and begin < first + other.numel() * other.element_size():
                raise UsageError(f"{spec.name} shares memory with {name}", "give it memory of its own")


def problem_of_tensors(
    task: Task, read: Mapping[str, Tensor], flags: Mapping[str, object], sizes: Mapping[str, int]
) -> Problem:
    """The problem whose inputs are `read`. UsageError where they are none of the task's."""
    entries = {name: Entry(name, tuple(tensor.shape), dtype_of(tensor)) for name, tensor in read.items()}
    return problem_of(task, RecordedCall(0, entries), flags, sizes)


def named_buffers(
    specs: tuple[BufferSpec, ...], inputs: tuple[Any, ...], buffers: Mapping[str, Any]
) -> dict[str, Any]:
    """What was given, by the names of buffers; UsageError where one is missing or not known."""
    read = [spec.name for spec in specs if spec.read]
    known = ", ".join(spec.name for spec in specs)
    if len(inputs) > len(read):
        raise UsageError(f"{len(inputs)} tensors for {len(read)} inputs", f"inputs: {', '.join(read)}")
    given = dict(zip(read, inputs, strict=False))
    if twice := given.keys() & buffers.keys():
        raise UsageError(f"{min(twice)} is given twice", "by its place or by its name")
    given |= buffers
    if unknown := given.keys() - {spec.name for spec in specs}:
        raise UsageError(f"there is no buffer {min(unknown)}", f"buffers: {known}")
    if missing := [name for name in read if name not in given]:
        raise UsageError(f"input {missing[0]} is missing", f"inputs: {', '.join(read)}")
    return given


def dtype_of(tensor: Tensor) -> str:
    """evo's name of a tensor's dtype."""
    found = [kind.name for kind in DTYPES.values() if kind.name != "fp8" and kind.torch == tensor.dtype]
    if not found:
        raise UsageError(f"tensors of {tensor.dtype} are not served", f"one of {', '.join(DTYPES)}")
    return found[0]
