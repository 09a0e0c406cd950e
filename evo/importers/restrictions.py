"""Restrictions and divisors that a script has as functions: their expressions, which are not run."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from evo.errors import UsageError
from evo.importers.values import Function, Number, Unknown

Text = Callable[[Number], str]
"""A number of the script as an expression over sizes."""


def body_of(function: Function) -> ast.expr | None:
    """The expression that a function gives; None where it is more than one `return`."""
    if isinstance(function.node, ast.Lambda):
        return function.node.body
    statements = [s for s in function.node.body if not _is_docstring(s)]
    only = statements[0] if len(statements) == 1 else None
    return only.value if isinstance(only, ast.Return) else None


def bare(function: Function, text: Text, what: str, line: str) -> str:
    """The expression that a lambda or a function of one `return` gives, with bare names: `p["x"]` and `p.x`
    are x. UsageError with the line where there is none, or where only the running script knows a part."""
    body = body_of(function)
    if body is None:
        hint = 'one `return` with an expression, or a text: "block_size_x <= 512"'
        raise UsageError(f"{line}: {what} is a function with more than one statement", hint)
    names = _Names(function, text, f"{line}: {what}")
    return ast.unparse(names.made_bare(ast.parse(ast.unparse(body), mode="eval").body))


class _Names:
    """The names that a function sees, and those of its arguments, which hold the tunables."""

    def __init__(self, function: Function, text: Text, place: str) -> None:
        self.arguments = {argument.arg for argument in function.node.args.args}
        self.names, self.text, self.place = function.names, text, place

    def made_bare(self, node: Any) -> Any:
        """A part of an expression, with numbers for what the script knows."""
        owner = getattr(node, "value", None)
        if isinstance(owner, ast.Name) and owner.id in self.arguments:
            key = (
                node.slice.value
                if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)
                else None
            )
            name = getattr(node, "attr", key)
            return ast.Name(name) if isinstance(name, str) else node
        if isinstance(node, ast.Name):
            return self._known(node)
        for field, value in ast.iter_fields(node) if isinstance(node, ast.AST) else ():
            several = isinstance(value, list)
            setattr(node, field, [self.made_bare(v) for v in value] if several else self.made_bare(value))
        return node

    def _known(self, node: ast.Name) -> ast.expr:
        value = None if node.id in self.arguments else self.names.get(node.id)
        if isinstance(value, Unknown):
            hint = "write the number itself, or name it: --set NAME=VALUE"
            raise UsageError(f"{self.place} depends on {value.why}", hint)
        return ast.parse(self.text(value), mode="eval").body if isinstance(value, Number) else node


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
