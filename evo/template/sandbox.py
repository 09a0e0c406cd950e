"""The sandbox that template sources are compiled and rendered in. The only importer of Jinja.

A template may come from anybody. The Jinja that is understood is small on purpose: holes, arithmetic, `if`,
`set`, and `for … in range(…)`. Nothing in it can reach Python, run forever or grow without bound.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import meta, nodes
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from evo.errors import BadTemplate, UsageError
from evo.trial import Value

RENDERED_BYTES = 1 << 20
"""Most bytes that a template may render to, includes not counted; a real one has a few tens of KB."""
LOOP_STEPS = 100_000
"""Most steps of all loops of one rendering together."""

_FILTERS = frozenset({"int", "float", "abs", "round", "lower", "upper", "string", "min", "max"})
_TESTS = frozenset({"odd", "even", "divisibleby", "eq", "ne", "lt", "le", "gt", "ge", "in", "true", "false"})
_LOOP_FIELDS = frozenset({"index", "index0", "revindex", "revindex0", "first", "last", "length"})
_NODES = (
    nodes.Output, nodes.TemplateData, nodes.Name, nodes.Const, nodes.Tuple, nodes.List, nodes.If, nodes.For,
    nodes.Assign, nodes.CondExpr, nodes.Compare, nodes.Operand, nodes.And, nodes.Or, nodes.Not, nodes.Add,
    nodes.Sub, nodes.Mul, nodes.Div, nodes.FloorDiv, nodes.Mod, nodes.Neg, nodes.Pos, nodes.Filter,
    nodes.Test, nodes.Call, nodes.Getattr,
)  # fmt: skip


@dataclass(frozen=True)
class Program:
    """A template's source, checked and compiled. `holes` are the names that it leaves open, sorted, with the
    line where each is first used."""

    path: Path
    holes: Mapping[str, int]
    _compiled: jinja2.Template

    @classmethod
    def of(cls, path: Path) -> Program:
        """The program of a .cu.jinja file. BadTemplate with file and line if it is broken or refused."""
        environment = _Sandbox(
            undefined=jinja2.StrictUndefined,
            line_statement_prefix="//%",
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=False,
            autoescape=False,
            finalize=_text,
        )
        environment.globals.clear()
        with _blame_jinja(path):
            text = path.read_text(encoding="utf-8")
            if len(text) > RENDERED_BYTES:
                raise BadTemplate(f"{path}:1: the template is larger than {RENDERED_BYTES} bytes", "split it")
            tree = environment.parse(text, filename=str(path))
            for node in tree.find_all(nodes.Node):
                _refuse_unknown(node, path)
            names = meta.find_undeclared_variables(tree) - {"range"}
            lines = {n.name: n.lineno for n in sorted(tree.find_all(nodes.Name), key=lambda n: -n.lineno)}
            code = environment.compile(text, filename=str(path))
            compiled = jinja2.Template.from_code(environment, code, environment.make_globals(None))
        return cls(path, {name: lines[name] for name in sorted(names)}, compiled)

    def render(self, values: Mapping[str, Value]) -> str:
        """The source with `values` in its holes; it ends with a newline. BadTemplate if that fails."""
        pieces, size = [], 0
        with _blame_jinja(self.path):
            for piece in self._compiled.generate({**values, "range": _Loops().range}):
                size += len(piece)
                if size > RENDERED_BYTES:
                    message = f"{self.path}:1: renders to more than {RENDERED_BYTES} bytes"
                    raise BadTemplate(message, "is a loop too long?")
                pieces.append(piece)
        return "".join(pieces) + "\n"


class _Loops:
    """The `range` of one rendering: all its loops draw on one budget of steps."""

    def __init__(self) -> None:
        self.left = LOOP_STEPS

    def range(self, *bounds: int) -> Iterator[int]:
        for i in range(*bounds):
            self.left -= 1
            if self.left < 0:
                raise SecurityError(f"loops take more than {LOOP_STEPS} steps")
            yield i


class _Sandbox(ImmutableSandboxedEnvironment):
    """Arithmetic on numbers that stay small: `"x" * 10**9` and towers of powers end here."""

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        for side in (left, right):
            if not isinstance(side, (int, float, jinja2.Undefined)):
                raise SecurityError(f"{operator} works on numbers, not on {type(side).__name__}")
        result = super().call_binop(context, operator, left, right)
        if abs(result) >= 2**63:
            raise SecurityError(f"{left} {operator} {right} is beyond 64 bits")
        return result

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:  # noqa: ARG002
        return attr in _LOOP_FIELDS


def _text(value: Any) -> str:
    """A value as C++ writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, str, jinja2.Undefined)):
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return repr(value)
    raise SecurityError(f"a hole cannot hold {value!r}")


def _refuse_unknown(node: nodes.Node, path: Path) -> None:
    """BadTemplate unless `node` belongs to the part of Jinja that templates may use."""
    hint = "templates may use holes, arithmetic, if, set and `for i in range(n)`"
    what = type(node).__name__.lower()
    match node:
        case nodes.Filter(name=name):
            allowed, what = name in _FILTERS, f"filter {name}"
        case nodes.Test(name=name):
            allowed, what = name in _TESTS, f"test {name}"
        case nodes.Getattr(node=nodes.Name(name="loop"), attr=attr):
            allowed, what = attr in _LOOP_FIELDS, f"loop.{attr}"
        case nodes.Getattr():
            allowed, what = False, f"attribute .{node.attr}"
        case nodes.Call():
            plain = not (node.kwargs or node.dyn_args or node.dyn_kwargs)
            allowed, what = plain and isinstance(node.node, nodes.Name) and node.node.name == "range", "call"
        case nodes.For():
            allowed, what = isinstance(node.iter, nodes.Call) and not node.recursive, "loop over no range"
        case nodes.Assign():
            allowed = isinstance(node.target, nodes.Name) and node.target.name not in ("range", "loop")
        case _:
            allowed = isinstance(node, _NODES)
    if not allowed:
        raise BadTemplate(f"{path}:{node.lineno}: refused: {what}", hint)


@contextmanager
def _blame_jinja(path: Path) -> Iterator[None]:
    """Turns what Jinja raises into a BadTemplate with the template's own line."""
    try:
        yield
    except UsageError:
        raise
    except jinja2.TemplateSyntaxError as error:
        raise BadTemplate(f"{path}:{error.lineno}: {error.message}", "fix the template's syntax") from error
    except RecursionError as error:
        raise BadTemplate(f"{path}:1: nested too deeply", "simplify the expressions") from error
    except (jinja2.TemplateError, ArithmeticError, TypeError, ValueError, UnicodeDecodeError) as error:
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
        hint = "a hole or statement of the template cannot be evaluated"
        raise BadTemplate(f"{path}:{lines[-1] if lines else 1}: {error}", hint) from error
