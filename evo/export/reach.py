"""How far a champion's code reaches: for which sizes it is the same program, and how it is launched there.

Both are found by asking its template, at many problems, and are kept only where they hold at all of them:
the sizes as a range for each, and each number of the launch and of its workspaces' bytes as a product of a
constant and of ceil(size / part), perhaps with a limit: a persistent kernel has no more CTAs than run at
once. A champion for which no such range is found serves its own problem alone."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from evo.confirm.champions import Champion
from evo.errors import EvoError
from evo.launch.dispatch import MOST_GRID, Number, is_large, launch_of, number
from evo.task import Task
from evo.trial import LaunchConfig, Problem

LARGEST = 1 << 17
"""Sizes beyond are not asked about."""
SAMPLES = 60
"""Problems that a range and its numbers must hold for, besides those on its edges."""
LARGEST_PART = 1024
LADDER = 7
"""Doublings below and above a champion's own size."""
LIKELY, MOST_PRODUCTS = 12, 1 << 16
"""Parts of a size, and choices of parts of all sizes, that are tried."""
OVER = (2, 4, 8, 16)
"""What a whole part of a product is by."""
Sizes = Mapping[str, int]
Range = tuple[int, int, int]
LaunchAt = Callable[[Problem], LaunchConfig | None]
"""The champion's launch for a problem; None where its code does not serve it."""


@dataclass(frozen=True)
class Reach:
    """`ranges`: the lowest and highest of each size, and what it is a multiple of; `launch`: as
    `LaunchConfig.to_json` writes it, with numbers that may depend on sizes; `tried`: at how many problems it
    was compared to the template's."""

    ranges: Mapping[str, Range]
    launch: Mapping[str, Any]
    tried: int


def reach_of(champion: Champion, task: Task, launch_at: LaunchAt) -> Reach:
    """The champion's reach."""
    own, said = champion.problem, json.loads(champion.launch.to_json())
    alone = Reach({name: (size, size, 1) for name, size in own.sizes.items()}, said, 1)
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


