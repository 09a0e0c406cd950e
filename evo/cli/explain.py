"""The commands that say why the winner wins: insights."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from evo.cli.options import DATABASE, DatabaseOption, JsonOption, open_store, study_names
from evo.cli.words import form_of, stdout

if TYPE_CHECKING:
    from evo.explain.insights import Insights
    from evo.store import Store

StudyArgument = Annotated[str, typer.Argument(metavar="STUDY", autocompletion=study_names, help="Its name.")]


def insights(
    *,
    study: StudyArgument,
    templates: Annotated[
        int, typer.Option(min=1, help="Of how many templates, best first, parameters are shown.")
    ] = 1,
    json: JsonOption = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Write Markdown.")] = False,
    database: DatabaseOption = DATABASE,
) -> None:
    """Say what the trials of a study teach: which parameters matter, which values are best, why trials fail.

    Importance is a parameter's share (PED-ANOVA) in what sets the best tenth of the trials apart; "explains"
    is what it alone explains of the variance of log time. "Alone, in pairs" compares trials that differ in
    this parameter only: the value that does best, time with another / time with it, and how many pairs it
    wins. docs/explain.md says how to read all of it.

    \b
      evo insights attention-1
      evo insights attention-1 --json | jq '.history[-1]'
    """
    from evo.report.insights import insights_text

    form = form_of(json, markdown=markdown)
    with open_store(database) as store:
        found = insights_of(store, study)
    sys.stdout.write(insights_text(found, form, stdout(), templates))


def insights_of(store: Store, name: str) -> Insights:
    """The insights of a study; its GPU need not be at hand."""
    from evo.explain.insights import insights
    from evo.rig import folders_of, recorded_gpu, task_of, templates_of

    study = store.study(name)
    task = task_of(study)
    ground = task, templates_of(task, study.templates, folders_of(study)), recorded_gpu(study)
    return insights(
        study, store.rows(study), store.leaderboard(study=name, limit=5), store.failures(study), ground
    )
