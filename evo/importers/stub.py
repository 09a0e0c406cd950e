"""A template to begin with: a kernel with the right arguments, whose body is written or still to be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TYPES = {
    "fp16": "__half", "bf16": "__nv_bfloat16", "fp32": "float", "fp64": "double", "fp8": "__nv_fp8_e4m3",
    "i8": "signed char", "u8": "unsigned char", "i16": "short", "u16": "unsigned short", "i32": "int",
    "u32": "unsigned", "i64": "long long", "u64": "unsigned long long", "bool": "bool",
}  # fmt: skip
"""evo's names of types, and CUDA's."""
HEADERS = {"fp16": "cuda_fp16.h", "bf16": "cuda_bf16.h", "fp8": "cuda_fp8.h"}


@dataclass(frozen=True)
class StubBuffer:
    """A buffer of a task that is to be written."""

    name: str
    dtype: str
    written: bool


def write_stub(
    place: Path,
    buffers: Sequence[StubBuffer],
    sizes: Sequence[str],
    origin: str,
    sides: Sequence[str],
    formula: str = "",
) -> str:
    """Writes NAME.cu and NAME.py of the task in `place`; says what is still to be written. `sides`: those of
    the first output that are sizes. `formula`: each of its elements by CUDA, of the same element `i` of the
    inputs; without it the kernel writes nothing, and the gate refuses it."""
    name = place.name
    (place / f"{name}.cu").write_text(_kernel_text(name, buffers, sizes, origin, sides, formula))
    (place / f"{name}.py").write_text(_template_text(name, buffers, sizes, origin, sides))
    return "" if formula else f"{place / name}.cu: write the kernel; until then the gate refuses it"


def _kernel_text(
    name: str,
    buffers: Sequence[StubBuffer],
    sizes: Sequence[str],
    origin: str,
    sides: Sequence[str],
    formula: str,
) -> str:
    headers = {HEADERS[b.dtype]: None for b in buffers if b.dtype in HEADERS}
    included = "".join(f"#include <{header}>\n" for header in headers)
    pointers = [f"{'' if b.written else 'const '}{TYPES[b.dtype]}* {b.name}" for b in buffers]
    arguments = ",\n    ".join([*pointers, *(f"int {size}" for size in sizes)])
    body = "  // Write the kernel here: until then no output is written, and the gate refuses it."
    if formula:
        output = next(b.name for b in buffers if b.written)
        body = f"""  const long long count = {" * ".join(["1LL", *sides])};
  const long long i = (long long)blockIdx.x * block_size_x + threadIdx.x;
  if (i < count) {output}[i] = {formula};"""
    return f"""// From {origin}.
{included}#ifndef block_size_x
#define block_size_x 256
#endif

__global__ void {name}_kernel(
    {arguments}) {{
{body}
}}
"""


def _template_text(
    name: str, buffers: Sequence[StubBuffer], sizes: Sequence[str], origin: str, sides: Sequence[str]
) -> str:
    given = ", ".join(f'"{word}"' for word in (*(b.name for b in buffers), *sizes))
    return f'''"""How {name}.cu is tuned and launched: from {origin}."""

from evo.template import template

TEMPLATE = template(
    # Each name is a macro of {name}.cu. The first value is the default.
    tune_params={{"block_size_x": [256, 128, 64, 512]}},
    grid="ceil({" * ".join(sides or ["1"])} / block_size_x)",
    args=[{given}],
)
'''
