"""Recorded calls that a person names become values: which problem, and which calls of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from evo.api.values import Flags, Shape, parse_flags, parse_problem, parse_problems
from evo.errors import UsageError

if TYPE_CHECKING:
    from evo.calls import OwnCalls
    from evo.study import Study
    from evo.task import Task
    from evo.trial import Problem


def parse_own(
    task: Task,
    inputs: str | os.PathLike[str] | None,
    shape: Shape | None,
    dtype: str | None,
    flags: Flags,
) -> tuple[Problem, OwnCalls | None]:
    """The problem, and the recorded calls that `inputs` names. Without any it is that of shape, storage type
    and flags; else these choose among the calls, and must not contradict them."""
    if inputs is None:
        return parse_problem(task, shape, dtype, flags), None
    from evo.calls import only_problem

    named = os.fspath(inputs)
    return only_problem(named, parse_calls(task, named, [shape] if shape else [], dtype, flags))


def parse_calls(
    task: Task, inputs: str, shapes: Sequence[Shape], dtype: str | None, flags: Flags
) -> dict[Problem, OwnCalls]:
    """The recorded calls that `inputs` names, by problem: those of the shapes, if any are named, of the
    storage type and with the flags."""
    from evo.calls import chosen_calls

    texts = [one for one in shapes if isinstance(one, str)]
    wanted = [parse_problem(task, one, None) for one in shapes if not isinstance(one, str)]
    wanted += parse_problems(task, texts, None) if texts else []
    return chosen_calls(task, inputs, wanted, dtype=dtype, flags=parse_flags(task, flags))


def calls_of(problem: Problem, task: Task, inputs: str) -> OwnCalls:
    """The recorded calls of a problem that is known, with its flags. UsageError where the file has none."""
    from evo.calls import chosen_calls

    (found,) = chosen_calls(task, inputs, [problem], dtype=problem.dtype, flags=problem.flags).values()
    return found


def located(study: Study, path: str | os.PathLike[str] | None) -> Study:
    """The study, with its recorded calls where they are now. UsageError where they have gone, or differ."""
    if study.calls is not None:
        return replace(study, calls=study.calls.located(Path(path) if path else None))
    if path is not None:
        hint = "`evo search --inputs` begins a study that has; `evo replay` tries one kernel on them"
        raise UsageError(f"study {study.name} has no tensors of its own", hint)
    return study
