"""The product for a few rows of A by fp32 multiply-adds: B passes through registers once.

Rows may have any length, and K lies along both operands in memory (NT). With more than a few rows the
multiply-adds take longer than B does: that is gemm_skinny's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from evo.gpu import Gpu, Limits
from evo.space import Parameter, Space, rule, where
from evo.task import load_module
from evo.trial import LaunchConfig, Point, Problem, Value

call = load_module(Path(__file__).with_name("call.py"))
join = load_module(Path(__file__).parents[1] / "include" / "gemm" / "join.py")

NEEDS = "sm_80"
ENTRY = "gemv"

FEW_ROWS = 8
"""Rows of A. An H200 has about 25 fp32 multiply-adds for each byte that it reads: 50 for an element."""
REGISTER_FILE = 65536
MOST_PARTS = 64
"""Shares of K: more are for problems that the gate would find large."""
FEW_ACCESSES = 4
"""More at once are for a share of K that a warp reads in one step, or two."""
MOST_OF_A = 8
"""Accesses of a lane to A at once, unless there are more rows."""
REACH = 16
"""Registers beyond the model that ptxas mostly takes at most where it is free to."""


def vector(problem: Problem) -> int:
    """Elements an access: what divides the rows of A and of B."""
    return int(min(call.vectors(problem)[:2]))


def step(p: Any, problem: Problem) -> Any:
    """Elements of K a step of a warp."""
    return 32 * vector(problem) * p.unroll


def parts(p: Any) -> Any:
    """Shares of K."""
    return p.depth_warps * p.split


def threads(p: Any, _problem: Problem) -> Any:
    return 32 * p.side_warps * p.depth_warps


def together(p: Any) -> Any:
    """Accesses of a lane to each row of A at once: all of a step, if they are few."""
    return where(p.rows * p.unroll <= MOST_OF_A, p.unroll, 1)


def smem_bytes(p: Any, _problem: Problem) -> Any:
    """sizeof(SharedStorage): the sums of all parts, and a flag."""
    sums = p.depth_warps * p.rows * (p.columns * p.side_warps + 4) * 4
    return -(-sums // 16) * 16 + 16


def registers(p: Any, problem: Problem) -> Any:
    """Registers a thread: sums, what is on its way, an access as floats, and addresses. Where A is read in
    several groups ptxas reads about half of the later ones, too."""
    accesses = p.columns * p.unroll * (1 + p.ahead) + p.rows * (p.unroll + together(p)) // 2
    on_the_way = accesses * max(1, vector(problem) // 2)
    converted = vector(problem) * (4 + p.columns) / 4
    return p.rows * p.columns + on_the_way + converted + 2 * p.rows + 32 + 20 * p.ahead


def grid(p: Any, problem: Problem) -> tuple[Any, Any, Any]:
    rows = call.ceil_div(problem["M"], p.rows) * problem["batch"]
    return call.ceil_div(problem["N"], p.columns * p.side_warps), p.split, rows


def derived(p: Any, problem: Problem) -> dict[str, Value]:
    holes = call.holes(problem, int(smem_bytes(p, problem)))
    return {**holes, "vector": vector(problem), "together": int(together(p))}


def launch(p: Any, problem: Problem, _gpu: Gpu) -> LaunchConfig:
    found: LaunchConfig = join.split(
        grid(p, problem), threads(p, problem), smem_bytes(p, problem), p.rows * p.columns * p.side_warps,
        call.buffers(problem), call.scalars(problem),
    )  # fmt: skip
    return found


def tiles(p: Any, problem: Problem) -> tuple[int, ...]:
    """The columns of a CTA, or so much that the gate's longest small K, nine tiles, is more than a step.
    With a tile as long as a step M and N would be as large, and a warp computes but a few sums at once."""
    return (int(max(p.columns * p.side_warps, min(128, step(p, problem) // 8), 2)),)


def supports(problem: Problem) -> str | None:
    """Why a problem is out of reach, if it is. That few rows suit it is a rule of its space: it is right for
    any."""
    if problem["layout"] != "NT":
        return f"K must lie along both matrices in memory (NT), not {problem['layout']}"
    reason: str | None = call.serves(problem)
    return reason


def suited(problem: Problem, limits: Limits) -> Point:
    """About two CTAs of 8 warps an SM: K is shared where there are too few columns."""
    rows = next(r for r in (1, 2, 4, 8) if r >= min(problem["M"], 8))
    unroll = 2 if rows < 8 and problem["K"] > 32 * vector(problem) else 1
    steps = call.ceil_div(problem["K"], 32 * vector(problem) * unroll)
    columns = 2 if problem["N"] >= 8 * limits.gpu.sms and rows < 8 else 1
    depth = next(d for d in (4, 2, 1) if d <= max(1, steps))
    side = 2 if problem["N"] >= 4 * limits.gpu.sms else 1
    split = 1
    ctas = call.ceil_div(problem["N"], columns * side)
    while split < 16 and 4 * depth * split <= steps and ctas * split < limits.gpu.sms:
        split *= 2
    return {
        "rows": rows, "columns": columns, "unroll": unroll, "side_warps": side, "depth_warps": depth,
        "split": split, "loads": "streaming", "ahead": 0, "min_ctas": 1,
    }  # fmt: skip


def register_cap(p: Any, problem: Problem) -> Any:
    """What `__launch_bounds__` leaves a thread: registers are allocated in units of 8."""
    return np.minimum(255, REGISTER_FILE // (threads(p, problem) * p.min_ctas) // 8 * 8)


@rule("more than FEW_ROWS rows of A: {problem[M]}")
def few_rows(p: Any, _limits: Limits, problem: Problem) -> Any:
    return (p.rows < 2 * problem["M"]) & (problem["M"] <= FEW_ROWS)


@rule("more shares of K = {problem[K]} than steps, or than MOST_PARTS")
def steps_for_all(p: Any, _limits: Limits, problem: Problem) -> Any:
    steps = call.ceil_div(problem["K"], step(p, problem))
    return parts(p) <= np.minimum(MOST_PARTS, np.maximum(1, steps))


@rule("steps of K that are twice as long as it, or more")
def steps_fit(p: Any, _limits: Limits, problem: Problem) -> Any:
    return (p.unroll == 1) | (step(p, problem) < 2 * problem["K"])


@rule(f"more than {FEW_ACCESSES} accesses at once: with one or two rows alone, and no step ahead")
def many_accesses(p: Any, _limits: Limits, _problem: Problem) -> Any:
    return (p.unroll <= FEW_ACCESSES) | ((p.rows <= 2) & (p.ahead == 0))


@rule("more columns a CTA than twice the {problem[N]} of C")
def columns_for_all(p: Any, _limits: Limits, problem: Problem) -> Any:
    return p.columns * p.side_warps <= 2 * problem["N"]


@rule("a CTA has at most 16 warps")
def warps_fit(p: Any, _limits: Limits, _problem: Problem) -> Any:
    return p.side_warps * p.depth_warps <= 16


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
        Parameter("rows", (1, 2, 4, 8), 1, layer="macro", meaning="rows of A a CTA"),
        Parameter("columns", (1, 2, 4), 2, layer="macro", meaning="columns of C a warp",
                  expected="each access to A serves all of them"),
        Parameter("unroll", (1, 2, 3, 4, 5, 6, 7, 8), 2, off=1,
                  meaning="accesses of a lane to each column at once",
                  expected="as many bytes in flight as latency times bandwidth"),
        Parameter("side_warps", (1, 2, 4, 8), 2, layer="macro", meaning="warps side by side along N"),
        Parameter("depth_warps", (1, 2, 4, 8, 16), 4, layer="macro", off=1,
                  meaning="warps of a CTA that share K and join in shared memory"),
        Parameter("split", (1, 2, 3, 4, 6, 8, 12, 16), 1, layer="macro", off=1,
                  meaning="CTAs that share K and join through a workspace, the last one in a fixed order"),
        Parameter("loads", ("usual", "l2", "streaming"), "streaming", off="usual",
                  meaning="where B is kept as it is read: L1 and L2, L2 alone, or neither for long"),
        Parameter("ahead", (0, 1), 0, off=0,
                  meaning="steps of B that are read before those before them are multiplied",
                  expected="B is on its way while A is waited for; registers for one more step"),
        Parameter("min_ctas", (1, 2, 3, 4), 1, off=1, meaning="CTAs an SM that registers are capped for"),
    ),
    rules=(
        few_rows, steps_for_all, steps_fit, many_accesses, columns_for_all, warps_fit, ctas_fit, capping,
        registers_fit,
    ),
    suited=suited,
)  # fmt: skip
