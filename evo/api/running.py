"""A search from its setup to its result: the processes, the database, and what is shown meanwhile.

`evo.search`, `Study.resume` and the command line all come here. What only one step needs is imported there:
the first evaluator starts while Optuna and SQLAlchemy are imported."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from evo.errors import UnknownName, UsageError

if TYPE_CHECKING:
    from evo.api.scheduler import Scheduler
    from evo.child import Spare
    from evo.confirm.worker import ConfirmWorker
    from evo.evaluate.pool import Pool
    from evo.loop import Progress, SearchResult, SearchSpace, Workers
    from evo.loop.gpus import GpuWorkers
    from evo.report.screen import Screen
    from evo.store import Store
    from evo.study import Setup, Study


def open_store(database: str, screen: Screen, create: bool = False) -> Store:
    from evo.store import Store

    return Store(database, create=create, notice=screen.notice)


def adopted(asked: Study, database: str, screen: Screen) -> Study | None:
    """The study of the name that is asked for, where it is there already and its task was given in Python, as
    this one is: from now on it finds its task where that lies now. UsageError where it is another task."""
    if not asked.name or not _may_have_studies(database):
        return None
    with open_store(database, screen) as store:
        found = next((study for study in store.studies() if study.name == asked.name), None)
        if found is None or not found.given:
            return None
        if (found.given.split("\n")[0], found.problem.key) != (asked.given.split("\n")[0], asked.problem.key):
            hint = "the arguments that it began with, or a study of another name"
            raise UsageError(f"study {found.name} searches another task, or has other arguments", hint)
        moved = replace(found, folders=asked.folders)
        store.keep(moved)
        return moved


def _may_have_studies(database: str) -> bool:
    return "://" in database or Path(database).exists()


@dataclass(frozen=True)
class Begin:
    """How a study begins: its database, the studies that it is warm-started from, where it shows how it goes,
    and the studies whose best kernels it tries as they find them."""

    database: str
    warm_start: Sequence[str]
    screen: Screen
    exchange: Sequence[str] = ()


def begin(
    setup: Setup, start: Begin, spares: Sequence[Spare] = (), scheduler: Scheduler | None = None
) -> SearchResult:
    """The first search of a study; only when the machine has what it needs is it in the store. `spares`:
    processes that become evaluators. `scheduler`: its workers evaluate."""
    screen = start.screen
    with scheduler.workers(setup) if scheduler else pool_of(setup, spares) as pool:
        spaces = _search_spaces(setup, screen)
        with open_store(start.database, screen, create=True) as store:
            study = created(store, setup.study, spaces, start.warm_start)
            setup = replace(setup, study=study)
            return _run(setup, store, spaces, pool, screen, scheduler, start.exchange)


def go_on(
    setup: Setup,
    database: str,
    screen: Screen,
    spares: Sequence[Spare] = (),
    scheduler: Scheduler | None = None,
) -> SearchResult:
    """A further search of a study that is in the store."""
    with (
        open_store(database, screen) as store,
        scheduler.workers(setup) if scheduler else pool_of(setup, spares) as pool,
    ):
        return _run(setup, store, _search_spaces(setup, screen), pool, screen, scheduler)


def pool_of(setup: Setup, spares: Sequence[Spare]) -> Pool:
    """The processes that evaluate. What the machine lacks is told here, before a study is made."""
    from evo.evaluate import EvaluatorSpec
    from evo.evaluate.pool import Pool

    spec, study = EvaluatorSpec.of(setup), setup.study
    groups, early = spec.groups(study.devices), ("evo.evaluate.early", "")
    return Pool(spec, study.workers, spares=spares, early=early, groups=groups)


def _compared(pool: GpuWorkers, study: Study, store: Store, screen: Screen) -> Workers:
    """The pool, or around it what compares its GPUs: where it has several, or another one than before."""
    from evo.loop.gpus import ComparedWorkers

    known = store.offsets.first_gpu(study)
    if len(pool.gpus) == 1 and known in ("", *pool.gpus):
        return pool
    return ComparedWorkers(pool, study, store, screen.notice)


def created(
    store: Store, asked: Study, spaces: Mapping[str, SearchSpace], warm_start: Sequence[str]
) -> Study:
    """The study, now in the store: with a name, its templates, and the studies that it learns from."""
    from evo.loop.warm_start import warm_start_sources
    from evo.strategy import STRATEGIES

    if asked.strategy not in STRATEGIES:
        raise UnknownName.among("strategy", asked.strategy, list(STRATEGIES))
    named = replace(asked, name=asked.name or asked.problem.task, templates=tuple(spaces))
    wanted = replace(named, warm_start=warm_start_sources(store, named, warm_start))
    return store.create(wanted) if asked.name else store.create_numbered(wanted)


def _search_spaces(setup: Setup, screen: Screen) -> dict[str, SearchSpace]:
    """The feasible points of the study's templates; shows what there is to search."""
    with warnings.catch_warnings():
        # tqdm, which comes with Optuna, misses widgets in a notebook: nothing here shows one
        warnings.filterwarnings("ignore", "IProgress not found")
        from evo.loop import search_spaces
    from evo.report.overview import space_table

    spaces = search_spaces(setup.templates, setup.limits, setup.study.problem)
    for name, space in spaces.items():
        screen.table(space_table(name, space.feasible))
    return spaces


def _run(
    setup: Setup,
    store: Store,
    spaces: dict[str, SearchSpace],
    pool: GpuWorkers,
    screen: Screen,
    scheduler: Scheduler | None,
    exchange: Sequence[str] = (),
) -> SearchResult:
    """Searches, and shows how it goes."""
    from evo.confirm import is_hurried
    from evo.confirm.on_emulator import EmulatorAhead
    from evo.confirm.worker import WorkerProcess, WorkerSpec
    from evo.device.open import is_gpu
    from evo.loop import Turn
    from evo.loop import search as run
    from evo.loop.exchange import Exchanged
    from evo.report.live import study_line

    study = setup.study
    screen.notice(study_line(study))
    workers = _compared(pool, study, store, screen)
    turn = Turn(Exchanged(store, exchange, spaces) if exchange else ())

    def confirm_worker(left_s: float) -> ConfirmWorker:
        patient = not is_hurried(study.budget_s, left_s)
        if scheduler is not None:
            return scheduler.confirm_worker(setup, store.offsets.first_gpu(study), patient)
        return WorkerProcess(WorkerSpec.of(setup, patient))

    try:
        with screen.view() as view:
            if not is_gpu(study.device):  # an estimate is a model's word
                return run(study, store, spaces, workers, view.show, turn=turn)
            if scheduler is not None:  # that machine builds its own emulator
                return run(study, store, spaces, workers, view.show, confirm_worker, turn=turn)
            with closing(EmulatorAhead(setup.cache)) as emulator:

                def show(progress: Progress) -> None:
                    if progress.latest:  # not before: it would delay the first trial
                        emulator.build()
                    view.show(progress)

                return run(study, store, spaces, workers, show, confirm_worker, turn=turn)
    except KeyboardInterrupt:
        screen.notice(f"stopped at once; go on with: evo resume {study.name}")
        raise
