"""The command for whole databases: database copy."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from evo.cli.options import study_names
from evo.cli.parse import notice


def database(
    action: Annotated[Literal["copy"], typer.Argument(metavar="copy", help="What is done.")],  # noqa: ARG001
    source: Annotated[str, typer.Argument(metavar="FROM", help="An SQLite file or a PostgreSQL URL.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="Another one; it is made if it is a file.")],
    *,
    study: Annotated[
        list[str] | None,
        typer.Option(
            "--study",
            metavar="NAME",
            autocompletion=study_names,
            help="Only this study. May be repeated (default: all).",
        ),
    ] = None,
) -> None:
    """Copy studies with all their trials into another database, of either kind.

    All or nothing is copied, and every row is read back and compared. Searches may go on in both databases
    meanwhile; a study that is being searched is interrupted in the copy.

    \b
      evo database copy runs/evo.db postgresql://me@server/evo
      evo database copy postgresql://me@server/evo mine.db --study attention-1
    """
    from evo.store.copying import copy_studies

    counts = copy_studies(source, target, study or [], notice)
    shown = (f"{count:,} {name}" for name, count in counts.items() if count)
    notice(f"copied and compared: {', '.join(shown) or 'nothing, there are no studies'}")
