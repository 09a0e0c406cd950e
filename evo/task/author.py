"""Says what is wrong in the file of a task, at the line where it is written."""

from __future__ import annotations

import ast
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from evo.errors import BadTemplate, EvoError
from evo.task.task import Task


class Author:
    """Says what is wrong in the file of a task."""

    def __init__(self, task: Task, path: Path) -> None:
        self.task, self.path = task, path

    def refuse(self, place: str, message: str, hint: str) -> NoReturn:
        """Raises BadTemplate at the line where `place` (a name of the task's class) is defined."""
        raise self.error(place, message, hint)

    def error(self, place: str, message: str, hint: str, cause: Exception | None = None) -> BadTemplate:
        """At the innermost line of the file that `cause` came from, if it came from there."""
        frames = traceback.extract_tb(cause.__traceback__) if cause else []
        lines = [frame.lineno for frame in frames if frame.filename == str(self.path)]
        line = (lines[-1] if lines else None) or line_of(self.path, place)
        return BadTemplate(f"{self.path}:{line}: {message}", hint)

    def ask(self, place: str, function: Callable[[], Any], hint: str) -> Any:
        """What a method gives; a BadTemplate with its line where it fails."""
        try:
            return function()
        except EvoError:
            raise
        except NotImplementedError as error:
            raise self.error(
                place,
                f"{place} is still to be written: {error}",
                'compute the outputs with torch, from tensors["NAME"], and return them',
            ) from error
        except Exception as error:
            what = f"{place} failed: {type(error).__name__}: {error}"
            raise self.error(place, what, hint, error) from error


def line_of(path: Path, name: str) -> int:
    """The first line of a Python file that defines `name`; 1 where none does."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return 1
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name:
            return node.lineno
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            named = [n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)]
            if name in named:
                return node.lineno
    return 1
