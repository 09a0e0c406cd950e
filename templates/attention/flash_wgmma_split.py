"""Attention on Hopper for short sequences, in one launch and one wave: TMA, wgmma, and the keys of 64 queries
shared by a cluster of CTAs and by warpgroups inside each, joined through distributed shared memory.

A part (a warpgroup) holds the scores of all its keys in registers: one maximum, nothing is rescaled. Partial
results are those of "Flash-Decoding" (Dao, Haziza, Massa and Sizov, 2023), joined without a second kernel.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from evo.gpu import Gpu, Limits
from evo.space import Parameter, Space, rule, where
from evo.task import load_module
from evo.trial import BufferArg, LaunchConfig, Problem, TensorMapArg, Value

call = load_module(Path(__file__).with_name("call.py"))

NEEDS = "sm_90a"
ENTRY = "flash_wgmma_split"


QUARTER_FILE = 16384
"""Registers of each of the four schedulers of an SM, among which warps are dealt out in turn."""
OVERHEAD = 40
"""Registers for everything but scores and output; ptxas 13.0 takes 35 to 60 where it is free to."""
CAPACITY = 512
"""Keys that a rendered source is made for at least."""
BLOCK_COLUMNS = 64
"""16-bit columns of a row of 128 bytes, the widest that a swizzled copy moves."""


def parts(p: Any) -> Any:
    return p.cluster_kv * p.key_groups


def key_tiles(p: Any, problem: Problem) -> Any:
    """Tiles that the last query sees."""
    return call.ceil_div(problem["L"], p.bn)


def tiles_held(p: Any, problem: Problem) -> Any:
    """Tiles of a part at most. Lengths up to 512 share their code, so that what the gate sees at boundary
    lengths is what is timed; beyond, code is made for lengths up to the next power of two."""
    capacity = CAPACITY
    while capacity < problem["L"]:
        capacity *= 2
    return call.ceil_div(call.ceil_div(capacity, p.bn), parts(p))


def smem_bytes(p: Any, problem: Problem) -> Any:
    """sizeof(SharedStorage): Q, all K and V tiles, what the other parts send, barriers."""
    row = 2 * problem["D"]
    operands = p.row_groups * 64 * row + 2 * p.key_groups * tiles_held(p, problem) * p.bn * row
    share = problem["D"] // 8 // parts(p) * where(p.message == "full", 16, 8)
    message = 128 * (share + 8)
    join = p.row_groups * p.key_groups * (parts(p) - 1) * message
    join = where(p.share == "columns", 128 * (share + 4), join)
    landings = where(p.copies == "tma", 2 * p.key_groups * tiles_held(p, problem) + 1, 0)
    barriers = 8 * (landings + 2)
    return call.ceil_div(operands + join + barriers, 1024) * 1024


def threads(p: Any, _problem: Problem) -> Any:
    return p.row_groups * p.key_groups * 128


def score_registers(p: Any, problem: Problem) -> Any:
    """Registers a thread of scores, probabilities that outlive them, and output."""
    scores = where(p.shift != "first", tiles_held(p, problem) * p.bn // 2, 2 * (p.bn // 2 + p.bn // 4))
    return scores + problem["D"] // 2


def register_cap(p: Any, problem: Problem) -> Any:
    warps = threads(p, problem) // 128
    return np.minimum(255, QUARTER_FILE // (32 * warps) // 8 * 8)


def registers(p: Any, problem: Problem) -> Any:
    """Registers a thread: of 106 points ptxas took 65 to 94 besides the scores and the output."""
    return np.minimum(register_cap(p, problem), score_registers(p, problem) + 72)


def grid(p: Any, problem: Problem) -> tuple[Any, Any, Any]:
    tiles, heads = call.ceil_div(problem["L"], 64 * p.row_groups), call.heads(problem)
    by_head = p.grid_order == "head_fastest"
    return p.cluster_kv, where(by_head, heads, tiles), where(by_head, tiles, heads)


def cluster(p: Any, _problem: Problem) -> Any:
    return p.cluster_kv


def careful(p: Any) -> Any:
    """Whether the maximum of all keys is subtracted in the end: nothing is ever done again."""
    return (p.shift == "all") | (p.shift == "halves")


@rule("chunk does not divide the tile")
def whole_chunks(p: Any, _limits: Limits, _problem: Problem) -> Any:
    return p.bn % p.chunk == 0


@rule("more parts than column blocks of the output to share")
def shares(p: Any, _limits: Limits, problem: Problem) -> Any:
    return parts(p) <= problem["D"] // 8


@rule("a part without keys at length {problem[L]}")
def busy_parts(p: Any, _limits: Limits, problem: Problem) -> Any:
    return (parts(p) == 1) | (key_tiles(p, problem) >= parts(p))


@rule("more than 8 tiles a part: all of them are straight-line code")
def short_code(p: Any, _limits: Limits, problem: Problem) -> Any:
    return tiles_held(p, problem) <= 8


@rule("scores and output need more registers than a thread has")
def scores_in_registers(p: Any, _limits: Limits, problem: Problem) -> Any:
    return score_registers(p, problem) + OVERHEAD <= register_cap(p, problem)


@rule("a chain of products that ptxas does not keep in flight")
def short_chains(p: Any, _limits: Limits, problem: Problem) -> Any:
    """Found with ptxas 13.0 on 100 points with shift=first: beyond this it serialises all wgmmas (C7511)."""
    held = tiles_held(p, problem)
    four = (held == 4) & (p.bn * problem["D"] <= 4096) & (threads(p, problem) <= 256)
    return (p.shift != "first") | (held <= 3) | four


@rule("an exchange through the cluster's barrier without a cluster")
def exchange_of_a_cluster(p: Any, _limits: Limits, _problem: Problem) -> Any:
    return (p.cluster_kv > 1) | (p.exchange == "async")


@rule("copies by threads for one set of 64 queries alone, of 128 columns at most")
def copiers(p: Any, _limits: Limits, problem: Problem) -> Any:
    return (p.copies == "tma") | ((p.row_groups == 1) & (problem["D"] <= 128))


@rule("halves of the columns for two CTAs of one part each, by st.async, where threads copy V")
def column_halves(p: Any, _limits: Limits, _problem: Problem) -> Any:
    pair = (p.cluster_kv == 2) & (p.key_groups == 1) & (p.exchange == "async")
    return (pair & (p.copies == "threads")) | (p.share == "rows")


@rule("only ex2 says by infinity that a score is too large")
def honest_sums(p: Any, _limits: Limits, _problem: Problem) -> Any:
    return careful(p) | (p.polynomials == 0)


@rule("messages of a single part")
def messages(p: Any, _limits: Limits, _problem: Problem) -> Any:
    return (parts(p) > 1) | (p.message == "full")


@rule("the maximum of the first, or of half, of one tile is that of all")
def several_tiles(p: Any, _limits: Limits, problem: Problem) -> Any:
    return (p.shift == "all") | (p.shift == "none") | (tiles_held(p, problem) > 1)


@rule("rows of a share too short for 16-byte stores")
def wide_shares(p: Any, _limits: Limits, problem: Problem) -> Any:
    return (p.epilogue != "wide") | (problem["D"] // 4 // parts(p) % 4 == 0)


SPACE = Space(
    (
        Parameter(
            "row_groups", (1, 2), 1, "macro",
            meaning="sets of 64 queries a CTA: they share its K and V",
            expected="2 halves the traffic from L2; pays once 1 gives more than one wave",
        ),
        Parameter(
            "cluster_kv", (1, 2, 4, 8), 2, "macro", off=1,
            meaning="CTAs of a cluster that share the keys of a query tile",
            expected="fills the GPU when heads x query tiles do not; every doubling adds exchange",
        ),
        Parameter(
            "key_groups", (1, 2, 4), 1, "macro", off=1,
            meaning="warpgroups of a CTA that share its keys",
            expected="shortens the exponentials of a warp and hides latency; adds exchange in the CTA",
        ),
        Parameter(
            "bn", (32, 48, 64, 80, 96, 128, 160, 256), 64, "macro",
            meaning="keys a tile: a copy, a barrier and a group of wgmmas each",
            expected="small tiles start the first product earlier, large ones cost fewer instructions",
        ),
        Parameter(
            "chunk", (16, 32, 48, 64, 128), 64,
            meaning="keys whose exponentials are taken before their product with V starts",
        ),
        Parameter(
            "shift", ("all", "halves", "first", "none"), "all", off="all",
            meaning="the tiles whose maximum the exponentials subtract, if any; halves: that of the first "
            "half, then of all, for which the early exponentials are multiplied; first, none: where sums say "
            "that this was not enough (first: a score exceeds it by some 2^7), all is done again",
            expected="halves: exponentials start while scores are computed, on any input; first: before the "
            "other tiles have arrived; none: nothing looks for a maximum",
        ),
        Parameter(
            "copies", ("tma", "threads"), "tma", "macro", off="tma",
            meaning="what copies Q, K and V: one thread by TMA, or all threads by cp.async, which meet for "
            "every tile",
            expected="threads: no tensor map to fetch, and what is needed first comes first",
        ),
        Parameter(
            "polynomials", (0, 1, 2, 3, 4), 0, off=0,
            meaning="of eight exponentials, how many are computed by the multiply-add pipe",
            expected="relieves the special-function unit, which takes 16 a clock; costs ten others each",
        ),
        Parameter(
            "exchange", ("async", "barrier"), "async",
            meaning="how CTAs hand over results: st.async and an mbarrier, or the cluster's barrier",
            expected="async saves a memory fence and waits for the data alone",
        ),
        Parameter(
            "message", ("full", "half"), "full", off="full",
            meaning="shares of the output travel as fp32, or in the storage type",
            expected="half: distributed shared memory moves 14 bytes a clock, so 4 KB less save 300 clocks",
        ),
        Parameter(
            "share", ("rows", "columns"), "rows", off="rows",
            meaning="what each of two CTAs keeps of the output: one of a thread's two rows, or half of the "
            "columns",
            expected="columns: nothing is selected by rank, as V lies with the half that leaves first",
        ),
        Parameter(
            "grid_order", ("m_fastest", "head_fastest"), "m_fastest", off="m_fastest",
            meaning="which clusters are neighbours in the grid",
            expected="clusters are dealt out to the GPCs in turn: with as many heads as GPCs, head_fastest "
            "keeps a head's K and V in one",
        ),
        Parameter(
            "epilogue", ("direct", "wide"), "direct", off="direct",
            meaning="stores of 4 bytes a lane, or of 16 after lanes swapped columns",
            expected="wide needs a quarter of the stores for some shuffles",
        ),
    ),
    (
        whole_chunks, shares, busy_parts, short_code, scores_in_registers, short_chains,
        exchange_of_a_cluster, copiers, column_halves, honest_sums, messages, several_tiles,
        wide_shares,
    ),
)  # fmt: skip


def supports(problem: Problem) -> str | None:
    """Why a problem is out of reach, if it is: tiles of wgmma are of whole blocks of 64 columns here."""
    reason: str | None = call.serves(problem, call.WGMMA_HEAD_DIMS)
    return reason


def tiles(p: Any, _problem: Problem) -> tuple[int, ...]:
    """Around these, and up to three times as far, lengths stay within `CAPACITY`: the same code."""
    return 64 * p.row_groups, p.bn if 3 * p.bn <= CAPACITY else p.bn // 2


def derived(p: Any, problem: Problem) -> dict[str, Value]:
    return {
        "tiles": int(tiles_held(p, problem)),
        **call.holes(problem, int(smem_bytes(p, problem))),
    }


def tensor_map(buffer: str, rows: int, problem: Problem) -> TensorMapArg:
    """Boxes of `rows` rows of one head: (heads, L, D) as (heads, D / 64, L, 64), so that 64 columns are as
    wide as the swizzle, and rows beyond L are outside the tensor."""
    length, d, heads = problem["L"], problem["D"], call.heads(problem)
    blocks = d // BLOCK_COLUMNS
    return TensorMapArg(
        buffer, problem.dtype, (BLOCK_COLUMNS, length, blocks, heads),
        (2 * d, 2 * BLOCK_COLUMNS, 2 * d * length), (BLOCK_COLUMNS, rows, blocks, 1), swizzle=128,
    )  # fmt: skip


def launch(p: Any, problem: Problem, _gpu: Gpu) -> LaunchConfig:
    x, y, z = grid(p, problem)
    if p.copies == "tma":
        maps = (("q", 64), ("k", int(p.bn)), ("v", int(p.bn)))
        sources: tuple[BufferArg | TensorMapArg, ...] = tuple(tensor_map(b, n, problem) for b, n in maps)
    else:
        sources = (BufferArg("q"), BufferArg("k"), BufferArg("v"))
    return LaunchConfig(
        grid=(int(x), int(y), int(z)),
        block=(int(threads(p, problem)), 1, 1),
        smem_bytes=int(smem_bytes(p, problem)),
        cluster=(int(p.cluster_kv), 1, 1),
        args=(
            *sources,
            BufferArg("o"),
            *call.scalars(problem),
        ),
    )
