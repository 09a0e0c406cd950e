"""The commands that show what was found: leaderboard, studies, show, bench."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evo.api.parse import DATABASE, parse_calls, parse_problems, task_folders
from evo.cli.options import (
    DEFAULT_TASK,
    MOST,
    WHAT,
    CacheOption,
    DatabaseOption,
    DeviceOption,
    DtypeOption,
    FlagOption,
    InputsOption,
    JsonOption,
    KernelsOption,
    NvccOption,
    TaskArgument,
    TemplatesOption,
    gpu_names,
    nvcc_or_environment,
    open_cache,
    open_store,
    study_names,
    task_names,
    template_names,
)
from evo.cli.parse import form_of, notice, put, put_code, stdout
from evo.errors import MachineError, UnknownName, UsageError

if TYPE_CHECKING:
    from evo.cache import Cache
    from evo.confirm.bench import Entrant, Sheet
    from evo.gpu import Gpu
    from evo.store import Store
    from evo.trial import Problem, Trial


def studies(database: DatabaseOption = DATABASE, json: JsonOption = False) -> None:
    """List the studies: how far each has come, and on what."""
    from evo.report.overview import studies_table

    with open_store(database) as store:
        table = studies_table([(study, store.count(study)) for study in store.studies()])
    put([table], form_of(json))


def leaderboard(
    *,
    task: Annotated[str | None, typer.Option(autocompletion=task_names, help="Only this task.")] = None,
    shape: Annotated[str | None, typer.Option(metavar="SIZES", help="Only this shape.")] = None,
    gpu: Annotated[str | None, typer.Option(autocompletion=gpu_names, help="Only GPUs of this name.")] = None,
    study: Annotated[str | None, typer.Option(autocompletion=study_names, help="Only this study.")] = None,
    template: Annotated[
        str | None, typer.Option(autocompletion=template_names, help="Only this template.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=MOST, help="Rows of a table at most.")] = 20,
    json: JsonOption = False,
    csv: Annotated[bool, typer.Option("--csv", help="Write CSV.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Write Markdown.")] = False,
    database: DatabaseOption = DATABASE,
) -> None:
    """Show the best correct kernels, one table for each problem and device.

    Measured times come with their 95 % confidence interval and the ratio to the fastest baseline that was
    timed beside them (above 1 is faster). Times written ~8.5 are the emulator's estimates for a named GPU.

    \b
      evo leaderboard --limit 5
      evo leaderboard --shape 1,8,512,64 --gpu H200 --markdown
      evo leaderboard --json | jq '.[0].point'
    """
    from evo.report.leaderboard import leaderboard_records, leaderboards

    form = form_of(json, csv, markdown)
    with open_store(database) as store:
        _check_known(store, task, gpu)
        keys: list[str] | list[None] = [None] if shape is None else _problems_of_shape(store, shape)
        ranked = [
            row
            for key in keys
            for row in store.leaderboard(
                study=study, task=task, problem=key, gpu=gpu, template=template, limit=limit
            )
        ]
        groups = {name: store.study(name).baseline_groups() for name in {row.study for row in ranked}}
    if form in ("json", "csv"):
        put([leaderboard_records(ranked, groups)], form)
    elif ranked:
        put(leaderboards(ranked, groups), form)
    else:
        notice("no correct trial matches; `evo studies` lists what there is")


def _check_known(store: Store, task: str | None, gpu: str | None) -> None:
    """UnknownName for a task or a GPU that neither a study has nor evo knows."""
    found = store.studies()
    tasks, gpus = {study.problem.task for study in found}, {study.gpu for study in found}
    if task is not None and task not in {*tasks, *task_names("")}:
        raise UnknownName.among("task", task, sorted(tasks))
    places = " ".join((*gpus, *(study.device for study in found), *gpu_names(""))).casefold()
    if gpu is not None and gpu.casefold() not in places:
        raise UnknownName.among("gpu", gpu, sorted(gpus))


def _problems_of_shape(store: Store, shape: str) -> list[str]:
    """The keys of the problems of that shape, of any flags and dtype, that studies have."""
    shapes = {study.problem.key: study.problem.shape for study in store.studies()}
    keys = [key for key, text in shapes.items() if text == shape.replace(" ", "")]
    if not keys:
        raise UnknownName.among("shape", shape, sorted(set(shapes.values())))
    return keys


def show(
    *,
    trial: Annotated[
        str, typer.Argument(metavar="TRIAL", help="STUDY/NUMBER from the leaderboard, or an id.")
    ],
    source: Annotated[bool, typer.Option("--source", help="Its CUDA source.")] = False,
    ptx: Annotated[bool, typer.Option("--ptx", help="Its PTX.")] = False,
    sass: Annotated[bool, typer.Option("--sass", help="Its machine code, by nvdisasm.")] = False,
    json: JsonOption = False,
    database: DatabaseOption = DATABASE,
    nvcc: NvccOption = None,
    cache: CacheOption = None,
) -> None:
    """Show one trial: how it ended and why, its time, resources and point; or its code.

    \b
      evo show attention-1/12
      evo show attention-1/12 --source > kernel.cu && nvcc -arch=sm_89 -cubin kernel.cu
    """
    from evo.report import as_json
    from evo.report.trial import trial_page, trial_record
    from evo.study import recorded_gpu

    if source + ptx + sass + json > 1:
        raise UsageError("more than one of --source, --ptx, --sass and --json", "choose one")
    with open_store(database) as store:
        stored = store.trial(trial)
        study = store.study(stored.study)
        verdict = store.confirmations.verdict(stored.id)
    if source:
        put_code(stored.candidate.source)
    elif ptx or sass:
        put_code(_code(stored, recorded_gpu(study).arch, sass, nvcc_or_environment(nvcc), open_cache(cache)))
    elif json:
        sys.stdout.write(as_json(trial_record(stored)))
    else:
        sys.stdout.write(trial_page(stored, stdout(), verdict))


def _code(trial: Trial, arch: str, sass: bool, nvcc: Path | None, cache: Cache) -> str:
    """PTX or machine code of a stored trial, compiled again where the cache has lost it."""
    from evo.compile import disassemble, find_compiler

    compiler = find_compiler(nvcc, cache)
    try:
        binary = compiler.compile(trial.candidate.source, trial.candidate.entry, arch)
        return disassemble(binary, compiler.toolkit) if sass else binary.ptx
    finally:
        compiler.close()


ShapesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--shapes",
        "--shape",
        metavar="SIZES",
        rich_help_panel=WHAT,
        help="The sizes, or the name of a set of problems. May be repeated.",
    ),
]
TrialsOption = Annotated[
    list[str] | None,
    typer.Option(metavar="TRIAL", help="STUDY/NUMBER; may be repeated (default: each shape's best)."),
]
QuickOption = Annotated[
    bool, typer.Option("--quick", help="Leave out baselines that take seconds to compile.")
]


def bench(
    *,
    task: TaskArgument = DEFAULT_TASK,
    shapes: ShapesOption = None,
    trial: TrialsOption = None,
    flag: FlagOption = None,
    dtype: DtypeOption = None,
    inputs: InputsOption = None,
    templates: TemplatesOption = None,
    quick: QuickOption = False,
    rounds: Annotated[int, typer.Option(min=10, max=MOST, help="Rounds of each shape.")] = 10,
    plot: Annotated[Path | None, typer.Option(metavar="FILE.svg", help="Draw it, too.")] = None,
    kernels: KernelsOption = None,
    device: DeviceOption = "auto",
    json: JsonOption = False,
    database: DatabaseOption = DATABASE,
    cache: CacheOption = None,
    nvcc: NvccOption = None,
) -> None:
    """Time champions, the best trials and the baselines side by side over shapes.

    For each shape (of --inputs: each of a recorded call) the champion that serves it takes part, and its best
    trial, or that of the nearest shape, rendered for this one; or those of --trial. Each passes the thorough
    gate first, and all take turns with every baseline. Nothing is stored.

    \b
      evo bench attention --shapes seeds
      evo bench --shapes 1,8,512,64 --shapes 2,16,4096,128 --trial attention-1/224 --plot bench.svg
    """
    from evo.confirm.bench import bench as run
    from evo.confirm.champions import champions, kernels_folders
    from evo.confirm.entrants import champion_for, entrant_of, nearest_trial
    from evo.confirm.worker import WorkerProcess, WorkerSpec
    from evo.task import load_task

    _refuse_no_folder(plot)
    chosen, gpu = _gpu_to_time_on(device)
    folders = task_folders(templates)
    loaded, asked = load_task(task, folders), (shapes or (), dtype, flag or ())
    calls = parse_calls(loaded, inputs, *asked) if inputs else {}
    problems = list(calls) or parse_problems(loaded, *asked)
    built, tools = open_cache(cache).root, nvcc_or_environment(nvcc)
    kept = champions(*kernels_folders(kernels))
    with ExitStack() as stack:
        searched = bool(trial) or database != DATABASE or Path(DATABASE).exists()
        store = stack.enter_context(open_store(database)) if searched else None
        named = {name: entrant_of(store, name, gpu) for name in trial or () if store}

        def entrants(problem: Problem) -> dict[str, Entrant]:
            name, champion = champion_for(problem, gpu, kept, folders)
            best = nearest_trial(store, problem, gpu) if store and not named else None
            return {name: champion, **(dict([best]) if best else named)}

        def worker_for(problem: Problem) -> WorkerProcess:
            spec = WorkerSpec.of_problem(problem, chosen, gpu, built, tools, not quick, folders)
            return WorkerProcess(spec.on_calls(calls.get(problem)))

        sheets = run(problems, entrants, worker_for, rounds, notice)
    _tell_bench(sheets, plot, json)


def _gpu_to_time_on(device: str) -> tuple[str, Gpu]:
    from evo.device.open import choose_device, is_gpu

    chosen, gpu = choose_device(device, None, None)
    if not is_gpu(chosen):
        raise MachineError("nothing can be timed without an NVIDIA GPU", "run it on a machine that has one")
    return chosen, gpu


def _refuse_no_folder(plot: Path | None) -> None:
    """Told before minutes are spent."""
    if plot is not None and not plot.parent.is_dir():
        raise MachineError(f"cannot write {plot}: there is no folder {plot.parent}", "make it first")


def _tell_bench(sheets: Sequence[Sheet], plot: Path | None, json: bool) -> None:
    from evo.report import as_json
    from evo.report.bench import absent_lines, bench_record, bench_svg, bench_tables, origin_lines

    for line in (*origin_lines(sheets), *absent_lines(sheets)):
        notice(line)
    if plot is not None:
        plot.write_text(bench_svg(sheets), encoding="utf-8")
    if form_of(json) == "json":
        sys.stdout.write(as_json(bench_record(sheets)))
    else:
        put(bench_tables(sheets), "text")
