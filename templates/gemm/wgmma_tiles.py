"""What a point of `gemm_wgmma` needs: rows of its tile, shared memory, registers, CTAs.

For the rules, `p` has columns of many points; for the launch, the values of one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from evo.gpu import Gpu
from evo.space import where
from evo.task import load_module
from evo.trial import Problem

call = load_module(Path(__file__).with_name("call.py"))
filling = load_module(Path(__file__).with_name("filling.py"))

GROUP_ROWS = 64
"""Rows of a wgmma."""
WARP_ROWS = GROUP_ROWS // 4
"""Of these a warp's, which leave by its own TMA stores."""
QUARTER_FILE = 16384
"""Registers of each of the four schedulers of an SM, among which warps are dealt out in turn."""
REGISTER_SPLITS = {2: (40, 232), 3: (32, 160)}
"""Registers a thread of the producer's warpgroup and of the consumers', by the number of consumers: in
eights, together no more than the CTA was launched with."""
OVERHEAD = 40
"""Registers a consumer needs besides the sums. Against ptxas 13.0: with less it serialises the wgmmas."""
REACH = 72
"""Registers besides the sums that ptxas takes where it is free to and joins parts of K; else it takes 26."""
REGISTER_FILE, OPERANDS = 65536, 26
"""Registers of an SM; what ptxas wants for a wgmma besides its sums, of those that the CTA begins with."""
BLOCK_BYTES, BLOCK_COLUMNS = 128, 64
"""Of a row of a swizzled box, and its elements of 16 bits."""
MOST_BESIDE = 65535
"""CTAs of a grid along y or z."""


def bm(p: Any) -> Any:
    """Rows of a CTA's tile."""
    return GROUP_ROWS * p.rows * where(p.schedule == "pingpong", 1, p.consumers)


def cluster(p: Any, _problem: Problem) -> Any:
    return where(p.multicast == "none", where(p.join == "cluster", p.splits, 1), 2)


def by_tma(p: Any) -> Any:
    """Whether C leaves by TMA: not where parts of K are a cluster's, of which each stores a share of C."""
    return (p.epilogue == "tma") & ((p.join == "workspace") | (p.splits == 1))


