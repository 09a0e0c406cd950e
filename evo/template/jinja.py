"""The text of templates: Jinja that is compiled once and rendered for each point. The only importer of Jinja.

All of Jinja's language may be used. A template is a program that runs with the rights of the person who
starts evo, as the Python file beside it does; nothing here guards against it.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import meta, nodes

from evo.errors import BadTemplate, UsageError
from evo.trial import Value


@dataclass(frozen=True)
class Program:
    """A template's source, compiled. `holes` are the names that it leaves open, sorted, with the line where
    each is first used."""

    path: Path
    holes: Mapping[str, int]
    _compiled: jinja2.Template

    @classmethod
    def of(cls, path: Path) -> Program:
        """The program of a .cu.jinja file. BadTemplate with file and line if it is broken."""
        with _blame_jinja(path):
            return _compiled(path, path.read_text(encoding="utf-8"))

    def render(self, values: Mapping[str, Value]) -> str:
        """The source with `values` in its holes; it ends with a newline. BadTemplate if that fails."""
        with _blame_jinja(self.path):
            return self._compiled.render(values) + "\n"


@lru_cache(maxsize=100)
def _compiled(path: Path, text: str) -> Program:
    """One text once a process, however often its template is loaded."""
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        line_statement_prefix="//%",
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=False,
        autoescape=False,
        finalize=_text,
    )
    environment.globals = {"range": range}  # a hole may have any other name
    tree = environment.parse(text, filename=str(path))
    names = meta.find_undeclared_variables(tree) - environment.globals.keys()
    lines = {n.name: n.lineno for n in sorted(tree.find_all(nodes.Name), key=lambda n: -n.lineno)}
    code = environment.compile(tree, filename=str(path))
    compiled = jinja2.Template.from_code(environment, code, environment.make_globals(None))
    return Program(path, {name: lines.get(name, 1) for name in sorted(names)}, compiled)


def _text(value: Any) -> str:
    """A value as C++ writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, str, jinja2.Undefined)):
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return repr(value)
    raise TypeError(f"a hole cannot hold {value!r}")


@contextmanager
def _blame_jinja(path: Path) -> Iterator[None]:
    """Turns whatever is raised into a BadTemplate with the template's own line."""
    try:
        yield
    except UsageError:
        raise
    except jinja2.TemplateSyntaxError as error:
        raise BadTemplate(f"{path}:{error.lineno}: {error.message}", "fix the template's syntax") from error
    except Exception as error:
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
        kind = "" if isinstance(error, jinja2.TemplateError) else f"{type(error).__name__}: "
        hint = "a hole or statement of the template cannot be evaluated"
        raise BadTemplate(f"{path}:{lines[-1] if lines else 1}: {kind}{error}", hint) from error
