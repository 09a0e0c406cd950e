"""How the Python files of tasks and templates are run, and what is said where they fail."""

from __future__ import annotations

import hashlib
import sys
import traceback
from functools import cache, lru_cache
from pathlib import Path
from types import CodeType, ModuleType

from evo.errors import BadTemplate, UsageError


def load_module(path: Path) -> ModuleType:
    """Runs a Python file of a template folder. BadTemplate with file and line if that fails."""
    key = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]
    module = ModuleType(f"evo_templates_{key}_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses look their module up there
    with blame(path):
        exec(_compiled(path.read_bytes(), str(path)), module.__dict__)
    return module


@lru_cache(maxsize=256)
def _compiled(source: bytes, path: str) -> CodeType:
    """The code of a file: `load_task` runs it anew each time, and it is compiled anew where it was edited."""
    return compile(source, path, "exec")


def module_beside(task: object, name: str) -> ModuleType | None:
    """The Python file of that name beside the task's own; None where there is none, or no such file."""
    own = getattr(sys.modules.get(type(task).__module__), "__file__", None)
    path = Path(own or "").with_name(name) if own and Path(own).name == "task.py" else None
    return _loaded(path) if path and path.is_file() else None


@cache
def _loaded(path: Path) -> ModuleType:
    return load_module(path)


class blame:  # noqa: N801 - read as a function; a class, for a gate enters it a hundred times
    """Turns whatever the code of a template file raises into a BadTemplate with the file's own line."""

    __slots__ = ("_path",)

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        """Nothing is done."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        path = self._path
        if isinstance(error, SyntaxError):
            raise BadTemplate(
                f"{path}:{error.lineno or 1}: {error.msg}", "the file is not valid Python"
            ) from error
        if isinstance(error, UsageError):
            if f"{path}:" in error.message:
                return
            raise BadTemplate(f"{path}:{_line_in(path, error)}: {error.message}", error.hint) from error
        if isinstance(error, Exception):
            what = f"{type(error).__name__}: {error}"
            raise BadTemplate(
                f"{path}:{_line_in(path, error)}: {what}", "the Python code of the task or template failed"
            ) from error


def _line_in(path: Path, error: Exception) -> int:
    """The innermost line of `path` in the traceback of `error`."""
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    return lines[-1] or 1 if lines else 1
