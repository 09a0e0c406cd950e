"""The product on `mma.sync` (sm_80 and up), with any layout, alignment and epilogue.

Where C has too few tiles to fill a GPU, or a last wave that leaves most of it idle, K is shared: `split`
gives each tile to several CTAs, `work=stream` cuts all tiles' steps into equal pieces ("Stream-K", Osama et
al., 2023). In both the CTA that comes last adds up what all have left, in one order: no CTA waits for
another, and the same inputs give the same bits.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from evo.gpu import Gpu, Limits
from evo.space import Parameter, Space, rule, where
from evo.task import load_module
from evo.trial import LaunchConfig, Point, Problem, Value, Workspace

call = load_module(Path(__file__).with_name("call.py"))
join = load_module(Path(__file__).parents[1] / "include" / "gemm" / "join.py")

NEEDS = "sm_80"
ENTRY = "gemm_mma"

REGISTER_FILE = 65536
REACH = 48
"""Registers beyond the model that ptxas takes at most where it is free to and unrolls little."""
STEPS_OF_A_STREAM = 4
"""Steps that each CTA of a stream has: a part of fewer costs more to join than to compute. It also gives CTAs
of small problems parts of two tiles, which the gate must see."""
MOST_SUMS = 128
"""Sums a thread; with more there is no room for operands."""


def threads(p: Any, _problem: Problem) -> Any:
    return 32 * p.warps_m * p.warps_n


def tile_bytes(p: Any, across: Any, along_k: bool) -> Any:
    """sizeof of a tile of A or B in the ring, with its padding."""
    pad = where(p.swizzle == "pad", 16, 0)
    return across * (2 * p.bk + pad) if along_k else p.bk * (2 * across + pad)


def smem_bytes(p: Any, problem: Problem) -> Any:
    """sizeof(SharedStorage): the ring, or C that takes its place; and a flag."""
    layout = str(problem["layout"])
    stage = tile_bytes(p, p.bm, layout[0] == "N") + tile_bytes(p, p.bn, layout[1] == "T")
    out = p.bm * (p.bn * call.out_bytes(problem) + 16)
    return np.maximum(p.stages * stage, where(p.store == "shared", out, 0)) + 16


def registers(p: Any, problem: Problem) -> Any:
    """Registers a thread: sums, fragments of both operands, and what addresses take."""
    rows, columns = p.bm / (16 * p.warps_m), p.bn / (8 * p.warps_n)
    vectors = call.vectors(problem)
    narrow = 24 if min(vectors[:2]) < call.ALIGNED else 0
    parts = where((p.work == "stream") | (p.split > 1), 12, 0)
    return 4 * rows * columns + 4 * rows + 2 * columns + 44 + narrow + parts


def reach(p: Any, problem: Problem) -> Any:
    """Registers beyond the model that ptxas takes at most where it is free to: addresses of all copies of a
    step that a thread starts, and elements that are copied one by one; or the sums of all parts of a tile,
    which it loads at once where they are MOST_SUMS or fewer. 476 points, ptxas 13.0 for sm_80 to sm_90a."""
    copies = (p.bm + p.bn) * p.bk // (8 * threads(p, problem))
    each = 7 if min(call.vectors(problem)[:2]) == 1 else 3
    loaded = p.bm * p.bn // threads(p, problem) * p.split
    joined = where((p.split > 1) & (loaded <= MOST_SUMS), loaded + 24 - registers(p, problem), 0)
    return np.maximum(REACH + each * copies, joined)


def tiles_of(p: Any, problem: Problem) -> Any:
    """Tiles of all matrices."""
    return call.ceil_div(problem["M"], p.bm) * call.ceil_div(problem["N"], p.bn) * problem["batch"]


def ctas(p: Any, problem: Problem, gpu: Gpu) -> Any:
    """CTAs of a launch: a stream has as many as run at once, but each has some steps."""
    steps = tiles_of(p, problem) * call.ceil_div(problem["K"], p.bk)
    streams = np.minimum(gpu.sms * p.min_ctas, np.maximum(1, steps // STEPS_OF_A_STREAM))
    return where(p.work == "stream", streams, tiles_of(p, problem) * p.split)


def derived(p: Any, problem: Problem) -> dict[str, Value]:
    vectors = dict(zip(("vector_a", "vector_b", "vector_c"), call.vectors(problem), strict=True))
    return {**call.holes(problem, int(smem_bytes(p, problem))), **call.layout(problem), **vectors}


def launch(p: Any, problem: Problem, gpu: Gpu) -> LaunchConfig:
    count, streams = int(ctas(p, problem, gpu)), p.work == "stream"
    spaces: tuple[Workspace, ...] = ()
    if streams or p.split > 1:
        spaces = join.workspaces(2 * count if streams else count, p.bm * p.bn, int(tiles_of(p, problem)))
    found: LaunchConfig = join.launch(
        (count, 1, 1), threads(p, problem), smem_bytes(p, problem),
        call.buffers(problem), spaces, call.scalars(problem),
    )  # fmt: skip
    return found


def tiles(p: Any, _problem: Problem) -> tuple[int, ...]:
    return tuple(sorted({int(p.bm), int(p.bn), int(p.bk)}))


def supports(problem: Problem) -> str | None:
    """Why a problem is out of reach, if it is."""
    reason: str | None = call.serves(problem)
    return reason


def suited(problem: Problem, limits: Limits) -> Point:
    """Tiles of 64 × 64, 128 × 64 or, where shared memory allows, 128 × 128 where those fill the GPU; a split
    of K where not even the smallest do."""
    m, n, k, batch = (problem[name] for name in ("M", "N", "K", "batch"))

    def count(bm: int, bn: int) -> int:
        return int(call.ceil_div(m, bm) * call.ceil_div(n, bn) * batch)

    bm, bn = 64, 64
    large = limits.smem_bytes >= 64 << 10
    if count(128, 128) >= limits.gpu.sms and large:
        bm, bn = 128, 128
    elif count(128, 64) >= limits.gpu.sms:
        bm, bn = 128, 64
    bm, bn = (32 if m <= 32 else bm), (32 if n <= 32 else bn)
    split = next((s for s in (8, 4, 2) if count(bm, bn) * s <= limits.gpu.sms and k >= 256 * s), 1)
    stages = 3 if bm * bn >= 128 * 64 or k <= 64 else 4
    return {
        "bm": bm, "bn": bn, "bk": 32, "warps_m": 2, "warps_n": 2, "stages": stages,
        "swizzle": "xor", "work": "tiles", "split": split, "panel": 8 if m > 4 * bm else 1,
        "store": "direct", "min_ctas": 1,
    }  # fmt: skip


def register_cap(p: Any, problem: Problem) -> Any:
    """What `__launch_bounds__` leaves a thread: registers are allocated in units of 8."""
    return np.minimum(255, REGISTER_FILE // (threads(p, problem) * p.min_ctas) // 8 * 8)


@rule("warps that do not divide the tile into blocks of 16 × 16")
def whole_blocks(p: Any, _limits: Limits, _problem: Problem) -> Any:
    return (p.bm % (16 * p.warps_m) == 0) & (p.bn % (16 * p.warps_n) == 0)


@rule("more sums a thread than MOST_SUMS, or warps of less than 8 sums a thread")
def sums_fit(p: Any, _limits: Limits, _problem: Problem) -> Any:
    each = p.bm * p.bn // (32 * p.warps_m * p.warps_n)
    return (each <= MOST_SUMS) & (each >= 8)


@rule("a tile twice as large as the matrix, or more")
def tile_of_matrix(p: Any, _limits: Limits, problem: Problem) -> Any:
    return (p.bm < 2 * max(32, problem["M"])) & (p.bn < 2 * max(32, problem["N"]))


@rule("more stages than K = {problem[K]} has steps")
def useful_stages(p: Any, _limits: Limits, problem: Problem) -> Any:
    return (p.stages - 2) * p.bk < max(64, problem["K"])


@rule("threads that do not stay in their column of a tile")
def whole_rows(p: Any, _limits: Limits, problem: Problem) -> Any:
    layout = str(problem["layout"])
    chunks_a = p.bk if layout[0] == "N" else p.bm
    chunks_b = p.bk if layout[1] == "T" else p.bn
    return (threads(p, problem) % (chunks_a // 8) == 0) & (threads(p, problem) % (chunks_b // 8) == 0)


@rule("a stream that is split as well")
def one_way_to_share(p: Any, _limits: Limits, _problem: Problem) -> Any:
    return (p.work == "tiles") | (p.split == 1)


@rule("more CTAs share K than it has steps")
def steps_for_all(p: Any, _limits: Limits, problem: Problem) -> Any:
    return (p.split == 1) | (p.split * p.bk <= problem["K"])


@rule("a split although tiles alone are four waves of CTAs")
def split_for_few(p: Any, limits: Limits, problem: Problem) -> Any:
    return (p.split == 1) | (tiles_of(p, problem) <= 4 * limits.gpu.sms)


@rule("panels that no two rows of tiles fill")
def panel_of_rows(p: Any, _limits: Limits, problem: Problem) -> Any:
    return (p.panel == 1) | (p.panel < 2 * call.ceil_div(problem["M"], p.bm))


@rule("rows of C that are not whole 16 bytes cannot go through shared memory")
def whole_chunks(p: Any, _limits: Limits, problem: Problem) -> Any:
    return (p.store == "direct") | (call.vectors(problem)[2] == call.ALIGNED)


@rule("min_ctas that caps registers far above what the model needs, and no stream that it makes longer")
def capping(p: Any, _limits: Limits, problem: Problem) -> Any:
    caps = threads(p, problem) * p.min_ctas * 255 > REGISTER_FILE
    near = registers(p, problem) + reach(p, problem) > register_cap(p, problem)
    return (p.min_ctas == 1) | (p.work == "stream") | (caps & near)


@rule("min_ctas CTAs exceed an SM's threads or shared memory")
def ctas_fit(p: Any, limits: Limits, problem: Problem) -> Any:
    fits = limits.gpu.smem_per_sm // (smem_bytes(p, problem) + 1024) >= p.min_ctas
    return (p.min_ctas == 1) | (fits & (threads(p, problem) * p.min_ctas <= limits.gpu.threads_per_sm))


@rule("register model above the cap of __launch_bounds__")
def registers_fit(p: Any, _limits: Limits, problem: Problem) -> Any:
    return registers(p, problem) <= register_cap(p, problem)


SPACE = Space(
    parameters=(
        Parameter("bm", (16, 32, 64, 128, 256), 64, layer="macro", meaning="rows of C a tile",
                  expected="large tiles read A and B less often; small ones fill a GPU"),
        Parameter("bn", (16, 32, 64, 128, 256), 64, layer="macro", meaning="columns of C a tile"),
        Parameter("bk", (16, 32, 64), 32, layer="macro", meaning="elements of K a step",
                  expected="64 halves the barriers, 32 leaves room for more stages"),
        Parameter("warps_m", (1, 2, 4), 2, layer="macro", meaning="warps over the rows of a tile"),
        Parameter("warps_n", (1, 2, 4), 2, layer="macro", meaning="warps over the columns of a tile"),
        Parameter("stages", (2, 3, 4, 5), 4, off=2, meaning="tiles in the ring of A and B",
                  expected="hides the latency of loads; more than 4 seldom pay"),
        Parameter("swizzle", ("xor", "pad", "none"), "xor", off="none",
                  meaning="how rows are laid out in shared memory",
                  expected="ldmatrix without bank conflicts"),
        Parameter("work", ("tiles", "stream"), "tiles", layer="macro", off="tiles",
                  meaning="a CTA for each part of a tile, or equal pieces of all steps of all tiles",
                  expected="stream: no idle last wave, at the price of sums that pass through memory"),
        Parameter("split", (1, 2, 3, 4, 6, 8), 1, layer="macro", off=1, meaning="CTAs that share K of a tile",
                  expected="what fills a GPU where C is small and K is long"),
        Parameter("panel", (1, 4, 8, 16), 8, off=1, meaning="rows of tiles that are walked through together",
                  expected="A and B are found in the L2 cache more often"),
        Parameter("store", ("direct", "shared"), "direct", off="direct",
                  meaning="C straight from registers, or through shared memory, 16 bytes a store"),
        Parameter("min_ctas", (1, 2, 3), 1, off=1,
                  meaning="CTAs an SM that registers are capped for; a stream has so many"),
    ),
    rules=(
        whole_blocks, sums_fit, tile_of_matrix, useful_stages, whole_rows, one_way_to_share, steps_for_all,
        split_for_few, panel_of_rows, whole_chunks, ctas_fit, capping, registers_fit,
    ),
    suited=suited,
)  # fmt: skip
