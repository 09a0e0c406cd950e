"""The product for few rows of A, on `mma.sync` (sm_80 and up): B is read once, at the speed of memory.

Columns of C take the place of mma's 16 rows and rows of A that of its 8 columns, so few rows of A waste
little. K lies along both operands in memory (NT), in whole 16 bytes. Other layouts are gemm_mma's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from evo.gpu import Gpu, Limits, arch_number
from evo.space import Parameter, Space, rule, where
from evo.task import load_module
from evo.trial import LaunchConfig, Point, Problem, Value

call = load_module(Path(__file__).with_name("call.py"))
join = load_module(Path(__file__).parents[1] / "include" / "gemm" / "join.py")

NEEDS = "sm_80"
ENTRY = "gemm_skinny"

FEW_ROWS = 16
"""Rows of A: with more of them tiles of both operands are read less often."""
REGISTER_FILE = 65536
MOST_PARTS = 64
"""Shares of K: more are for problems that the gate would find large."""
REACH = 16
"""Registers beyond the model that ptxas mostly takes at most where it is free to."""


def columns(p: Any) -> Any:
    """Columns of C a CTA."""
    return 16 * p.strips * p.side_warps


def parts(p: Any) -> Any:
    """Shares of K."""
    return p.depth_warps * p.split


def step(p: Any) -> Any:
    """Elements of K a step."""
    return 64 * p.tiles_a_stage


def threads(p: Any, _problem: Problem) -> Any:
    return 32 * p.side_warps * p.depth_warps


def smem_bytes(p: Any, _problem: Problem) -> Any:
    """sizeof(SharedStorage): the rings, or the sums that take their place; and a flag."""
    rows = 16 * p.strips + where(p.a_path == "ring", 8 * p.blocks, 0)
    by_rows = p.copies == "rows"
    stages = p.side_warps * p.depth_warps * p.stages
    rings = stages * rows * 128 * p.tiles_a_stage
    barriers = where(by_rows, -(-8 * stages // 16) * 16, 0)
    sums = p.depth_warps * 8 * p.blocks * (columns(p) + 4) * 4
    return np.maximum(rings, sums) + barriers + 16


def registers(p: Any, _problem: Problem) -> Any:
    """Registers a thread: sums, pieces of A and B, and what addresses take: more where pieces of A that are
    read ahead are of a step that is not the next along K."""
    held = 4 * p.strips * p.blocks + 8 * p.strips
    by_lanes = held + p.blocks * where(p.a_path == "cached", 12, 6) + 40
    ahead = where(p.a_path == "cached", np.minimum(32, 8 * p.blocks * p.tiles_a_stage), 0)
    far = (p.a_path == "cached") & (p.shares == "turns") & (p.blocks * p.tiles_a_stage >= 4)
    return where(p.copies == "rows", held + ahead + 52 + where(far, 28, 0), by_lanes)


def grid(p: Any, problem: Problem) -> tuple[Any, Any, Any]:
    rows = call.ceil_div(problem["M"], 8 * p.blocks) * problem["batch"]
    return call.ceil_div(problem["N"], columns(p)), p.split, rows


def derived(p: Any, problem: Problem) -> dict[str, Value]:
    found: dict[str, Value] = call.holes(problem, int(smem_bytes(p, problem)))
    return found


def launch(p: Any, problem: Problem, _gpu: Gpu) -> LaunchConfig:
    found: LaunchConfig = join.split(
        grid(p, problem), threads(p, problem), smem_bytes(p, problem), 8 * p.blocks * columns(p),
        call.buffers(problem), call.scalars(problem),
    )  # fmt: skip
    return found


def tiles(p: Any, _problem: Problem) -> tuple[int, ...]:
    """The columns of a CTA, and a step of K."""
    return (int(columns(p)), int(step(p)))


def supports(problem: Problem) -> str | None:
    """Why a problem is out of reach, if it is. That few rows suit it is a rule of its space: it is right for
    any."""
    if problem["layout"] != "NT":
        return f"K must lie along both matrices in memory (NT), not {problem['layout']}"
    if min(call.vectors(problem)[:2]) < call.ALIGNED:
        return "rows of A and B are not whole 16 bytes"
    reason: str | None = call.serves(problem)
    return reason


def suited(problem: Problem, limits: Limits) -> Point:
    """8 warps a CTA share K, and CTAs too where there are fewer strips than SMs.

    Where the GPU has bulk copies and rows are long, warps take steps of 256 or 512 bytes of a row in turns.
    One stage is enough where an SM has several CTAs. Beyond 8 rows of A 4 warps read the same of it, for two
    strips each, where there are columns enough for such CTAs."""
    strips, sms = call.ceil_div(problem["N"], 16) * problem["batch"], limits.gpu.sms
    by_rows = arch_number(limits.instructions) >= arch_number("sm_90") and problem["K"] >= 512
    tiles = (4 if problem["K"] >= 8192 else 2) if by_rows else 1
    steps = call.ceil_div(problem["K"], 64 * tiles)
    room = (limits.smem_bytes - 160) // (2048 * tiles)  # stages of a strip, beside barriers and a flag
    wide = by_rows and problem["M"] > 8 and problem["N"] >= 16 * sms and room >= 16 and steps >= 16
    depth = 2 if wide else next(d for d in (8, 4, 2, 1) if d <= max(1, steps))
    while by_rows and depth > room:
        depth //= 2
    ctas, enough = (strips / 8, 0.75 * sms) if wide else (strips, sms)
    split = 1
    while split < 16 and 4 * depth * split <= steps and ctas * split < enough:
        split *= 2
    if by_rows:
        stages = 1 if wide or strips >= 2 * sms else min(2, room // depth)
    else:
        stages = min(room // depth, 4 if steps >= 3 * depth * split else 3)
    return {
        "blocks": 1 if problem["M"] <= 8 else 2,
        "strips": 2 if wide else 1,
        "side_warps": 4 if wide else 1,
        "depth_warps": depth,
        "shares": "turns" if by_rows and depth > 1 else "ranges",
        "split": split,
        "tiles_a_stage": tiles,
        "stages": stages,
        "a_path": "cached",
        "copies": "rows" if by_rows else "lanes",
        "hint": "none",
        "min_ctas": 1,
    }


def register_cap(p: Any, problem: Problem) -> Any:
    """What `__launch_bounds__` leaves a thread: registers are allocated in units of 8."""
    return np.minimum(255, REGISTER_FILE // (threads(p, problem) * p.min_ctas) // 8 * 8)


@rule("more than FEW_ROWS rows of A: {problem[M]}")
def few_rows(p: Any, _limits: Limits, problem: Problem) -> Any:
    return (p.strips > 0) & (problem["M"] <= FEW_ROWS)


@rule("two blocks of 8 rows for {problem[M]}")
def blocks_of_rows(p: Any, _limits: Limits, problem: Problem) -> Any:
    return (p.blocks == 1) | (problem["M"] > 8)


@rule("more shares of K = {problem[K]} than steps, or than MOST_PARTS")
def steps_for_all(p: Any, _limits: Limits, problem: Problem) -> Any:
    steps = call.ceil_div(problem["K"], step(p))
    return parts(p) <= np.minimum(MOST_PARTS, np.maximum(1, steps))


@rule("more columns a CTA than twice the {problem[N]} of C")
def columns_for_all(p: Any, _limits: Limits, problem: Problem) -> Any:
    return columns(p) <= max(16, 2 * problem["N"])


@rule("a CTA has at most 16 warps")
def warps_fit(p: Any, _limits: Limits, _problem: Problem) -> Any:
    return p.side_warps * p.depth_warps <= 16


@rule("more stages than a share of K has steps")
def useful_stages(p: Any, _limits: Limits, problem: Problem) -> Any:
    """Bulk copies fill all stages at first, copies of lanes all but one."""
    steps, beyond = call.ceil_div(problem["K"], step(p)), where(p.copies == "rows", 1, 2)
    return (p.stages - beyond) * parts(p) < np.maximum(2 * parts(p), steps)


@rule("bulk copies of rows need sm_90, {limits.instructions} allowed")
def bulk_copies(p: Any, limits: Limits, _problem: Problem) -> Any:
    return (p.copies == "lanes") | (arch_number(limits.instructions) >= arch_number("sm_90"))


@rule("one stage, 8 tiles a stage or more, or a hint, where lanes copy")
def only_by_rows(p: Any, _limits: Limits, _problem: Problem) -> Any:
    return (p.copies == "rows") | ((p.tiles_a_stage < 8) & (p.stages > 1) & (p.hint == "none"))


@rule("turns where no warps share K")
def turns(p: Any, _limits: Limits, _problem: Problem) -> Any:
    return (p.shares == "ranges") | (p.depth_warps > 1)


@rule("min_ctas CTAs exceed an SM's threads or shared memory")
def ctas_fit(p: Any, limits: Limits, problem: Problem) -> Any:
    fits = limits.gpu.smem_per_sm // (smem_bytes(p, problem) + 1024) >= p.min_ctas
    return (p.min_ctas == 1) | (fits & (threads(p, problem) * p.min_ctas <= limits.gpu.threads_per_sm))


@rule("min_ctas that caps registers far above what the model needs: nothing is capped")
def capping(p: Any, _limits: Limits, problem: Problem) -> Any:
    caps = threads(p, problem) * p.min_ctas * 255 > REGISTER_FILE
    return (p.min_ctas == 1) | (caps & (registers(p, problem) + REACH > register_cap(p, problem)))


@rule("register model above the cap of __launch_bounds__")
def registers_fit(p: Any, _limits: Limits, problem: Problem) -> Any:
    return registers(p, problem) <= register_cap(p, problem)


SPACE = Space(
    parameters=(
        Parameter("blocks", (1, 2), 1, layer="macro", meaning="blocks of 8 rows of A a CTA"),
        Parameter("strips", (1, 2, 4), 1, layer="macro", meaning="strips of 16 columns of C a warp",
                  expected="2 or 4 read A less often; 1 spreads the stream over more warps"),
        Parameter("side_warps", (1, 2, 4, 8), 1, layer="macro", meaning="warps side by side along N"),
        Parameter("depth_warps", (1, 2, 4, 8, 16), 8, layer="macro", off=1,
                  meaning="warps of a CTA that share K and join in shared memory"),
        Parameter("shares", ("ranges", "turns"), "ranges", layer="macro", off="ranges",
                  meaning="how the warps of a CTA share K: a range each, or one step each in turns",
                  expected="turns: a CTA reads rows of B in longer pieces at a time"),
        Parameter("split", (1, 2, 3, 4, 6, 8, 12, 16), 1, layer="macro", off=1,
                  meaning="CTAs that share K and join through a workspace, the last one in a fixed order",
                  expected="fills a GPU where N has too few strips, or evens out the last wave"),
        Parameter("tiles_a_stage", (1, 2, 4, 8, 16), 1, layer="macro",
                  meaning="times 64 elements of K a stage of the ring",
                  expected="with bulk copies of rows: times 128 bytes that are read at once"),
        Parameter("stages", (1, 2, 3, 4, 6, 8), 4, off=2, meaning="stages of a warp's ring",
                  expected="as many bytes in flight as latency times bandwidth"),
        Parameter("a_path", ("cached", "ring"), "cached", off="cached",
                  meaning="A from L1 when it is multiplied, or copied ahead as B is"),
        Parameter("copies", ("lanes", "rows"), "lanes", off="lanes",
                  meaning="each lane copies 16 bytes at a time (cp.async), or one lane of a warp starts a "
                          "bulk copy of each row's part of a stage (sm_90)",
                  expected="rows: memory is read in long pieces, of 128 bytes times tiles_a_stage"),
        Parameter("hint", ("none", "evict_first"), "none", off="none",
                  meaning="what bulk copies of B tell the L2 cache: nothing, or that B leaves it first",
                  expected="A stays in L2 where B is much larger; costs where all of B would stay there"),
        Parameter("min_ctas", (1, 2, 3, 4), 1, off=1, meaning="CTAs an SM that registers are capped for"),
    ),
    rules=(
        few_rows, blocks_of_rows, bulk_copies, only_by_rows, turns, steps_for_all, columns_for_all, warps_fit,
        useful_stages, ctas_fit, capping, registers_fit,
    ),
    suited=suited,
)  # fmt: skip
