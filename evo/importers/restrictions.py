"""Restrictions and divisors that a script has as functions: their expressions, which are not run."""

from __future__ import annotations

import ast
from collections.abc import Callable

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
    copied = ast.parse(ast.unparse(body), mode="eval").body
    return ast.unparse(_Bare(function, text, f"{line}: {what}").visit(copied))


class _Bare(ast.NodeTransformer):
    """Makes names of what a function reads of its arguments, and numbers of what the script knows."""

    def __init__(self, function: Function, text: Text, place: str) -> None:
        self.arguments = {argument.arg for argument in function.node.args.args}
        self.names, self.text, self.place = function.names, text, place

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        return ast.Name(node.attr) if self._is_argument(node.value) else self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if not self._is_argument(node.value):
            return self.generic_visit(node)
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        return ast.Name(key) if isinstance(key, str) else node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        value = None if self._is_argument(node) else self.names.get(node.id)
        if isinstance(value, Unknown):
            hint = "write the number itself, or name it: --set NAME=VALUE"
            raise UsageError(f"{self.place} depends on {value.why}", hint)
        return ast.parse(self.text(value), mode="eval").body if isinstance(value, Number) else node

    def _is_argument(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and node.id in self.arguments


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
