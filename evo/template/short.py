"""The short form of a template: tunables, grid, block and arguments; everything else has a default.

    TEMPLATE = template(
        tune_params={"block_size_x": [64, 128, 256], "per_thread": [1, 2, 4]},
        restrictions=["block_size_x * per_thread <= 512"],
        grid="ceil(n / (block_size_x * per_thread))",
        args=["x", "y", "n"],
    )

A number that depends on the point or the problem is an expression (evo.space.expression) over the parameters
and the sizes, or a function `(p, problem)`. The source beside it is `<name>.cu.jinja` with holes, or a plain
`<name>.cu`, in which every parameter is a macro: it compiles without evo where it has a default of its own
(`#ifndef block_size_x`, `#define block_size_x 128`, `#endif`).
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from types import SimpleNamespace
from typing import Any

import numpy as np

from evo.dtype import dtype_named
from evo.errors import BadTemplate, EvoError, UsageError
from evo.gpu import Gpu, Limits, target
from evo.space import Filling, Parameter, Rule, Space
from evo.space.expression import Expression
from evo.space.parameters import Columns
from evo.task import Task
from evo.template.sides import (
    Number,
    Sides,
    check_sides,
    parsed,
    plain_of,
    sides_of,
    three_of,
    value_of,
    whole_of,
)
from evo.trial import Argument, BufferArg, LaunchConfig, Problem, ScalarArg, TensorMapArg, Value, Workspace

BLOCK_SIZES = ("block_size_x", "block_size_y", "block_size_z")
"""Parameters that are the sides of the block, unless it is said otherwise."""
LARGEST_TILE = 256


@dataclass(frozen=True)
class Cast:
    """A number among a kernel's arguments, with its type."""

    value: Number | float
    dtype: str


def template(
    tune_params: Mapping[str, Iterable[Value]],
    *,
    grid: Sides,
    block: Sides | None = None,
    args: Sequence[str | int | float | bool | Cast | Argument | Callable[[Any, Problem], Any]] | None = None,
    restrictions: Iterable[str | Callable[[Any], Any] | Rule] = (),
    defaults: Mapping[str, Value] | None = None,
    meanings: Mapping[str, str] | None = None,
    smem_bytes: Number = 0,
    cluster: Sides = 1,
    cooperative: bool = False,
    derived: Mapping[str, Number] | Callable[[Any, Problem], Mapping[str, Value]] | None = None,
    workspaces: Mapping[str, Number] | None = None,
    zeroed: Sequence[str] = (),
    tiles: Callable[[Any, Problem], Sequence[int]] | None = None,
    needs: str = "sm_80",
    entry: str | None = None,
    deterministic: bool = True,
    reads: Sequence[str] = (),
) -> ShortTemplate:
    """A template from a kernel's tunables: `TEMPLATE = template(…)` is all that its Python file need define.

    `tune_params`: values by name; the first is the default unless `defaults` says another; `meanings` says
    in words what each is. `grid`, `block`: CTAs and threads; by default the block has the sides block_size_x,
    _y and _z. `args`, in the kernel's order: buffers, workspaces and sizes (i32) by name, numbers (i32, fp32,
    bool), or `Cast(value, dtype)`; by default all buffers outside of constant memory and then all sizes.
    `smem_bytes`: dynamic shared memory. `cooperative`: all CTAs are resident at once and may meet at
    `grid.sync()`. `derived`: more holes or macros. `workspaces`: bytes of scratch memory by name; `zeroed`:
    those that are zero before the first launch, which each launch leaves zero again. `entry`: the kernel's
    name, where the source has several. `reads`: clocks and places ("%smid").
    """
    frame = sys._getframe(1)
    caller = f"{frame.f_code.co_filename}:{frame.f_lineno}"
    parameters = _parameters(tune_params, defaults or {}, meanings or {})
    check_sides("grid", grid)
    return ShortTemplate(
        Space(parameters, _rules(restrictions, caller)),
        needs,
        entry,
        deterministic,
        tuple(reads),
        caller,
        tiles,
        _Numbers(
            grid,
            _block(block, tune_params),
            args,
            smem_bytes,
            cluster,
            derived or {},
            workspaces or {},
            tuple(zeroed),
            cooperative,
        ),
    )


