"""A task whose reference is the `run` of a FlashInfer-Bench Definition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import torch

from evo.errors import BadTemplate, UsageError
from evo.importers.precision import at_least
from evo.space.expression import Expression
from evo.task import Task, Tensors, blame
from evo.trial import Problem


class DefinitionTask(Task):
    """A task whose `compute` is `run(...)` of `file`, with the inputs in `arguments`' order: a buffer's name,
    or a number. `constraints` are expressions over the sizes that hold for every problem."""

    file: ClassVar[Path]
    arguments: ClassVar[Mapping[str, float | int | bool | None]]
    """Each argument of `run` with its number; None where it is a buffer."""
    constraints: ClassVar[Sequence[str]] = ()

    def validate(self, problem: Problem) -> None:
        for text in self.constraints:
            if not bool(Expression(text)(problem.sizes)):
                raise UsageError(f"{self.name} cannot be {problem.shape}", f"the definition says: {text}")

    def gate_problems(self, problem: Problem, tiles: Sequence[int]) -> tuple[Problem, ...]:
        return tuple(filter(self._holds, super().gate_problems(problem, tiles))) or (problem,)

    def ragged_problems(
        self, problem: Problem, tiles: Sequence[int], far: bool = False
    ) -> tuple[Problem, ...]:
        return tuple(filter(self._holds, super().ragged_problems(problem, tiles, far)))

    def compute(self, problem: Problem, inputs: Tensors) -> Any:  # noqa: ARG002
        args = [inputs[name] if number is None else number for name, number in self.arguments.items()]
        with at_least(list(inputs.values())), torch.no_grad():
            found = _module(self.file).run(*args)
        return tuple(found) if isinstance(found, (list, tuple)) else found

    def _holds(self, problem: Problem) -> bool:
        return all(bool(Expression(text)(problem.sizes)) for text in self.constraints)


@cache
def _module(file: Path) -> ModuleType:
    module = ModuleType(f"evo_definition_{file.parent.name}")
    module.__file__ = str(file)
    with blame(file):
        exec(compile(file.read_bytes(), str(file), "exec"), module.__dict__)
    if not callable(getattr(module, "run", None)):
        raise BadTemplate(f"{file}:1: there is no function run", "the definition's reference defines it")
    return module
