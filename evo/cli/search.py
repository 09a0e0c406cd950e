"""The commands that search: search, resume, confirm, space."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evo.api.parse import DATABASE, located, parse_bytes, parse_problem, task_folders
from evo.cli.options import (
    DEFAULT_TASK,
    HOW,
    UNTIL,
    WHERE,
    BudgetOption,
    CacheOption,
    DatabaseOption,
    DeviceOption,
    DtypeOption,
    ExchangeOption,
    FlagOption,
    GpuOption,
    GpusOption,
    InputsOption,
    JsonOption,
    NvccOption,
    OwnOption,
    PlaceOption,
    PortfolioOption,
    ProblemsOption,
    RankOption,
    RateOption,
    SchedulerOption,
    SeedOption,
    ShapeOption,
    SlurmOption,
    SmemOption,
    StrategyOption,
    StudyNameOption,
    TargetOption,
    TaskArgument,
    TemplateOption,
    TemplatesOption,
    UnprovenOption,
    WarmStartOption,
    WorkersOption,
    nvcc_or_environment,
    open_cache,
    open_store,
    study_names,
)
from evo.cli.parse import check_address, form_of, notice, put
from evo.errors import NothingFound, UsageError

if TYPE_CHECKING:
    from evo.api.study import Study
    from evo.child import Spare
    from evo.confirm.on_gpus import MakesWorker
    from evo.store import Store


def search(
    context: typer.Context,
    *,
    task: TaskArgument = DEFAULT_TASK,
    budget: BudgetOption,
    rate: RateOption = None,
    study: StudyNameOption = None,
    shape: ShapeOption = None,
    shapes: ProblemsOption = None,
    portfolio: PortfolioOption = None,
    flag: FlagOption = None,
    dtype: DtypeOption = None,
    inputs: InputsOption = None,
    template: TemplateOption = None,
    templates: TemplatesOption = None,
    strategy: StrategyOption = "evo",
    seed: SeedOption = 0,
    warm_start: WarmStartOption = None,
    until: Annotated[str, UNTIL] = "budget",
    rank: RankOption = "worst",
    accept_unproven: UnprovenOption = False,
    workers: WorkersOption = None,
    device: DeviceOption = "auto",
    gpu: GpuOption = None,
    gpus: GpusOption = None,
    scheduler: SchedulerOption = None,
    slurm: SlurmOption = None,
    exchange: ExchangeOption = None,
    own: OwnOption = None,
    target: TargetOption = None,
    smem_limit: SmemOption = None,
    database: DatabaseOption = DATABASE,
    cache: CacheOption = None,
    nvcc: NvccOption = None,
    json: JsonOption = False,
) -> None:
    """Search for the fastest correct kernel of a task.

    What the rules of a template's space allow is compiled, checked by the gate, and timed if it is right. A
    study that ended, however it ended, can be resumed. Without a GPU times are an emulator's estimates.

    \b
      evo search --budget 2m
      evo search attention --shape 1,8,512,64 --budget 5m --rank mean
      evo search attention --inputs calls.safetensors --budget 5m
      evo search rmsnorm --templates ~/kernels --budget 5m
      evo search --budget 90m --target sm_89 --smem-limit 48K --template flash_mma
      evo search gemm --shapes square --budget 30m --portfolio 8
    """
    told = {name: value for name, value in locals().items() if name not in ("context", "json", "slurm")}
    told |= {"cache": open_cache(cache).root, "nvcc": nvcc_or_environment(nvcc)}
    told["scheduler"] = _place(scheduler, slurm)
    if not shapes and portfolio is not None:
        raise UsageError("--portfolio is for several problems", "name them: --shapes; or leave it out")
    _search(told, json, context.obj)


def _search(told: dict[str, Any], json: bool, spares: Sequence[Spare]) -> None:
    """Searches one problem on GPUs of one model, or many problems, or on several models."""
    from evo.api.models import models
    from evo.api.search import search as run  # its parameters have the names of the options

    if told["shapes"]:
        if told["scheduler"]:
            raise UsageError("a search for many problems runs on this machine", "leave out --scheduler")
        return _search_shapes(told, json)
    del told["shapes"], told["portfolio"], told["own"]
    where = {name: told[name] for name in ("device", "gpu", "gpus", "target", "scheduler")}
    if found := models(**where):
        for spare in spares:  # the search of each model has its own
            spare.close()
        return _search_models(found, told, json)
    _conclude(run(**told, spares=spares), json)


def resume(
    context: typer.Context,
    *,
    study: Annotated[str, typer.Argument(metavar="STUDY", autocompletion=study_names, help="Its name.")],
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="+2h|3h|+$5", rich_help_panel=HOW, help="More time (+2h), or another total (3h)."
        ),
    ] = None,
    until: Annotated[str | None, UNTIL] = None,
    rate: RateOption = None,
    inputs: PlaceOption = None,
    gpus: GpusOption = None,
    scheduler: SchedulerOption = None,
    slurm: SlurmOption = None,
    database: DatabaseOption = DATABASE,
    cache: CacheOption = None,
    nvcc: NvccOption = None,
    json: JsonOption = False,
) -> None:
    """Go on with a study: after Ctrl-C, a crash or a power cut, or to give it more time.

    No finished trial is lost and none is repeated. What the study was told to search stays as it was.

    \b
      evo resume attention-1
      evo resume attention-1 --budget +2h
    """
    from evo.api.study import load_study

    root, compiler = open_cache(cache).root, nvcc_or_environment(nvcc)
    found = load_study(study, database=database, cache=root, nvcc=compiler)
    told = {"until": until, "rate": rate, "inputs": inputs, "gpus": gpus, "spares": context.obj}
    _conclude(found.resume(budget, scheduler=_place(scheduler, slurm), **told), json)


def _place(scheduler: str | None, slurm: Path | None) -> str | None:
    """Where the workers are: a scheduler's address, or the path of a file."""
    if scheduler is not None and slurm is not None:
        raise UsageError("--slurm starts a scheduler of its own", "leave out --scheduler or --slurm")
    if scheduler is not None:
        check_address(scheduler)
    return str(slurm.absolute()) if slurm else scheduler


