"""y = x Wᵀ with weights of 4 bits, on `mma.sync` (sm_80 and up), for M from 1 to 64.

The rows of W take the place of mma's 16 rows and those of x that of its 8 columns: so few rows of x waste
little, and each weight is made once. The packing (packing.py) has the weights in the order of the lanes.
Codes become fp16 by bit operations (Kim et al., "Who Says Elephants Can't Run", 2022), and the stream of
weights is cut into shares of K as in Marlin (Frantar et al., 2024). A sum of fp32 products on the CUDA cores
would take 24 instructions a word of 8 codes; mma.sync takes 9 and a quarter of one a block, so there is no
path of its own for few rows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from evo.gpu import Gpu, Limits
from evo.space import Parameter, Space, rule, where
from evo.task import load_module
from evo.trial import BufferArg, LaunchConfig, Point, Problem, ScalarArg, Value

join = load_module(Path(__file__).parents[1] / "include" / "gemm" / "join.py")

NEEDS = "sm_80"
ENTRY = "w4a16"

GROUP = 128
"""Weights that share a scale."""
REGISTER_FILE = 65536
MOST_PARTS = 32
"""Shares of K: more are for problems that the gate would find large."""
REACH = 16
"""Registers beyond the model that ptxas mostly takes at most where it is free to."""


def blocks(problem: Problem) -> int:
    """Blocks of 8 rows of x."""
    return -(-problem["M"] // 8)


def columns(p: Any) -> Any:
    """Columns of y a CTA."""
    return 16 * p.strips * p.side_warps


def parts(p: Any) -> Any:
    """Shares of K."""
    return p.depth_warps * p.split


def threads(p: Any, _problem: Problem) -> Any:
    return 32 * p.side_warps * p.depth_warps


def stage_bytes(p: Any, problem: Problem) -> Any:
    """sizeof(Stage)."""
    scales = 256 if problem["zeros"] else 128
    return p.strips * (1024 + scales) + where(p.x_path == "ring", 2048 * blocks(problem), 0)


def smem_bytes(p: Any, problem: Problem) -> Any:
    """sizeof(SharedStorage): the rings, or the sums that take their place; and a flag."""
    rings = p.side_warps * p.depth_warps * p.stages * stage_bytes(p, problem)
    sums = p.depth_warps * 8 * blocks(problem) * (columns(p) + 4) * 4
    return np.maximum(rings, sums) + 16


def registers(p: Any, problem: Problem) -> Any:
    """Registers a thread: sums, twice where those of a group are scaled; x, its place; weights and more."""
    held = 4 * p.strips * blocks(problem) * where(p.scaled == "sums", 2, 1)
    return held + blocks(problem) * where(p.x_path == "cached", 14, 4) + 10 * p.strips + 32


def grid(p: Any, problem: Problem) -> tuple[Any, Any, Any]:
    return -(-problem["N"] // columns(p)), p.split, 1


def derived(p: Any, problem: Problem) -> dict[str, Value]:
    return {
        "blocks": blocks(problem),
        "zeros": bool(problem["zeros"]),
        "smem_bytes": int(smem_bytes(p, problem)),
    }


def launch(p: Any, problem: Problem, _gpu: Gpu) -> LaunchConfig:
    found: LaunchConfig = join.split(
        grid(p, problem), threads(p, problem), smem_bytes(p, problem), 8 * blocks(problem) * columns(p),
        [BufferArg(name) for name in ("x", "weight_tiles", "scale_tiles", "y")],
        [ScalarArg(problem[size], "i32") for size in "MNK"],
    )  # fmt: skip
    return found


def tiles(p: Any, _problem: Problem) -> tuple[int, ...]:
    """The columns of a CTA; the part of K in which each of its shares has one group."""
    return (int(columns(p)), int(GROUP * parts(p)))


def suited(problem: Problem, limits: Limits) -> Point:
    """CTAs of up to 8 warps that share K; where there are too few strips, more CTAs do."""
    strips = -(-problem["N"] // 16)
    groups, many = problem["K"] // GROUP, problem["M"] > 16
    depth = min(4 if many else 8, 1 << (groups.bit_length() - 1))
    split = 1
    while split < 8 and depth * split * 2 <= groups and strips * split * 2 <= 4 * limits.gpu.sms:
        split *= 2
    return {
        "strips": 2 if 16 < problem["M"] <= 32 else 1,
        "side_warps": 1,
        "depth_warps": depth,
        "split": split,
        "stages": 4 if groups >= 3 * depth * split and not many else 3,
        "x_path": "cached",
        "scaled": "weights" if many else "sums",
        "min_ctas": 1,
    }


@rule("more shares of K than its {problem[K]} / 128 groups, or than MOST_PARTS")
def groups_for_all(p: Any, _limits: Limits, problem: Problem) -> Any:
    return parts(p) <= min(MOST_PARTS, problem["K"] // GROUP)


@rule("more columns a CTA than twice the {problem[N]} of y")
def strips_for_all(p: Any, _limits: Limits, problem: Problem) -> Any:
    return columns(p) <= max(16, 2 * problem["N"])


@rule("a CTA has at most 16 warps")
def warps_fit(p: Any, _limits: Limits, _problem: Problem) -> Any:
    return p.side_warps * p.depth_warps <= 16


@rule("more stages than a share of K has groups")
def useful_stages(p: Any, _limits: Limits, problem: Problem) -> Any:
    return (p.stages - 2) * parts(p) < np.maximum(2 * parts(p), problem["K"] // GROUP)


@rule("min_ctas CTAs exceed an SM's threads or shared memory")
def ctas_fit(p: Any, limits: Limits, problem: Problem) -> Any:
    fits = limits.gpu.smem_per_sm // (smem_bytes(p, problem) + 1024) >= p.min_ctas
    return (p.min_ctas == 1) | (fits & (threads(p, problem) * p.min_ctas <= limits.gpu.threads_per_sm))


def register_cap(p: Any, problem: Problem) -> Any:
    """What `__launch_bounds__` leaves a thread: registers are allocated in units of 8."""
    return np.minimum(255, REGISTER_FILE // (threads(p, problem) * p.min_ctas) // 8 * 8)


@rule("min_ctas that caps registers far above what the model needs: nothing is capped")
def capping(p: Any, _limits: Limits, problem: Problem) -> Any:
    caps = threads(p, problem) * p.min_ctas * 255 > REGISTER_FILE
    return (p.min_ctas == 1) | (caps & (registers(p, problem) + REACH > register_cap(p, problem)))


@rule("register model above the cap of __launch_bounds__")
def registers_fit(p: Any, _limits: Limits, problem: Problem) -> Any:
    return registers(p, problem) <= register_cap(p, problem)


SPACE = Space(
    parameters=(
        Parameter("strips", (1, 2, 4), 1, layer="macro", meaning="strips of 16 rows of W a warp",
                  expected="2 or 4 with many rows of x, which are then read less often"),
        Parameter("side_warps", (1, 2, 4, 8), 1, layer="macro", meaning="warps side by side along N"),
        Parameter("depth_warps", (1, 2, 4, 8, 16), 8, layer="macro", off=1,
                  meaning="warps of a CTA that share K and join in shared memory",
                  expected="few strips fill a GPU only if many warps work at each"),
        Parameter("split", (1, 2, 3, 4, 6, 8), 1, layer="macro", off=1,
                  meaning="CTAs that share K and join through a workspace, the last one in a fixed order",
                  expected="fills a GPU where N has too few tiles, or evens out the last wave"),
        Parameter("stages", (2, 3, 4, 6, 8), 4, off=2, meaning="groups of 128 weights in a warp's ring",
                  expected="as many bytes in flight as latency times bandwidth"),
        Parameter("x_path", ("cached", "ring"), "cached", off="cached",
                  meaning="x from L1 when it is multiplied, or copied ahead as the weights are",
                  expected="the ring hides the latency of x and costs shared memory"),
        Parameter("scaled", ("weights", "sums"), "sums", off="weights",
                  meaning="scales on the weights in fp16, or on the fp32 sums of each group",
                  expected="sums: 32 multiplications less a group and strip, twice the accumulators"),
        Parameter("min_ctas", (1, 2, 3, 4), 1, off=1, meaning="CTAs an SM that registers are capped for"),
    ),
    rules=(
        groups_for_all, strips_for_all, warps_fit, useful_stages, ctas_fit, capping, registers_fit,
    ),
    suited=suited,
)  # fmt: skip
