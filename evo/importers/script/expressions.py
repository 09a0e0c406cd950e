"""What an expression of a Python script is, found from its syntax: nothing of the script runs."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from evo.importers.script import arrays
from evo.importers.script.values import (
    LARGEST,
    Array,
    Function,
    Library,
    Method,
    Number,
    Text,
    Unknown,
    code_of,
    combine,
    elements,
    plain,
    unknown_part,
)

LONGEST = 10_000
"""Values that a list of a script may have."""
_COMPARED: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda one, many: one in many,
    ast.NotIn: lambda one, many: one not in many,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
_BUILTIN = ("max", "min", "sum", "int", "float", "round", "abs")
_NO_VALUE = object()


class Expressions:
    """Evaluates expressions with the names of a script. `call` says what a call of the script's own function
    gives; `at` writes down where a node stands."""

    def __init__(self, call: Callable[[Function, list[Any], dict[str, Any]], Any], origin: str):
        self.call_function, self.origin = call, origin
        self.watched: Callable[[ast.Call, Mapping[str, Any]], Any] | None = None
        """Is asked first of each call: what it gives, or NotImplemented."""

    def where(self, node: ast.AST) -> str:
        return f"{self.origin}:{getattr(node, 'lineno', 1)}"

    def __call__(self, node: ast.AST | None, names: dict[str, Any]) -> Any:
        """The value of an expression; Unknown where only the running script knows it."""
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            return Unknown(f"`{_short(node)}` ({self.where(node) if node else self.origin})")
        return method(node, names)

    # ---- what stands alone

    def _constant(self, node: ast.Constant, _names: dict[str, Any]) -> Any:
        value = node.value
        if isinstance(value, (bool, int, float)):
            return Number(value) if abs(value) < LARGEST else Unknown(f"a large number ({self.where(node)})")
        if isinstance(value, str):
            return Text(value, self.origin, node.lineno) if "\n" in value else value
        return value

    def _name(self, node: ast.Name, names: dict[str, Any]) -> Any:
        if node.id in names:
            return names[node.id]
        if node.id in ("True", "False", "None"):
            return {"True": Number(True), "False": Number(False), "None": None}[node.id]
        if node.id in (*_BUILTIN, "range", "len", "list", "tuple", "dict", "open", "zip", "sorted", "str"):
            return Library(f"builtins.{node.id}")
        return Unknown(f"`{node.id}` ({self.where(node)})")

    def _lambda(self, node: ast.Lambda, names: dict[str, Any]) -> Any:
        return Function(node, names)

    def _attribute(self, node: ast.Attribute, names: dict[str, Any]) -> Any:
        owner = self(node.value, names)
        if isinstance(owner, Library):
            return Number(3.141592653589793) if node.attr == "pi" else Library(f"{owner.path}.{node.attr}")
        if isinstance(owner, Unknown):
            return owner
        if isinstance(owner, Array):
            if node.attr in ("size", "shape"):
                return elements(owner) if node.attr == "size" else tuple(owner.shape)
            if node.attr == "T":
                return arrays.of_array("transpose", owner, [], {}, self.where(node))
            if node.attr == "dtype":
                return Library(f"numpy.{_numpy_name(owner.dtype)}")
        return Method(owner, node.attr)

    # ---- what has parts

    def _tuple(self, node: ast.Tuple, names: dict[str, Any]) -> Any:
        return tuple(self._elements(node.elts, names))

    def _list(self, node: ast.List, names: dict[str, Any]) -> Any:
        return list(self._elements(node.elts, names))

    def _elements(self, nodes: list[ast.expr], names: dict[str, Any]) -> list[Any]:
        found: list[Any] = []
        for node in nodes:
            value = self(node.value if isinstance(node, ast.Starred) else node, names)
            spread = isinstance(node, ast.Starred) and isinstance(value, (list, tuple))
            found += value if spread else [value]
        return found

    def _dict(self, node: ast.Dict, names: dict[str, Any]) -> Any:
        found: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            inner = self(value, names)
            if key is None and isinstance(inner, dict):
                found |= inner
            elif key is not None:
                name = self(key, names)
                found[plain(name) if isinstance(name, (Number, str)) else _short(key)] = inner
        return found

    def _joinedstr(self, node: ast.JoinedStr, names: dict[str, Any]) -> Any:
        parts = []
        for part in node.values:
            inner = part.value if isinstance(part, ast.FormattedValue) else part
            value = self(inner, names)
            if isinstance(value, Text):
                value = value.text
            if not isinstance(value, (str, Number)):
                return unknown_part(value) or Unknown(f"a text ({self.where(node)})")
            parts.append(str(plain(value)))
        text = "".join(parts)
        return Text(text, self.origin, node.lineno) if "\n" in text else text

    def _subscript(self, node: ast.Subscript, names: dict[str, Any]) -> Any:
        owner, place = self(node.value, names), self(node.slice, names)
        if isinstance(owner, Unknown):
            return owner
        if isinstance(owner, dict):
            key = plain(place)
            return owner.get(key, Unknown(f"`{_short(node)}` ({self.where(node)})"))
        if isinstance(owner, (list, tuple)) and isinstance(place, Number):
            at = int(place.value)
            if -len(owner) <= at < len(owner):
                return owner[at]
        if isinstance(owner, (list, tuple)) and isinstance(place, slice):
            return owner[place]
        return Unknown(f"`{_short(node)}` ({self.where(node)})")

    def _slice(self, node: ast.Slice, names: dict[str, Any]) -> Any:
        ends = [plain(self(end, names)) if end else None for end in (node.lower, node.upper, node.step)]
        whole = all(end is None or isinstance(end, int) for end in ends)
        return slice(*ends) if whole else Unknown(f"`{_short(node)}`")

    # ---- what is computed

    def _binop(self, node: ast.BinOp, names: dict[str, Any]) -> Any:
        left, right = self(node.left, names), self(node.right, names)
        if isinstance(left, str) and isinstance(node.op, ast.Mod):
            values = plain(right if isinstance(right, (list, tuple)) else [right])
            try:
                return left % tuple(values)
            except (TypeError, ValueError):
                return Unknown(f"a text ({self.where(node)})")
        return combine(type(node.op), left, right, self.where(node))

    def _unaryop(self, node: ast.UnaryOp, names: dict[str, Any]) -> Any:
        value = self(node.operand, names)
        if isinstance(value, Number):
            if isinstance(node.op, ast.Not):
                return Number(not value.value)
            sign = "-" if isinstance(node.op, ast.USub) else "+"
            signed = -value.value if sign == "-" else value.value
            return Number(signed, f"({sign}{value.text})" if value.text else "")
        if isinstance(value, Array) and isinstance(node.op, ast.USub):
            return Array(value.shape, value.dtype, f"(-{code_of(value)})", sums=value.sums)
        return unknown_part(value) or Unknown(f"`{_short(node)}` ({self.where(node)})")

    def _compare(self, node: ast.Compare, names: dict[str, Any]) -> Any:
        values = [self(part, names) for part in (node.left, *node.comparators)]
        if hidden := unknown_part(values):
            return hidden
        if any(isinstance(value, (Array, Function, Method, dict)) for value in values):
            return Unknown(f"`{_short(node)}` ({self.where(node)})")
        bare = [plain(value) for value in values]
        try:
            pairs = zip(node.ops, bare, bare[1:], strict=False)
            return Number(all(_COMPARED[type(op)](left, right) for op, left, right in pairs))
        except (KeyError, TypeError):
            return Unknown(f"`{_short(node)}` ({self.where(node)})")

    def _boolop(self, node: ast.BoolOp, names: dict[str, Any]) -> Any:
        stops = isinstance(node.op, ast.Or)
        value: Any = Number(not stops)
        for part in node.values:
            value = self(part, names)
            if isinstance(value, Unknown) or truth(value) is None or truth(value) == stops:
                return value
        return value

    def _ifexp(self, node: ast.IfExp, names: dict[str, Any]) -> Any:
        test = self(node.test, names)
        chosen = truth(test)
        if chosen is None:
            return unknown_part(test) or Unknown(f"`{_short(node)}` ({self.where(node)})")
        return self(node.body if chosen else node.orelse, names)

    def _listcomp(self, node: ast.ListComp | ast.GeneratorExp, names: dict[str, Any]) -> Any:
        rows: list[dict[str, Any]] = [dict(names)]
        for loop in node.generators:
            grown = []
            for row in rows:
                values = self(loop.iter, row)
                if not isinstance(values, (list, tuple)):
                    return unknown_part(values) or Unknown(f"`{_short(node)}` ({self.where(node)})")
                for value in values:
                    one = dict(row)
                    bind(loop.target, value, one)
                    if all(truth(self(test, one)) for test in loop.ifs):
                        grown.append(one)
            rows = grown[:LONGEST]
        return [self(node.elt, row) for row in rows]

    _generatorexp = _listcomp

    def _call(self, node: ast.Call, names: dict[str, Any]) -> Any:
        if self.watched and (found := self.watched(node, names)) is not NotImplemented:
            return found
        called = self(node.func, names)
        args = self._elements(node.args, names)
        options = {word.arg: self(word.value, names) for word in node.keywords if word.arg}
        where = self.where(node)
        if isinstance(called, Function):
            return self.call_function(called, args, options)
        if isinstance(called, Unknown):
            return called
        if isinstance(called, Method):
            return self._method(called, args, options, where)
        if isinstance(called, Library):
            own = _own(called.path, args, options)
            return arrays.call(called.path, args, options, where) if own is _NO_VALUE else own
        return Unknown(f"`{_short(node)}` ({where})")

    def _method(  # noqa: PLR0911 - one for each kind of owner
        self, called: Method, args: list[Any], options: dict[str, Any], where: str
    ) -> Any:
        owner, name = called.owner, called.name
        if isinstance(owner, Array):
            return arrays.of_array(name, owner, args, options, where)
        if isinstance(owner, dict):
            listed = {"keys": list(owner), "values": list(owner.values()), "items": list(owner.items())}
            if name == "update":
                owner |= args[0] if args and isinstance(args[0], dict) else {}
                owner |= options
                return None
            if name == "copy":
                return dict(owner)
            return listed.get(name, Unknown(f"a call of {name} ({where})"))
        if isinstance(owner, list) and name in ("append", "extend") and args:
            more = args[0] if name == "extend" and isinstance(args[0], (list, tuple)) else [args[0]]
            owner.extend(more)
            return None
        if isinstance(owner, Text) and name == "read":
            return owner
        if isinstance(owner, Text) and name in ("replace", "format", "strip"):
            return Unknown(f"a text that {name} changes ({where})")
        return unknown_part(owner) or Unknown(f"a call of {name} ({where})")


def _own(  # noqa: PLR0911 - one for each function
    path: str, args: list[Any], options: dict[str, Any]
) -> Any:
    """What Python's own function gives: of lists, ranges and dictionaries."""
    name = path.rsplit(".", 1)[-1]
    if name in ("dict", "OrderedDict"):
        first = args[0] if args else {}
        pairs = dict(first) if isinstance(first, (dict, list, tuple)) else {}
        return {**{plain(key): value for key, value in pairs.items()}, **options}
    if hidden := unknown_part(args):
        return hidden
    if name == "range" and args and all(isinstance(arg, Number) for arg in args):
        return [Number(at) for at in range(*(int(arg.value) for arg in args))[:LONGEST]]
    if name == "len" and args and isinstance(args[0], (list, tuple, dict)):
        return Number(len(args[0]))
    if name in ("list", "tuple", "sorted") and args and isinstance(args[0], (list, tuple, dict)):
        return sorted(args[0], key=lambda one: one.value) if name == "sorted" else list(args[0])
    if name == "str" and args and isinstance(args[0], (str, Number)):
        return str(plain(args[0]))
    if name == "zip":
        return [tuple(row) for row in zip(*args, strict=False)]
    return _NO_VALUE