def confirm(
    *,
    study: Annotated[str, typer.Argument(metavar="STUDY", autocompletion=study_names, help="Its name.")],
    top: Annotated[int, typer.Option(min=1, max=50, help="How many of its best trials.")] = 5,
    confirm_on: Annotated[
        str | None,
        typer.Option(
            "--confirm-on",
            metavar="all|0,1",
            rich_help_panel=WHERE,
            help="On each of these GPUs, the study's own last (default: on that alone).",
        ),
    ] = None,
    scheduler: SchedulerOption = None,
    slurm: SlurmOption = None,
    inputs: PlaceOption = None,
    json: JsonOption = False,
    database: DatabaseOption = DATABASE,
    cache: CacheOption = None,
    nvcc: NvccOption = None,
) -> int:
    """Gate the best trials of a study again, thoroughly, and time them again beside every baseline.

    In a fresh process, with fresh inputs and seeds, in turns, with a warm and with a cold L2 cache. Intervals
    hold for all finalists at once, so that the best of them is not the luckiest. A search does this by
    itself at its end; a confirmation that was interrupted goes on where it stood. Ends with 4 if no trial
    is correct. With --scheduler or --slurm, on the worker that has the study's first GPU.

    \b
      evo confirm attention-1 --top 5
      evo confirm attention-1 --confirm-on all
      evo confirm attention-1 --scheduler tcp://first:8786
    """
    from evo.confirm.on_gpus import confirm_on_each
    from evo.device.open import is_gpu
    from evo.report import as_json
    from evo.report.confirmed import confirmation_record, confirmation_tables, why_none

    with open_store(database) as store:
        found = located(store.study(study), inputs)
        if not is_gpu(found.device):
            hint = "search on a machine with a GPU"
            raise UsageError(f"study {study} ran on the emulator: its times are estimates", hint)
        place = _place(scheduler, slurm)
        if place is not None and confirm_on is not None:
            raise UsageError("--confirm-on is for the GPUs of this machine", "leave out one of them")
        with _confirm_workers(store, place, open_cache(cache).root, nvcc_or_environment(nvcc)) as workers:
            results = confirm_on_each(found, store, workers, confirm_on, top, lambda s: notice(s.text))
    if not any(result.green for result in results.values()):
        hint = f"give it more time: evo resume {study} --budget +10m"
        raise NothingFound(why_none(study, results.values()), hint)
    if form_of(json) == "json":
        records = [confirmation_record(result) for result in results.values()]
        sys.stdout.write(as_json(records[0] if confirm_on is None else records))
        return 0
    for device, result in results.items():
        if confirm_on is not None:
            notice(f"on {device} {result.gpu}:".replace(" :", ":"))
        put(confirmation_tables(result), "text")
    return 0


@contextmanager
def _confirm_workers(
    store: Store, place: str | None, cache: Path, nvcc: Path | None
) -> Iterator[MakesWorker]:
    """Makes confirm workers: processes of this machine, or of workers at a place."""
    from evo.api.scheduler import Scheduler
    from evo.confirm.on_gpus import worker_on

    if place is None:
        yield worker_on(cache, nvcc)
        return
    with closing(Scheduler(place, notice)) as there:
        yield there.makes_confirm_workers(store, cache, nvcc)


