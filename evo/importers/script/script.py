"""A Python script, read statement by statement without running it, up to the calls that one asks for."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evo.errors import UsageError
from evo.importers.script.expressions import Expressions, bind, parts_of, truth
from evo.importers.script.values import Function, Library, Number, Text, Unknown, unknown_part

LONGEST_LOOP, DEEPEST_CALL = 1000, 20
LIBRARIES = {"cupy": "numpy", "np": "numpy"}
"""Modules whose functions make arrays as another's do."""


@dataclass(frozen=True)
class Call:
    """A call as it is reached: its arguments by position and by name."""

    node: ast.Call
    args: tuple[Any, ...]
    options: Mapping[str, Any]


class _Returned(Exception):
    def __init__(self, value: Any) -> None:
        self.value = value


class Script:
    """The calls of `wanted` in a script. `given`: values of names that only the running script knows."""

    def __init__(self, path: Path, wanted: str, given: Mapping[str, int | float | str]) -> None:
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read {path}", str(error)) from error
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = getattr(error, "lineno", None) or 1
            raise UsageError(
                f"{path}:{line}: {getattr(error, 'msg', error)}",
                "a Python script; of a .cu file: evo new NAME --from FILE.cu",
            ) from error
        self.path, self.wanted = path, wanted
        self.given = {k: v if isinstance(v, str) else Number(v, k) for k, v in given.items()}
        self.literals: dict[str, int] = {
            name: value for name, value in given.items() if isinstance(value, int)
        }
        """Whole numbers that the script gives a name, which expressions keep."""
        self.calls: list[Call] = []
        self._depth = 0
        self._evaluate = Expressions(self._called, str(path))
        self._evaluate.watched = self._watch
        self._read(tree)

    def _read(self, tree: ast.Module) -> None:
        names: dict[str, Any] = {"__name__": "__main__", "__file__": str(self.path)}
        self._run(tree.body, names)
        for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
            reached = {id(call.node) for call in self.calls}
            inner = [node for node in ast.walk(function) if self._is_wanted(node)]
            if inner and not any(id(node) in reached for node in inner):
                self._called(Function(function, names), [], {})

    def _is_wanted(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Call):
            return False
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return called == self.wanted

    def _watch(self, node: ast.Call, names: Mapping[str, Any]) -> Any:
        if not self._is_wanted(node):
            return NotImplemented
        scope = dict(names)
        args = tuple(_as_now(self._evaluate(arg, scope)) for arg in node.args)
        options = {w.arg: _as_now(self._evaluate(w.value, scope)) for w in node.keywords if w.arg}
        self.calls = [call for call in self.calls if call.node is not node]
        self.calls.append(Call(node, args, options))
        return Unknown(f"what {self.wanted} gives ({self._evaluate.where(node)})")

    # ---- statements

    def _run(self, statements: list[ast.stmt], names: dict[str, Any]) -> None:
        for statement in statements:
            method = getattr(self, f"_{type(statement).__name__.lower()}", None)
            if method is not None:
                method(statement, names)

    def _import(self, node: ast.Import, names: dict[str, Any]) -> None:
        for alias in node.names:
            root = alias.name if alias.asname else alias.name.split(".")[0]
            names[alias.asname or root] = Library(LIBRARIES.get(root, root))

    def _importfrom(self, node: ast.ImportFrom, names: dict[str, Any]) -> None:
        module = LIBRARIES.get(node.module or "", node.module or "")
        for alias in node.names:
            names[alias.asname or alias.name] = Library(f"{module}.{alias.name}")

    def _functiondef(self, node: ast.FunctionDef, names: dict[str, Any]) -> None:
        names[node.name] = Function(node, names)

    def _expr(self, node: ast.Expr, names: dict[str, Any]) -> None:
        self._evaluate(node.value, names)

    def _assign(self, node: ast.Assign, names: dict[str, Any]) -> None:
        value = self._evaluate(node.value, names)
        for target in node.targets:
            self._bind(target, value, names)

    def _annassign(self, node: ast.AnnAssign, names: dict[str, Any]) -> None:
        if node.value is not None:
            self._bind(node.target, self._evaluate(node.value, names), names)

    def _augassign(self, node: ast.AugAssign, names: dict[str, Any]) -> None:
        changed = ast.copy_location(ast.BinOp(node.target, node.op, node.value), node)
        self._bind(node.target, self._evaluate(changed, names), names)

    def _bind(self, target: ast.expr, value: Any, names: dict[str, Any]) -> None:
        if isinstance(target, ast.Subscript):
            owner, key = self._evaluate(target.value, names), self._evaluate(target.slice, names)
            if isinstance(owner, dict) and isinstance(key, (str, Number)):
                owner[key if isinstance(key, str) else key.value] = value
            return
        if isinstance(target, (ast.Tuple, ast.List)):
            for part, one in parts_of(target, value):
                self._bind(part, one, names)
            return
        if isinstance(target, ast.Name):
            value = self.given.get(target.id, self._named(target.id, value))
        bind(target, value, names)

    def _named(self, name: str, value: Any) -> Any:
        """A whole number that the script names, or each of a tuple of them, with its name as history."""
        if isinstance(value, tuple) and 1 < len(value) <= 3 and all(isinstance(v, Number) for v in value):
            ends = zip("xyz", value, strict=False)
            return tuple(self._named(f"{name}_{end}", side) if side.value > 1 else side for end, side in ends)
        bare = isinstance(value, Number) and not value.text and type(value.value) is int
        if bare and value.value > 0 and self.literals.get(name, value.value) == value.value:
            self.literals[name] = value.value
            return Number(value.value, name, value.dtype)
        return value

    def _with(self, node: ast.With, names: dict[str, Any]) -> None:
        for item in node.items:
            if item.optional_vars is not None:
                self._bind(item.optional_vars, self._opened(item.context_expr, names), names)
        self._run(node.body, names)

    def _opened(self, node: ast.expr, names: dict[str, Any]) -> Any:
        """The text of a file that the script opens, beside the script."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open":
            name = self._evaluate(node.args[0], names) if node.args else None
            if isinstance(name, str):
                return file_beside(self.path, name) or Unknown(f"the file {name}, which is not there")
            tail = _last_text(node.args[0]) if node.args else ""
            if tail and (found := file_beside(self.path, tail)):
                return found
            return unknown_part(name) or Unknown(f"a file ({self._evaluate.where(node)})")
        return self._evaluate(node, names)

    def _if(self, node: ast.If, names: dict[str, Any]) -> None:
        test = self._evaluate(node.test, names)
        chosen = truth(test)
        if chosen is not None:
            self._run(node.body if chosen else node.orelse, names)
            return
        scopes = [dict(names), dict(names)]
        for scope, body in zip(scopes, (node.body, node.orelse), strict=True):
            try:
                self._run(body, scope)
            except _Returned:
                continue
        missing = unknown_part(test) or Unknown(f"a condition ({self._evaluate.where(node)})")
        for name in set(scopes[0]) | set(scopes[1]):
            one, other = (scope.get(name, missing) for scope in scopes)
            names[name] = one if one is other or one == other else missing

    def _for(self, node: ast.For, names: dict[str, Any]) -> None:
        values = self._evaluate(node.iter, names)
        if not isinstance(values, (list, tuple)) or len(values) > LONGEST_LOOP:
            values = [unknown_part(values) or Unknown(f"a loop ({self._evaluate.where(node)})")]
        for value in values:
            self._bind(node.target, value, names)
            self._run(node.body, names)

    def _try(self, node: ast.Try, names: dict[str, Any]) -> None:
        self._run([*node.body, *node.orelse, *node.finalbody], names)

    def _return(self, node: ast.Return, names: dict[str, Any]) -> None:
        raise _Returned(self._evaluate(node.value, names) if node.value else None)

    # ---- the script's own functions

    def _called(self, function: Function, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """What a function of the script gives. An argument without a value is unknown."""
        if self._depth >= DEEPEST_CALL:
            return Unknown("a call within many others")
        names, signature = dict(function.names), function.node.args
        parameters = [*signature.posonlyargs, *signature.args]
        defaults = dict(zip(reversed(parameters), reversed(signature.defaults), strict=False))
        defaults |= {p: d for p, d in zip(signature.kwonlyargs, signature.kw_defaults, strict=True) if d}
        for at, parameter in enumerate([*parameters, *signature.kwonlyargs]):
            name, default = parameter.arg, defaults.get(parameter)
            value = options.get(name, args[at] if at < len(args) else None)
            if name in self.given:
                value = self.given[name]
            elif name not in options and at >= len(args):
                value = Unknown(f"`{name}`, an argument of the script's function")
                value = self._evaluate(default, names) if default is not None else value
            names[name] = value
        if isinstance(function.node, ast.Lambda):
            return self._evaluate(function.node.body, names)
        self._depth += 1
        try:
            self._run(function.node.body, names)
        except _Returned as returned:
            return returned.value
        finally:
            self._depth -= 1
        return None


def file_beside(path: Path, name: str) -> Text | None:
    """The text of a file that lies beside another, or below its folder; None where there is none."""
    folder = path.resolve().parent
    found = (folder / name.lstrip("/")).resolve()
    if not found.is_relative_to(folder.parent) or not found.is_file():
        return None
    return Text(found.read_text(encoding="utf-8", errors="replace"), str(found), 1)


def _as_now(value: Any) -> Any:
    """A copy of lists and dictionaries: the script may change them later."""
    if isinstance(value, dict):
        return {key: _as_now(one) for key, one in value.items()}
    return type(value)(map(_as_now, value)) if type(value) in (list, tuple) else value


def _last_text(node: ast.AST) -> str:
    """The text at the end of a sum: "/kernel.cu" of `folder + "/kernel.cu"`."""
    while isinstance(node, ast.BinOp):
        node = node.right
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def body_of(function: Function) -> ast.expr | None:
    """The expression that a function gives; None where it is more than one `return`."""
    if isinstance(function.node, ast.Lambda):
        return function.node.body
    statements = [s for s in function.node.body if not _is_docstring(s)]
    only = statements[0] if len(statements) == 1 else None
    return only.value if isinstance(only, ast.Return) else None


def expression_of(function: Function, number_text: Callable[[Number], str], what: str, line: str) -> str:
    """The expression that a lambda or a function of one `return` gives, with bare names: `p["x"]` and `p.x`
    are x. `number_text`: a number of the script as an expression over sizes. UsageError with the line where
    there is none, or where only the running script knows a part."""
    body = body_of(function)
    if body is None:
        hint = 'one `return` with an expression, or a text: "block_size_x <= 512"'
        raise UsageError(f"{line}: {what} is a function with more than one statement", hint)
    copied = ast.parse(ast.unparse(body), mode="eval").body
    return ast.unparse(_Bare(function, number_text, f"{line}: {what}").made(copied))


class _Bare:
    """Makes names of what a function reads of its arguments, and numbers of what the script knows."""

    def __init__(self, function: Function, number_text: Callable[[Number], str], place: str) -> None:
        self.arguments = {argument.arg for argument in function.node.args.args}
        self.names, self.number_text, self.place = function.names, number_text, place

    def made(self, node: Any) -> Any:
        """A part of an expression, changed where it stands."""
        owner = getattr(node, "value", None)
        if isinstance(owner, ast.Name) and owner.id in self.arguments:
            key = getattr(getattr(node, "slice", None), "value", None)
            name = getattr(node, "attr", key)
            return ast.Name(name) if isinstance(name, str) else node
        if isinstance(node, ast.Name):
            return self._known(node)
        for field, value in ast.iter_fields(node) if isinstance(node, ast.AST) else ():
            setattr(node, field, list(map(self.made, value)) if isinstance(value, list) else self.made(value))
        return node

    def _known(self, node: ast.Name) -> ast.expr:
        value = None if node.id in self.arguments else self.names.get(node.id)
        if isinstance(value, Unknown):
            hint = "write the number itself, or name it: --set NAME=VALUE"
            raise UsageError(f"{self.place} depends on {value.why}", hint)
        return ast.parse(self.number_text(value), mode="eval").body if isinstance(value, Number) else node


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
