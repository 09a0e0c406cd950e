"""The commands that keep what won, and hand it on: promote, champion, export."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evo.api.parse import DATABASE, parse_problem, task_folders
from evo.cli.options import (
    DEFAULT_TASK,
    CacheOption,
    DatabaseOption,
    DtypeOption,
    FlagOption,
    JsonOption,
    KernelsOption,
    NvccOption,
    ShapeOption,
    TemplatesOption,
    gpu_names,
    nvcc_or_environment,
    open_cache,
    open_store,
    task_names,
)
from evo.cli.parse import form_of, notice, put
from evo.errors import NothingFound, UsageError

if TYPE_CHECKING:
    from evo.api.exporting import Exported
    from evo.confirm.champions import Champion
    from evo.confirm.choice import Choice, Considered
    from evo.gpu import Limits
    from evo.trial import Problem


def promote(
    trial: Annotated[str, typer.Argument(metavar="TRIAL", help="STUDY/NUMBER of a CONFIRMED trial.")],
    kernels: Annotated[Path, typer.Option(metavar="DIR", help="Where champions are kept.")] = Path("kernels"),
    replace: Annotated[
        bool, typer.Option("--replace", help="Also where the champion there is is as fast.")
    ] = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Tell what changed, before and after, for its review.")
    ] = False,
    database: DatabaseOption = DATABASE,
) -> None:
    """Keep a CONFIRMED kernel as the champion of its problem and architecture.

    Writes its source, which compiles with bare nvcc, and a record of where it comes from: study, trial,
    point, what the gate measured, the times of CONFIRMED beside every baseline, all versions, and what it
    replaces. Both go into the folder TASK/ARCHITECTURE below --kernels.

    \b
      evo confirm attention-1 && evo promote attention-1/224
      evo promote attention-1/224 --markdown > change.md && git add kernels && git commit -F change.md
    """
    from evo.confirm.champions import champion_at, path_of
    from evo.confirm.champions import promote as keep
    from evo.report.promotion import promotion_text
    from evo.study import recorded_gpu

    with open_store(database) as store:
        stored = store.trial(trial)
        study = store.study(stored.study)
        arch = study.target or recorded_gpu(study).arch
        before = champion_at(path_of(stored, arch, kernels), replace)
        confirmation = store.confirmations.about(study, stored.id)
        champion = keep(stored, study, confirmation, arch, kernels, replace=replace)
    if markdown:
        sys.stdout.write(promotion_text(before, champion))
        return
    print(champion.path)
    if before is not None and before.median_us is not None:
        notice(f"it replaces {_brief_text(before)}; --markdown tells more")


def champion(
    *,
    task: Annotated[
        str | None, typer.Argument(metavar="TASK", autocompletion=task_names, help="What to compute.")
    ] = None,
    shape: ShapeOption = None,
    flag: FlagOption = None,
    dtype: DtypeOption = None,
    templates: TemplatesOption = None,
    gpu: Annotated[str, typer.Option(autocompletion=gpu_names, help="For which GPU.")] = "H200",
    kernels: KernelsOption = None,
    study: Annotated[
        str | None, typer.Option(metavar="NAME", help="Kernels of a study or of a set of studies, instead.")
    ] = None,
    database: DatabaseOption = DATABASE,
    all: Annotated[bool, typer.Option("--all", help="List all champions, or those of TASK.")] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Tell of every champion whether it serves, and why.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Say which champion serves a problem on a GPU, how it is launched, and why this one.

    \b
      evo champion --shape 1,8,512,64 --gpu H200
      evo champion --shape 1,8,600,64 --gpu L4 --json | jq .launch
      evo champion --shape 1,8,600,64 --explain   # and why not the others
      evo champion --study gemm-shapes-1 --shape 100,512,512,1 --explain
      evo champion --all
    """
    from evo.confirm.champions import champions, kernels_folders
    from evo.confirm.choice import consider, first_of
    from evo.device.open import gpu_named
    from evo.gpu import Limits
    from evo.report import as_json
    from evo.report.champions import champions_table
    from evo.task import load_task

    limits = Limits.of(gpu_named(gpu))
    if study is None:
        folders, kept = task_folders(templates), champions(*kernels_folders(kernels))
    else:
        task, kept, folders = _of_studies(study, database)
    if all:
        if shape or flag or dtype or explain:
            hint = "leave out --shape, --flag, --dtype and --explain"
            raise UsageError("--all lists the champions of all problems", hint)
        named = load_task(task, folders).name if task else ""
        return put([champions_table(one for one in kept if named in ("", one.problem.task))], form_of(json))
    problem = parse_problem(load_task(task or DEFAULT_TASK, folders), shape, dtype, flag or ())
    considered = consider(problem, limits, kept, folders)
    if explain:
        return _explain(problem, limits, considered, json)
    choice = first_of(problem, limits, considered)
    if form_of(json) == "json":
        sys.stdout.write(as_json(_record(choice)))
        return
    print(choice.champion.path)
    notice(choice.why)


