"""Numbers of a template that depend on the point or the problem, and the sides of grids and blocks made of
them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np

from evo.errors import BadTemplate, UsageError, kind_of
from evo.space.expression import Expression
from evo.space.parameters import Columns
from evo.trial import Problem

Number = int | str | Callable[[Any, Problem], Any]
"""A number, an expression, or a function `(p, problem)`."""
Sides = Number | Sequence[Number]
"""One to three sides of a grid or block: x, y, z; or a function that gives them."""


def value_of(number: Any, p: Any, problem: Problem) -> Any:
    """What a number is at a point (or at columns of points) of a problem."""
    if callable(number):
        return number(p, problem)
    if not isinstance(number, str):
        return number
    expression = parsed(number)
    known = p.names if isinstance(p, Columns) else p.keys()
    point = {name: p[name] for name in known if name in expression.names}
    return expression({**problem.sizes, **problem.flags, **point})


@cache
def parsed(text: str) -> Expression:
    """The expression that is written so."""
    return Expression(text)


def check_sides(what: str, sides: Any) -> None:
    """BadTemplate where a grid or a block is given as something that can be none."""
    several = sides.tolist() if isinstance(sides, np.ndarray) else sides
    several = list(several) if isinstance(several, (list, tuple)) else [several]
    if not 1 <= len(several) <= 3:
        raise BadTemplate(f"{what} has {len(several)} sides", f"one, two or three (x, y, z): {what}=[8, 4]")
    example = "ceil(n / block_size_x)" if what == "grid" else "block_size_x"
    hint = f'a whole number from 1 on, or an expression: {what}="{example}"'
    for side in several:
        if callable(side):
            _check_function(what, side)
        elif isinstance(side, (bool, np.bool_)) or not isinstance(side, (str, int, float, np.number)):
            raise BadTemplate(f"{what} is {kind_of(side)}", hint)
        elif not isinstance(side, str) and not (1 <= side < 2**31 and float(side).is_integer()):
            raise BadTemplate(f"{what} is {side}, no whole number from 1 on", hint)


def _check_function(what: str, side: Callable[..., Any]) -> None:
    with suppress(ValueError):  # a builtin may not say what it takes
        try:
            inspect.signature(side).bind("p", "problem")
        except TypeError as error:
            message = f"{what} is a function that cannot take a point and a problem: {error}"
            raise BadTemplate(message, f'{what}=lambda p, problem: problem["n"] // p.block_size_x') from error


def sides_of(sides: Sides, p: Any, problem: Problem) -> list[Any]:
    """The one to three numbers that sides are at a point of a problem."""
    if isinstance(sides, (str, int, float)) or callable(sides):
        said = value_of(sides, p, problem)
        return list(said) if isinstance(said, (tuple, list)) else [said]
    return [value_of(side, p, problem) for side in sides]


def three_of(sides: Sides, p: Any, problem: Problem, what: str) -> tuple[int, int, int]:
    """Sides as x, y, z, the whole numbers that they must be."""
    said = sides_of(sides, p, problem)
    if not 1 <= len(said) <= 3:
        raise UsageError(f"{what} has {len(said)} sides", "one, two or three: x, y, z")
    texts = [sides] * len(said) if isinstance(sides, (str, int, float)) or callable(sides) else sides
    x, y, z = (*(_rounded(side, text, what) for side, text in zip(said, texts, strict=True)), 1, 1)[:3]
    return x, y, z


def whole_of(number: Number, p: Any, problem: Problem, what: str) -> int:
    """The whole number that a number must be, else UsageError."""
    return _rounded(value_of(number, p, problem), number, what)


def _rounded(value: Any, text: Any, what: str) -> int:
    """The whole number that a number must be, else UsageError; `text`: how it is written."""
    plain = plain_of(value)
    if isinstance(plain, float) and plain.is_integer():
        return int(plain)
    if not isinstance(plain, int):
        written = f"{text} = {plain!r}" if isinstance(text, str) and text != str(plain) else repr(plain)
        inner = text if isinstance(text, str) else "n / block_size_x"
        hint = f'round up: {what}="ceil({inner})"' if isinstance(plain, float) else "a whole number from 1 on"
        raise UsageError(f"{what} is {written}, no whole number", hint)
    return int(plain)


def plain_of(value: Any) -> Any:
    """A number of numpy as Python's own."""
    plain = value.item() if isinstance(value, np.generic) or getattr(value, "shape", None) == () else value
    return (
        int(plain)
        if isinstance(plain, float) and plain.is_integer() and isinstance(value, np.generic)
        else plain
    )
