"""Parameters of a template, and the columns of points that rules and models get."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from evo.errors import BadTemplate, UsageError
from evo.gpu import Gpu
from evo.trial import Problem, Value

Indices = npt.NDArray[np.signedinteger]
"""Positions in the tuples of values: (points, parameters)."""
Positions = Callable[[int], npt.NDArray[np.signedinteger]]
"""Those of points by the number of a parameter: (points,)."""

AUTO = "auto"
"""A parameter's value that stands for another one, which follows from the rest of the point, the problem and
the GPU: the kernel of a portfolio can so be another one for each size."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_TEXT = re.compile(r"[A-Za-z0-9_.+-]*")  # goes into a comment and into C++: no quotes, backslashes, line ends


@dataclass(frozen=True)
class Parameter:
    """One hole. Numeric values are ordered; others are choices without order.

    `layer` is the level of the two-layer search it belongs to, `off` the value that switches the idea off
    (for ablations), `meaning` and `expected` (what it should bring, and when) are sentences for a person.
    `worth` is that expectation in figures, if it has any: time with `off` / time with another value, from and
    to. `auto(p, problem, gpu)` is the value that `"auto"`, one of `values`, stands for; `p` has the point's
    other values, one of each or columns of them. `most(p, problem, gpu)` is the largest value that is of any
    use: a larger one counts as this, so that a kernel for large problems wastes nothing on small ones.
    """

    name: str
    values: tuple[Value, ...]
    default: Value
    layer: Literal["macro", "micro"] = "micro"
    off: Value | None = None
    meaning: str = ""
    expected: str = ""
    worth: tuple[float, float] | None = None
    auto: Callable[[Any, Problem, Gpu], Any] | None = None
    most: Callable[[Any, Problem, Gpu], Any] | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or hasattr(Columns, self.name):
            raise BadTemplate(
                f"unusable parameter name: {self.name!r}", "letters, digits and _: k_stages, BLOCK"
            )
        if not self.values:
            raise BadTemplate(f"parameter {self.name} has no values", "give at least one")
        for value in self.values:
            if not isinstance(value, int | float | str) or not abs(_size(value)) < 2**63:
                hint = "True, False, a text, or a number below 2^63"
                raise BadTemplate(f"parameter {self.name}: unusable value {value!r}", hint)
            if isinstance(value, str) and not _TEXT.fullmatch(value):
                raise BadTemplate(f"parameter {self.name}: unusable value {value!r}", "letters, digits, _.+-")
        if len({(type(v), v) for v in self.values}) != len(self.values):
            raise BadTemplate(f"parameter {self.name} has a value twice", f"values: {self.values}")
        if self.worth is not None and not (0 < self.worth[0] <= self.worth[1] and self.off is not None):
            raise BadTemplate(
                f"parameter {self.name}: worth {self.worth}", "(1.2, 1.3), and `off`, the value without it"
            )
        others = {type(v) for v in self.values if v != AUTO}
        if self.auto is not None and (AUTO not in self.values or len(others) != 1):
            hint = f'one of the values is "{AUTO}", and the others are of one type'
            raise BadTemplate(f"parameter {self.name} has a function for its value {AUTO}", hint)
        if self.most is not None and not self.ordered:
            raise BadTemplate(f"parameter {self.name} has a largest value of use", "its values are numbers")
        for value in (self.default,) if self.off is None else (self.default, self.off):
            if not any(_same(value, v) for v in self.values):
                raise BadTemplate(f"parameter {self.name} has no value {value!r}", f"values: {self.values}")

    @property
    def ordered(self) -> bool:
        """Whether the values are numbers, so that there are adjacent ones."""
        return all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in self.values)

    def random(self, rng: np.random.Generator) -> Value:
        """A value, all equally likely."""
        return self.values[int(rng.integers(len(self.values)))]

    def neighbours(self, value: Value) -> tuple[Value, ...]:
        """The adjacent values of an ordered parameter; all other values of an unordered one."""
        if not self.ordered:
            return tuple(v for v in self.values if not _same(v, value))
        ladder = sorted(self.values)
        at = ladder.index(value)
        return tuple(ladder[i] for i in (at - 1, at + 1) if 0 <= i < len(ladder))

    def parse(self, value: object) -> Value:
        """The value meant by `value` (itself, or its text: "64", "true", "xor"); else UsageError."""
        for known in self.values:
            if _same(known, value) or (isinstance(value, str) and value.lower() == str(known).lower()):
                return known
        known_values = ", ".join(str(v) for v in self.values)
        raise UsageError(f"parameter {self.name} cannot be {value!r}", f"one of {known_values}")

    def position(self, value: Value) -> int:
        """Which of the values `value` is; else UsageError."""
        try:
            return self._positions[isinstance(value, bool), value]
        except (KeyError, TypeError):
            raise UsageError(f"parameter {self.name} cannot be {value!r}", f"one of {self.values}") from None

    @cached_property
    def _positions(self) -> dict[tuple[bool, Value], int]:
        return {(isinstance(v, bool), v): i for i, v in reversed(list(enumerate(self.values)))}

    @cached_property
    def column(self) -> npt.NDArray[Any]:
        """The values as an array; of objects where their types differ. In the place of a value that `auto`
        gives there is another one."""
        if self.auto is not None:
            other = next(v for v in self.values if v != AUTO)
            return np.array([other if v == AUTO else v for v in self.values])
        uniform = len({type(v) for v in self.values}) == 1
        return np.array(self.values, dtype=None if uniform else object)


