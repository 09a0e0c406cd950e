"""Where the threads of a CUDA kernel stand: which names are the sides of a block, which size each axis of the
grid covers, and which shapes the indices of the buffers ask for.

Read by patterns, not by a compiler: what is not understood is left for a person to write.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_CASTS = re.compile(
    r"\(\s*(?:size_t|unsigned(?:\s+int)?|int|(?:unsigned\s+)?long\s+long|u?int(?:32|64)_t)\s*\)"
    r"|static_cast\s*<[^<>]*>\s*(?=\()|#\s*pragma[^\n]*"
)
_SIDE = r"(blockDim\s*\.\s*[xyz]|\w+)"


@dataclass(frozen=True)
class Axis:
    """One axis of a launch."""

    name: str
    """x, y or z."""
    side: str
    """The macro or constant that is the block's side; "" where the kernel asks blockDim, or has no thread of
    its own for each element."""
    steps: tuple[str, ...]
    """Names and numbers: how many elements a thread has along the axis, as factors."""
    size: str
    """The size that the grid covers; "" where the source does not say."""
    by_block: bool = False
    """Whether each CTA has one element along the axis (`int row = blockIdx.x`)."""
    variable: str = ""
    """The variable that holds the place along the axis."""
    rows: str = ""
    """The macro that is the block's side where `side` is a tile of several such (`j < side; j += rows`)."""


def axes_of(body: str, names: Sequence[str], sizes: Sequence[str], bounds: str) -> tuple[Axis, ...]:
    """The axes of a kernel's `body` that use blockIdx, x first. `names`: macros and constants that are whole
    numbers; `bounds`: the name in __launch_bounds__, or ""."""
    code = _CASTS.sub(" ", body)
    below = limits_of(code, sizes)
    found = []
    for axis in "xyz":
        uses = _expressions(code, f"blockIdx.{axis}")
        if not uses:
            break
        whole = next((text for text in uses if f"threadIdx.{axis}" in text), "")
        text = whole or uses[0]
        side = _side(text, axis) if whole else _stride(code, axis)
        side = side if side in names else ""
        if not side and axis == "x" and bounds in names:
            side = bounds
        if not side and "blockDim" in code:
            side = _side_by_name(axis, names, alone="blockIdx.y" not in code)
        steps = tuple(dict.fromkeys(w for w in re.findall(r"\w+", text) if w in names and w != side))
        lanes = re.search(r"(?:=|^)\s*(\d+)\s*\*\s*\(", text) or re.search(r"\)\s*\*\s*(\d+)\s*$", text)
        if whole and lanes:
            steps = (*steps, lanes[1])
        match = re.search(r"(\w+)\s*=(?!=)", text)
        variable = match[1] if match else ""
        size = below.get(variable, [""])[0] or ("" if whole else _rows_of(code, variable, axis, sizes))
        rows = (
            re.search(rf"(\w+)\s*=\s*0\s*;\s*\1\s*<\s*{side}\s*;\s*\1\s*\+=\s*(\w+)", code) if side else None
        )
        tiled = rows and rows[2] in names and re.search(rf"threadIdx\s*\.\s*{axis}\s*\+\s*{rows[1]}\b", code)
        found.append(
            Axis(
                axis,
                side,
                steps if whole else (),
                size,
                not whole,
                variable,
                rows[2] if rows and tiled else "",
            )
        )
    return tuple(found)


def limits_of(code: str, sizes: Sequence[str]) -> dict[str, list[str]]:
    """The sizes that variables are compared with: `if (i < n)`, `if (i >= n) return`, `i + 3 < n`."""
    found: dict[str, list[str]] = {}
    comparison = rf"\b(\w+)\s*(?:\+\s*[\w.]+\s*)?(?:<=?|>=?)\s*({'|'.join(sizes) or '(?!)'})\b(?!\s*\*)"
    for variable, size in re.findall(comparison, code):
        found.setdefault(variable, [])
        if size not in found[variable]:
            found[variable].append(size)
    return found


