"""The commands that search: search, resume, confirm, space."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from evo.cli.options import (
    DATABASE,
    DEFAULT_TASK,
    HOW,
    BudgetOption,
    CacheOption,
    DatabaseOption,
    DeviceOption,
    DtypeOption,
    FlagOption,
    GpuOption,
    JsonOption,
    NvccOption,
    RankOption,
    RateOption,
    SeedOption,
    ShapeOption,
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
    parse_ranking,
    study_names,
)
from evo.cli.parse import (
    form_of,
    notice,
    notice_table,
    parse_budget,
    parse_bytes,
    parse_problem,
    put,
    stderr,
    task_folders,
)
from evo.errors import NothingFound, UnknownName, UsageError
from evo.version import __version__

if TYPE_CHECKING:
    from evo.child import Spare
    from evo.evaluate.pool import Pool
    from evo.loop import Progress, SearchResult, SearchSpace
    from evo.store import Store
    from evo.study import Setup, Study
    from evo.trial import Problem


def search(
    context: typer.Context,
    *,
    task: TaskArgument = DEFAULT_TASK,
    budget: BudgetOption,
    rate: RateOption = None,
    study: StudyNameOption = None,
    shape: ShapeOption = None,
    flag: FlagOption = None,
    dtype: DtypeOption = None,
    template: TemplateOption = None,
    templates: TemplatesOption = None,
    strategy: StrategyOption = "evo",
    seed: SeedOption = 0,
    warm_start: WarmStartOption = None,
    rank: RankOption = "worst",
    accept_unproven: UnprovenOption = False,
    workers: WorkersOption = None,
    device: DeviceOption = "auto",
    gpu: GpuOption = None,
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
      evo search rmsnorm --templates ~/kernels --budget 5m
      evo search --budget 90m --target sm_89 --smem-limit 48K --template flash_mma
    """
    from evo.study import Setup
    from evo.task import load_task

    budget_s = parse_budget(budget, rate)
    folders = task_folders(templates)
    loaded = load_task(task, folders)
    problem = parse_problem(loaded, shape, dtype, flag or ())
    asked = replace(
        _study_on(problem, device, gpu, target, smem_limit, budget_s),
        name=study or "",
        templates=tuple(template or ()),
        strategy=strategy,
        seed=seed,
        workers=workers or os.cpu_count() or 1,
        rate=rate,
        accept_unproven=accept_unproven,
        ranking=parse_ranking(loaded, rank),
        folders=tuple(map(str, folders)),
    )
    setup = Setup.of(asked, open_cache(cache).root, nvcc_or_environment(nvcc))
    result = _begin(setup, database, warm_start or (), context.obj)
    _conclude(result, json)


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
    rate: RateOption = None,
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
    from evo.study import Setup

    with open_store(database) as store:
        found = store.study(study)
        rate = rate or found.rate
        if budget is not None:
            more = found.budget_s if budget.startswith("+") else 0.0
            total_s = more + parse_budget(budget.removeprefix("+"), rate)
            found = replace(found, budget_s=total_s, rate=rate)  # stored when the search has the study
        if not found.left_s:
            raise UsageError(
                f"study {study} has spent its budget of {found.budget_s:g} s",
                f"give it more: evo resume {study} --budget +10m",
            )
        setup = Setup.of(found, open_cache(cache).root, nvcc_or_environment(nvcc))
        with _pool(setup, context.obj) as pool:
            result = _run(setup, store, _search_spaces(setup), pool)
    _conclude(result, json)


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
    from evo.confirm.worker import WorkerProcess, WorkerSpec
    from evo.device.open import is_gpu
    from evo.report import as_json
    from evo.report.confirmed import confirmation_record, confirmation_tables
    from evo.study import Setup

    with open_store(database) as store:
        found = store.study(study)
        if not is_gpu(found.device):
            hint = "search on a machine with a GPU"
            raise UsageError(f"study {study} ran on the emulator: its times are estimates", hint)
        spec = WorkerSpec.of(Setup.of(found, open_cache(cache).root, nvcc_or_environment(nvcc)))
        spec.evaluator.prepare()
        store.claim(found, found.lookahead)  # no other process searches or confirms it meanwhile
        try:
            with closing(WorkerProcess(spec)) as worker:
                result = run(found, store, worker, top=top, afresh=True, watch=lambda s: notice(s.text))
        finally:
            status = "interrupted" if found.status == "running" else found.status  # a kill left it so
            store.release(found, status, found.spent_s)
    if result is None or not result.green:
        hint = f"give it more time: evo resume {study} --budget +10m"
        raise NothingFound(f"study {study} has no timed trial that is correct", hint)
    if form_of(json) == "json":
        sys.stdout.write(as_json(confirmation_record(result)))
    else:
        put(confirmation_tables(result), "text")
    return 0


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


