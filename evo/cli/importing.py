"""The command that takes over what people have for other tools: import."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evo.cli.parse import notice, say
from evo.errors import UsageError


def import_(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="kernel-tuner, kernelbench or flashinfer-trace.")
    ],
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A script (.py), a T1 file or a definition (.json).")
    ],
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="Where tasks are.")] = Path("tasks"),
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="The task's name (default: the file's).")
    ] = None,
    kernel: Annotated[
        str | None,
        typer.Option("--kernel", metavar="NAME", help="Which one, where a script tunes several."),
    ] = None,
    given: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A number or word that the file does not say."),
    ] = None,
    reference: Annotated[
        Path | None,
        typer.Option("--reference", metavar="FILE.npz", help="Inputs by name, and outputs that are right."),
    ] = None,
) -> None:
    """Make a task and a template from a file of another tool.

    kernel-tuner takes a script with `tune_kernel`, which is read and not run, or a T1 file. kernelbench takes
    a problem (a file with Model, get_inputs and get_init_inputs); it is Python and runs with your rights,
    here and in each search. KernelBench is under the MIT licence: keep its notice with its files.
    flashinfer-trace takes a Definition; its reference is Python too, and runs here and in each search. What
    cannot be taken is refused with the reason, the file and the line.

    \b
      evo import kernel-tuner vector_add.py && evo search vector_add --budget 30s
      evo import kernelbench 19_ReLU.py && evo try relu --shape 64,1000
    """
    from evo.importers import import_file

    made = import_file(kind, file, to, name, kernel, _numbers(given or ()), reference)
    for path in made.files:
        say(str(path))
    for note in made.notes:
        notice(f"note: {note}")
    if made.missing:
        notice(f"next: {made.missing}")
    notice(f"then: evo try {made.name}, and: evo search {made.name} --budget 1m")


def _numbers(texts: list[str] | tuple[str, ...]) -> dict[str, int | float | str]:
    found: dict[str, int | float | str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"malformed --set: {text}", "--set width=4096")
        found[name] = value
        for kind in (float, int):
            try:
                found[name] = kind(value)
            except ValueError:
                continue
    return found
