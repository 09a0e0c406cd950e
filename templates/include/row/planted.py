"""How planted row kernels are compiled and launched: with a CTA of 128 threads a row."""

from __future__ import annotations

from typing import Any

from evo.trial import BufferArg, LaunchConfig, Problem, ScalarArg

ELEMENTS = {"fp16": "__half", "bf16": "__nv_bfloat16", "fp32": "float"}
THREADS = 128


def prelude(problem: Problem, *flags: str) -> str:
    """Types, and the problem's `flags` as macros."""
    lines = [f"#define {flag.upper()} {int(problem[flag])}\n" for flag in flags]
    lines.append(f"#define ELEMENT {ELEMENTS[problem.dtype]}\n")
    return "#include <cuda_bf16.h>\n#include <cuda_fp16.h>\n" + "".join(lines)


def launch(operation: Any, problem: Problem) -> LaunchConfig:
    """Buffers, rows, columns, pitch, and what else the operation has."""
    numbers = (problem["rows"], problem["columns"], problem["columns"] + problem["gap"])
    return LaunchConfig(
        grid=(problem["rows"], 1, 1),
        block=(THREADS, 1, 1),
        smem_bytes=0,
        args=(
            *(BufferArg(name) for name in operation.buffers),
            *(ScalarArg(number, "i32") for number in numbers),
            *operation.scalars,
        ),
    )
