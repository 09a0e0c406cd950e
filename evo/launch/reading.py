"""The arguments of a packaged kernel's call: names, flags, shapes and types, by what `dispatch.json` says
of the task. Nothing here imports evo."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .dispatch import length_of

DTYPES = {
    "fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32, "fp64": torch.float64,
    "fp8": torch.float8_e4m3fn, "i8": torch.int8, "u8": torch.uint8, "i16": torch.int16, "i32": torch.int32,
    "i64": torch.int64, "u16": torch.uint16, "u32": torch.uint32, "u64": torch.uint64, "bool": torch.bool,
}  # fmt: skip
OUTPUT = "out"
"""The argument of a call that takes outputs. A task may have a flag of this name."""


@dataclass(frozen=True)
class Form:
    """The buffers for one choice of flags: the names of those that are read, written, and made by the call;
    the sides of each (a size's name, a number or a formula of sizes as in dispatch.py, or None); their types
    by the storage type."""

    flags: Mapping[str, Any]
    read: tuple[str, ...]
    written: tuple[str, ...]
    made: tuple[str, ...]
    sides: Mapping[str, Sequence[Any]]
    dtypes: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class Call:
    """One call, all of its tensors on one device."""

    read: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    flags: dict[str, Any]
    device: torch.device

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for calls of one problem in one place."""
        form = tuple((tensor.shape, tensor.dtype) for tensor in self.read.values())
        return self.device, form, tuple(self.flags.items())


class Reader:
    """Reads calls. torch.compile traces it: nothing here changes with a call."""

    def __init__(self, record: Mapping[str, Any]) -> None:
        self.task: str = record["task"]
        self._flags: Mapping[str, Mapping[str, Any]] = record["flags"]
        self.defaults = {name: flag["default"] for name, flag in self._flags.items()}
        self._dtypes: Sequence[str] = record["dtypes"]
        self.forms = {tuple(one["flags"].values()): _form(one) for one in record["forms"]}
        buffers = dict.fromkeys(name for form in self.forms.values() for name in form.sides)
        self.tensors = frozenset(buffers)
        self._sets = {one["name"]: one["when"] for one in record["optional"]}
        self._buffers = tuple(name for name in buffers if name not in self._flags)
        self.names = (*buffers, *(name for name in self._flags if name not in buffers))
        """Of all buffers and flags."""

    def form(self, flags: Mapping[str, Any]) -> Form:
        return self.forms[tuple(flags.values())]

    def read(self, places: tuple[Any, ...], out: Any, named: Mapping[str, Any]) -> Call:
        """The call. TypeError where an argument is missing, unknown or of another kind; ValueError where the
        tensors lie on several devices."""
        tensors = {
            name: value for name, value in named.items() if name in self._buffers or isinstance(value, Tensor)
        }
        form = self.form(self._chosen({n: v for n, v in named.items() if n not in tensors}, tensors))
        if len(places) > len(form.read):
            raise TypeError(f"{len(places)} tensors for {len(form.read)} inputs: {', '.join(form.read)}")
        given = dict(zip(form.read, places, strict=False))
        for name, value in tensors.items():
            if name in given or name not in form.sides:
                raise TypeError(f"{name} is given twice" if name in given else f"there is no {name}")
            given[name] = value
        if isinstance(out, Mapping):
            given.update(out)
        elif out is not None:
            if len(form.made) != 1:
                raise TypeError(f"out= is one tensor; there are {len(form.made)} outputs: {form.made}")
            given[form.made[0]] = out
        missing = [name for name in form.read if name not in given]
        if missing:
            raise TypeError(f"input {missing[0]} is missing: {', '.join(form.read)}")
        for name, value in given.items():
            if not isinstance(value, Tensor):
                raise TypeError(f"{name} is a {type(value).__name__}, not a torch tensor")
            if value.layout != torch.strided:
                raise TypeError(f"{name} has the layout {value.layout}: {name}.to_dense()")
        devices = {str(value.device) for value in given.values()}
        if len(devices) > 1:
            raise ValueError(f"tensors lie on {', '.join(sorted(devices))}: give them one device")
        read = {name: given.pop(name) for name in form.read}
        return Call(read, given, dict(form.flags), next(iter(read.values())).device)

    def flags(self, named: Mapping[str, Any]) -> dict[str, Any]:
        """What is chosen by the tensors and flags of a call. TypeError or ValueError as in `read`."""
        tensors = {name: value for name, value in named.items() if isinstance(value, Tensor)}
        return self._chosen({n: v for n, v in named.items() if n not in tensors}, tensors)

    def _chosen(self, said: Mapping[str, Any], tensors: Mapping[str, Any]) -> dict[str, Any]:
        for name in said:
            if name not in self._flags:
                known = ", ".join((*self._buffers, *self._flags))
                raise TypeError(f"{self.task} has no {name}: {known}")
        sets = {flag: True for name, flag in self._sets.items() if name in tensors}
        chosen = {name: {**sets, **said}.get(name, flag["default"]) for name, flag in self._flags.items()}
        for name, value in chosen.items():
            if value not in self._flags[name]["values"]:
                raise ValueError(f"{name} cannot be {value}: {self._flags[name]['values']}")
        return chosen

    def problem(self, call: Call) -> tuple[str, dict[str, int]]:
        """The storage type and the sizes. ValueError where the tensors do not fit each other or the task,
        LookupError where no shape says a size."""
        return self.storage(call), self.sizes(call)

    def sizes(self, call: Call) -> dict[str, int]:
        """As `problem`."""
        form = self.form(call.flags)
        sizes: dict[str, int] = {}
        for name, tensor in call.read.items():
            sides = form.sides[name]
            if tensor.dim() != len(sides):
                raise ValueError(f"{name} has {tensor.dim()} dimensions, not {len(sides)}: {list(sides)}")
            for side, length in zip(sides, tensor.shape, strict=True):
                if side is None:
                    raise LookupError("with these flags no shape says the sizes")
                if length < 1:
                    raise ValueError(f"{name} is empty: {tuple(tensor.shape)}")
                if isinstance(side, Mapping) and "plus" in side:
                    sizes.setdefault(side["of"][0][0], length - side["plus"])
                known = sizes.setdefault(side, length) if isinstance(side, str) else length
                if known != length:
                    raise ValueError(f"{name} is {tuple(tensor.shape)}: {side} is {known} elsewhere")
        for name, tensor in call.read.items():
            due = tuple(length_of(side, sizes) for side in form.sides[name])
            if None in due:
                raise LookupError(f"no shape says that of {name}")
            if due != tuple(tensor.shape) or min(due) < 1:
                raise ValueError(f"{name} is {tuple(tensor.shape)}: with the other tensors it is {due}")
        return sizes

    def storage(self, call: Call) -> str:
        """As `problem`."""
        form = self.form(call.flags)
        for dtype in self._dtypes:
            if all(DTYPES[form.dtypes[name][dtype]] == x.dtype for name, x in call.read.items()):
                return dtype
        given = ", ".join(f"{name} is of {tensor.dtype}" for name, tensor in call.read.items())
        raise ValueError(f"{self.task} takes {' or '.join(self._dtypes)}, and {given}")

    def buffers(self, call: Call) -> tuple[dict[str, tuple[int, ...]], dict[str, torch.dtype]]:
        """Shapes and types of all buffers; as `problem`."""
        dtype, sizes = self.problem(call)
        form = self.form(call.flags)
        shapes: dict[str, tuple[int, ...]] = {}
        for name, sides in form.sides.items():
            shape = [None if side is None else length_of(side, sizes) for side in sides]
            if None in shape:
                raise LookupError(f"no shape says that of {name}")
            shapes[name] = tuple(int(side) for side in shape if side is not None)
        return shapes, {name: DTYPES[kinds[dtype]] for name, kinds in form.dtypes.items()}

    def check_outputs(
        self, call: Call, shapes: Mapping[str, tuple[int, ...]], dtypes: Mapping[str, torch.dtype]
    ) -> None:
        """ValueError where an output that was given is not the problem's, or shares memory with what is
        read."""
        for name, tensor in call.outputs.items():
            if name in shapes and (tuple(tensor.shape), tensor.dtype) != (shapes[name], dtypes[name]):
                due = f"{shapes[name]} of {dtypes[name]}"
                raise ValueError(f"{name} is {tuple(tensor.shape)} of {tensor.dtype}: it is {due}")
            begin, end = tensor.data_ptr(), tensor.data_ptr() + tensor.numel() * tensor.element_size()
            for other, x in call.read.items():
                if x.data_ptr() < end and begin < x.data_ptr() + x.numel() * x.element_size():
                    raise ValueError(f"{name} shares memory with {other}: give it memory of its own")


def output_and_flags(out: Any, named: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """`out=` of a call and what it gives by name, where the task has a flag `out`: a text or a number is the
    flag, anything else the output."""
    return (None, {**named, OUTPUT: out}) if isinstance(out, (str, int, float)) else (out, named)


def _form(said: Mapping[str, Any]) -> Form:
    buffers = said["buffers"]
    return Form(
        said["flags"],
        tuple(one["name"] for one in buffers if one["role"] != "out"),
        tuple(one["name"] for one in buffers if one["role"] != "in"),
        tuple(one["name"] for one in buffers if one["role"] == "out"),
        {one["name"]: one["sides"] for one in buffers},
        {one["name"]: one["dtypes"] for one in buffers},
    )
