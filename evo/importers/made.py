"""What `evo new` and every importer make: a folder with a task and a template."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from evo.dtype import dtype_named
from evo.errors import BadTemplate, MachineError, UsageError
from evo.task import load_task

_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class Made:
    """The files of a new task, and what is still to be written, if anything is."""

    name: str
    files: tuple[Path, ...]
    missing: str
    notes: tuple[str, ...] = ()
    """What a person should know of how it was made."""


@contextmanager
def writing(place: Path) -> Iterator[None]:
    """Turns a failure to write within into a MachineError that names the folder, or the file."""
    try:
        yield
    except OSError as error:
        hint = "choose another folder with --to, or make room"
        raise MachineError(f"cannot write {error.filename or place}: {error.strerror}", hint) from error


def check_place(name: str, folder: Path) -> Path:
    """The folder of a task that is to be made. UsageError for a name that cannot be, or one that is taken."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"unusable name: {name}", "small letters, digits and _: my_kernel")
    if (folder / name).exists():
        raise UsageError(f"{folder / name} is there already", "choose another name, or remove it")
    return folder / name


def task_name(text: str) -> str:
    """A name that a task may have, made of another: `19_ReLU` is relu."""
    words = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")
    return words if words[:1].isalpha() else f"task_{words}".rstrip("_")


def tuple_text(texts: Iterable[str]) -> str:
    """A tuple of texts, as a task.py has it."""
    quoted = [json.dumps(text) for text in texts]
    return f"({', '.join(quoted)}{',' if len(quoted) == 1 else ''})"


def check_finite(place: Path) -> None:
    """Loads the task of a folder and computes its reference once for each family, on its first small problem.
    BadTemplate where that fails, or where a result is not finite in the storage type."""
    import torch

    path = place / "task.py"
    task = load_task(place.name, (place.parent,))
    problem = task.gate_problems(task.example, (16, 32))[0]
    types = {buffer.name: dtype_named(buffer.dtype) for buffer in task.buffers(problem)}
    for family in task.families.names:
        try:
            found = task.reference(problem, task.inputs(problem, family, 1, "cpu"))
        except Exception as error:
            raise BadTemplate(f"{path}:1: the reference fails: {error}", f"family {family}") from error
        for output, x in found.items():
            kind = types[output]
            limit = torch.finfo(kind.torch).max if kind.floating else float("inf")
            if x.is_floating_point() and not bool((x.isfinite() & (x.abs() < limit)).all()):
                hint = f"family {family}, {kind.name}"
                raise BadTemplate(f"{path}:1: {output} is not finite", hint)
