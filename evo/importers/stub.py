"""A template to begin with: a kernel with the right arguments, whose body is written or still to be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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


def kernel_text(
    name: str,
    buffers: Sequence[StubBuffer],
    sizes: Sequence[str],
    origin: str,
    elements: Sequence[str] = (),
    formula: str = "",
) -> str:
    """The .cu file. `formula`: each output element by CUDA, of the same element `i` of the inputs, where the
    output has the sides `elements`; without it the kernel writes nothing, and the gate refuses it."""
    headers = {HEADERS[b.dtype]: None for b in buffers if b.dtype in HEADERS}
    included = "".join(f"#include <{header}>\n" for header in headers)
    pointers = [f"{'' if b.written else 'const '}{TYPES[b.dtype]}* {b.name}" for b in buffers]
    arguments = ",\n    ".join([*pointers, *(f"int {size}" for size in sizes)])
    begin = f"// From {origin}.\n{included}#ifndef block_size_x\n#define block_size_x 256\n#endif\n"
    if formula:
        output = next(b.name for b in buffers if b.written)
        count = " * ".join(["1LL", *elements])
        return f"""{begin}
__global__ void {name}_kernel(
    {arguments}) {{
  const long long count = {count};
  const long long i = (long long)blockIdx.x * block_size_x + threadIdx.x;
  if (i < count) {output}[i] = {formula};
}}
"""
    return f"""{begin}
__global__ void {name}_kernel(
    {arguments}) {{
  // Write the kernel here: until then no output is written, and the gate refuses it.
}}
"""


def template_text(
    name: str, buffers: Sequence[StubBuffer], sizes: Sequence[str], origin: str, grid: str
) -> str:
    """The Python file beside it."""
    given = ", ".join(f'"{word}"' for word in (*(b.name for b in buffers), *sizes))
    return f'''"""How {name}.cu is tuned and launched: from {origin}."""

from evo.template import template

TEMPLATE = template(
    # Each name is a macro of {name}.cu. The first value is the default.
    tune_params={{"block_size_x": [256, 128, 64, 512]}},
    grid="{grid}",
    args=[{given}],
)
'''
