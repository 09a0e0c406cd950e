"""How far a champion's code reaches: for which sizes it is the same program, and how it is launched there.

Both are found by asking its template, at many problems, and are kept only where they hold at all of them:
the sizes as a range for each, and each number of the launch as a product of a constant and of ceil(size /
part). A champion for which no such range is found serves its own problem alone."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from evo.confirm.champions import Champion
from evo.errors import EvoError
from evo.launch.dispatch import MOST_GRID, Number, launch_of, number
from evo.task import Task
from evo.trial import LaunchConfig, Problem

LARGEST = 1 << 17
"""Sizes beyond are not asked about."""
MOST_ELEMENTS = 1 << 31
"""Of a buffer, likewise."""
SAMPLES = 60
"""Problems that a range and its numbers must hold for, besides those on its edges."""
LARGEST_PART = 1024
Sizes = Mapping[str, int]
LaunchAt = Callable[[Problem], LaunchConfig | None]
"""The champion's launch for a problem; None where its code does not serve it."""


@dataclass(frozen=True)
class Reach:
    """`ranges`: the lowest and highest of each size; `launch`: as `LaunchConfig.to_json` writes it, with
    numbers that may depend on sizes; `tried`: at how many problems it was compared to the template's."""

    ranges: Mapping[str, tuple[int, int]]
    launch: Mapping[str, Any]
    tried: int


def reach_of(champion: Champion, task: Task, launch_at: LaunchAt) -> Reach:
    """The champion's reach."""
    own, said = champion.problem, json.loads(champion.launch.to_json())
    alone = Reach({name: (size, size) for name, size in own.sizes.items()}, said, 1)
    known: dict[str, Any] = {}

    def at(sizes: Sizes) -> dict[str, Any] | None:
        problem = own.replace(**sizes)
        if problem.key not in known:
            known[problem.key] = _launch(problem, task, launch_at)
        found: dict[str, Any] | None = known[problem.key]
        return found

    if at(own.sizes) != said:
        return alone
    ranges = {name: _range(own.sizes, name, at) for name in own.sizes}
    samples = [dict(own.sizes), *_edges(own.sizes, ranges), *_drawn(ranges, task, own)]
    found = [(sizes, at(sizes)) for sizes in samples]
    if any(launch is None for _, launch in found):
        return alone
    served = [(sizes, launch) for sizes, launch in found if launch is not None]
    try:
        general = _general(said, served, own.sizes)
    except _NoFormula:
        return alone
    return Reach(ranges, general, len(served))


def _launch(problem: Problem, task: Task, launch_at: LaunchAt) -> dict[str, Any] | None:
    try:
        task.validate(problem)
        launch = launch_at(problem)
    except EvoError:
        return None
    found: dict[str, Any] | None = None if launch is None else json.loads(launch.to_json())
    return found


