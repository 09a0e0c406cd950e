"""What every attention kernel is called with, and what the templates of attention share."""

from __future__ import annotations

import math
from typing import Any

from evo.trial import BufferArg, Problem, ScalarArg, Value

ELEMENTS = {"fp16": "Fp16", "bf16": "Bf16"}
"""Storage type -> its type in memory/element.cuh."""
HEAD_DIMS = (32, 64, 80, 96, 128, 256)
"""Head dimensions that kernels of mma.sync and plain loads serve."""
WGMMA_HEAD_DIMS = (64, 128, 256)
"""Head dimensions that kernels of wgmma serve."""


def ceil_div(a: Any, b: Any) -> Any:
    return -(-a // b)


def heads(problem: Problem) -> int:
    """Independent heads: those of all batches."""
    return int(problem["B"] * problem["H"])


def scale_log2(problem: Problem) -> float:
    """What scores are multiplied by, for exponentials in base 2: log2(e) / sqrt(D)."""
    return math.log2(math.e) / math.sqrt(problem["D"])


def scalars(problem: Problem) -> tuple[ScalarArg, ScalarArg]:
    """The last two arguments of every kernel: the length and the scale."""
    return ScalarArg(problem["L"], "i32"), ScalarArg(scale_log2(problem), "f32")


def arguments(problem: Problem) -> tuple[BufferArg | ScalarArg, ...]:
    """q, k, v, o, length, scale: the arguments of a kernel that uses no tensor maps."""
    return (*(BufferArg(name) for name in ("q", "k", "v", "o")), *scalars(problem))


def holes(problem: Problem, smem_bytes: int) -> dict[str, Value]:
    """The values of the holes that all templates have."""
    return {
        "element": ELEMENTS[problem.dtype],
        "head_dim": problem["D"],
        "causal": bool(problem["causal"]),
        "smem_bytes": smem_bytes,
    }


def serves(problem: Problem, head_dims: tuple[int, ...] = HEAD_DIMS) -> str | None:
    """Why a problem is out of reach of a template for these head dimensions; None where it is not."""
    if problem.dtype not in ELEMENTS:
        return f"storage type {problem.dtype}: it serves {', '.join(ELEMENTS)}"
    if problem["D"] not in head_dims:
        return f"head dimension {problem['D']}: it serves {', '.join(map(str, head_dims))}"
    return None
