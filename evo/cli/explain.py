"""The commands that say why the winner wins: insights, ablate, profile."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evo.api.parse import DATABASE
from evo.cli.options import (
    MOST,
    WHERE,
    CacheOption,
    DatabaseOption,
    JsonOption,
    NvccOption,
    WorkersOption,
    nvcc_or_environment,
    open_cache,
    open_store,
    study_names,
)
from evo.cli.parse import form_of, notice, stdout
from evo.cores import usable_cores
from evo.errors import MachineError, UsageError

if TYPE_CHECKING:
    from evo.evaluate import EvaluatorSpec
    from evo.explain.insights import Insights
    from evo.store import Failure, Store, TrialRow
    from evo.study import Study
    from evo.trial import Trial

StudyArgument = Annotated[str, typer.Argument(metavar="STUDY", autocompletion=study_names, help="Its name.")]

TrialArgument = Annotated[str, typer.Argument(metavar="TRIAL", help="STUDY/NUMBER, or an id.")]
OutOption = Annotated[
    Path,
    typer.Option(
        "--out", metavar="DIR", rich_help_panel=WHERE, help="Where the result is kept: DIR/STUDY/NUMBER."
    ),
]
MarkdownOption = Annotated[bool, typer.Option("--markdown", help="Write Markdown.")]
StudyDeviceOption = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="cuda:0|emulator",
        rich_help_panel=WHERE,
        help="Where it runs (default: where the study ran). On the emulator times are estimates.",
    ),
]
RUNS = Path("runs")


def insights(
    *,
    study: StudyArgument,
    top: Annotated[
        int, typer.Option(min=1, max=MOST, help="Of how many templates, best first, parameters are shown.")
    ] = 1,
    json: JsonOption = False,
    markdown: MarkdownOption = False,
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
        found, groups = insights_of(store, study), store.study(study).baseline_groups()
    sys.stdout.write(insights_text(found, form, stdout(), top, groups))


def insights_of(store: Store, name: str) -> Insights:
    """The insights of a study; its GPU need not be at hand."""
    from evo.explain.insights import insights
    from evo.study import Setup

    study = store.study(name)
    rows, failures = ended(store, study)
    return insights(Setup.recorded(study), rows, store.leaderboard(study=name, limit=5), failures)


def ended(store: Store, study: Study) -> tuple[list[TrialRow], list[Failure]]:
    """The trials as they stand now, and why they failed. A trial that CONFIRMED refused has no time."""
    from evo.store import Failure
    from evo.trial import Outcome

    refused = {
        number: (Outcome(outcome), f"{reason} (when it was to be CONFIRMED)")
        for number, (outcome, reason) in store.confirmations.refused(study).items()
    }
    rows = [
        replace(row, outcome=refused[row.number][0], reason=refused[row.number][1])
        if row.number in refused
        else row
        for row in store.rows(study)
    ]
    failures = list(store.failures(study))
    for outcome, reason in dict.fromkeys(refused.values()):
        those = [number for number, why in refused.items() if why == (outcome, reason)]
        failures.append(Failure(str(outcome), reason, len(those), min(those)))
    return rows, failures


def ablate(
    *,
    trial: TrialArgument,
    device: StudyDeviceOption = None,
    workers: WorkersOption = None,
    json: JsonOption = False,
    markdown: MarkdownOption = False,
    out: OutOption = RUNS,
    database: DatabaseOption = DATABASE,
    cache: CacheOption = None,
    nvcc: NvccOption = None,
) -> None:
    """Say what each optimisation of a kernel is worth: its parameters switched off, one at a time.

    A parameter goes to the value that its template calls off, else to its default, else to the nearest value
    that the rules allow. Each variant is compiled, gated and timed, the original again between all of them.
    Worth is time without / time with: above 1 the optimisation helps. Nothing is written to the database.

    \b
      evo ablate attention-1/118
      evo ablate attention-1/224 --markdown
    """
    from evo.explain.ablation import ablate as switch_off
    from evo.explain.artifacts import write_artifact
    from evo.report.ablation import ablation_text

    form = form_of(json, markdown=markdown)
    stored, spec = _candidate(trial, device, database, cache, nvcc)
    found = switch_off(stored, spec, workers or usable_cores(), notice)
    sys.stdout.write(ablation_text(found, form, stdout()))
    sys.stdout.flush()
    path = write_artifact(out, stored.study, stored.number, "ablation", found.to_record())
    notice(f"kept in {path}")


def profile(
    *,
    trial: TrialArgument,
    device: StudyDeviceOption = None,
    ncu: Annotated[
        Path | None,
        typer.Option("--ncu", metavar="PATH", rich_help_panel=WHERE, help="Nsight Compute (default: found)."),
    ] = None,
    json: JsonOption = False,
    markdown: MarkdownOption = False,
    out: OutOption = RUNS,
    database: DatabaseOption = DATABASE,
    cache: CacheOption = None,
    nvcc: NvccOption = None,
) -> None:
    """Say what limits a kernel: a verdict in a line, the figures it rests on, and its place under the
    roofline.

    Nsight Compute looks at one launch of this kernel alone, with clocks and caches as they are; its report is
    kept beside the figures. Where it is absent, or the counters are locked, what the compiler and the
    emulator say is shown instead, and so marked: registers, occupancy, what the kernel asks of each pipe,
    bank conflicts by instruction.

    \b
      evo profile attention-1/224
      evo profile attention-1/224 --json | jq '.metrics'
    """
    from evo.explain.artifacts import folder_of, write_artifact
    from evo.explain.profiling import profile as look
    from evo.report.profile import profile_text

    form = form_of(json, markdown=markdown)
    if ncu is not None and not ncu.is_file():
        raise UsageError(f"there is no {ncu}", "without --ncu it is looked for")
    stored, spec = _candidate(trial, device, database, cache, nvcc)
    tool, absent = _ncu(ncu, spec.on_gpu)
    found = look(stored, spec, tool, folder_of(out, stored.study, stored.number), absent)
    sys.stdout.write(profile_text(found, form, stdout()))
    sys.stdout.flush()
    path = write_artifact(out, stored.study, stored.number, "profile", found.to_record())
    notice(f"kept in {path}")


def _ncu(asked: Path | None, on_gpu: bool) -> tuple[Path | None, str]:
    """Nsight Compute, or why there are no counters."""
    from evo.compile import find_tool

    if not on_gpu:
        return None, "the emulator has none: a GPU counts"
    home = os.environ.get("CUDA_HOME")
    found = asked or find_tool("ncu", Path(home) if home else None)
    if found is None:
        return None, "no ncu on PATH or below CUDA_HOME (install nsight-compute, or name it: --ncu PATH)"
    return found, ""


def report(
    *,
    study: StudyArgument,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Where the page goes.")
    ] = Path("report.html"),
    limit: Annotated[int, typer.Option(min=1, help="Rows of the leaderboard at most.")] = 10,
    out: OutOption = RUNS,
    database: DatabaseOption = DATABASE,
) -> None:
    """Write one HTML page about a study: leaderboard, convergence, importance, outcomes, roofline, the
    source.

    The page needs no network and no script, can be read without colour, and prints. What `evo ablate` and
    `evo profile` kept of the study's trials is part of it.

    \b
      evo report attention-1 -o report.html
    """
    from evo.explain.ablation import Ablation
    from evo.explain.artifacts import read_artifacts
    from evo.explain.profiling import Profile
    from evo.report.html import StudyReport, report_page

    ablations, strange = read_artifacts(out, study, "ablation", Ablation.from_record)
    profiles, stranger = read_artifacts(out, study, "profile", Profile.from_record)
    for path in (*strange, *stranger):
        notice(f"left out, for another evo wrote it: {path} (make it again)")
    with open_store(database) as store:
        found = store.study(study)
        ranked = store.leaderboard(study=study, limit=limit)
        rows, failures = ended(store, found)
        gathered = StudyReport(
            found,
            rows,
            insights_of(store, study),
            ranked,
            failures,
            store.trial(f"{study}/{ranked[0].number}") if ranked else None,
            ablations,
            profiles,
            found.baseline_groups(),
        )
    try:
        output.write_text(report_page(gathered), encoding="utf-8")
    except OSError as error:
        raise MachineError(f"cannot write {output}: {error.strerror}", "choose another with -o") from error
    notice(f"written to {output}")


def _candidate(
    trial: str, device: str | None, database: str, cache: Path | None, nvcc: Path | None
) -> tuple[Trial, EvaluatorSpec]:
    """A stored trial, and what evaluates it and its like on a device."""
    from evo.evaluate import EvaluatorSpec
    from evo.study import Setup

    with open_store(database) as store:
        stored = store.trial(trial)
        study = _on(store.study(stored.study), device)
    return stored, EvaluatorSpec.of(Setup.of(study, open_cache(cache).root, nvcc_or_environment(nvcc)))


def _on(study: Study, device: str | None) -> Study:
    """`study` as if it had run on `device`: the emulator then stands for its GPU."""
    from evo.device.open import choose_device, is_gpu
    from evo.study import recorded_gpu

    if device is None:
        return study
    chosen, _ = choose_device(device, None, None)
    return replace(study, device=chosen, gpu=study.gpu if is_gpu(chosen) else recorded_gpu(study).name)