def _range(own: Sizes, name: str, at: Callable[[Sizes], Any]) -> Range:
    """How far one size may go, the others as they are: by doublings first, then by halving the rest. Rows of
    whole 16 bytes, and groups, make it a multiple of some power of two."""

    def serves(size: int) -> bool:
        return size > 0 and at({**own, name: size}) is not None

    size = own[name]
    steps = [step for step in _powers(LARGEST_PART) if size % step == 0]
    step = next((step for step in steps if serves(size + step) or serves(size - step)), 0)
    if not step:
        return size, size, 1

    def times(count: int) -> bool:
        return serves(count * step)

    low = high = size // step
    most = LARGEST // step
    while high * 2 <= most and times(high * 2):
        high *= 2
    while low > 1 and times(low // 2):
        low //= 2
    low, high = _edge(low, low // 2, times), _edge(high, min(2 * high, most + 1), times)
    return low * step, high * step, step


def _powers(most: int) -> list[int]:
    return [1 << k for k in range(most.bit_length())]


def _edge(inside: int, outside: int, serves: Callable[[int], bool]) -> int:
    """The last size from `inside` towards `outside` that is served; `outside` is not."""
    while abs(outside - inside) > 1:
        middle = (inside + outside) // 2
        inside, outside = (middle, outside) if serves(middle) else (inside, middle)
    return inside


def _edges(own: Sizes, ranges: Mapping[str, Range]) -> Iterator[dict[str, int]]:
    """Each size at its ends and around them, and in doublings of itself, the others as they are."""
    for name, (low, high, step) in ranges.items():
        doubled = {own[name] * power // 2**LADDER for power in _powers(4**LADDER)}
        for size in {low, low + step, low + 2 * step, high - step, high, (low + high) // 2} | doubled:
            if low <= (size := size // step * step) <= high:
                yield {**own, name: size}


def _drawn(ranges: Mapping[str, Range], task: Task, own: Problem) -> Iterator[dict[str, int]]:
    """Problems anywhere in the ranges, small sizes as often as large ones; the same ones each time."""
    rng = random.Random(0)
    for _ in range(SAMPLES):
        sizes = {}
        for name, (low, high, step) in ranges.items():
            top = rng.randint(low.bit_length(), high.bit_length())
            sizes[name] = min(high, max(low, rng.randrange(1 << top) // step * step))
        if not is_large(buffer.shape for buffer in task.buffers(own.replace(**sizes))):
            yield sizes


# ---- the numbers of a launch


class _NoFormula(Exception):
    """A number is no such product."""


def _general(
    said: Mapping[str, Any], served: Sequence[tuple[Sizes, Mapping[str, Any]]], own: Sizes
) -> dict[str, Any]:
    """The launch with its numbers as products. Whatever else differs between problems has no formula."""
    grids = [launch["grid"] for _, launch in served]
    fits = [i for i, grid in enumerate(grids) if all(a <= b for a, b in zip(grid, MOST_GRID, strict=True))]
    general = dict(said)
    where = [served[i] for i in fits]
    spaces = [_reader("workspaces", at, "nbytes") for at in range(len(said["workspaces"]))]
    grid = [_reader("grid", i) for i in range(3)]
    known = _known_parts([product_of(_values(read, where), own) for read in (*grid, *spaces)])
    general["grid"] = [_product(read, where, own, known) for read in grid]
    general["args"] = [_argument(arg, at, where, own) for at, arg in enumerate(said["args"])]
    general["workspaces"] = [
        {**space, "nbytes": _product(read, where, own, known)}
        for space, read in zip(said["workspaces"], spaces, strict=True)
    ]
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


def _values(
    read: Callable[[Mapping[str, Any]], int], served: Sequence[tuple[Sizes, Mapping[str, Any]]]
) -> list[tuple[Sizes, int]]:
    return [(sizes, read(launch)) for sizes, launch in served]


def _product(
    read: Callable[[Mapping[str, Any]], int],
    served: Sequence[tuple[Sizes, Mapping[str, Any]]],
    own: Sizes,
    known: Mapping[str, Sequence[int]] | None = None,
) -> Number:
    """The number as a product; `known`: as `_known_parts` gives them. _NoFormula where it is none."""
    values = _values(read, served)
    found = product_of(values, own) or (_floored(values, own, known) if known else None)
    if found is None:
        raise _NoFormula
    return found


def _known_parts(found: Sequence[Number | None]) -> dict[str, list[int]]:
    """What sizes are divided by in the numbers of a launch that are products."""
    known: dict[str, set[int]] = {}
    for one in found:
        for name, part in one["of"] if isinstance(one, Mapping) else ():
            known.setdefault(name, set()).add(part)
    return {name: sorted(parts) for name, parts in known.items()}


def _floored(
    values: Sequence[tuple[Sizes, int]], own: Sizes, known: Mapping[str, Sequence[int]]
) -> Number | None:
    """The number as a whole part of a product, with the parts of other numbers: as many as run at once, but
    each has some steps."""
    times, most = min(value for _, value in values), max(value for _, value in values)
    parts = [known.get(name, [0, *_powers(LARGEST_PART)]) for name in own]
    for over, *chosen in itertools.product(OVER, *parts):
        of = [[name, part] for name, part in zip(own, chosen, strict=True) if part]
        found: Number = {"times": times, "of": of, "over": over, "most": most}
        if all(number(found, sizes) == value for sizes, value in values):
            return found
    return None


def product_of(values: Sequence[tuple[Sizes, int]], own: Sizes) -> Number | None:
    """What is `values` at these sizes, `own` among them, as a number or a product; None where it is none."""
    start = next(value for sizes, value in values if sizes == own)
    most = max(value for _, value in values)
    if all(value == start for _, value in values):
        return start
    below = [(sizes, value) for sizes, value in values if value < most]
    found = _fitted(values, own) or _fitted(below, own, most)
    right = found is not None and all(number(found, sizes) == value for sizes, value in values)
    return found if right else None


def _fitted(values: Sequence[tuple[Sizes, int]], own: Sizes, most: int | None = None) -> Number | None:
    """The product that all `values` have, which are below the limit `most`, if there is one."""
    parts = {name: _parts(name, values, own) for name in own}
    if math.prod(map(len, parts.values())) > MOST_PRODUCTS:
        return None
    limit = {} if most is None else {"most": most}
    first, value = values[0]
    for chosen in itertools.product(*parts.values()):
        of: list[tuple[str, int]] = [(name, part) for name, part in zip(own, chosen, strict=True) if part]
        times = Fraction(value, math.prod(-(-first[name] // part) for name, part in of))
        found: Number = {"times": int(times), "of": [list(pair) for pair in of], **limit}
        if times.denominator == 1 and all(number(found, sizes) == due for sizes, due in values):
            return found
    return None


def _parts(name: str, values: Sequence[tuple[Sizes, int]], own: Sizes) -> list[int]:
    """What a size may be divided by, 0 where it does not count: whatever suits the problems where it alone
    differs from `own`, likely ones first. Where there are none such, it is a power of two, if any."""
    alone = [
        (sizes[name], value)
        for sizes, value in values
        if all(sizes[other] == own[other] for other in own if other != name)
    ]
    if len({size for size, _ in alone}) < 2:
        return [0, *_powers(LARGEST_PART)]
    same = [0] if len({value for _, value in alone}) < 2 else []
    size, value = max(alone)
    fitting = [
        part
        for part in range(1, LARGEST_PART + 1)
        if all(other * -(-size // part) == value * -(-one // part) for one, other in alone)
    ]
    return [*same, *sorted(fitting, key=_oddness)[:LIKELY]]


def _oddness(part: int) -> int:
    """Tiles are multiples of large powers of two."""
    return part // (part & -part)
