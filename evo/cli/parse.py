"""Words out: what the engine answers becomes text."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from evo.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from evo.report import Form, Table
    from evo.task import Task


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


def check_address(scheduler: str) -> None:
    """UsageError unless it is an address as Dask writes it."""
    if "://" not in scheduler:
        raise UsageError(f"malformed address of a scheduler: {scheduler}", "as in tcp://host:8786")


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


def say(text: str) -> None:
    """Says it on stdout; colours may be in it, but nothing else that a terminal obeys."""
    from evo.report import for_terminal

    print("".join(part if at % 2 else for_terminal(part) for at, part in enumerate(_COLOURS.split(text))))


_COLOURS = re.compile(r"(\x1b\[[0-9;]*m)")


def put_code(text: str) -> None:
    """Writes source or machine code: to a file or a pipe as it is, to a terminal without control codes."""
    from evo.report import for_terminal

    sys.stdout.write(for_terminal(text) if sys.stdout.isatty() else text)
