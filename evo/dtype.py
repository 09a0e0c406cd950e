"""The types of elements and scalars: one table for buffers, kernel arguments and TMA tensor maps."""

from __future__ import annotations

import difflib
import math
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from evo.errors import UnknownName


@dataclass(frozen=True)
class Dtype:
    """One type. `nbytes` an element; `code` is its letter in Python's `struct`; `torch_name` is its name in
    torch, and in numpy where that has the type; `tensor_map` is the end of the name of the driver's
    CUtensorMapDataType whose elements have these bytes."""

    name: str
    nbytes: int
    kind: Literal["float", "int", "uint", "bool"]
    code: str
    torch_name: str
    tensor_map: str

    @property
    def floating(self) -> bool:
        return self.kind == "float"

    @property
    def torch(self) -> Any:
        """The torch.dtype; imports torch."""
        import torch

        return getattr(torch, self.torch_name)

    def pack(self, value: int | float | bool) -> bytes:
        """The bytes of a scalar of this type, as a kernel gets it. ValueError if `value` does not fit, or if
        no scalar can be of this type (fp8)."""
        try:
            return _bf16_bytes(value) if self.name == "bf16" else struct.pack(f"<{self.code}", value)
        except (struct.error, OverflowError) as error:
            raise ValueError(f"{value} does not fit {self.name}") from error


DTYPES: dict[str, Dtype] = {
    dtype.name: dtype
    for dtype in (
        Dtype("fp16", 2, "float", "e", "float16", "FLOAT16"),
        Dtype("bf16", 2, "float", "", "bfloat16", "BFLOAT16"),
        Dtype("fp32", 4, "float", "f", "float32", "FLOAT32"),
        Dtype("fp64", 8, "float", "d", "float64", "FLOAT64"),
        Dtype("fp8", 1, "float", "", "float8_e4m3fn", "UINT8"),
        Dtype("i8", 1, "int", "b", "int8", "UINT8"),
        Dtype("u8", 1, "uint", "B", "uint8", "UINT8"),
        Dtype("i16", 2, "int", "h", "int16", "UINT16"),
        Dtype("u16", 2, "uint", "H", "uint16", "UINT16"),
        Dtype("i32", 4, "int", "i", "int32", "INT32"),
        Dtype("u32", 4, "uint", "I", "uint32", "UINT32"),
        Dtype("i64", 8, "int", "q", "int64", "INT64"),
        Dtype("u64", 8, "uint", "Q", "uint64", "UINT64"),
        Dtype("bool", 1, "bool", "?", "bool", "UINT8"),
    )
}
"""Every type by its name. `bf16` and `fp8` have no letter in `struct`."""
CXX_TYPES = {
    "float": "fp32",
    "double": "fp64",
    "half": "fp16",
    "__half": "fp16",
    "__nv_bfloat16": "bf16",
    "nv_bfloat16": "bf16",
    "char": "i8",
    "signed char": "i8",
    "int8_t": "i8",
    "unsigned char": "u8",
    "uint8_t": "u8",
    "short": "i16",
    "int": "i32",
    "int32_t": "i32",
    "unsigned": "u32",
    "unsigned int": "u32",
    "uint32_t": "u32",
    "long": "i64",
    "long long": "i64",
    "long long int": "i64",
    "int64_t": "i64",
    "size_t": "u64",
    "unsigned long long": "u64",
    "uint64_t": "u64",
    "bool": "bool",
}
"""C++'s names of the types that arguments of kernels may have."""
_VECTOR = re.compile(
    r"(float|double|int|uint|char|uchar|short|long|longlong|__half|half|__nv_bfloat16)([1234])"
)
_OF_VECTORS = {"uint": "unsigned", "uchar": "unsigned char", "longlong": "long long"}
_BFLOAT = ("__nv_bfloat162", "nv_bfloat162")


def element_of(kind: str) -> tuple[str, int]:
    """C++'s name of a vector's elements, and how many there are: float4 is 4 of float."""
    if kind in _BFLOAT:
        return "__nv_bfloat16", 2
    found = None if kind in CXX_TYPES else _VECTOR.fullmatch(kind)
    return (_OF_VECTORS.get(found[1], found[1]), int(found[2])) if found else (kind, 1)


SCALARS = tuple(name for name in DTYPES if name != "fp8")
"""The types that a number among a kernel's arguments may have."""

ScalarType = Literal[
    "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "fp16", "bf16", "fp32", "fp64", "bool", "f32"
]
"""`SCALARS` for a type checker. "f32" is fp32, as launches of templates and databases spell it."""

_ALIASES = {"f16": "fp16", "f32": "fp32", "f64": "fp64"}
_ELSEWHERE = CXX_TYPES | {dtype.torch_name: dtype.name for dtype in DTYPES.values()} | _ALIASES
_ELSEWHERE |= {"single": "fp32", "f8": "fp8", "e4m3": "fp8"}
"""How others spell the types: C++, torch, numpy."""


def dtype_named(name: str) -> Dtype:
    """The type of that name ("f32" is fp32); UnknownName if there is none."""
    if not is_dtype(name):
        raise UnknownName(f"unknown dtype: {name}", types_hint(name, sorted(DTYPES)))
    return DTYPES[_ALIASES.get(name, name)]


def is_dtype(name: str) -> bool:
    """Whether there is a type of that name."""
    return _ALIASES.get(name, name) in DTYPES


def types_hint(name: object, known: Iterable[str] = DTYPES) -> str:
    """What to write instead of a `name` that is none of the `known`, also where others spell it so."""
    listed = list(known)
    plain = re.sub(r"^(torch|np|numpy)\.", "", str(name).strip().lower())
    spelt = _ELSEWHERE.get(plain, plain)
    near = listed if spelt in listed else [] if spelt in DTYPES else difflib.get_close_matches(spelt, listed)
    meant = spelt if spelt in near else next(iter(near), "")
    said = f"did you mean {meant}? " if meant else f"{name} is {spelt}; " if spelt != plain else ""
    return f"{said}one of {', '.join(listed)}"


def _bf16_bytes(value: float) -> bytes:
    """The upper half of the nearest fp32; ties go to the even one."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    if not math.isnan(value):  # the payload of a NaN must not carry into the exponent
        bits += 0x7FFF + (bits >> 16 & 1)
    return struct.pack("<H", bits >> 16 & 0xFFFF)