def smem_bytes(p: Any, problem: Problem) -> Any:
    """sizeof(SharedStorage): the rings of A and B, boxes of C for each consumer, barriers."""
    row = box_columns(p, problem) * call.out_bytes(problem)
    boxes = where((row == BLOCK_BYTES) & (p.bn * call.out_bytes(problem) // BLOCK_BYTES % 2 == 0), 2, 1)
    out = where(by_tma(p), p.consumers * GROUP_ROWS * boxes * row, 0)
    words = where(p.join == "workspace", call.ceil_div(4 * p.consumers, 8) * 8, 16)
    return call.ceil_div(ring_bytes(p) + out + 16 * p.stages + where(p.splits > 1, words, 0), 1024) * 1024


def box_columns(p: Any, problem: Problem) -> Any:
    """Of C that TMA stores at once: 128 bytes, or 64; an odd number of 16 where these divide no tile."""
    if call.out_bytes(problem) == 4:
        return BLOCK_BYTES // 4
    pieces = p.bn // 8
    odd = 8 * (pieces // (pieces & -pieces))
    return where(p.bn % BLOCK_COLUMNS == 0, BLOCK_COLUMNS, where(p.bn % 32 == 0, 32, odd))


def ring_bytes(p: Any) -> Any:
    return p.stages * 2 * p.bk * (bm(p) + p.bn)


def leaves_late(p: Any, problem: Problem) -> bool:
    """Whether C leaves under the products of the next tile: where registers hold it, rounded, meanwhile."""
    rounded = 3 * p.rows * p.bn // 4 + OVERHEAD <= register_cap(p, problem) and call.out_bytes(problem) == 2
    one_by_one = p.schedule == "cooperative" and p.persistent and p.splits == 1
    return bool(by_tma(p) and rounded and one_by_one)


def threads(p: Any, _problem: Problem) -> Any:
    return 128 * p.consumers + where(p.producer == "warp", 32, 128)


def register_cap(p: Any, problem: Problem) -> Any:
    """Registers a thread that a consumer can have."""
    warps = call.ceil_div(p.min_ctas * threads(p, problem) // 32, 4)
    even = np.minimum(255, QUARTER_FILE // (32 * warps) // 8 * 8)
    split = where(p.consumers == 3, REGISTER_SPLITS[3][1], REGISTER_SPLITS[2][1])
    return where(p.producer == "warpgroup", split, even)


def clusters(p: Any, problem: Problem) -> Any:
    """Tiles of all matrices, those that a cluster takes together counted once, times the parts of K, if these
    are not a cluster's."""
    return whole_tiles(p, problem) * where(p.join == "cluster", 1, p.splits)


def whole_tiles(p: Any, problem: Problem) -> Any:
    """Tiles of all matrices; two of which CTAs copy for each other count once."""
    down, across = sides(p, problem)
    return down * across * problem["batch"]


def sides(p: Any, problem: Problem) -> tuple[Any, Any]:
    """The same down and across a matrix."""
    down = call.ceil_div(problem["M"], bm(p) * where(p.multicast == "b", 2, 1))
    return down, call.ceil_div(problem["N"], p.bn * where(p.multicast == "a", 2, 1))


def shorter_side(p: Any, problem: Problem, _gpu: Gpu) -> Any:
    """Whether panels are rows of tiles ("m"), which are taken across C, or columns: the side of fewer tiles
    goes first. Of 1,089 pairs of kernels on an H200 that differ in this alone, for 200 products, those so
    chosen take 0.4 % longer than the better ones; rows always 1.2, columns 1.6."""
    down, across = sides(p, problem)
    return where(across <= down, "m", "n")


def stages_of_use(p: Any, problem: Problem, _gpu: Gpu) -> Any:
    """As many as there are steps, where a CTA has one tile and all of K. With one or two steps kernels of 8
    stages took 8 % longer on an H200 than those of 2, such of 6 stages 3 to 4 % (means): they have more
    barriers, and fewer CTAs fit on an SM."""
    steps = call.ceil_div(problem["K"], p.bk)
    if np.min(steps) >= filling.STAGES[0]:
        return filling.STAGES[0]  # without asking how K is split, which takes long for many points
    needed = where(steps > p.in_flight, steps, p.in_flight + 1)
    return where(p.persistent | (p.splits > 1), filling.STAGES[0], needed)


def parts_in_a_wave(p: Any, problem: Problem, gpu: Gpu) -> Any:
    """Most parts of K, 1 to 8, that leave every CTA an SM of its own and each part two steps, and that a
    cluster can join."""
    ctas = whole_tiles(p, problem) * where(p.multicast == "none", 1, 2)
    steps = call.ceil_div(problem["K"], p.bk)

    def fits(parts: int) -> Any:
        joined = (p.join == "workspace") | (p.bn // 8 % parts == 0)
        return (parts * ctas <= gpu.sms) & (2 * parts <= steps) & joined

    return where(fits(8), 8, where(fits(4), 4, where(fits(2), 2, 1)))


def resident(p: Any, gpu: Gpu) -> Any:
    """Clusters that the GPU runs at once, if what `min_ctas` asks for fits an SM."""
    return gpu.sms * p.min_ctas // cluster(p, None)


def grid(p: Any, problem: Problem) -> tuple[Any, Any, Any]:
    """A CTA for each tile and part of K: the most that is launched."""
    return clusters(p, problem) * cluster(p, problem), 1, 1


def by_grid(p: Any, problem: Problem) -> bool:
    """Whether the launch has the form of the tiles, which no CTA needs to divide for: panels of one tile."""
    down, across = sides(p, problem)
    wide = max(problem["batch"], int(down if p.raster == "m" else across)) > MOST_BESIDE
    return not p.persistent and p.panel == 1 and not wide


def launched(p: Any, problem: Problem, gpu: Gpu) -> tuple[int, int, int]:
    """The grid of the launch."""
    if not by_grid(p, problem):
        return ctas(p, problem, gpu), 1, 1
    down, across = map(int, sides(p, problem))
    along, beside = (across, down) if p.raster == "m" else (down, across)
    dealt = 1 if p.join == "cluster" else p.splits
    return along * dealt * int(cluster(p, problem)), beside, problem["batch"]


def ctas(p: Any, problem: Problem, gpu: Gpu) -> int:
    """CTAs of the launch: with `persistent` no more than the GPU runs at once."""
    every = clusters(p, problem)
    return int((np.minimum(every, resident(p, gpu)) if p.persistent else every) * cluster(p, problem))