def _explain(problem: Problem, limits: Limits, considered: list[Considered], json: bool) -> None:
    """Tells of every champion; NothingFound where none serves."""
    from evo.report.champions import considered_table

    put([considered_table(problem, limits.gpu.name, considered)], form_of(json))
    if not any(one.launch for one in considered):
        hint = "search it, confirm, and `evo promote` the best"
        raise NothingFound(f"no champion serves {problem.key} on {limits.instructions}", hint)


def _of_studies(name: str, database: str) -> tuple[str, list[Champion], tuple[Path, ...]]:
    """The task of a study or a set of studies, their kernels, and where its templates are."""
    from evo.api.kernel import of_studies

    task, found, folders = of_studies(name, database)
    return task.name, list(found), tuple(folders)


def _brief_text(champion: Champion) -> str:
    trial = champion.record["trial"]
    return f"{trial['study']}/{trial['number']} at {champion.median_us:.2f} µs"


def _record(choice: Choice) -> dict[str, object]:
    """All of a choice, for a script."""
    return {
        "source": str(choice.champion.path),
        "why": choice.why,
        "exact": choice.exact,
        "entry": choice.champion.record["entry"],
        "launch": asdict(choice.launch),
    }


def export(
    *,
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME…", help="Tasks, studies, champions, trials; with --optuna STUDY and URL."
        ),
    ],
    to: Annotated[Path | None, typer.Option(metavar="DIR", help="The folder to write; it is made.")] = None,
    form: Annotated[
        str, typer.Option("--format", metavar="python|flashinfer|hf|c", help="What the folder is for.")
    ] = "python",
    most: Annotated[
        int | None, typer.Option(min=1, max=64, help="Kernels at most, chosen for the least regret.")
    ] = None,
    times: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Times of kernels on problems, for --most.")
    ] = None,
    optuna: Annotated[
        bool, typer.Option("--optuna", help="A study as an Optuna storage, for optuna-dashboard.")
    ] = False,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="The study's name there (default: the same).")
    ] = None,
    kernels: KernelsOption = None,
    templates: TemplatesOption = None,
    database: DatabaseOption = DATABASE,
    cache: CacheOption = None,
    nvcc: NvccOption = None,
) -> None:
    """Write kernels as a folder that needs no evo and no compiler, or a study as an Optuna storage.

    python: `pip install ./DIR` installs it, with cubins, decision table, fallback and small cases with
    answers. flashinfer: solutions for FlashInfer-Bench. hf: the layout of Hugging Face kernels. c: a header
    and a loader.

    \b
      evo export attention --to build/attention && pip install build/attention
      evo export short long --most 3 --to build/three --format c
      evo export --optuna attention-1 optuna.db && optuna-dashboard sqlite:///optuna.db
    """
    if optuna:
        _to_optuna(sources, name, database)
        return
    if to is None:
        hint = f"evo export {sources[0]} --to DIR, or evo export --optuna STUDY URL"
        raise UsageError("nothing says where to write the export", hint)
    if times is not None and most is None:
        raise UsageError("--times is used with --most alone", "add --most N")
    from evo.api.exporting import export as write

    root, compiler = open_cache(cache).root, nvcc_or_environment(nvcc)
    told = write(
        sources, to, form, most=most, times=times, kernels=kernels, templates=templates,
        database=database, cache=root, nvcc=compiler,
    )  # fmt: skip
    _tell_exported(told)


def _tell_exported(written: Exported) -> None:
    lines = []
    for row in written.rows:
        regret = "" if row.regret is None else f", regret {row.regret:.3f}"
        left = written.left_out.get(row.problem.key)
        without = "" if left is None else f", {left:.3f} when it was chosen without this problem"
        lines.append(f"{row.problem.key} on {row.gpu}: {row.champion.name}{regret}{without}")
    for line in dict.fromkeys(lines):  # several studies may have one problem
        notice(line)
    print(written.folder)


def _to_optuna(sources: list[str], name: str | None, database: str) -> None:
    from evo.explain.export import export_study

    if len(sources) != 2:
        raise UsageError("an Optuna storage has one study", "evo export --optuna STUDY URL")
    study, url = sources
    storage = url if "://" in url else f"sqlite:///{url}"
    with open_store(database) as store:
        count = export_study(store, store.study(study), storage, name or study)
    notice(f"{count} trials in {storage}; look at them with: optuna-dashboard {storage}")
