"""Whether the reference of a task that was just made has a value for the inputs that the gate draws."""

from __future__ import annotations

from pathlib import Path

import torch

from evo.dtype import dtype_named
from evo.errors import BadTemplate
from evo.task import Task, load_task


def check_finite(folder: Path, name: str) -> Task:
    """Loads a task and computes its reference once for each family, on its first small problem. BadTemplate
    where that fails, or where a result is not finite in the storage type."""
    path = folder / name / "task.py"
    task = load_task(name, (folder,))
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
    return task
