"""Where tasks and templates are found."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from evo.errors import BadTemplate, UnknownName, UsageError
from evo.task.author import line_of
from evo.task.checks import check_declarations
from evo.task.modules import load_module
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
