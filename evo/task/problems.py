"""Which problems the gate tries a kernel at, where its task does not say it: sizes around tiles, and ragged
ones."""

from __future__ import annotations

from collections.abc import Sequence

from evo.trial import Problem

LARGEST_TILE = 256
"""Tiles above this size are no reason for a gate problem: it would not be small."""
DEFAULT_TILE = 32
"""Around whose multiples the gate looks for errors where a template names no tile."""


def tile_range(tiles: Sequence[int]) -> tuple[int, int]:
    """The smallest tile and the largest one that are a reason for a problem."""
    known = {int(t) for t in tiles if 1 < t <= LARGEST_TILE} or {DEFAULT_TILE}
    return min(known), max(known)


def around_tiles(small: Problem, free: Sequence[str], tiles: Sequence[int]) -> tuple[Problem, ...]:
    """Each of the `free` sizes in turn around a tile, 1, 2 or 3, the others as in `small`; and all of them
    equal: what is right of a matrix that is not square may be wrong of one that is."""
    low, high = tile_range(tiles)
    around = [high + 1, low - 1, 1, 2 * high + 3, high - 1, high, low + 1, low, 2 * high, 2, 3]
    found = [small.replace(**{n: size}) for size in dict.fromkeys(around) if size > 0 for n in free]
    found += [small.replace(**dict.fromkeys(free, size)) for size in (1, 2, min(low, DEFAULT_TILE) + 1)]
    return tuple({at.key: at for at in found}.values()) or (small,)


def every_size(
    problem: Problem, small: Problem, free: Sequence[str], tiles: Sequence[int], far: bool
) -> tuple[Problem, ...]:
    """Each of the `free` sizes in turn as everything up to two of the largest tile, the others as in `small`.
    If `far`, up to eight of them also what is whole tiles, or one less or more, and no larger than in
    `problem`."""
    high = tile_range(tiles)[1]
    found = [small.replace(**{name: size}) for name in free for size in range(1, 2 * high + 1)]
    if far:
        sizes = [high * count + off for count in range(3, 9) for off in (0, 1, -1)]
        found += [small.replace(**{n: s}) for n in free for s in sizes if s <= problem.sizes[n]]
    return tuple({at.key: at for at in found}.values())
