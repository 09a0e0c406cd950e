"""Where the threads of a CUDA kernel stand: the sides of its block, which size each axis of the grid covers,
and which shapes the indices of the buffers ask for.

Read by patterns, not by a compiler: what is not understood is left for a person to write.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from evo.importers.linear import (
    BUILTIN,
    ONE,
    Product,
    Sum,
    countable,
    factor_of,
    names_in,
    product_of,
    quotient_of,
    replaced,
    sum_of,
    text_of,
    whole,
)
from evo.importers.statements import Statements

_BLOCK_NAME = (
    r"(?:k|n|num_?)?(?:block|threads|bdim|tpb|cta)(?:_?(?:size|dim|threads))?(?:_?per_?(?:block|cta))?"
)
_WARPS_NAME = r"(?:k|n|num_?|block_?|cta_?)?warps(?:_?per_?(?:block|cta))?"
_WARP: Sum = {(): ONE[()] * 32}


@dataclass(frozen=True)
class Axis:
    """One axis of the grid. `covers`: how many elements of it a CTA has, as an expression; "" for one.
    `size`: what the grid covers; "" where the source does not say. `variable`: what holds the place."""

    name: str
    covers: str
    size: str
    variable: str

    def ctas(self, size: str) -> str:
        """The number of CTAs along the axis, as an expression over tunables and sizes."""
        if not self.covers:
            return f"ceil({size})" if "/" in size else size
        covers = self.covers if re.fullmatch(r"\w+", self.covers) else f"({self.covers})"
        return f"ceil({size} / {covers})"


@dataclass(frozen=True)
class Launch:
    """How a kernel is launched: the axes of its grid, x first, and the sides of its block, as expressions.
    `tiles`: sides of tiles, each with the side of the block that must divide it. `made_up`: sizes that no
    argument says."""

    axes: tuple[Axis, ...]
    block: tuple[str, ...]
    tiles: tuple[tuple[str, str], ...]
    made_up: tuple[str, ...]

    @property
    def names(self) -> set[str]:
        """The names that grid and block are made of."""
        return set(re.findall(r"[A-Za-z_]\w*", " ".join((*self.block, *(axis.covers for axis in self.axes)))))


class Positions:
    """What the body of a kernel says of places. `names`: macros and constants that are whole numbers;
    `known`: what other constants stand for; `bounds`: the first number of __launch_bounds__, or ""."""

    def __init__(
        self, body: str, names: Collection[str], known: Mapping[str, str], sizes: Sequence[str], bounds: str
    ) -> None:
        self.names, self.sizes, self.bounds = names, sizes, bounds
        self.code = Statements(body)
        own = {name: text for name, text in self.code.definitions.items() if name not in (*names, *known)}
        self.known = {**known, **own, "warpSize": "32"}
        self.limits = self._limits()
        used = re.findall(r"\b(?:threadIdx|blockDim)\.([xyz])", self.code.text)
        self.letters = "xyz"[: max(("xyz".index(letter) for letter in used), default=0) + 1]
        self.launch = self._launch()

    def sum(self, text: str, without: Collection[str] = ()) -> Sum:
        """An expression of the kernel, with what its variables are; empty where it cannot be read."""
        known = {name: one for name, one in self.known.items() if name not in without}
        return sum_of(text, known, (*self.names, *self.sizes)) or {}

    def _limits(self) -> dict[str, list[str]]:
        """The sizes that variables are compared with: `if (i < n)`, `if (i >= n) return`, `i + 3 < n * m`."""
        found: dict[str, list[str]] = {}
        comparison = r"\b(\w+)\s*(?:\+\s*[\w.]+\s*)?\)?\s*(?:<=?|>=?)\s*\(?\s*(\w+(?:\s*[*/]\s*\w+)*)"
        for variable, limit in re.findall(comparison, self.code.text):
            size = self._smaller(self.sum(limit))
            if len(size) == 1 and {()} != set(size) and set(names_in(size)) <= set(self.sizes):
                listed = found.setdefault(variable, [])
                words = sorted(names_in(size), key=self.sizes.index)
                text = " * ".join(words) if whole(size) and ONE[()] in size.values() else text_of(size)
                listed += [text] if text not in listed else []
        return found

    def _smaller(self, limit: Sum) -> Sum:
        """The size in `min(start + TILE, n)`; what is none of that as it is."""
        if found := re.fullmatch(r"(?:std::)?min\((?:.*, )?(\w+)(?:, .*)?\)", next(names_in(limit), "")):
            return self.sum(found[1])
        return limit

    # ---- the launch

    def _launch(self) -> Launch:
        places = [(name, self.sum(text, [name])) for name, text in self.code.expressions]
        chosen = {}
        for axis in "xyz":
            if not re.search(rf"\bblockIdx\.{axis}", self.code.text):
                break
            chosen[axis] = self._chosen(axis, places)
        sides, tiles = {}, []
        for letter in self.letters:
            own = self._side_of_grid(letter, list(chosen.items()), places)
            loops = self._sides_of_loops(letter, places)
            if own and (rows := self._rows_of_tile(text_of(own), loops)):
                tiles += [(text_of(own), text_of(rows))] if rows != own else []
                own = rows
            sides[letter] = own or next(iter(loops.values()), None) or self._side_by_name(letter)
        axes = tuple(self._axis(axis, *one, places, sides) for axis, one in chosen.items())
        made_up = tuple(a.size for a in axes if a.size.isidentifier() and a.size not in self.sizes)
        block = tuple(text_of(side) for side in sides.values())
        return Launch(axes, block, tuple(tiles), made_up)

    def _chosen(self, axis: str, places: Sequence[tuple[str, Sum]]) -> tuple[str, Sum]:
        """The variable and the expression that say best where along the axis a thread stands: one with
        threadIdx, and one that is compared with a size."""
        found = [
            (name, place)
            for name, place in places
            if (by := factor_of(place, f"blockIdx.{axis}"))
            and all(name in self.names or name.startswith("blockDim") for name in names_in(by))
            and not self._is_flat(place)
        ]
        plain: tuple[str, Sum] = ("", {((f"blockIdx.{axis}", 1),): ONE[()]})
        return max(found, key=lambda one: 2 * bool(_letters(one[1])) + (one[0] in self.limits), default=plain)

    def _is_flat(self, place: Sum) -> bool:
        """Whether an expression is one of several axes: `row * n + column`."""
        terms = [{name for name, _ in key} for key in place]
        return any(names & set(self.sizes) and any(map(BUILTIN.fullmatch, names)) for names in terms)

    def _side_of_grid(
        self, letter: str, chosen: Sequence[tuple[str, tuple[str, Sum]]], places: Sequence[tuple[str, Sum]]
    ) -> Sum | None:
        """The side of the block where a CTA's elements are as many as its threads, or some for each."""
        for axis, (variable, place) in chosen:
            letters = _letters(place)
            if letter not in letters:
                continue
            mine = factor_of(place, f"threadIdx.{letter}")
            outer = letters[letters.index(letter) + 1 :]
            total = factor_of(place, f"threadIdx.{outer[0]}" if outer else f"blockIdx.{axis}")
            total = total if len(total) < 2 else {key: value for key, value in total.items() if key}
            if len(mine) != 1 or len(total) != 1:
                continue
            ratio = quotient_of(total, mine)
            if not countable(ratio) or any(name.startswith("blockDim") for name in names_in(ratio)):
                return None
            same = [one for one in places if factor_of(one[1], f"blockIdx.{axis}") == total]
            strided = [self._stride(*one, letter, ratio) for one in ((variable, place), *same)]
            return next((one for one in strided if one), None) or self._of_threads(ratio)
        return None

    def _stride(self, variable: str, place: Sum, letter: str, ratio: Sum) -> Sum | None:
        """By how far a thread's elements are apart, where that is a part of the `ratio`: `k * BLOCK + t`."""
        mine = factor_of(place, f"threadIdx.{letter}")
        if len(mine) != 1:
            return None
        known = (*self.names, *self.sizes)
        others = [name for name in names_in(place) if not BUILTIN.fullmatch(name) and name not in known]
        steps = self._steps(variable, ONE)
        steps += [step for name in others for step in self._steps(name, factor_of(place, name))]
        for step in steps:
            apart = quotient_of(step, mine)
            if countable(apart) and apart not in (ONE, ratio) and whole(quotient_of(ratio, apart)):
                return apart
        return None

    def _steps(self, variable: str, times: Sum) -> list[Sum]:
        """By how much a product with a variable grows from one turn of a loop to the next."""
        return [product_of(times, self.sum(step)) for step in self.code.steps.get(variable, [])]

    def _of_threads(self, ratio: Sum) -> Sum:
        """The part of a CTA's elements that is its threads, by name: BLOCK of `BLOCK * ITEMS`."""
        names = list(names_in(ratio))
        for name in names if len(names) > 1 else ():
            strided = re.search(rf"(?<![.\w])[a-z]\w*\s*\*\s*{name}\b|\+=\s*{name}\b", self.code.text)
            if re.fullmatch(rf"{_BLOCK_NAME}(?:_?x)?", name, re.IGNORECASE) or strided:
                return {((name, 1),): ONE[()]}
        return ratio

    def _sides_of_loops(self, letter: str, places: Sequence[tuple[str, Sum]]) -> dict[str, Sum]:
        """The side of the block by loops over a CTA's elements, by the variable that goes on: `for (i =
        threadIdx.x; …; i += BLOCK)`, or `i + threadIdx.x` in a loop."""
        found: dict[str, Sum] = {}
        for variable, place in places:
            mine = factor_of(place, f"threadIdx.{letter}")
            if len(mine) != 1:
                continue
            times = {name: factor_of(place, name) for name in names_in(place)} | {variable: ONE}
            for name, step in [(one, step) for one, by in times.items() for step in self._steps(one, by)]:
                side = quotient_of(step, mine)
                plain = set(names_in(side)) <= set(self.names) and (name == variable or set(side) != {()})
                if whole(side) and side != ONE and plain:
                    found.setdefault(name, side)
        return found

    def _rows_of_tile(self, tile: str, loops: Mapping[str, Sum]) -> Sum | None:
        """The side of a block that goes over a tile in several steps: `for (j = 0; j < TILE; j += ROWS)`."""
        end = rf"\s*<\s*{re.escape(tile)}\s*;"
        return next(
            (side for name, side in loops.items() if re.search(rf"\b{name}{end}", self.code.text)), None
        )

    def _side_by_name(self, letter: str) -> Sum:
        """A macro that is called as the side of a block is, where the kernel does not say it otherwise:
        BLOCK_X, THREADS, 32 * WARPS."""
        alone = len(self.letters) == 1
        bounds = self.sum(self.bounds) if alone else {}
        if bounds and set(names_in(bounds)) and set(names_in(bounds)) <= set(self.names):
            return bounds
        pattern = rf"{_BLOCK_NAME}(?:_?x)?" if alone else rf"{_BLOCK_NAME}_?{letter}"
        for name in self.names:
            if re.fullmatch(pattern, name, re.IGNORECASE):
                return {((name, 1),): ONE[()]}
        for name in self.names:
            if (alone or letter == "y") and re.fullmatch(_WARPS_NAME, name, re.IGNORECASE):
                return product_of(_WARP if alone else ONE, {((name, 1),): ONE[()]})
        return {((f"block_size_{letter}", 1),): ONE[()]}

    def _axis(
        self,
        axis: str,
        variable: str,
        place: Sum,
        places: Sequence[tuple[str, Sum]],
        sides: Mapping[str, Sum],
    ) -> Axis:
        covers = factor_of(place, f"blockIdx.{axis}")
        also = [name for name, other in places if factor_of(other, f"blockIdx.{axis}") == covers]
        limit = next((self.limits[name][0] for name in (variable, *also) if name in self.limits), "")
        for letter, side in sides.items():
            covers = replaced(covers, f"blockDim.{letter}", side)
        size = limit or self._rows(axis, variable, bool(_letters(place)))
        return Axis(axis, "" if covers == ONE else text_of(covers), size, variable)

    def _rows(self, axis: str, variable: str, by_thread: bool) -> str:
        """The size along an axis that no comparison says: not the one that the row's number is multiplied by.
        Where no argument is left for it, a name is made up."""
        row = rf"(?:{variable or '(?!)'}|blockIdx\.{axis})"
        lengths = re.findall(rf"\b{row}\s*\*\s*(\w+)", self.code.text)
        limits = {size for of in self.limits.values() for size in of}
        left = [size for size in self.sizes if size not in (*lengths, *limits)]
        if left or not set(lengths) & set(self.sizes):
            return left[0] if left and len(left) < len(self.sizes) and not by_thread else ""
        plural = f"{variable}{'es' if variable.endswith('ch') else 's'}"
        names = (plural if re.fullmatch("[a-z]{3,}", variable) else "rows", f"rows_{axis}", "rows_")
        return next(name for name in names if name not in (*self.sizes, *self.names))

    # ---- shapes

    def shape_of(self, buffer: str) -> tuple[tuple[str, ...], str]:
        """The sizes that are the sides of a buffer, by how it is indexed: `a[row * k + i]` has rows and k.
        Empty where that is not plain. Then the buffer whose elements say the row, as in `a[b[i] * k + j]`;
        the row's size is "" then."""
        found = dict.fromkeys(filter(lambda one: one[0], map(self._shape, self.code.indices(buffer))))
        return next(iter(found)) if len(found) == 1 else ((), "")

    def _shape(self, index: str) -> tuple[tuple[str, ...], str]:
        own = {axis.variable: [axis.size] for axis in self.launch.axes if axis.size}
        own |= {f"blockIdx.{axis.name}": [axis.size] for axis in self.launch.axes if not axis.covers}
        own |= self.limits
        levels: dict[Product, list[str]] = {}
        for key, value in self.sum(index, [*self.limits, *own]).items():
            stride = tuple(part for part in key if part[0] in self.sizes)
            rest = [part for part in key if part[0] not in self.sizes]
            if len(rest) == 1 and rest[0][1] == 1 and value == 1:
                levels.setdefault(stride, []).append(rest[0][0])
        strides: list[Sum] = [{key: ONE[()]} for key in sorted(levels, key=len, reverse=True)]
        inner = [quotient_of(one, other) for one, other in pairwise(strides)]
        if not strides or strides[-1] != ONE or not all(whole(one) and one != ONE for one in inner):
            return (), ""
        sides = [text_of(one) for one in inner]
        for name in levels[next(iter(strides[0]))]:
            if side := self._length(
                name, {n: [one for one in of if one not in sides] for n, of in own.items()}
            ):
                return (*(side if not sides else [" * ".join(side)]), *sides), ""
            if by := re.fullmatch(r"(\w+)\[.*\]", name):
                return ("", *sides), by[1]
        return (), ""

    def _length(self, name: str, own: Mapping[str, Sequence[str]]) -> list[str]:
        """The sizes whose product a name goes up to: `i`, where it is below n alone; `i % n`; `i / n`."""
        parts = re.fullmatch(r"([\w.]+)(?: ([%/]) (\w+))?", name)
        if not parts or (parts[3] and parts[3] not in self.sizes):
            return []
        limits = own.get(parts[1], [])
        sides = limits[0].split(" * ") if len(limits) == 1 and "/" not in limits[0] else []
        sides = [parts[3]] if parts[2] == "%" else [side for side in sides if side and side != parts[3]]
        return sorted(sides, key=[*self.launch.made_up, *self.sizes].index)


def _letters(place: Sum) -> str:
    """The axes of threadIdx that an expression has, x first."""
    return "".join(letter for letter in "xyz" if factor_of(place, f"threadIdx.{letter}"))
