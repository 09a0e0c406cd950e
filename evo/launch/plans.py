"""What a table of known calls is told of a launch. Nothing here imports evo: a launch is the mapping that
`LaunchConfig.to_json` writes."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from .fast import Loaded

_POINTER, _BYTES, _MAP = 0, 1, 2
CODES = {
    "i8": "b", "u8": "B", "i16": "h", "u16": "H", "i32": "i", "u32": "I", "i64": "q", "u64": "Q",
    "bool": "?", "fp16": "e", "f16": "e", "fp32": "f", "f32": "f", "fp64": "d", "f64": "d",
}  # fmt: skip
"""The type of a number among a kernel's arguments -> its letter in `struct`. bf16 has none."""
ELEMENTS = {
    "u8": 0, "i8": 0, "bool": 0, "fp8": 0, "u16": 1, "i16": 1, "u32": 2, "i32": 3, "u64": 4, "i64": 5,
    "fp16": 6, "fp32": 7, "fp64": 8, "bf16": 9,
}  # fmt: skip
"""The type of a tensor map's elements -> CUtensorMapDataType."""
SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
"""Bytes -> CUtensorMapSwizzle."""
Kept = Callable[[int, int], int]
"""The address of memory for launches of a stream, by the stream's and the capture's numbers, the second of
which is 0 where none is under way."""
_PROMOTION_256 = 3
_RANKS = 5


class Output(NamedTuple):
    """An output of a call, or a workspace of a launch: the argument that it is, by its place in the call;
    else -1 and what torch.empty is told of it, by name; or -1, {} and what gives its address, which is asked
    once for each stream and each capture of it."""

    given: int
    empty: Mapping[str, Any]
    kept: Kept | None = None


def plan_of(
    launch: Mapping[str, Any],
    loaded: Loaded,
    sources: Mapping[str, int],
    outputs: Sequence[Output],
    results: Sequence[tuple[str, int]],
    scratch: Sequence[Output] = (),
) -> tuple[Any, ...]:
    """The plan of `launch`. `sources`: where each buffer comes from: an argument by its place in the call,
    or below 0 output -1 - source. `results`: what the call gives, by name, each from its source. `scratch`:
    what makes the launch's workspaces, in their order. ValueError where one has nothing that makes it, or a
    type is one that a table does not pack."""
    spaces = {one["name"]: -1 - len(outputs) - at for at, one in enumerate(launch["workspaces"])}
    if len(spaces) != len(scratch):
        raise ValueError(f"{len(spaces)} workspaces, and {len(scratch)} are made")
    return (
        loaded.keep,
        loaded.function,
        loaded.context,
        (*launch["grid"], *launch["block"], launch["smem_bytes"]),
        tuple(launch["cluster"]),
        bool(launch.get("cooperative", False)),
        tuple(_parameter(arg, {**sources, **spaces}) for arg in launch["args"]),
        tuple(map(_output, (*outputs, *scratch))),
        tuple(results),
    )


def scalar_bytes(value: float, kind: str) -> bytes:
    """A number as a kernel gets it, little-endian; ValueError if it does not fit."""
    if kind not in CODES:
        raise ValueError(f"a number of type {kind}")
    try:
        return struct.pack(f"<{CODES[kind]}", value)
    except (struct.error, OverflowError) as error:
        raise ValueError(f"{value} does not fit {kind}") from error


def map_bytes(arg: Mapping[str, Any]) -> bytes:
    """`TensorMap` of abi.hpp."""
    shape, strides, box = arg["shape"], arg["strides"], arg["box"]
    rank = len(shape)
    head = (ELEMENTS[arg["dtype"]], rank, SWIZZLES[arg["swizzle"]], _PROMOTION_256)
    wide = (*_filled(shape), *_filled(strides))
    return struct.pack("<4I10Q10I", *head, *wide, *_filled(box), *_filled([1] * rank))


def _output(one: Output) -> tuple[Any, ...]:
    """With what inductor allocates by, if torch has it: half the cost of torch.empty."""
    if one.given >= 0 or one.kept:
        return one.given, one.kept, None, None, None, None, {}
    import torch  # not at the top: what compiles a table, and has no torch yet, need not wait for it

    size, kind = tuple(one.empty["size"]), torch.device(one.empty["device"]).type
    quick = getattr(torch._C._dynamo.guards, f"_empty_strided_{kind}", None)
    strides = tuple(math.prod(size[at + 1 :]) for at in range(len(size)))
    return -1, None, quick, size, strides, one.empty["dtype"], dict(one.empty)


def _parameter(arg: Mapping[str, Any], sources: Mapping[str, int]) -> tuple[int, int, bytes]:
    if arg["kind"] == "scalar":
        return _BYTES, 0, scalar_bytes(arg["value"], arg["type"])
    source = sources[arg["buffer"]]
    return (_POINTER, source, b"") if arg["kind"] == "buffer" else (_MAP, source, map_bytes(arg))


def _filled(numbers: Sequence[int]) -> list[int]:
    return [*numbers, *[0] * (_RANKS - len(numbers))]