def bind(target: ast.expr, value: Any, names: dict[str, Any]) -> None:
    """Assigns a value to a name or to a tuple of names."""
    if isinstance(target, ast.Name):
        names[target.id] = value
    elif isinstance(target, (ast.Tuple, ast.List)):
        for part, one in parts_of(target, value):
            bind(part, one, names)


def parts_of(target: ast.Tuple | ast.List, value: Any) -> list[tuple[ast.expr, Any]]:
    """What is assigned to each part of a tuple; unknown values where `value` has not so many."""
    whole = isinstance(value, (list, tuple)) and len(value) == len(target.elts)
    missing = unknown_part(value) or Unknown(f"`{_short(target)}`")
    return [(part, value[at] if whole else missing) for at, part in enumerate(target.elts)]


def truth(value: Any) -> bool | None:
    """Whether a value counts as true; None where that is not known."""
    if isinstance(value, (Unknown, Array)):
        return None
    return bool(plain(value)) if not isinstance(value, (Function, Library, Method, Text)) else True


def _numpy_name(dtype: str) -> str:
    return next(name for name, own in arrays.DTYPES.items() if own == dtype)


def _short(node: ast.AST | None) -> str:
    text = " ".join(ast.unparse(node).split()) if node is not None else ""
    return text if len(text) <= 60 else f"{text[:57]}..."


def substituted(text: str, names: Mapping[str, str]) -> str:
    """An expression of Python with each name of `names` as it says there."""

    def one(match: re.Match[str]) -> str:
        return names.get(match[0], match[0])

    return simpler(re.sub(r"(?<![\w.\"'])[A-Za-z_]\w*", one, text))


def simpler(text: str) -> str:
    """An expression of Python without brackets that say nothing, and as a number where it is one."""
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError:
        return text
    found = Expressions(lambda *_: Unknown("a function"), "")(tree, {})
    return repr(found.value) if isinstance(found, Number) and not found.text else ast.unparse(tree)
