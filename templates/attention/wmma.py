"""Attention on Tensor Cores through the portable `nvcuda::wmma` interface (sm_80 and up).

What CUDA C++ offers without PTX: fragments whose layout is unknown, so that scores, probabilities and
products go through shared memory. The step between scalar code and `flash_mma`, and its price.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from evo.gpu import Gpu, Limits
from evo.space import Parameter, Space, rule, where
from evo.task import load_module
from evo.trial import LaunchConfig, Problem, Value

call = load_module(Path(__file__).with_name("call.py"))

NEEDS = "sm_80"
ENTRY = "wmma"

HALVES = {"fp16": "__half", "bf16": "__nv_bfloat16"}


def smem_bytes(p: Any, problem: Problem) -> Any:
    """sizeof(SharedStorage): tiles, what warps bounce through shared memory, the output if it lives there."""
    pad = where(p.swizzle == "pad", 16, 0)
    row = problem["D"] * 2 + pad
    output_row = problem["D"] * 4 + pad
    probabilities = where(p.matmuls == "qk_pv", 16 * (p.bn * 2 + pad), 0)
    products = where((p.matmuls == "qk_pv") & (p.state == "registers"), 16 * output_row, 0)
    bounce = np.maximum(16 * (p.bn * 4 + pad), products) + probabilities
    output = where(p.state == "shared", p.bm * output_row, 0)
    return (p.bm + 2 * p.stages * p.bn) * row + p.warps * bounce + output


def threads(p: Any, _problem: Problem) -> Any:
    return p.warps * 32


def registers(p: Any, problem: Problem) -> Any:
    """Registers a thread: half a row of output a block of 16 rows, the fragments in flight, and addresses."""
    blocks = p.bm // (16 * p.warps)
    return where(p.state == "registers", blocks * problem["D"] / 2, 0) + 80


def grid(p: Any, problem: Problem) -> tuple[Any, Any, Any]:
    return -(-problem["L"] // p.bm), problem["B"] * problem["H"], 1


def derived(p: Any, problem: Problem) -> dict[str, Value]:
    return {"half": HALVES[problem.dtype], **call.holes(problem, int(smem_bytes(p, problem)))}


def launch(p: Any, problem: Problem, _gpu: Gpu) -> LaunchConfig:
    x, y, z = grid(p, problem)
    return LaunchConfig(
        grid=(int(x), int(y), z),
        block=(int(threads(p, problem)), 1, 1),
        smem_bytes=int(smem_bytes(p, problem)),
        args=call.arguments(problem),
    )


def supports(problem: Problem) -> str | None:
    """Why a problem is out of reach, if it is."""
    reason: str | None = call.serves(problem)
    return reason


@rule("warps that do not divide the query tile into blocks of 16 rows")
def whole_blocks(p: Any, _limits: Limits, _problem: Problem) -> Any:
    return p.bm % (16 * p.warps) == 0


@rule("query tile longer than the {problem[L]} queries")
def tile_of_queries(p: Any, _limits: Limits, problem: Problem) -> Any:
    return p.bm <= max(64, problem["L"])


@rule("key tile longer than the {problem[L]} keys")
def tile_of_keys(p: Any, _limits: Limits, problem: Problem) -> Any:
    return p.bn <= max(64, problem["L"])


@rule("more stages than key tiles")
def useful_stages(p: Any, _limits: Limits, problem: Problem) -> Any:
    return (p.stages - 1) * p.bn < max(64, problem["L"])


SPACE = Space(
    parameters=(
        Parameter("bm", (16, 32, 48, 64, 96, 128), 32, layer="macro", meaning="queries a CTA",
                  expected="fewer passes over K and V with longer tiles"),
        Parameter("bn", (16, 32, 48, 64, 96, 128), 32, layer="macro", meaning="keys a tile",
                  expected="longer tiles mean fewer barriers, and more shared memory for scores"),
        Parameter("warps", (1, 2, 3, 4, 6, 8), 2, layer="macro", meaning="warps over the rows of a tile",
                  expected="hides the latency of the way through shared memory"),
        Parameter("matmuls", ("qk_pv", "qk_only"), "qk_pv", layer="macro", off="qk_only",
                  meaning="which of the two products run on Tensor Cores",
                  expected="1.6x over scalar for QK alone; half of the work is PV"),
        Parameter("state", ("registers", "shared"), "registers", off="shared",
                  meaning="where the output is kept between tiles",
                  expected="registers: no rescaling pass through shared memory"),
        Parameter("stages", (1, 2, 3), 1, off=1, meaning="tiles of K and V in flight (cp.async)",
                  expected="hides global latency where the work on a tile is short"),
        Parameter("swizzle", ("pad", "none"), "pad", off="none", meaning="16 bytes of padding a row, or none",
                  expected="fewer bank conflicts"),
    ),
    rules=(whole_blocks, tile_of_queries, tile_of_keys, useful_stages),
)  # fmt: skip