def _range(own: Sizes, name: str, at: Callable[[Sizes], Any]) -> tuple[int, int]:
    """How far one size may go, the others as they are: by doublings first, then by halving the rest."""

    def serves(size: int) -> bool:
        return at({**own, name: size}) is not None

    high = own[name]
    while high * 2 <= LARGEST and serves(high * 2):
        high *= 2
    low = own[name]
    while low > 1 and serves(low // 2):
        low //= 2
    return _edge(low, max(low // 2, 0), serves), _edge(high, min(2 * high, LARGEST + 1), serves)


def _edge(inside: int, outside: int, serves: Callable[[int], bool]) -> int:
    """The last size from `inside` towards `outside` that is served; `outside` is not."""
    while abs(outside - inside) > 1:
        middle = (inside + outside) // 2
        inside, outside = (middle, outside) if serves(middle) else (inside, middle)
    return inside


def _edges(own: Sizes, ranges: Mapping[str, tuple[int, int]]) -> Iterator[dict[str, int]]:
    """Each size at its ends, and around them, the others as they are."""
    for name, (low, high) in ranges.items():
        for size in {low, low + 1, low + 2, high - 1, high, (low + high) // 2}:
            if low <= size <= high:
                yield {**own, name: size}


def _drawn(ranges: Mapping[str, tuple[int, int]], task: Task, own: Problem) -> Iterator[dict[str, int]]:
    """Problems anywhere in the ranges, small sizes as often as large ones; the same ones each time."""
    rng = random.Random(0)
    for _ in range(SAMPLES):
        sizes = {}
        for name, (low, high) in ranges.items():
            top = rng.randint(low.bit_length(), high.bit_length())
            sizes[name] = min(high, max(low, rng.randrange(1 << top)))
        buffers = task.buffers(own.replace(**sizes))
        if all(_elements(buffer.shape) < MOST_ELEMENTS for buffer in buffers):
            yield sizes


def _elements(shape: Sequence[int]) -> int:
    product = 1
    for side in shape:
        product *= side
    return product


# ---- the numbers of a launch


class _NoFormula(Exception):
    """A number is no product of a constant and of ceil(size / part)."""


def _general(
    said: Mapping[str, Any], served: Sequence[tuple[Sizes, Mapping[str, Any]]], own: Sizes
) -> dict[str, Any]:
    """The launch with its numbers as products. Whatever else differs between problems has no formula."""
    grids = [launch["grid"] for _, launch in served]
    fits = [i for i, grid in enumerate(grids) if all(a <= b for a, b in zip(grid, MOST_GRID, strict=True))]
    general = dict(said)
    where = [served[i] for i in fits]
    general["grid"] = [_product(_reader("grid", i), where, own) for i in range(3)]
    general["args"] = [_argument(arg, at, where, own) for at, arg in enumerate(said["args"])]
    for sizes, launch in where:
        if launch_of(general, sizes) != launch:
            raise _NoFormula
    return general


def _argument(
    arg: Mapping[str, Any], at: int, served: Sequence[tuple[Sizes, Mapping[str, Any]]], own: Sizes
) -> dict[str, Any]:
    found = dict(arg)
    if isinstance(arg.get("value"), int) and not isinstance(arg["value"], bool):
        found["value"] = _product(_reader("args", at, "value"), served, own)
    for name in ("shape", "strides"):
        if name in arg:
            found[name] = [_product(_reader("args", at, name, i), served, own) for i in range(len(arg[name]))]
    return found


def _reader(*path: str | int) -> Callable[[Mapping[str, Any]], int]:
    """Reads the number at a place in a launch."""

    def read(launch: Mapping[str, Any]) -> int:
        found: Any = launch
        for step in path:
            found = found[step]
        return int(found)

    return read


def _product(
    read: Callable[[Mapping[str, Any]], int], served: Sequence[tuple[Sizes, Mapping[str, Any]]], own: Sizes
) -> Number:
    """The number as a product. _NoFormula where it is none."""
    values = [(sizes, read(launch)) for sizes, launch in served]
    start = next(value for sizes, value in values if sizes == own)
    if all(value == start for _, value in values):
        return start
    of: list[list[Any]] = []
    for name, size in own.items():
        alone = [
            (sizes[name], value)
            for sizes, value in values
            if all(sizes[other] == own[other] for other in own if other != name)
        ]
        if any(value != start for _, value in alone):
            of.append([name, _part(alone, size, start)])
    times = Fraction(start)
    for name, part in of:
        times /= -(-own[name] // part)
    if times.denominator != 1:
        raise _NoFormula
    found: Number = {"times": int(times), "of": of}
    if any(number(found, sizes) != value for sizes, value in values):
        raise _NoFormula
    return found


def _part(alone: Sequence[tuple[int, int]], own: int, start: int) -> int:
    """The part that a size is divided by, where the number is proportional to ceil(size / part)."""
    for part in range(1, LARGEST_PART + 1):
        whole = -(-own // part)
        if all(value * whole == start * -(-size // part) for size, value in alone):
            return part
    raise _NoFormula
