"""Which problems the gate tries a kernel at, where its task does not say it: sizes around tiles, and ragged
ones."""

from __future__ import annotations

from collections.abc import Sequence

from evo.trial import Problem

LARGEST_TILE = 256
"""Tiles above this size are no reason for a gate problem: it would not be small."""
VECTOR = 16
"""A size whose elements vectors of any width hold: 16 bytes of int8."""
WHOLE_ELEMENTS = 1 << 15
"""Elements that a problem whose sizes are all one tile has at most."""
DEFAULT_TILE = 32
"""Around whose multiples the gate looks for errors where a template names no tile."""


def tile_range(tiles: Sequence[int]) -> tuple[int, int]:
    """The smallest tile and the largest one that are a reason for a problem."""
    known = {int(t) for t in tiles if 1 < t <= LARGEST_TILE} or {DEFAULT_TILE}
    return min(known), max(known)


def around_tiles(small: Problem, free: Sequence[str], tiles: Sequence[int]) -> tuple[Problem, ...]:
    """Each of the `free` sizes in turn around a tile, 1, 2 or 3, the others as in `small`; and all of them
    equal: what is right of a matrix that is not square may be wrong of one that is, and there may be code for
    where no tile is cut off. In every second of those problems the others are whole tiles, too."""
    low, high = tile_range(tiles)
    around = [high + 1, low - 1, 1, 2 * high + 3, high - 1, high, low + 1, low, 2 * high, 2, 3]
    whole = small.replace(**{n: min(small.sizes[n], high) for n in free})
    sizes = [size for size in dict.fromkeys(around) if size > 0]
    found = [(small, whole)[at % 2].replace(**{n: size}) for at, size in enumerate(sizes) for n in free]
    squares = (1, 2, min(low, DEFAULT_TILE) + 1, _whole(tiles, len(free)))
    found += [small.replace(**dict.fromkeys(free, size)) for size in squares]
    return tuple({at.key: at for at in found}.values()) or (small,)


def _whole(tiles: Sequence[int], count: int) -> int:
    """The tile that is a multiple of most tiles: what so many sizes may all be."""
    few = [int(t) for t in tiles if t > 1 and t**count <= WHOLE_ELEMENTS]
    return max(few, key=lambda tile: (sum(tile % t == 0 for t in few), tile), default=2)


def every_size(
    problem: Problem, small: Problem, free: Sequence[str], tiles: Sequence[int], far: bool
) -> tuple[Problem, ...]:
    """Each of the `free` sizes in turn as everything up to two of the largest tile, the others as in `small`,
    or VECTOR for two numbers of every four: rows are of several vectors there, and else of none.
    If `far`, up to eight of them also what is whole tiles, or one less or more, and no larger than in
    `problem`; and one less than there, and half of it and one."""
    high = tile_range(tiles)[1]
    even = small.replace(**{name: min(problem.sizes[name], VECTOR) for name in free})
    found = [
        (even if size % 4 > 1 else small).replace(**{name: size})
        for name in free
        for size in range(1, 2 * high + 1)
    ]
    if far:
        sizes = [high * count + off for count in range(3, 9) for off in (0, 1, -1)]
        for name, own in ((name, problem.sizes[name]) for name in free):
            of_own = [*(size for size in sizes if size <= own), max(1, own - 1), own // 2 + 1]
            found += [small.replace(**{name: size}) for size in of_own]
    return tuple({at.key: at for at in found}.values())