def _size(value: Value) -> float:
    return 0 if isinstance(value, str) else value


def _same(a: object, b: object) -> bool:
    """Equal, where True is not 1 (both may be values of one parameter and render differently)."""
    return isinstance(a, bool) == isinstance(b, bool) and a == b


class Filling(dict[str, Any]):
    """Values of holes, readable as `p.bm` and `p["bm"]`: what rules, models and `derived` get."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            known = ", ".join(self)
            raise BadTemplate(f"there is no parameter {name}", f"parameters: {known}") from None


def where(condition: Any, yes: Any, no: Any) -> Any:
    """`yes` where `condition` holds, else `no`: of columns as numpy.where, of a single point at once. A gate
    asks a model about some 30 problems for each candidate."""
    if isinstance(condition, np.ndarray):
        return np.where(condition, yes, no)
    return yes if condition else no


class Columns(Filling):
    """Columns of `count` points, built when they are first asked for: `positions` says which of a parameter's
    values the points have. For a problem and a GPU values `auto` are already what they stand for, and none is
    above `most`."""

    def __init__(
        self, parameters: Sequence[Parameter], count: int, positions: Positions, problem: Problem, gpu: Gpu
    ) -> None:
        super().__init__()
        self._sources = {p.name: (p, i) for i, p in enumerate(parameters)}
        self._count, self._positions, self._asked_for = count, positions, (problem, gpu)

    @classmethod
    def of(cls, parameters: Sequence[Parameter], rows: Indices, problem: Problem, gpu: Gpu) -> Columns:
        """Of the points `rows` (n, parameters)."""
        return cls(parameters, len(rows), lambda number: rows[:, number], problem, gpu)

    def __missing__(self, name: str) -> npt.NDArray[Any]:
        if name not in self._sources:
            known = ", ".join(self._sources)
            raise BadTemplate(f"there is no parameter {name}", f"parameters: {known}")
        parameter, number = self._sources[name]
        column: npt.NDArray[Any] = parameter.column.take(self._positions(number))
        if parameter.auto is not None:
            column = np.where(self.says_auto(name), parameter.auto(self, *self._asked_for), column)
        if parameter.most is not None:
            column = np.minimum(column, parameter.most(self, *self._asked_for))
        self[name] = column
        return column

    def says_auto(self, name: str) -> npt.NDArray[np.bool_]:
        """Of which points the value of this parameter is `auto`."""
        parameter, number = self._sources[name]
        found: npt.NDArray[np.bool_] = self._positions(number) == parameter.position(AUTO)
        return found

    def __getattr__(self, name: str) -> Any:
        return self[name]

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters, also those whose columns were not asked for yet."""
        return tuple(self._sources)

    @property
    def points_asked(self) -> int:
        return self._count