def shape_of(buffer: str, body: str, sizes: Sequence[str], axes: Sequence[Axis]) -> tuple[str, ...]:
    """The sizes that are the sides of a buffer, by how it is indexed: `a[row * k + i]` has rows and k. Empty
    where that is not plain."""
    code = _CASTS.sub(" ", body)
    limits = limits_of(code, sizes)
    below = {axis.variable: axis.size for axis in axes if axis.by_block and axis.size}
    below |= {name: of[0] for name, of in limits.items() if len(of) == 1}
    shapes: set[tuple[str, ...]] = set()
    for index in re.findall(rf"\b{buffer}\s*\[((?:[^\[\]]|\[[^\]]*\])*)\]", code):
        rows = re.match(r"\s*\(?([^()*]+)\)?\s*\*\s*(\w+)\s*\+", index)
        row = [below[word] for word in re.findall(r"\w+", rows[1]) if word in below] if rows else []
        if index.strip() in below:
            shapes.add((below[index.strip()],))
        elif rows and rows[2] in sizes and row:
            shapes.add((row[0], rows[2]))
        else:
            return ()
    return shapes.pop() if len(shapes) == 1 else ()


def grid_side(axis: Axis, size: str) -> str:
    """The number of CTAs along an axis, as an expression over tunables and sizes."""
    if axis.by_block:
        return size
    factors = [axis.side or f"block_size_{axis.name}", *axis.steps]
    return f"ceil({size} / {factors[0]})" if len(factors) == 1 else f"ceil({size} / ({' * '.join(factors)}))"


def constants_in(code: str) -> dict[str, int]:
    """Whole numbers that have a name and no other value: `#define N 128`, `constexpr int N = 128`."""
    defined = re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+\(?(\d+)\)?[ \t]*$", code, re.MULTILINE)
    declared = re.findall(
        r"\b(?:constexpr|const)\s+(?:static\s+)?(?:int|unsigned|unsigned int|size_t)\s+(\w+)\s*=\s*(\d+)\s*;",
        code,
    )
    return {name: int(value) for name, value in [*defined, *declared]}


def as_tunables(text: str, names: Mapping[str, int]) -> str:
    """The source with these constants as macros that have a default."""
    for name, value in names.items():
        guarded = f"#ifndef {name}\n#define {name} {value}\n#endif"
        text = re.sub(
            rf"^[ \t]*#[ \t]*define[ \t]+{name}\b[^\n]*$"
            rf"|^[ \t]*(?:static\s+)?(?:constexpr|const)\s+(?:static\s+)?[\w ]+?\s{name}\s*=[^;]*;",
            guarded,
            text,
            count=1,
            flags=re.MULTILINE,
        )
    return text


def _expressions(code: str, word: str) -> list[str]:
    """The parts of statements, between commas and semicolons, that name a word."""
    parts = re.split(r"[;{},]", code)
    pattern = re.escape(word).replace(r"\.", r"\s*\.\s*")
    found = [part.strip() for part in parts if re.search(rf"\b{pattern}\b", part)]
    return [re.sub(r"\s*\.\s*", ".", part) for part in found]


def _rows_of(code: str, variable: str, axis: str, sizes: Sequence[str]) -> str:
    """The size that CTAs of one row each cover: not the one that the row's number is multiplied by."""
    row = rf"(?:{variable or '(?!)'}|blockIdx\s*\.\s*{axis})"
    lengths = re.findall(rf"\b{row}\s*\*\s*(\w+)", code)
    left = [size for size in sizes if size not in lengths]
    return left[0] if left and len(left) < len(sizes) else ""


def _side(text: str, axis: str) -> str:
    """What blockIdx is multiplied by before threadIdx is added."""
    thread = rf"threadIdx\.{axis}"
    for pattern in (
        rf"{_SIDE}\s*\*\s*blockIdx\.{axis}\s*\)?\s*\+\s*{thread}",
        rf"\*\s*{_SIDE}\s*\)?\s*\+\s*{thread}",
        rf"{thread}\s*\+\s*\(?\s*{_SIDE}\s*\*\s*blockIdx",
        rf"{thread}\s*\+\s*\(?\s*[^+]*\*\s*{_SIDE}",
    ):
        if match := re.search(pattern, text):
            return match[1]
    return ""


def _side_by_name(axis: str, names: Sequence[str], alone: bool) -> str:
    """A macro that is called as the side of a block is, where the kernel asks blockDim: BLOCK_X, THREADS."""
    kind = r"(?:block|threads|bdim|tpb)"
    pattern = rf"{kind}(?:_?size)?(?:_?x)?" if alone else rf"{kind}(?:_?(?:size|dim))?_?{axis}"
    return next((name for name in names if re.fullmatch(pattern, name, re.IGNORECASE)), "")


def _stride(code: str, axis: str) -> str:
    """By how much a loop over the elements of a CTA goes on: `for (i = threadIdx.x; …; i += block)`."""
    match = re.search(rf"=\s*threadIdx\s*\.\s*{axis}\b[^;]*;[^;]*;\s*\w+\s*\+=\s*(\w+)", code)
    return match[1] if match else ""
