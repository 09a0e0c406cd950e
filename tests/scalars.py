"""A kernel that takes a number of every type, for the tests of each device."""

from __future__ import annotations

from typing import get_args

from evo.dtype import ScalarType
from evo.trial import BufferArg, LaunchConfig, ScalarArg

VALUES: dict[ScalarType, int | float | bool] = {
    "i8": -100,
    "u8": 200,
    "i16": -30_000,
    "u16": 60_000,
    "i32": -2_000_000_000,
    "u32": 4_000_000_000,
    "i64": -(2**53) + 1,
    "u64": 2**53 - 1,
    "fp16": 0.0999755859375,
    "bf16": 3.140625,
    "fp32": 1.5 * 2.0**100,
    "fp64": 1e300,
    "bool": True,
    "f32": -0.25,
}
"""Each is a value that its type and fp64 hold exactly."""
NAMES = get_args(ScalarType)
_TYPES = {
    "i8": "signed char", "u8": "unsigned char", "i16": "short", "u16": "unsigned short", "i32": "int",
    "u32": "unsigned", "i64": "long long", "u64": "unsigned long long", "fp16": "__half",
    "bf16": "__nv_bfloat16", "fp32": "float", "fp64": "double", "bool": "bool", "f32": "float",
}  # fmt: skip
SOURCE = (
    "#include <cuda_bf16.h>\n#include <cuda_fp16.h>\n"
    "template <class T> __device__ double wide(T x) { return double(x); }\n"
    "template <> __device__ double wide(__half x) { return double(__half2float(x)); }\n"
    "template <> __device__ double wide(__nv_bfloat16 x) { return double(__bfloat162float(x)); }\n"
    'extern "C" __global__ void scalars(double* out, '
    + ", ".join(f"{_TYPES[name]} a{i}" for i, name in enumerate(NAMES))
    + ") {\n"
    + "".join(f"  out[{i}] = wide(a{i});\n" for i in range(len(NAMES)))
    + "}\n"
)
"""Writes each of its numbers to `out` as fp64."""
LAUNCH = LaunchConfig(
    (1, 1, 1), (1, 1, 1), 0, (BufferArg("out"), *(ScalarArg(VALUES[name], name) for name in NAMES))
)
EXPECTED = [float(VALUES[name]) for name in NAMES]
"""What it leaves in `out`."""
