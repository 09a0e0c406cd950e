"""Traits of rows: in one case there are rows of zeros, small, large, shifted, equal ones and others in turns.

What a row is multiplied by and what is added to it stands in small tables that are made once: each operation
takes a GPU's host some 10 µs, and a finalist is drawn thousands of inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # importing torch takes seconds: only what computes imports it
    import torch
    from torch import Tensor

TRAITS = 8
"""Of so many rows each has another trait; one has none."""
ZEROS, REDUCED, ENLARGED, SHIFTED, EQUAL, OUTLYING, VERY_SMALL = range(1, TRAITS)
MOST_KEPT = 512
"""Turns of the traits, of so many rows, up to which a table is kept."""
LARGER, SHIFT = 8.0, 4.0
"""What rows are multiplied by that are ENLARGED, and what is added to those that are SHIFTED."""
SMALL = 2.0**-10
"""A factor at which an epsilon of 1e-5 matters."""
OUTLIER = 300.0
"""An element far above all others: its square is beyond fp16, itself and its sum with others are not."""
WITHOUT: Mapping[str, Sequence[int]] = {
    "small": (ZEROS, SHIFTED, OUTLYING, VERY_SMALL),
    "alike": (VERY_SMALL,),  # a library rounds x + residual: all of a tiny row would be off
    "spike": (VERY_SMALL,),
    # of equal elements the rounding of their mean would be all that is left
    "huge": (ZEROS, ENLARGED, EQUAL, OUTLYING, VERY_SMALL),
    "tiny": (REDUCED, SHIFTED, OUTLYING, VERY_SMALL),  # rows beside which tiny ones are none
    "steps": (SHIFTED,),  # the largest of a row would be any
}
"""Traits that no row has in a family."""


@dataclass(frozen=True)
class Traits:
    """Which trait each row has: the first has number `first`. Only where `strong` are there rows that are
    large or have an outlier. `tiny`: the factor of rows that are very small."""

    first: int
    strong: bool
    tiny: float

    def of(self, family: str, rows: int) -> list[int]:
        """The trait of each row of a family, of the first TRAITS rows; those after them have the same."""
        without = {*WITHOUT.get(family, ()), *(() if self.strong else (ENLARGED, OUTLYING))}
        every = [(self.first + row) % TRAITS for row in range(min(rows, TRAITS))]
        return [0 if one in without else one for one in every]

    def give(self, x: Tensor, family: str, where: Tensor) -> Tensor:
        """`x`, (rows, columns), floating point, with them. `where`: (rows, 1), the column of an outlier. May
        change `x`."""
        import torch

        of = self.of(family, len(x))
        factors = {ZEROS: 0.0, REDUCED: SMALL, ENLARGED: LARGER, VERY_SMALL: self.tiny}
        if not factors.keys().isdisjoint(of):
            x *= by_row([factors.get(one, 1.0) for one in of], len(x), x.device)
        x += by_row([SHIFT if one == SHIFTED else 0.0 for one in of], len(x), x.device)  # and -0 becomes 0
        if EQUAL in of:
            x = torch.where(rows_with(EQUAL, of, x), x[:, :1], x)
        if OUTLYING in of:
            x = torch.where(rows_with(OUTLYING, of, x), x.scatter(1, where, OUTLIER), x)
        return x

    def give_whole(self, x: Tensor, low: int, last: int) -> Tensor:
        """`x`, (rows, columns), int64 from `low` to `last`, with those of them that whole numbers have."""
        import torch

        of = self.of("", len(x))
        for trait, value in ((ZEROS, low), (ENLARGED, last), (EQUAL, x[:, :1])):
            if trait in of:
                x = torch.where(rows_with(trait, of, x), value, x)
        return x


def rows_with(trait: int, of: Sequence[int], x: Tensor) -> Tensor:
    """(rows, 1): which rows of `x` have it."""
    return by_row([one == trait for one in of], len(x), x.device)


def by_row(values: Sequence[float], rows: int, device: torch.device) -> Tensor:
    """(rows, 1), fp32 or truth values: of each row its value, these in turns. Not to be changed."""
    turns = -(-rows // len(values))
    make = _table if turns <= MOST_KEPT else _made
    turns = 1 << (turns - 1).bit_length()
    return make(tuple(values), isinstance(values[0], bool), turns, device)[:rows]


def _made(values: tuple[float, ...], truth: bool, turns: int, device: torch.device) -> Tensor:  # noqa: ARG001
    """All of them, so many times. `truth`: whether they are truth values, which are equal to numbers."""
    import torch

    return torch.tensor(values, device=device).unsqueeze(1).repeat(turns, 1)


_table = lru_cache(maxsize=4096)(_made)