def space(
    *,
    task: TaskArgument = DEFAULT_TASK,
    shape: ShapeOption = None,
    flag: FlagOption = None,
    dtype: DtypeOption = None,
    template: TemplateOption = None,
    templates: TemplatesOption = None,
    gpu: GpuOption = None,
    target: TargetOption = None,
    smem_limit: SmemOption = None,
    json: JsonOption = False,
) -> None:
    """Say how many points there are to search, and how many each rule rejects, for one GPU or target.

    \b
      evo space
      evo space --gpu H200 --shape 2,16,4096,128
      evo space --target sm_89 --smem-limit 48K --template flash_mma
    """
    from evo.device.open import choose_device
    from evo.gpu import Limits
    from evo.report import as_json
    from evo.report.overview import space_record, space_table
    from evo.study import templates_of
    from evo.task import load_task

    folders = task_folders(templates)
    loaded = load_task(task, folders)
    problem = parse_problem(loaded, shape, dtype, flag or ())
    _, stands_for = choose_device("emulator", gpu, target)
    limits = Limits.of(stands_for, parse_bytes(smem_limit) if smem_limit else None, target_name=target or "")
    sets = {t.name: t.space.feasible(limits, problem) for t in templates_of(loaded, template or [], folders)}
    if form_of(json) == "json":
        sys.stdout.write(as_json([space_record(name, feasible) for name, feasible in sets.items()]))
    else:
        put([space_table(name, feasible) for name, feasible in sets.items()], "text")


def _search_shapes(told: dict[str, Any], json: bool) -> None:
    """Searches for several problems; says which kernels serve them all, and what that costs."""
    from evo.api.shapes import search_shapes
    from evo.report import as_json
    from evo.report.portfolio import portfolio_record, portfolio_tables, portfolio_text

    del told["scheduler"], told["exchange"]
    if told.pop("shape") or told.pop("inputs"):
        raise UsageError("--shapes names the problems", "leave out --shape and --inputs")
    done = search_shapes(**told)
    found = done._found() if done.result is None else done.result
    if told["own"]:  # the command that began the searches of all parts says what they found
        raise typer.Exit(130 if found.interrupted else 0)
    if form_of(json) == "json":
        sys.stdout.write(as_json(portfolio_record(found)))
    else:
        put(portfolio_tables(found), "text")
    if text := portfolio_text(found):
        notice(text)
    for why in found.refused.values():
        notice(why)
    if found.unserved:
        notice(f"no correct kernel for {len(found.unserved)} problems: {', '.join(found.unserved[:3])}")
    if found.interrupted:
        notice(f"interrupted; go on with the same command and --study {done.name}")
        raise typer.Exit(130)
    notice(f"the same command with --study {done.name} and more --budget goes on")
    notice(f"evo.kernel({done.name!r}) calls them; why: evo champion --study {done.name} --explain")


def _search_models(found: Mapping[str, Mapping[str, Any]], told: dict[str, Any], json: bool) -> None:
    """Searches a study for each model of GPU, at the same time; says what each found."""
    from evo.api.models import parts_of, search_parts
    from evo.report.leaderboard import leaderboard_records, leaderboards

    task, study, workers = (told.pop(name) for name in ("task", "study", "workers"))
    parts = parts_of(found, study, task, workers, told["database"])
    notice(f"a study for each model: {', '.join(f'{part.study} on {part.gpu}' for part in parts)}")
    codes = search_parts(parts, task, told)
    rows, groups = [], {}
    with open_store(told["database"]) as store:
        there = {one.name: one for one in store.studies()}
        for part in parts:
            if part.study in there:
                rows += store.leaderboard(study=part.study, limit=10)
                groups[part.study] = there[part.study].baseline_groups()
    if json:
        put([leaderboard_records(rows, groups)], "json")
    else:
        put(leaderboards(rows, groups), "text")
    for part, code in zip(parts, codes, strict=True):
        if code == 130:
            notice(f"interrupted; go on with: evo resume {part.study}")
        elif code:
            notice(f"the search of {part.study} ended with {code}")
    if any(codes):
        raise typer.Exit(max(codes))


def _conclude(found: Study, json: bool) -> None:
    """Says what the search that is over found."""
    from evo.report import duration, several
    from evo.report.confirmed import unconfirmed_lines
    from evo.report.leaderboard import leaderboard_records, leaderboards
    from evo.report.overview import dead_parameters_text, failures_table, starts_text
    from evo.report.screen import StderrScreen

    result = found.result
    assert result is not None
    study, progress = result.study, result.progress
    groups = {study.name: study.baseline_groups()}
    for line in unconfirmed_lines(result.confirmation):
        notice(line)
    if json:
        put([leaderboard_records(result.best, groups)], "json")
    else:
        put(leaderboards(result.best, groups), "text")
    if result.failures:
        StderrScreen().table(failures_table(result.failures))
    for line in [*dead_parameters_text(result.dead), *starts_text(result.starts)]:
        notice(line)
    notice(
        f"{several(progress.trials, 'trial')}, {progress.correct} correct, in {duration(progress.spent_s)}"
    )
    if result.stopped == "exhausted":
        notice("every feasible point has been tried")
    if result.stopped == "trials":
        notice(f"it has its {study.until} trials; to go on: evo resume {study.name} --until budget")
    if result.stopped == "converged":
        why = "converged: no untried point is expected to be faster by more than the noise"
        notice(f"{why}; to go on all the same: evo resume {study.name}")
    if result.best:
        best = f"{study.name}/{result.best[0].number}"
        notice(f"next: evo show {best} --source, or: evo insights {study.name}")
    if result.stopped == "interrupted":
        notice(f"interrupted; go on with: evo resume {study.name}")
        raise typer.Exit(130)
