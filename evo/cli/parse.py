"""Words in, words out: what a person types becomes values, what the engine answers becomes text."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evo.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from evo.report import Form, Table
    from evo.task import Task
    from evo.trial import Problem


def parse_budget(text: str, rate: float | None = None) -> float:
    """Seconds meant by "14h", "90m", "1h30m", "45s" or, at `rate` dollars an hour, "$7"; else UsageError."""
    hint = "a budget is a time (14h, 90m, 1h30m, 45s), or money with a rate: --budget '$7' --rate 0.51"
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


def parse_bytes(text: str) -> int:
    """Bytes meant by "48K", "99KB", "101376" (K = 1024); else UsageError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(k?)(?:i?b)?", text.strip().lower())
    wanted = float(match[1]) * (1024 if match[2] else 1) if match else 0.0
    nbytes = int(wanted) if wanted < 2**31 else 0
    if nbytes < 1:
        raise UsageError(f"malformed size: {text}", "a size is a number of bytes or of KB: 101376, 48K, 99K")
    return nbytes


def parse_flags(task: Task, texts: Sequence[str]) -> dict[str, str | bool]:
    """The flags meant by "NAME" (true) and "NAME=VALUE", the last one of a name; Task.problem takes them."""
    found: dict[str, str | bool] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        flag = task.flags.get(name)
        if flag and not equals and not any(known is True for known in flag.values):
            raise UsageError(f"flag {name} needs a value", f"--flag {name}={flag.values[0]}")
        found[name] = value if equals else True
    return found


def parse_problem(task: Task, shape: str | None, dtype: str | None, flags: Sequence[str] = ()) -> Problem:
    """The problem of a shape text or of a named set of problems; the task's example where none is named.
    `flags` come before those of a named problem."""
    chosen = parse_flags(task, flags)
    named = task.problems.get(shape, ()) if shape else (task.example,)
    if len(named) > 1:
        shapes = ", ".join(dict.fromkeys(problem.shape for problem in named))
        raise UsageError(f"{shape} names {len(named)} problems, and a study has one", f"one of {shapes}")
    if named:
        return _changed(task, named[0], dtype, chosen)
    return task.problem(str(shape), dtype or task.example.dtype, **chosen)


def parse_problems(
    task: Task, shapes: Sequence[str], dtype: str | None, flags: Sequence[str] = ()
) -> list[Problem]:
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


def _changed(task: Task, problem: Problem, dtype: str | None, flags: Mapping[str, object]) -> Problem:
    return task.problem(problem.shape, dtype or problem.dtype, **{**problem.flags, **flags})


def task_folders(named: Sequence[Path] | None) -> tuple[Path, ...]:
    """The folders of tasks and templates that were named, else ./tasks if it is there; as absolute paths:
    a later command may start elsewhere."""
    found = named or ([OWN_TASKS] if OWN_TASKS.is_dir() else [])
    return tuple(folder.resolve() for folder in found)


OWN_TASKS = Path("tasks")
"""Where `evo new` writes, and where every command looks without being told."""


def problem_names(task: Task) -> str:
    """Which problem a task has by default, for a help text: "mission, which is 1,8,512,64"."""
    name, problems = next(iter(task.problems.items()))
    return f"{name}, which is {task.example.shape}" if len(problems) == 1 else task.example.shape


def stderr() -> Console:
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def stdout() -> Console:
    """A pipe has no width: it gets lines that a program or a wide editor can read."""
    from rich.console import Console

    piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(highlight=False, width=160 if piped else None)


def form_of(json: bool, csv: bool = False, markdown: bool = False) -> Form:
    asked: dict[Form, bool] = {"json": json, "csv": csv, "markdown": markdown}
    chosen = [form for form, on in asked.items() if on]
    if len(chosen) > 1:
        raise UsageError(f"--{chosen[0]} and --{chosen[1]} at once", "choose one form")
    return chosen[0] if chosen else "text"


def put(tables: Iterable[Table], form: Form) -> None:
    console = stdout()
    titled = form == "markdown"
    told = (table.titled_markdown() if titled else table.render(form, console) for table in tables)
    sys.stdout.write("\n".join(told))


def notice(text: str) -> None:
    """Says it on stderr."""
    from evo.report import for_terminal

    print(for_terminal(text), file=sys.stderr)


def notice_table(table: Table) -> None:
    """Shows it on stderr."""
    print(table.render("text", stderr()).rstrip(), file=sys.stderr)


def say(text: str) -> None:
    """Says it on stdout; colours may be in it, but nothing else that a terminal obeys."""
    from evo.report import for_terminal

    print("".join(part if at % 2 else for_terminal(part) for at, part in enumerate(_COLOURS.split(text))))


_COLOURS = re.compile(r"(\x1b\[[0-9;]*m)")


def put_code(text: str) -> None:
    """Writes source or machine code: to a file or a pipe as it is, to a terminal without control codes."""
    from evo.report import for_terminal

    sys.stdout.write(for_terminal(text) if sys.stdout.isatty() else text)
