"""Words in, words out: what a person types becomes values, what the engine answers becomes text."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from evo.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from evo.report import Form, Table
    from evo.task import Task
    from evo.trial import Problem, Value


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
    nbytes = int(float(match[1]) * (1024 if match[2] else 1)) if match else 0
    if nbytes < 1:
        raise UsageError(f"malformed size: {text}", "a size is a number of bytes or of KB: 101376, 48K, 99K")
    return nbytes


def parse_problem(task: Task, shape: str | None, dtype: str | None, causal: bool) -> Problem:
    """The problem of a shape text or of a named set of problems; the task's example where none is named."""
    flags: dict[str, Value] = {"causal": True} if causal else {}
    named = task.problems.get(shape, ()) if shape else (task.example,)
    if len(named) > 1:
        shapes = ", ".join(dict.fromkeys(problem.shape for problem in named))
        raise UsageError(f"{shape} names {len(named)} problems, and a study has one", f"one of {shapes}")
    if named:
        flags |= {name: value for name, value in named[0].flags.items() if value}
        return task.problem(named[0].shape, dtype or named[0].dtype, **flags)
    return task.problem(str(shape), dtype or task.example.dtype, **flags)


def parse_problems(task: Task, shapes: Sequence[str], dtype: str | None, causal: bool) -> list[Problem]:
    """The problems of several shape texts and names of sets, each once; `causal` adds to what a set says."""
    found: dict[str, Problem] = {}
    for shape in shapes:
        named = task.problems.get(shape, ())
        one = [] if named else [parse_problem(task, shape, dtype, causal)]
        for problem in (*named, *one):
            kept = problem.replace(dtype=dtype or problem.dtype)
            found[kept.key] = kept.replace(causal=True) if causal and "causal" in kept.flags else kept
    return list({problem.key: problem for problem in found.values()}.values())


def stderr() -> Console:
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def stdout() -> Console:
    """A pipe has no width: it gets lines that a program or a wide editor can read."""
    from rich.console import Console

    piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(highlight=False, width=160 if piped else None)


def form_of(json: bool, csv: bool = False, markdown: bool = False) -> Form:
    chosen: list[Form] = [f for f, on in (("json", json), ("csv", csv), ("markdown", markdown)) if on]  # type: ignore[misc]
    if len(chosen) > 1:
        raise UsageError(f"--{chosen[0]} and --{chosen[1]} at once", "choose one form")
    return chosen[0] if chosen else "text"


def put(tables: Iterable[Table], form: Form) -> None:
    console = stdout()
    titled = form == "markdown"
    told = (table.titled_markdown() if titled else table.render(form, console) for table in tables)
    sys.stdout.write("\n".join(told))


def notice(text: str) -> None:
    print(text, file=sys.stderr)
