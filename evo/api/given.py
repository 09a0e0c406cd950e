"""Tasks that are given in Python and lie in no file: a function in a notebook, a class in a script.

Other processes load a task by the folder that it is in. So what is given is put into one, made for this
process and gone with it; what cannot be imported there is pickled by value (cloudpickle). The study keeps a
text alone: a digest, which tells whether a task is given again, and the source where Python has it."""

from __future__ import annotations

import functools
import inspect
import sys
import tempfile
import tokenize
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import cloudpickle

from evo.task import Task
from evo.trial import digest_of

_TASK = '''"""The task {name}, given in Python. Its object lies beside this file while that process lives."""

import pickle
from pathlib import Path

TASK = pickle.loads(Path(__file__).with_name("task.pickle").read_bytes())
'''
_KEPT: list[tempfile.TemporaryDirectory[str]] = []
"""The folders of this process: they go when it ends."""


@dataclass(frozen=True)
class Given:
    """A task that was given in Python: the folder of templates that it was put into, and what the study keeps
    of it."""

    task: Task
    folder: Path
    text: str


def new_folder() -> Path:
    """A folder that goes when this process ends."""
    _KEPT.append(tempfile.TemporaryDirectory(prefix="evo-given-"))
    return Path(_KEPT[-1].name)


def given(task: Task) -> Given | Path:
    """A task object as other processes find it: by a folder of its own, or by the one that evo loaded it
    from."""
    module = sys.modules.get(type(task).__module__)
    file = getattr(module, "__file__", None)
    if file and getattr(module, "TASK", None) is task and Path(file).name == "task.py":
        return Path(file).parent
    folder = new_folder()
    put(task, folder)
    return Given(task, folder, text_of(identity(task), [type(task)]))


def put(task: Task, folder: Path) -> Path:
    """Writes `folder/NAME/task.py` and the pickled task beside it; gives that folder."""
    place = folder / str(getattr(task, "name", "task"))
    place.mkdir(parents=True, exist_ok=True)
    (place / "task.py").write_text(_TASK.format(name=place.name))
    (place / "task.pickle").write_bytes(cloudpickle.dumps(task))
    return place


def text_of(told: object, sources: Sequence[Callable[..., Any]]) -> str:
    """What a study keeps: a line with the digest of all that was told, then the source of what has one."""
    found = []
    for one in sources:
        try:
            found.append(inspect.getsource(one))
        except (OSError, TypeError, SyntaxError, tokenize.TokenError):
            # a class of a notebook, a builtin, a lambda on the last line of a text in quotes
            found.append(repr(one))
    return "\n".join([f"# {digest_of(told)}", *found])


def identity(value: object) -> object:
    """A JSON-able value that is equal for what was given again, in another process too: of functions their
    code, of tensors their shapes."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, Mapping):
        return {str(name): identity(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [identity(one) for one in value]
    return [type(value).__name__, *map(identity, _parts(value))]


def _parts(value: Any) -> list[object]:
    """What makes a value what it is."""
    for kind, parts in _PARTS.items():
        if isinstance(value, kind):
            return parts(value)
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return [list(value.shape), str(value.dtype)]
    if is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, one.name) for one in fields(value)]
    return [getattr(value, "__qualname__", None) or repr(value)]


def _of_function(function: types.FunctionType) -> list[object]:
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    return [_code(function.__code__), cells, function.__defaults__]


def _of_task(task: Task) -> list[object]:
    own = {name: one for name, one in vars(type(task)).items() if not name.startswith("__")}
    return [own, vars(task)]


_PARTS: dict[type, Callable[[Any], list[object]]] = {
    types.FunctionType: _of_function,
    property: lambda value: [value.fget],
    functools.partial: lambda value: [value.func, value.args, value.keywords],
    Task: _of_task,
}


def _code(code: types.CodeType) -> list[object]:
    constants = [_code(c) if isinstance(c, types.CodeType) else repr(c) for c in code.co_consts]
    return [code.co_code.hex(), list(code.co_names), list(code.co_varnames), constants]
