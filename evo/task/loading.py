"""Where tasks and templates are found, and how their Python files are run."""

from __future__ import annotations

import hashlib
import re
import sys
import traceback
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path
from types import CodeType, ModuleType

from evo.errors import BadTemplate, UnknownName, UsageError
from evo.task.author import line_of
from evo.task.checks import check_declarations
from evo.task.task import Task

_NAME = re.compile(r"[a-z][a-z0-9_]*")


def template_folders(extra: Sequence[Path] = ()) -> tuple[Path, ...]:
    """Where tasks and templates are looked for: `extra` first, then the ones that come with evo. UsageError
    where one of `extra` is not there."""
    if missing := [str(folder) for folder in extra if not Path(folder).is_dir()]:
        hint = "--templates names a folder of tasks, DIR/TASK/task.py; one that was moved: put it back"
        raise UsageError(f"there is no folder {missing[0]}", hint)
    package = Path(__file__).parents[1]
    own = [f for f in (package / "templates", package.parent / "templates") if f.is_dir()]
    return (*(Path(f) for f in extra), *own[:1])


def folders_of(task: str, folders: Sequence[Path]) -> tuple[Path, ...]:
    """The template folders that serve one task: the first that defines it hides those that define another of
    that name. Those that have templates alone add to it."""
    found: list[Path] = []
    defined = False
    for folder in template_folders(folders):
        own = (folder / task / "task.py").is_file()
        if not (own and defined):
            found.append(folder)
        defined = defined or own
    return tuple(found)


def find_file(relative: str, folders: Sequence[Path]) -> Path | None:
    """The first file of that name, TASK/…, below the template folders that serve this task."""
    found = (folder / relative for folder in folders_of(relative.split("/", 1)[0], folders))
    return next((path for path in found if path.is_file()), None)


def list_tasks(folders: Sequence[Path] = ()) -> list[str]:
    """Names of all tasks, sorted."""
    found = (path.parent.name for f in template_folders(folders) for path in f.glob("*/task.py"))
    return sorted({name for name in found if _NAME.fullmatch(name)})


def load_task(name: str, folders: Sequence[Path] = ()) -> Task:
    """The task of that name. UnknownName if there is none; BadTemplate if its file is broken."""
    path = find_file(f"{name}/task.py", folders) if _NAME.fullmatch(name) else None
    if path is None:
        error = UnknownName.among("task", name, list_tasks(folders))
        raise UnknownName(error.message, f"{error.hint}; yours lie in ./tasks, or --templates DIR says where")
    task = getattr(load_module(path), "TASK", None)
    if isinstance(task, type) and issubclass(task, Task):
        raise BadTemplate(f"{path}:{line_of(path, 'TASK')}: TASK is a class", f"TASK = {task.__name__}()")
    if not isinstance(task, Task):
        raise BadTemplate(f"{path}:1: defines no TASK", "TASK = YourTask(), a subclass of evo.task.Task")
    check_declarations(task, path)
    return task


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


def module_beside(task: Task, name: str) -> ModuleType | None:
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
