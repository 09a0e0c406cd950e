"""What the gate's own test must know of the kernels in this folder: how they are compiled and launched.

All are launched as include/flash.cuh is, the honest kernel that most of them alter.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from evo.task import load_module
from evo.trial import LaunchConfig, Problem, Value

_call = load_module(Path(__file__).parents[1] / "call.py")

ROWS = 32
"""Query rows and keys of a tile of include/flash.cuh."""
ELEMENTS = {"fp16": "__half", "bf16": "__nv_bfloat16"}

SHAPE = "1,8,160,64"
"""The problem of a file that names none."""
TILES = (ROWS,)
HONEST = '#include "include/flash.cuh"\n'
CONTROLS: Mapping[str, tuple[str, str, Mapping[str, Value]]] = {
    f"{dtype} D={dim}{' causal' if causal else ''}": (f"1,8,160,{dim}", dtype, {"causal": causal})
    for dtype in ELEMENTS
    for dim in (64, 128)
    for causal in (False, True)
}
"""Problems for which the honest kernel and the baselines must be GREEN: (shape, dtype, flags)."""
LOOSE_BASELINES = ("hybrid",)
"""Baselines that round the scores to the storage type: no honest kernels by the task's word."""


def prelude(problem: Problem) -> str:
    """What every file here finds defined."""
    return (
        "#include <cuda_bf16.h>\n#include <cuda_fp16.h>\n"
        f"#define CAUSAL {int(problem['causal'])}\n"
        f"#define DIM {problem['D']}\n"
        f"#define ELEMENT {ELEMENTS[problem.dtype]}\n"
    )


def launch(problem: Problem) -> LaunchConfig:
    """Four threads a query row; Q, two stages of K and V, and the scores in shared memory."""
    pitch = problem["D"] + 8
    return LaunchConfig(
        grid=(_call.ceil_div(problem["L"], ROWS), _call.heads(problem), 1),
        block=(4 * ROWS, 1, 1),
        smem_bytes=5 * ROWS * pitch * 2 + ROWS * (ROWS + 1) * 4,
        args=_call.arguments(problem),
    )
