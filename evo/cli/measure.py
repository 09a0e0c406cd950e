"""The commands that measure what a search found: confirm."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from evo.cli.options import (
    DATABASE,
    CacheOption,
    DatabaseOption,
    JsonOption,
    NvccOption,
    nvcc_or_environment,
    open_cache,
    open_store,
    study_names,
)
from evo.cli.words import form_of, notice, put
from evo.errors import NothingFound, UsageError

if TYPE_CHECKING:
    from evo.confirm import Step


def confirm(
    *,
    study: Annotated[str, typer.Argument(metavar="STUDY", autocompletion=study_names, help="Its name.")],
    top: Annotated[int, typer.Option(min=1, max=50, help="How many of its best trials.")] = 5,
    json: JsonOption = False,
    database: DatabaseOption = DATABASE,
    cache: CacheOption = None,
    nvcc: NvccOption = None,
) -> int:
    """Gate the best trials of a study again, thoroughly, and time them again beside every baseline.

    In a fresh process, with fresh inputs and seeds, in turns, with a warm and with a cold L2 cache. Intervals
    hold for all finalists at once, so that the best of them is not the luckiest. A search does this by
    itself at its end; a confirmation that was interrupted goes on where it stood. Ends with 4 if no trial
    is correct.

    \b
      evo confirm attention-1 --top 5
    """
    from evo.confirm import confirm as run
    from evo.referee import RefereeProcess
    from evo.report import as_json
    from evo.report.confirmed import confirmation_record, confirmation_tables
    from evo.rig import referee_of

    with open_store(database) as store:
        found = store.study(study)
        if found.device == "emulator":
            hint = "search on a machine with a GPU"
            raise UsageError(f"study {study} ran on the emulator: its times are estimates", hint)
        spec = referee_of(found, open_cache(cache).root, nvcc_or_environment(nvcc))
        spec.evaluator.prepare()
        with closing(RefereeProcess(spec)) as judges:
            result = run(found, store, judges, top=top, afresh=True, watch=_tell)
    if result is None or not result.green:
        hint = f"give it more time: evo resume {study} --budget +10m"
        raise NothingFound(f"study {study} has no timed trial that is correct", hint)
    if form_of(json) == "json":
        sys.stdout.write(as_json(confirmation_record(result)))
    else:
        put(confirmation_tables(result), "text")
    return 0


def _tell(step: Step) -> None:
    notice(step.text)
