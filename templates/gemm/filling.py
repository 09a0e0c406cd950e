"""Which tile of C, and how many parts of K, fill a GPU where a product is small: a model of its clocks."""

from __future__ import annotations

from evo.gpu import Gpu
from evo.trial import Problem

FLOP_PER_CLOCK, BYTES_PER_CLOCK = 4096, 64
"""Of an SM: dense 16-bit products, and what L2 gives it."""
TILE_CLOCKS = 1500
"""What a tile takes besides, where nothing hides it."""
SMALL_TILES = ((2, 1, 256), (2, 2, 128), (2, 1, 128), (1, 1, 128), (2, 1, 64), (1, 1, 64), (1, 1, 32))
"""Consumers, rows and columns of smaller ones."""


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def fastest_first(problem: Problem, gpu: Gpu) -> list[tuple[int, int, int]]:
    """SMALL_TILES, those first that take fewest clocks."""
    return sorted(SMALL_TILES, key=lambda tile: _clocks(problem, gpu, *tile))


def busiest(problem: Problem, gpu: Gpu, height: int, bn: int) -> int:
    """Elements of C that the busiest SM computes, by whole tiles."""
    return ceil_div(_tiles(problem, height, bn), gpu.sms) * height * bn


def splits(problem: Problem, gpu: Gpu, height: int, bn: int) -> int:
    """As many parts of K as fill the SMs, none shorter than 8 tiles."""
    tiles = _tiles(problem, height, bn)
    most = min(gpu.sms // tiles, problem["K"] // (64 * 8)) if tiles else 1
    return max(parts for parts in (1, 2, 4, 8) if parts <= max(1, most))


def _tiles(problem: Problem, height: int, bn: int) -> int:
    return ceil_div(problem["M"], height) * ceil_div(problem["N"], bn) * int(problem["batch"])


def _clocks(problem: Problem, gpu: Gpu, consumers: int, rows: int, bn: int) -> float:
    """Clocks of the product by tiles of that size: waves times what a tile takes."""
    height = consumers * rows * 64
    parts = splits(problem, gpu, height, bn)
    tiles = _tiles(problem, height, bn) * parts
    deep = ceil_div(problem["K"], 64 * parts)
    step = max(2 * 64 * height * bn / FLOP_PER_CLOCK, 128 * (height + bn) / BYTES_PER_CLOCK)
    return float(ceil_div(tiles, gpu.sms) * (deep * step + TILE_CLOCKS * (3 if parts > 1 else 1)))
