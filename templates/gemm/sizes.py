"""Which sizes the gate tries a kernel of the product at: around its tiles, many tiles, every remainder.

A kernel may have in its code what power of two, up to 8, divides the rows of A, B and C (`vectors` of
call.py): TMA and wide loads ask for whole 16 bytes. So the sizes below are divided by the same powers.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import lru_cache

from evo.trial import Problem

LARGEST_TILE = 256
"""Tiles above this size are no reason for a size."""
DEFAULT_TILES = (64, 128)
PIECE = 256
"""Rows and columns of an independent piece: no tile of a CTA is larger."""
DEEP = 9
"""Shortest tiles that K has in the deep problem: more than a ring has stages: each is filled again."""
MANY = 280
"""More matrices than a GPU has SMs, twice: a persistent grid takes a second tile, and a third."""
FAR_DEPTHS = 24
"""Whole shortest tiles of K that finalists are tried at, one by one."""


def steps(problem: Problem) -> tuple[int, int, int]:
    """The power of two, up to 8, that divides M, N and K where they are the length of a row."""
    layout = problem["layout"]
    m, n, k = (math.gcd(problem[name], 8) for name in ("M", "N", "K"))
    return (m if layout[0] == "T" else 1), n, (k if layout != "TN" else 1)


def tiles_of(tiles: Sequence[int]) -> tuple[int, int]:
    """The shortest and the longest tile that sizes are chosen for."""
    known = sorted({int(t) for t in tiles if 1 < t <= LARGEST_TILE}) or list(DEFAULT_TILES)
    return known[0], known[-1]


def _at(problem: Problem, m: float, n: float, k: float, batch: int = 1) -> Problem:
    """The sizes, each rounded up until the same power of two divides it as divides the problem's."""
    free = (problem["layout"][0] == "N", False, problem["layout"] == "TN")
    sizes = (
        max(1, math.ceil(size)) if anything else _rounded(size, step)
        for size, step, anything in zip((m, n, k), steps(problem), free, strict=True)
    )
    return problem.replace(**dict(zip(("M", "N", "K"), sizes, strict=True)), batch=batch)


def _rounded(size: float, step: int) -> int:
    """The least multiple of `step` from `size` on; of a step below 8 an odd one."""
    times = max(1, math.ceil(size / step))
    return step * (times if step == 8 else times | 1)


def around_tiles(problem: Problem, tiles: Sequence[int]) -> tuple[Problem, ...]:
    """Just beyond a tile in each size; K from one term to more tiles than a ring holds; M and N over two
    tiles in turn; whole tiles; the smallest problem."""
    return _around(problem, *tiles_of(tiles))


@lru_cache(maxsize=256)
def _around(problem: Problem, low: int, high: int) -> tuple[Problem, ...]:
    found = (
        _at(problem, low + 1, high + 1, low + 1),
        _at(problem, low - 1, low - 1, low - 1),
        _at(problem, 1, 1, 1),
        _at(problem, 2, low + 1, DEEP * low + 1),
        _at(problem, high + 1, 3, 2 * low),
        _at(problem, 3, 2 * high + 1, low - 1),
        _at(problem, 2 * high + 1, 9, 2 * low + 1),
        _at(problem, high, high, 3 * low),
        _at(problem, high - 1, high - 1, 2),
    )
    return tuple({at.key: at for at in found}.values())


def many_tiles(problem: Problem, tiles: Sequence[int]) -> tuple[Problem, ...]:
    """More matrices than SMs, of one small tile each; and three matrices of some tiles."""
    low, high = tiles_of(tiles)
    return (_at(problem, 5, 9, 9, MANY), _at(problem, low + 3, high + 5, low + 9, 3))


def every_remainder(problem: Problem, tiles: Sequence[int], far: bool) -> tuple[Problem, ...]:
    """Each size in turn is everything up to the longest tile, and beyond it what comes after a whole one by
    eights; the others are small. `far`: also every number of whole tiles of K up to FAR_DEPTHS."""
    return _every(problem, *tiles_of(tiles), far)


@lru_cache(maxsize=64)
def _every(problem: Problem, low: int, high: int, far: bool) -> tuple[Problem, ...]:
    numbers = (*range(1, high + 1), *range(high + 1, 2 * high, 7))
    found = [_at(problem, m, 9, 9) for m in numbers]
    found += [_at(problem, 3, n, 9) for n in numbers]
    found += [_at(problem, 3, 9, k) for k in numbers]
    if far:
        found += [_at(problem, 3, 9, low * count) for count in range(1, FAR_DEPTHS + 1)]
    return tuple({at.key: at for at in found}.values())


def some_remainders(
    problem: Problem, tiles: Sequence[int], count: int, seed: int, deep: bool
) -> tuple[Problem, ...]:
    """`count` problems whose sizes are all drawn at once, each below a tile or after a whole one: a remainder
    of M, one of N and one of K in each launch. `deep`: half of them have K over two tiles and more."""
    rng, (low, high) = random.Random(seed), tiles_of(tiles)

    def size(most: int) -> int:
        return rng.randrange(1, most) + most * (rng.random() < 0.25)

    found = []
    for number in range(count // 2):
        depth = size(low) + (2 * low if deep and number % 2 else 0)
        # one side is long, the other short: two long ones cost four tiles
        long, short = size(high), rng.randrange(1, low)
        m, n = (long, short) if number % 4 < 2 else (short, long)
        found.append(_at(problem, m, n, depth))
    return tuple(sorted({at.key: at for at in found}.values(), key=lambda at: math.prod(at.sizes.values())))


def share(problem: Problem, part: float) -> Problem:
    """Fewer matrices; of one matrix fewer pieces of PIECE rows and columns, the ragged last ones kept."""
    if part >= 1:
        return problem
    if problem["batch"] > 1:
        batch = max(1, round(part * problem["batch"]))
        if batch > 1 or part * problem["batch"] >= 1:
            return problem.replace(batch=batch)
        part, problem = part * problem["batch"], problem.replace(batch=1)
    rows, columns = (-(-problem[name] // PIECE) for name in ("M", "N"))
    kept = max(1, round(part * rows * columns))
    across = min(columns, kept)
    down = min(rows, max(1, kept // across))
    m, n = problem["M"] - PIECE * (rows - down), problem["N"] - PIECE * (columns - across)
    return problem.replace(M=m, N=n)
