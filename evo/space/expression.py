"""Expressions over parameters and sizes, written as text: `block_size_x * block_size_y <= 1024`.

They are parsed, not run: numbers, names, arithmetic, comparisons, `and`, `or`, `not`, `in`, `a if b else c`,
`min`, `max`, `abs`, `ceil`, `floor`. Names may be bare or written as `p.name`, `p["name"]`. They work on
numbers and on columns of points alike.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np

from evo.errors import UsageError

_BINARY: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
}
_UNARY: dict[type[ast.AST], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: np.logical_not,
}
_COMPARE: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda value, among: reduce(np.logical_or, [np.equal(value, one) for one in among], False),
    ast.NotIn: lambda value, among: reduce(np.logical_and, [np.not_equal(value, one) for one in among], True),
}
_CALLS: dict[str, Callable[..., Any]] = {
    "min": lambda *values: reduce(np.minimum, values),
    "max": lambda *values: reduce(np.maximum, values),
    "abs": np.abs,
    "int": np.trunc,
    "ceil": np.ceil,
    "floor": np.floor,
}
_VARIABLES = ("p", "params", "problem", "q")
"""Names that hold parameters or sizes: `p.bm`, `p["bm"]` is bm."""

Names = Mapping[str, Any]


class Expression:
    """A parsed expression. UsageError where it has what an expression may not have."""

    def __init__(self, text: str) -> None:
        self.text = " ".join(text.split())
        try:
            tree = ast.parse(self.text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise UsageError(
                f"malformed expression: {self.text}", getattr(error, "msg", "") or str(error)
            ) from error
        self.names: set[str] = set()
        self._evaluate = self._built(tree)

    def __call__(self, names: Names) -> Any:
        """Its value, where each name is a number or a column of them. UsageError for an unknown name."""
        try:
            return self._evaluate(names)
        except KeyError as error:
            known = ", ".join(names) or "nothing"
            raise UsageError(f"unknown name {error.args[0]} in: {self.text}", f"known: {known}") from error
        except (TypeError, ArithmeticError) as error:
            given = {name: names[name] for name in sorted(self.names) if np.ndim(names[name]) == 0}
            hint = ", ".join(f"{name} is {value!r}" for name, value in given.items())
            raise UsageError(f"{error}, in: {self.text}", hint or "numbers, not texts") from error

    def _built(self, node: ast.AST) -> Callable[[Names], Any]:  # noqa: PLR0911 - one for each kind of node
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float, str, bool)):
            value = node.value
            return lambda _: value
        if (name := _name_of(node)) is not None:
            self.names.add(name)
            return lambda names: names[name]
        if isinstance(node, (ast.Tuple, ast.List)):
            parts = [self._built(part) for part in node.elts]
            return lambda names: [part(names) for part in parts]
        if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            binary, left, right = _BINARY[type(node.op)], self._built(node.left), self._built(node.right)
            return lambda names: binary(left(names), right(names))
        if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
            unary, operand = _UNARY[type(node.op)], self._built(node.operand)
            return lambda names: unary(operand(names))
        if isinstance(node, ast.BoolOp):
            join = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
            parts = [self._built(part) for part in node.values]
            return lambda names: reduce(join, [part(names) for part in parts])
        if isinstance(node, ast.Compare) and all(type(op) in _COMPARE for op in node.ops):
            return self._comparison(node)
        if isinstance(node, ast.IfExp):
            test, yes, no = (self._built(part) for part in (node.test, node.body, node.orelse))
            return lambda names: np.where(test(names), yes(names), no(names))
        if isinstance(node, ast.Call) and not node.keywords:
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in _CALLS:
                call, parts = _CALLS[called], [self._built(part) for part in node.args]
                return lambda names: call(*(part(names) for part in parts))
        hint = "numbers, names, + - * / // % **, comparisons, and or not in, min max abs ceil floor"
        raise UsageError(f"an expression may not have `{ast.unparse(node)}`: {self.text}", hint)

    def _comparison(self, node: ast.Compare) -> Callable[[Names], Any]:
        """`a < b < c`: every neighbouring pair."""
        compare = [_COMPARE[type(op)] for op in node.ops]
        parts = [self._built(part) for part in (node.left, *node.comparators)]

        def holds(names: Names) -> Any:
            values = [part(names) for part in parts]
            pairs = zip(compare, values, values[1:], strict=False)
            return reduce(np.logical_and, [test(left, right) for test, left, right in pairs])

        return holds


def _name_of(node: ast.AST) -> str | None:
    """The name that `name`, `p.name` or `p["name"]` stands for; None for other nodes."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and _is_variable(node.value):
        return node.attr
    if isinstance(node, ast.Subscript) and _is_variable(node.value) and isinstance(node.slice, ast.Constant):
        return str(node.slice.value)
    return None


def _is_variable(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in _VARIABLES
