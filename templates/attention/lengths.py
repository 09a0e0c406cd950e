"""Which lengths the gate tries a kernel of attention at: around its tiles, and every size of a last tile."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache

from evo.trial import Problem

REACH = 512
"""Lengths that finalists are tried at one by one: eight tiles of 64 keys."""
LARGEST_TILE = 256
"""Tiles above this size are no reason for a length."""


def around_tiles(problem: Problem, tiles: Sequence[int]) -> tuple[Problem, ...]:
    """Two heads, lengths around each tile (tile ± 1, tile), 1, and ragged ones over several tiles."""
    return _around(problem, tuple(_known(tiles)))


@lru_cache(maxsize=256)
def _around(problem: Problem, tiles: tuple[int, ...]) -> tuple[Problem, ...]:
    low, high = tiles[0], tiles[-1]
    several = high * max(2, min(5, 512 // high)) - 5  # a pipeline of stages must fill and drain
    # one key more than whole tiles is the length that masks are most often wrong at
    ordered = [high + 1, low - 1, 1, 2 * high + 1, high - 1, low + 1, several]
    ordered += [2 * t + 1 for t in tiles]
    ordered += [t + step for t in reversed(tiles) for step in (0, 1, -1)] + [2 * high, 2 * high + low]
    lengths = dict.fromkeys(length for length in ordered if length >= 1)
    return tuple(problem.replace(B=1, H=2, L=length) for length in lengths)


def many_heads(problem: Problem, tiles: Sequence[int]) -> tuple[Problem, ...]:
    """Three heads of two batches: of half a tile after a whole one of the largest, and just longer than the
    smallest."""
    low, *_, high = _known(tiles) * 2
    return tuple(problem.replace(B=2, H=3, L=length) for length in (high + high // 2 + 1, low + 1))


def every_length(problem: Problem, tiles: Sequence[int], far: bool) -> tuple[Problem, ...]:
    """One head, every length up to two of the largest tiles: every number of keys in a last tile, with and
    without a whole tile before it. `far`: up to three of them, and to REACH, where kernels have code of their
    own for each number of tiles, and the three of `just_below`."""
    high, lone = _known(tiles)[-1], problem.replace(B=1, H=1)
    if not far:
        return _up_to(lone, 2 * high)
    reach = max(3 * high, REACH)
    below = {length for length in just_below(problem, tiles) if length > reach}
    return (*_up_to(lone, reach), *(lone.replace(L=length) for length in sorted(below)))


def some_lengths(
    problem: Problem, tiles: Sequence[int], count: int, seed: int, deep: bool
) -> tuple[Problem, ...]:
    """An even and an odd remainder of each eight, as far as `count` goes: in the fragments of a matrix
    product a lane has two columns of each eight, so a mask that is wrong at one of its columns is wrong at
    each even, or each odd, remainder of some eight. Before it no whole tile, one or two; if `deep` each
    remainder is met with and without a whole tile before it, whatever `count` says. Mutation testing asked
    for this: lengths drawn freely let a fifth of such masks pass, and one length for each remainder let the
    masks of a kernel's only tile, or of its last, pass. One more has two whole tiles before any remainder at
    all. One more is just below the problem's own length, for which there may be code that takes a last tile
    for a whole one; one time in four if `deep`, for it takes the emulator a fifteenth of a gate."""
    rng, high = random.Random(seed), _known(tiles)[-1]
    classes = [(eight, odd) for eight in range(0, high, 8) for odd in (0, 1)]
    rng.shuffle(classes)
    before = max(1, min(3, REACH // high))

    def drawn(eight: int, odd: int, tiles_before: int) -> int:
        least = 2 if not (eight or odd) else eight  # whole tiles are boundary problems
        return rng.randrange(least, eight + 8, 2) + odd + high * tiles_before

    first = [rng.randrange(before) for _ in classes]
    lengths = [drawn(*at, tiles) for at, tiles in zip(classes, first, strict=True)]
    if deep:
        lengths += [drawn(*at, int(not tiles)) for at, tiles in zip(classes, first, strict=True)]
    chosen = set(lengths if deep else lengths[:count])
    others = sorted(set(range(1, 2 * high + 1)) - chosen)
    chosen |= set(rng.sample(others, min(len(others), max(0, count - len(chosen)))))
    chosen.add(2 * high + rng.randrange(1, high))
    below = [length for length in just_below(problem, tiles) if length > 2 * high]
    if not deep or rng.random() < 0.25:
        chosen |= set(rng.sample(below, min(1, len(below))))
    return tuple(problem.replace(B=1, H=1, L=length) for length in sorted(chosen))


def just_below(problem: Problem, tiles: Sequence[int]) -> tuple[int, ...]:
    """Lengths whose last tile lacks one row, half of them, or all but one; no tile is smaller than 16."""
    low = max(16, min((int(t) for t in tiles if t > 1), default=16))
    return tuple(max(1, problem["L"] - less) for less in (1, low // 2, low - 1))


def _known(tiles: Sequence[int]) -> list[int]:
    """Tile sizes that lengths are chosen for, smallest first."""
    return sorted({int(t) for t in tiles if 1 < t <= LARGEST_TILE}) or [64]


@lru_cache(maxsize=64)
def _up_to(problem: Problem, longest: int) -> tuple[Problem, ...]:
    return tuple(problem.replace(L=length) for length in range(1, longest + 1))
