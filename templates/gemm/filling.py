"""Which way of computing a product is fastest: a model of an SM's clocks, by which a search begins.

Its constants are fitted to the best points of 1,609 kinds that searches timed for 149 products on an H200. Of
the kinds timed for a product, the first one by the model is 0 to 2 % slower than the best in the median, and
3 to 8 % in the mean (lab/gemm.md).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from evo.gpu import Limits
from evo.trial import Problem, Value

FLOP_PER_CLOCK, BYTES_PER_CLOCK = 4400, 76
"""Of an SM: products of 16-bit numbers, and what L2 gives it."""
HIDDEN = 0.78
"""Which part of the shorter of the two, products and copies, runs beside the longer one."""
STEP_CLOCKS, LEAST_STEP_CLOCKS = 50, 234
"""What a stage takes besides, and what it takes at least."""
LATENCY_CLOCKS = 800
"""From the copy of a stage to its arrival."""
ROUND_CLOCKS = 2900
"""What CTAs that run together take besides: their start, the first copies."""
STORE_CLOCKS = {"tma": 0.10, "direct": 0.38}
"""What an element of a tile takes to be stored."""
STORE_SHARE = 0.5
"""How much of that shows beside other products."""
JOIN_CLOCKS = {"workspace": 2500, "cluster": 40}
"""What joining parts of K takes,"""
PART_CLOCKS = 0.018
"""and besides for each part of an element."""
ODD_WIDTH = 1.08
"""How many times as long tiles take that are neither 32 nor whole 64 columns wide."""

WIDTHS = (32, 48, 64, 96, 112, 128, 144, 160, 176, 192, 256)
STAGES = (8, 6, 5, 4, 3, 2)
"""Columns of a tile, and tiles that are copied ahead: all that there are."""
STAY: dict[str, Value] = {"consumers": 2, "producer": "warpgroup", "persistent": True, "panel": 4}
ONCE: dict[str, Value] = {"panel": 1}
LARGE = 1e11
"""FLOP from which on two CTAs that share wide tiles copy B for each other."""


def fastest_first(problem: Problem, limits: Limits) -> list[dict[str, Value]]:
    """Ways of computing a product, each with the most stages that shared memory holds: those that take fewest
    clocks by the model first. Rules may forbid some."""
    ways = [{**way, "stages": most} for way in _ways(problem) if (most := _most_stages(way, limits))]
    return sorted(ways, key=lambda way: _clocks(way, problem, limits))


def _ways(problem: Problem) -> Iterator[dict[str, Value]]:
    """All that are reckoned with: CTAs that take a tile each, K whole or in parts; CTAs that stay, with tiles
    that are shared or taken in turns."""
    large = 2.0 * problem["M"] * problem["N"] * problem["K"] * problem["batch"] >= LARGE
    for bn in WIDTHS:
        for consumers, rows in ((1, 1), (2, 1), (3, 1), (2, 2)):
            for bk in (128, 64) if consumers == 1 else (64,):
                tile: dict[str, Value] = {"consumers": consumers, "rows": rows, "bn": bn, "bk": bk}
                tile["producer"] = "warp" if consumers == 1 else "warpgroup"
                yield {**ONCE, **tile, "epilogue": "tma"}
                for splits, join in itertools.product((2, 4, 8), JOIN_CLOCKS):
                    yield {**ONCE, **tile, "splits": splits, "join": join, "epilogue": "direct"}
        shared = {**STAY, "bn": bn, "epilogue": "tma"}
        yield {**shared, "multicast": "b", "panel": 8} if large and bn == 256 else shared
        for rows in (1, 2, 3) if bn >= 64 else ():
            yield {**STAY, "schedule": "pingpong", "rows": rows, "bn": bn, "epilogue": "tma"}


def _most_stages(way: dict[str, Value], limits: Limits) -> int:
    """How many fit in shared memory, beside the boxes that C leaves by; 0 where two do not."""
    boxes = 8192 * int(way["consumers"]) * (2 - int(way["bn"]) // 64 % 2)
    room = limits.smem_bytes - 1024 - (boxes if way["epilogue"] == "tma" else 0)
    return next((stages for stages in STAGES if stages * _stage_bytes(way) <= room), 0)


def _stage_bytes(way: dict[str, Value]) -> int:
    return 2 * int(way.get("bk", 64)) * (_height(way) + int(way["bn"]))


def _height(way: dict[str, Value]) -> int:
    """Rows of a tile."""
    shared = 1 if "schedule" in way else int(way["consumers"])
    return 64 * int(way.get("rows", 1)) * shared


def _clocks(way: dict[str, Value], problem: Problem, limits: Limits) -> float:
    """Clocks of the busiest SM."""
    height, bn, bk = _height(way), int(way["bn"]), int(way.get("bk", 64))
    splits, stages, stays = int(way.get("splits", 1)), int(way["stages"]), "persistent" in way
    tiles = _ceil_div(problem["M"], height) * _ceil_div(problem["N"], bn) * problem["batch"] * splits
    mine = _ceil_div(tiles, limits.gpu.sms)
    together = 1 if stays else max(1, limits.gpu.smem_per_sm // (stages * _stage_bytes(way)))
    rounds = _ceil_div(mine, together)
    steps = _ceil_div(_ceil_div(problem["K"], bk), splits)
    products, copies = 2 * bk * height * bn / FLOP_PER_CLOCK, _stage_bytes(way) / BYTES_PER_CLOCK
    step = max(products, copies) + (1 - HIDDEN) * min(products, copies) + STEP_CLOCKS
    waits = max(LEAST_STEP_CLOCKS, LATENCY_CLOCKS / (stages - 1))
    loop = steps * max(mine * step, rounds * waits)
    store = STORE_CLOCKS[str(way["epilogue"])] * height * bn
    if stays:
        shown = store + (mine - 1) * STORE_SHARE * store
        clocks = loop + ROUND_CLOCKS + shown
    else:
        clocks = loop + rounds * (ROUND_CLOCKS + store)
    if splits > 1:
        clocks += JOIN_CLOCKS[str(way["join"])] + PART_CLOCKS * splits * height * bn
    return clocks * (1.0 if bn % 64 == 0 or bn == 32 else ODD_WIDTH)


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)