def _study_on(
    problem: Problem,
    device: str,
    gpu: str | None,
    target: str | None,
    smem_limit: str | None,
    budget_s: float,
) -> Study:
    """A study of `problem` on a device, without a name and as a study is by default."""
    from evo.device.open import choose_device
    from evo.study import Study

    chosen, stands_for = choose_device(device, gpu, target)
    return Study(
        name="",
        problem=problem,
        device=chosen,
        gpu=stands_for.name,
        templates=(),
        budget_s=budget_s,
        target=target or "",
        smem_limit=parse_bytes(smem_limit) if smem_limit else None,
        versions={"evo": __version__},
    )


def _begin(setup: Setup, database: str, warm_start: Sequence[str], spare: Spare | None) -> SearchResult:
    """The first search of a study; only now it is in the store."""
    with _pool(setup, spare) as pool:
        spaces = _search_spaces(setup)
        with open_store(database, create=True) as store:
            created = _created(store, setup.study, spaces, warm_start)
            return _run(replace(setup, study=created), store, spaces, pool)


def _pool(setup: Setup, spare: Spare | None) -> Pool:
    """The processes that evaluate. What the machine lacks is told here, before a study is made."""
    from evo.evaluate import EvaluatorSpec
    from evo.evaluate.pool import Pool

    return Pool(EvaluatorSpec.of(setup), setup.study.workers, spare=spare)


def _created(
    store: Store, asked: Study, spaces: Mapping[str, SearchSpace], warm_start: Sequence[str]
) -> Study:
    """The study, now in the store: with a name, its templates, and the studies that it learns from."""
    from evo.loop.warm_start import warm_start_sources
    from evo.strategy import STRATEGIES

    if asked.strategy not in STRATEGIES:
        raise UnknownName.among("strategy", asked.strategy, list(STRATEGIES))
    name = asked.name or store.unused_name(asked.problem.task)
    named = replace(asked, name=name, templates=tuple(spaces))
    return store.create(replace(named, warm_start=warm_start_sources(store, named, warm_start)))


def _search_spaces(setup: Setup) -> dict[str, SearchSpace]:
    """The feasible points of the study's templates; says on stderr what there is to search."""
    from evo.loop import search_spaces
    from evo.report.overview import space_table

    spaces = search_spaces(setup.templates, setup.limits, setup.study.problem)
    for name, space in spaces.items():
        notice_table(space_table(name, space.feasible))
    return spaces


def _run(setup: Setup, store: Store, spaces: dict[str, SearchSpace], workers: Pool) -> SearchResult:
    """Searches, and shows on stderr how it goes."""
    from evo.confirm import PATIENT_S, reserve_s
    from evo.confirm.worker import EmulatorAhead, WorkerProcess, WorkerSpec
    from evo.device.open import is_gpu
    from evo.loop import search as run
    from evo.report.live import study_line, view_on

    study = setup.study
    notice(study_line(study))

    def confirm_worker(left_s: float) -> WorkerProcess:
        # by the reserve as well: a confirmation that goes on has the baselines that it began with
        patient = max(left_s, reserve_s(study.budget_s)) >= PATIENT_S
        return WorkerProcess(WorkerSpec.of(setup, patient))

    try:
        with view_on(stderr()) as view:
            if not is_gpu(study.device):  # an estimate is a model's word: there is nothing to confirm
                return run(study, store, spaces, workers, view.show)
            with closing(EmulatorAhead(setup.cache)) as emulator:

                def show(progress: Progress) -> None:
                    if progress.latest:  # not before: it would delay the first trial
                        emulator.build()
                    view.show(progress)

                return run(study, store, spaces, workers, show, confirm_worker)
    except KeyboardInterrupt:
        notice(f"stopped at once; go on with: evo resume {study.name}")
        raise


def _conclude(result: SearchResult, json: bool) -> None:
    from evo.report import duration
    from evo.report.confirmed import unconfirmed_lines
    from evo.report.leaderboard import leaderboard_records, leaderboards
    from evo.report.overview import dead_parameters_text, failures_table

    study, progress = result.study, result.progress
    groups = {study.name: study.baseline_groups()}
    for line in unconfirmed_lines(result.confirmation):
        notice(line)
    if json:
        put([leaderboard_records(result.best, groups)], "json")
    else:
        put(leaderboards(result.best, groups), "text")
    if result.failures:
        notice_table(failures_table(result.failures))
    for line in dead_parameters_text(result.dead):
        notice(line)
    notice(f"{progress.trials} trials, {progress.correct} correct, in {duration(progress.spent_s)}")
    if result.stopped == "exhausted":
        notice("every feasible point has been tried")
    if result.stopped == "converged":
        notice(
            f"converged: no untried point is expected to be faster by more than the noise; "
            f"to go on all the same: evo resume {study.name}"
        )
    if result.stopped == "interrupted":
        notice(f"interrupted; go on with: evo resume {study.name}")
        raise typer.Exit(130)
