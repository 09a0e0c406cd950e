"""What a person writes becomes values: budgets, sizes in bytes, problems, recorded calls, folders.

The command line has texts alone; Python may also give numbers, sequences and mappings."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from evo.errors import UsageError

if TYPE_CHECKING:
    from evo.calls import OwnCalls
    from evo.study import Study
    from evo.task import Task
    from evo.trial import Problem

DATABASE = "runs/evo.db"
"""Where studies are, unless it is said otherwise."""
OWN_TASKS = Path("tasks")
"""Where `evo new` writes, and where tasks are looked for without being told."""

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
Shape = str | Sequence[int] | Mapping[str, int]
Flags = Sequence[str] | Mapping[str, object]


def parse_budget(budget: str | float, rate: float | None = None) -> float:
    """Seconds meant by a number of them, "14h", "90m", "1h30m", "45s" or, at `rate` dollars an hour, "$7";
    else UsageError."""
    hint = "a budget is a time (14h, 90m, 1h30m, 45s), or money with a rate: --budget '$7' --rate 0.51"
    text = budget if isinstance(budget, str) else f"{budget:f}s"
    word = text.strip().lower()
    malformed = UsageError(f"malformed budget: {text}", hint)
    if word.startswith("-"):
        raise UsageError(f"a budget cannot be negative: {text}", hint)
    if money := re.fullmatch(r"\$(\d+(?:\.\d+)?)", word):
        if rate is None:
            raise UsageError(f"a budget of {text} needs the price of an hour", "add --rate 0.51 (dollars)")
        seconds = float(money[1]) / rate * 3600
    else:
        number = r"(\d+(?:\.\d+)?)"
        parts = re.fullmatch(rf"(?:{number}d)?(?:{number}h)?(?:{number}m(?:in)?)?(?:{number}s)?", word)
        if not word or parts is None:
            raise malformed
        units = (86400, 3600, 60, 1)
        seconds = sum(float(p) * unit for p, unit in zip(parts.groups(), units, strict=True) if p)
    if not 0 < seconds < 1e9:
        raise UsageError(f"a budget is above zero and below thirty years: {text}", hint)
    return seconds


def parse_until(until: str | int) -> str:
    """When a search ends, as a study keeps it: "budget", "converged", or a number of trials ("200")."""
    text = str(until)
    if text in ("budget", "converged") or (text.isdecimal() and int(text) > 0):
        return str(int(text)) if text.isdecimal() else text
    hint = "--until budget, --until converged, or a number of trials: --until 200"
    raise UsageError(f"unknown end of a search: {text}", hint)


def parse_bytes(size: str | int) -> int:
    """Bytes meant by a number of them, "48K", "99KB", "101376" (K = 1024); else UsageError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(k?)(?:i?b)?", str(size).strip().lower())
    wanted = float(match[1]) * (1024 if match[2] else 1) if match else 0.0
    nbytes = int(wanted) if wanted < 2**31 else 0
    if nbytes < 1:
        raise UsageError(f"malformed size: {size}", "a size is a number of bytes or of KB: 101376, 48K, 99K")
    return nbytes


def parse_flags(task: Task, flags: Flags) -> dict[str, object]:
    """The flags meant by "NAME" (true) and "NAME=VALUE", the last one of a name; Task.problem takes them."""
    if isinstance(flags, Mapping):
        return dict(flags)
    found: dict[str, object] = {}
    for text in flags:
        name, equals, value = text.partition("=")
        flag = task.flags.get(name)
        if flag and not equals and not any(known is True for known in flag.values):
            raise UsageError(f"flag {name} needs a value", f"--flag {name}={flag.values[0]}")
        found[name] = value if equals else True
    return found


def parse_problem(task: Task, shape: Shape | None, dtype: str | None, flags: Flags = ()) -> Problem:
    """The problem of sizes ("8,512", or numbers in their order or by name) or of a named set of problems; the
    task's example where none is named. `flags` come before those of a named problem."""
    chosen = parse_flags(task, flags)
    named: Sequence[Problem] = (task.example,)
    text = "" if shape is None else shape_text(task, shape)
    if text:
        named = task.problems.get(text, ())
    if len(named) > 1:
        shapes = ", ".join(dict.fromkeys(problem.shape for problem in named))
        raise UsageError(f"{text} names {len(named)} problems, and a study has one", f"one of {shapes}")
    if named:
        return _changed(task, named[0], dtype, chosen)
    return task.problem(text, dtype or task.example.dtype, **chosen)


def parse_problems(task: Task, shapes: Sequence[str], dtype: str | None, flags: Flags = ()) -> list[Problem]:
    """The problems of several shape texts and names of sets, each once; the task's example where there are
    none. `flags` come before those of a named problem."""
    chosen = parse_flags(task, flags)
    found: list[Problem] = []
    for shape in shapes:
        named = task.problems.get(shape, ())
        found += [_changed(task, problem, dtype, chosen) for problem in named]
        if not named:
            found.append(parse_problem(task, shape, dtype, flags))
    found = found or [parse_problem(task, None, dtype, flags)]
    return list({problem.key: problem for problem in found}.values())


def shape_text(task: Task, shape: Shape) -> str:
    """Sizes as `--shape` takes them."""
    if isinstance(shape, str):
        return shape
    if isinstance(shape, Mapping):
        if unknown := [name for name in shape if name not in task.sizes]:
            raise UsageError(f"{task.name} has no size {unknown[0]}", f"sizes: {', '.join(task.sizes)}")
        shape = [shape.get(name, task.example.sizes[name]) for name in task.sizes]
    return ",".join(map(str, shape))


def _changed(task: Task, problem: Problem, dtype: str | None, flags: Mapping[str, object]) -> Problem:
    return task.problem(problem.shape, dtype or problem.dtype, **{**problem.flags, **flags})


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


def task_folders(named: Paths | None) -> tuple[Path, ...]:
    """The folders of tasks and templates that were named, else ./tasks if it is there; as absolute paths:
    a later command may start elsewhere."""
    listed = [named] if isinstance(named, (str, os.PathLike)) else named
    found = [Path(one) for one in listed or ()] or ([OWN_TASKS] if OWN_TASKS.is_dir() else [])
    return tuple(folder.resolve() for folder in found)


def whole(name: str, number: int, low: int, high: int) -> int:
    """`number`; UsageError where it does not lie from `low` to `high`."""
    if not low <= number <= high:
        raise UsageError(f"{name} cannot be {number}", f"a whole number from {low} to {high}")
    return number