def _block(block: Sides | None, tune_params: Mapping[str, Any]) -> Sides:
    """The sides of the block: those that are given, else the parameters that are called so."""
    names = [name for name in BLOCK_SIZES if name in tune_params]
    if block is None and not names:
        raise BadTemplate("there is no block", 'block="32 * warps", or a parameter block_size_x')
    sides: Sides = block if block is not None else [n if n in names else 1 for n in BLOCK_SIZES]
    check_sides("block", sides)
    return sides


def _parameters(
    tune_params: Mapping[str, Iterable[Value]], defaults: Mapping[str, Value], meanings: Mapping[str, str]
) -> tuple[Parameter, ...]:
    if unknown := [name for name in defaults if name not in tune_params]:
        raise BadTemplate(
            f"defaults name {unknown[0]}, which is no parameter", f"known: {', '.join(tune_params)}"
        )
    found = []
    if not isinstance(tune_params, Mapping):
        raise BadTemplate("tune_params is no dict", 'tune_params={"block_size_x": [64, 128, 256]}')
    for name, values in tune_params.items():
        if isinstance(values, (str, int, float)):
            raise BadTemplate(f"parameter {name} has no list of values: {values!r}", f'"{name}": [1, 2, 4]')
        listed = tuple(plain_of(value) for value in values)
        if not listed:
            raise BadTemplate(f"parameter {name} has no values", "give at least one")
        default = defaults.get(name, listed[0])
        found.append(Parameter(name, listed, default, meaning=meanings.get(name, "")))
    return tuple(found)


