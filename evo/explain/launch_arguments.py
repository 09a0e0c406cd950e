"""The launch of a kernel in words, as `evo emulate` takes it:

    --launch grid=8x8,block=128,smem=40960         (y and z default to 1)
             cluster=2 for two CTAs a cluster; cooperative=1 where the kernel waits for its whole grid
    --arg in:f16:512x64            an input, N(0,1) unless told: normal uniform ones zeros arange poison, or
    a number
    --arg out:f16:512x64           written by the kernel, uninitialised before; inout: both
    --arg map:in:f16:512x64:64x64:128   a TMA tensor map over such a buffer: its box, and its swizzle in bytes
    --arg i32:512  --arg f32:0.18  numbers: i8 u8 i16 u16 i32 u32 i64 u64 f16 bf16 f32 f64 bool

A buffer may be named: `q=in:f16:512x64`. Shapes are outermost first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from evo.dtype import SCALARS, dtype_named, is_dtype, types_hint
from evo.errors import UsageError
from evo.trial import Argument, BufferArg, ScalarArg, TensorMapArg

FILLS = ("normal", "uniform", "ones", "zeros", "arange", "poison")
Role = Literal["in", "out", "inout"]


@dataclass(frozen=True)
class Buffer:
    """What `--arg` said of a buffer. `shape` is outermost first; `fill` a word of FILLS or a number's
    text."""

    name: str
    role: Role
    dtype: str
    shape: tuple[int, ...]
    fill: str

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * dtype_named(self.dtype).nbytes


def parse_launch(text: str) -> dict[str, Any]:
    """`grid=8x8,block=128,smem=40K,cluster=2` -> fields of a LaunchConfig; UsageError if it is malformed."""
    hint = "write it like grid=8x8,block=128,smem=40960,cluster=2"
    found: dict[str, Any] = {"grid": (1, 1, 1), "block": (1, 1, 1), "smem": 0, "cluster": (1, 1, 1)}
    found["cooperative"] = False
    for part in filter(None, re.split(r"[,\s]+", text)):
        name, _, value = part.partition("=")
        if name not in found:
            raise UsageError(f"unknown part of --launch: {name}", hint)
        if name == "smem":
            size = re.fullmatch(r"(\d+)(K?)", value)
            if not size:
                raise UsageError(f"malformed size: {part}", hint)
            found[name] = int(size[1]) * (1024 if size[2] else 1)
        elif name == "cooperative":
            if value not in ("", "0", "1"):
                raise UsageError(f"malformed part: {part}", hint)
            found[name] = value != "0"
        else:
            found[name] = _three(value, part, hint)
    return {"smem_bytes" if k == "smem" else k: v for k, v in found.items()}


def _three(value: str, part: str, hint: str) -> tuple[int, int, int]:
    sizes = value.split("x")
    if len(sizes) > 3 or not all(s.isdigit() and int(s) > 0 for s in sizes):
        raise UsageError(f"malformed size: {part}", hint)
    x, y, z = [int(s) for s in sizes] + [1] * (3 - len(sizes))
    return x, y, z


def parse_arguments(texts: Sequence[str]) -> tuple[tuple[Argument, ...], tuple[Buffer, ...]]:
    """The kernel's arguments in order, and the buffers that they need. Raises UsageError."""
    arguments: list[Argument] = []
    buffers: list[Buffer] = []
    for i, text in enumerate(texts):
        name, _, rest = text.rpartition("=")
        kind, *fields = rest.split(":")
        name = name or f"arg{i}"
        if is_dtype(kind) and dtype_named(kind).name in SCALARS:
            arguments.append(_scalar(kind, fields, text))
        elif kind == "map":
            buffer, arg = _tensor_map(name, fields, text)
            buffers.append(buffer)
            arguments.append(arg)
        elif kind in ("in", "out", "inout"):
            buffers.append(_buffer(name, kind, fields, text))
            arguments.append(BufferArg(name))
        else:
            raise UsageError(
                f"unknown kind of argument: {text}", f"in, out, inout, map or a number: {', '.join(SCALARS)}"
            )
    names = [b.name for b in buffers]
    if len(set(names)) != len(names):
        raise UsageError("two buffers have one name", f"names: {', '.join(names)}")
    return tuple(arguments), tuple(buffers)