@dataclass(frozen=True)
class ShortTemplate:
    """What `template` makes: the numbers of a template, for whichever task it is loaded."""

    space: Space
    needs: str
    entry: str | None
    """The kernel; None: the only one of the source."""
    deterministic: bool
    reads: tuple[str, ...]
    written_at: str
    """`file:line` of the call of `template`."""
    _tiles: Callable[[Any, Problem], Sequence[int]] | None
    _numbers: _Numbers

    def names(self, task: Task, entry: str, holes: Iterable[str]) -> SimpleNamespace:
        """The names that the long form defines. Holes that are sizes of the task are filled with them."""
        numbers = self._known(task)
        open_sizes = [size for size in task.sizes if size in set(holes)]

        def derived(p: Any, problem: Problem) -> dict[str, Value]:
            return {size: problem.sizes[size] for size in open_sizes} | numbers.derived(p, problem)

        return SimpleNamespace(
            SHORT=self,
            SPACE=self.space,
            NEEDS=self.needs,
            ENTRY=entry,
            DETERMINISTIC=self.deterministic,
            READS=self.reads,
            smem_bytes=self._located(numbers.smem_bytes),
            threads=self._located(numbers.threads),
            derived=self._located(derived),
            launch=self._located(numbers.launch),
            tiles=self._tiles or self._located(numbers.tiles),
        )

    def check_launch(self, task: Task) -> None:
        """UsageError where the grid or the block cannot be that at the default point of the example."""
        numbers, default, problem = self._known(task), Filling(self.space.default), task.example
        if self.space.why_not(default, Limits.of(target("sm_80")), problem) is not None:
            return
        for what, sides in (("grid", numbers.grid), ("block", numbers.block)):
            try:
                found = three_of(sides, default, problem, what)
            except EvoError:
                raise
            except Exception as error:  # whatever a function raises is its author's
                message = f"{what} failed at {dict(default)}: {type(error).__name__}: {error}"
                raise UsageError(message, f"{what}=lambda p, problem: …, of numbers p.NAME") from error
            if min(found) < 1:
                raise UsageError(f"{what} is {found} for {problem.shape}", "every side is at least 1")

    def _known(self, task: Task) -> _Numbers:
        """Its numbers. UsageError if an expression has a name that neither it nor the task has."""
        numbers = self._of(task)
        known = {*task.sizes, *task.flags, *(one.name for one in self.space.parameters)}
        numbers.check_names(known, [buffer.name for buffer in task.buffers(task.example)])
        return numbers

    def _located(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same; what is wrong with an expression is said of the place where it is written."""

        def asked(*args: Any) -> Any:
            try:
                return function(*args)
            except UsageError as error:
                if isinstance(error, BadTemplate):
                    raise
                raise BadTemplate(f"{self.written_at}: {error.message}", error.hint) from error

        return asked

    def arguments(self, task: Task) -> tuple[list[str], list[Argument]]:
        """The arguments at the default point of the task's example, and what `args` calls each."""
        args = self._of(task).args or ()
        words = [one.value if isinstance(one, Cast) else one for one in args]
        names = [one if isinstance(one, str) else "a number" for one in words]
        return names, [_argument(one, self.space.default, task.example) for one in args]

    def _of(self, task: Task) -> _Numbers:
        """Its numbers, where no args are named with all buffers and sizes of the task."""
        if self._numbers.args is not None:
            return self._numbers
        buffers = (buffer.name for buffer in task.buffers(task.example) if not buffer.constant)
        return replace(self._numbers, args=(*buffers, *task.sizes))


@dataclass(frozen=True)
class _Numbers:
    """What a short template says, asked as the long form is."""

    grid: Sides
    block: Sides
    args: Sequence[Any] | None
    shared: Number
    cluster_sides: Sides
    more: Mapping[str, Number] | Callable[[Any, Problem], Mapping[str, Value]]
    workspaces: Mapping[str, Number]
    zeroed: tuple[str, ...]
    cooperative: bool

    def check_names(self, known: Collection[str], buffers: Collection[str]) -> None:
        """UsageError if an expression has a name that is not known, or cannot be read."""
        more = () if callable(self.more) else self.more.values()
        words = [one.value if isinstance(one, Cast) else one for one in self.args or ()]
        expressions = [
            one for one in words if not isinstance(one, str) or one not in (*buffers, *self.workspaces)
        ]
        for sides in (self.grid, self.block, self.cluster_sides, (self.shared, *more, *expressions)):
            for text in (sides,) if isinstance(sides, str) or not isinstance(sides, Sequence) else sides:
                if not isinstance(text, str) or not (unknown := parsed(text).names - set(known)):
                    continue
                if text in words:
                    hint = f"buffers: {', '.join(buffers)}; numbers: {', '.join(sorted(known))}"
                    raise UsageError(f"args names a buffer {text} that is not there", hint)
                hint = f"parameters and sizes: {', '.join(sorted(known))}"
                raise UsageError(f"unknown name {min(unknown)} in: {text}", hint)

    def smem_bytes(self, p: Any, problem: Problem) -> Any:
        return _for_each(self.shared, p, problem)

    def threads(self, p: Any, problem: Problem) -> Any:
        if callable(self.block):
            return _for_each(lambda q, at: math.prod(three_of(self.block, q, at, "block")), p, problem)
        return reduce(operator.mul, sides_of(self.block, p, problem))

    def derived(self, p: Any, problem: Problem) -> dict[str, Value]:
        if callable(self.more):
            return {name: plain_of(value) for name, value in self.more(p, problem).items()}
        return {name: plain_of(value_of(number, p, problem)) for name, number in self.more.items()}

    def tiles(self, p: Any, problem: Problem) -> tuple[int, ...]:
        """Every whole number that a boundary may lie at: the parameters, the sides of the block and all its
        threads, and how much of a size a CTA has."""
        found = {v for v in p.values() if isinstance(v, int) and not isinstance(v, bool)}
        sides = [int(side) for side in sides_of(self.block, p, problem)]
        found |= {*sides, math.prod(sides)}
        for side in sides_of(self.grid, p, problem):
            found |= {-(-size // int(side)) for size in problem.sizes.values() if int(side) > 1}
        return tuple(sorted(v for v in found if 1 < v <= LARGEST_TILE))

    def launch(self, p: Any, problem: Problem, _gpu: Gpu) -> LaunchConfig:
        spaces = tuple(
            Workspace(name, whole_of(size, p, problem, f"workspace {name}"), name in self.zeroed)
            for name, size in self.workspaces.items()
        )
        return LaunchConfig(
            grid=three_of(self.grid, p, problem, "grid"),
            block=three_of(self.block, p, problem, "block"),
            smem_bytes=whole_of(self.shared, p, problem, "smem_bytes"),
            args=tuple(_argument(arg, p, problem) for arg in self.args or ()),
            cluster=three_of(self.cluster_sides, p, problem, "cluster"),
            workspaces=spaces,
            cooperative=self.cooperative,
        )


def _argument(arg: Any, p: Any, problem: Problem) -> Argument:
    if isinstance(arg, (BufferArg, ScalarArg, TensorMapArg)):
        return arg
    dtype = None
    if isinstance(arg, Cast):
        arg, dtype = arg.value, arg.dtype
    if isinstance(arg, str) and arg.isidentifier() and arg not in problem.sizes and arg not in p:
        return BufferArg(arg)
    value = plain_of(value_of(arg, p, problem))
    if isinstance(value, str):
        raise UsageError(
            f"an argument is {value!r}", "a buffer's name, a size, a number, Cast(number, dtype)"
        )
    kind = dtype or ("bool" if isinstance(value, bool) else "i32" if isinstance(value, int) else "fp32")
    exact = value if dtype_named(kind).floating or isinstance(value, bool) else int(value)
    return ScalarArg(exact, dtype_named(kind).name)  # type: ignore[arg-type]


def _points(p: Any) -> list[Filling]:
    """The points of columns, one by one."""
    names = list(p.names)
    return [
        Filling(zip(names, values, strict=True))
        for values in zip(*(p[n].tolist() for n in names), strict=True)
    ]


def _for_each(number: Number, p: Any, problem: Problem) -> Any:
    """What a number is at each point of columns; at a single point it is one. A function gets one point."""
    if not isinstance(p, Columns):
        return int(value_of(number, p, problem))
    if not callable(number):
        return value_of(number, p, problem)
    return np.array([int(number(point, problem)) for point in _points(p)])


def _rules(restrictions: Iterable[str | Callable[[Any], Any] | Rule], place: str) -> tuple[Rule, ...]:
    if isinstance(restrictions, str) or callable(restrictions):
        raise BadTemplate("restrictions is no list", 'restrictions=["block_size_x <= 512"]')
    return tuple(_rule(one, place) for one in restrictions)


def _rule(restriction: str | Callable[[Any], Any] | Rule, place: str) -> Rule:
    """A rule of a restriction: an expression, or a function of one point that says whether it is allowed.
    `place` is where it is written."""
    if isinstance(restriction, Rule):
        return restriction
    if isinstance(restriction, str):
        expression = Expression(restriction)

        def holds(p: Any, _limits: Limits, problem: Problem) -> Any:
            columns = {name: p[name] for name in expression.names if name not in problem.sizes}
            return np.asarray(expression({**problem.sizes, **columns}), bool)

        return Rule(holds, f"not {expression.text}".replace("{", "{{").replace("}", "}}"), place)

    name = getattr(restriction, "__name__", "a restriction")

    def allowed(p: Any, _limits: Limits, _problem: Problem) -> Any:
        try:
            return np.array([bool(restriction(point)) for point in _points(p)], bool)
        except Exception as error:  # whatever a restriction raises is the template's fault
            what = f"{place}: restriction {name} failed: {type(error).__name__}: {error}"
            raise BadTemplate(what, "a function of a point: lambda p: p.threads <= 512") from error

    return Rule(allowed, f"refused by {name}", place)