def _scalar(kind: str, fields: Sequence[str], text: str) -> ScalarArg:
    dtype = dtype_named(kind)
    try:
        (value,) = fields
        number = float(value) if dtype.floating else int(value, 0)
    except ValueError:
        raise UsageError(f"malformed number: {text}", "write it like i32:512 or f32:0.125") from None
    try:
        dtype.pack(number)
    except ValueError as error:
        raise UsageError(str(error), f"a number that {dtype.name} can hold") from error
    return ScalarArg(number, "f32" if kind == "f32" else dtype.name)  # type: ignore[arg-type]


def _buffer(name: str, role: str, fields: Sequence[str], text: str) -> Buffer:
    hint = "write it like in:f16:512x64:normal or out:f32:4096"
    if len(fields) not in (2, 3):
        raise UsageError(f"malformed buffer: {text}", hint)
    dtype, shape, *fill = fields
    if not is_dtype(dtype):
        raise UsageError(f"unknown type: {dtype}", types_hint(dtype))
    if not re.fullmatch(r"\d+(x\d+)*", shape) or not math.prod(sizes := [int(s) for s in shape.split("x")]):
        raise UsageError(f"malformed shape: {text}", hint)
    how = fill[0] if fill else "normal" if role != "out" else "poison"
    if how not in FILLS and not re.fullmatch(r"-?\d+(\.\d+)?(e-?\d+)?|nan|-?inf", how):
        raise UsageError(f"unknown fill: {how}", f"one of {', '.join(FILLS)}, or a number")
    return Buffer(name, role, dtype, tuple(sizes), how)  # type: ignore[arg-type]


def _tensor_map(name: str, fields: Sequence[str], text: str) -> tuple[Buffer, TensorMapArg]:
    hint = "write it like map:in:f16:512x64:64x64:128 (role, type, shape, box, swizzle)"
    if len(fields) not in (4, 5) or fields[0] not in ("in", "out", "inout"):
        raise UsageError(f"malformed tensor map: {text}", hint)
    role, dtype, shape, box, *swizzle = fields
    buffer = _buffer(name, role, [dtype, shape], text)
    sizes = box.split("x")
    if (
        len(sizes) != len(buffer.shape)
        or not all(s.isdigit() for s in sizes)
        or (swizzle and not swizzle[0].isdigit())
    ):
        raise UsageError(f"malformed tensor map: {text}", hint)
    element = dtype_named(dtype)
    strides = [math.prod(buffer.shape[i + 1 :]) * element.nbytes for i in range(len(buffer.shape) - 1)]
    return buffer, TensorMapArg(
        name,
        element.name,
        buffer.shape[::-1],
        tuple(strides[::-1]),
        tuple(int(s) for s in sizes[::-1]),
        int(swizzle[0]) if swizzle else 0,
    )


def filled(buffer: Buffer, seed: int) -> npt.NDArray[np.uint8]:
    """A buffer's bytes before the launch, with its own random stream."""
    count = math.prod(buffer.shape)
    dtype = dtype_named(buffer.dtype)
    if buffer.fill == "poison":
        return np.full(buffer.nbytes, 0xA5, np.uint8)
    stream = np.random.default_rng([seed, *buffer.name.encode()])
    values: npt.NDArray[np.float64]
    match buffer.fill:
        case "normal":
            values = stream.standard_normal(count) * (1 if dtype.floating else 50)
        case "uniform":
            values = stream.random(count) * (1 if dtype.floating else 100)
        case "arange":
            values = np.arange(count, dtype=np.float64)
        case "ones" | "zeros":
            values = np.full(count, float(buffer.fill == "ones"))
        case number:
            values = np.full(count, float(number))
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype.name == "bf16":
            return (values.astype(np.float32).view(np.uint32) + 0x8000 >> 16).astype(np.uint16).view(np.uint8)
        if dtype.name == "fp8":
            return values.astype(np.int64).astype(np.uint8)
        numbers = values if dtype.floating else values.astype(np.int64)
        return numbers.astype(dtype.torch_name).view(np.uint8)
