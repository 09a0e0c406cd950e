"""`evo.search`: from what a person asks for to a study with its result."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evo.api.given import Given, given
from evo.api.keywords import keywords_of
from evo.api.parse import (
    DATABASE,
    Flags,
    Paths,
    Shape,
    parse_budget,
    parse_bytes,
    parse_own,
    parse_until,
    task_folders,
    whole,
)
from evo.api.running import Begin, adopted, begin
from evo.api.scheduler import Scheduler
from evo.api.study import Study
from evo.cache import default_folder
from evo.calls import with_calls
from evo.cores import usable_cores
from evo.device.open import choose_device, choose_gpus, is_gpu, require_one_model
from evo.errors import UsageError
from evo.report.screen import screen
from evo.study import Setup
from evo.study import Study as Record
from evo.task import Task, load_task
from evo.timing import ranking_named
from evo.version import __version__

if TYPE_CHECKING:
    from evo.child import Spare
    from evo.trial import Problem

LARGEST_SEED = 2**63 - 1
MOST_WORKERS = 1024

Where = tuple[str, str | None, str | None, str | None, str | None]
"""What --device, --gpu, --gpus, --target and --scheduler say."""


@keywords_of("evo.search")
def search(
    task: str | os.PathLike[str] | Task | Given,
    *,
    budget: str | float,
    rate: float | None = None,
    study: str | None = None,
    shape: Shape | None = None,
    flag: Flags | None = None,
    dtype: str | None = None,
    inputs: str | os.PathLike[str] | None = None,
    template: str | Sequence[str] | None = None,
    templates: Paths | None = None,
    strategy: str = "evo",
    seed: int = 0,
    warm_start: str | Sequence[str] | None = None,
    until: str | int = "budget",
    rank: str = "worst",
    accept_unproven: bool = False,
    workers: int | None = None,
    device: str = "auto",
    gpu: str | None = None,
    gpus: str | None = None,
    scheduler: str | None = None,
    target: str | None = None,
    smem_limit: str | int | None = None,
    database: str | os.PathLike[str] = DATABASE,
    cache: str | os.PathLike[str] | None = None,
    nvcc: str | os.PathLike[str] | None = None,
    progress: bool = True,
    spares: Sequence[Spare] = (),
    exchange: Sequence[str] = (),
) -> Study:
    """Searches for the fastest correct kernel of `task`; the study with what was found.

    `task`: a name, the folder that has its task.py, or a Task (its `study` goes on, where there is one). All
    other names are those of options of `evo search`; `scheduler` takes the file of --slurm, too. `budget`:
    "90m", seconds, or "$7" at `rate` dollars an hour. `shape`: "1,8,512", numbers in that order, or a mapping
    by name. `flag`: a mapping, or "NAME=VALUE" texts. `spares`: processes that become evaluators.
    `exchange`: studies, on other GPUs, whose best kernels are tried here as they find them.

    Ctrl-C (a notebook's interrupt) ends the search, keeps every trial and gives the study; a second one is a
    KeyboardInterrupt. Raises EvoErrors: UsageError for what cannot be, MachineError for what this machine
    lacks, NothingFound where no kernel is correct (the study has the reasons)."""
    loaded, folders, text = _found(task, task_folders(templates))
    problem, calls = parse_own(loaded, inputs, shape, dtype, flag or ())
    found = asked_for(
        with_calls(loaded, problem, calls),
        problem,
        folders,
        parse_budget(budget, rate),
        where=(device, gpu, gpus, target, scheduler),
        chosen=chosen(strategy, seed, workers, smem_limit, rate, until),
        template=template,
        rank=rank,
        accept_unproven=accept_unproven,
    )
    asked = replace(found, name=study or "", calls=calls, given=text)
    tools = Path(cache) if cache else default_folder(), Path(nvcc) if nvcc else None
    start = Begin(os.fspath(database), several(warm_start), screen(progress), tuple(exchange or ()))
    return _gone_on(asked, start.database, tools, progress) or _begun(asked, tools, scheduler, start, spares)


def _begun(
    asked: Record,
    tools: tuple[Path, Path | None],
    scheduler: str | None,
    start: Begin,
    spares: Sequence[Spare],
) -> Study:
    """The study, which was searched here or by the workers at a scheduler."""
    asked = _with_workers(asked)
    if scheduler is None:
        result = begin(Setup.of(asked, *tools), start, spares)
    else:
        with closing(Scheduler(scheduler, start.screen.notice)) as there:
            result = begin(there.setup(asked, *tools), start, scheduler=there)
    return Study(result.study.name, start.database, *tools, result)


def asked_for(
    task: Task,
    problem: Problem,
    folders: Sequence[Path],
    budget_s: float,
    *,
    where: Where,
    chosen: Mapping[str, Any],
    template: str | Sequence[str] | None,
    rank: str,
    accept_unproven: bool,
) -> Record:
    """The study of `problem` that a person asks for, without a name. `chosen`: as `chosen` makes
    them; the others are as in `search`."""
    return replace(
        _study_on(problem, where, budget_s),
        **chosen,
        templates=several(template),
        accept_unproven=accept_unproven,
        ranking=ranking_named(rank, task),
        folders=tuple(map(str, folders)),
    )


def _gone_on(asked: Record, database: str, tools: tuple[Path, Path | None], progress: bool) -> Study | None:
    """The study of a task that is given again, where there is one, after what is left of its budget."""
    if not asked.given:
        return None
    there = adopted(asked, database, screen(progress))
    if there is None:
        return None
    found = Study(there.name, database, *tools)
    spent = asked.budget_s <= there.spent_s or asked.most_trials <= found._count
    if spent or there.status == "exhausted":
        return found
    return found.resume(asked.budget_s, until=asked.until, progress=progress)


def _devices(
    device: str, gpu: str | None, gpus: str | None, target: str | None, scheduler: str | None
) -> tuple[str, tuple[str, ...], str]:
    """The device, the devices that evaluate at once, and the name of their GPU: "" where workers say it."""
    if scheduler is not None:
        if gpus is not None or device not in ("auto", "cuda", "emulator"):
            raise UsageError("with --scheduler, each worker says which GPUs it has", "evo worker --gpus all")
        return {"emulator": "emulator"}.get(device, "cuda:0"), (), gpu or ""
    if gpus is not None and device not in ("auto", "cuda", "emulator"):
        raise UsageError(f"--gpus says which GPUs, and so does --device {device}", "leave out one of them")
    chosen, stands_for = choose_device(device, gpu, target)
    if gpus is not None and device == "auto" and not is_gpu(chosen):
        hint = "leave out --gpus; or --device emulator --gpus 0,1 for several emulated ones"
        raise UsageError("--gpus names GPUs of this machine, and it has none", hint)
    named = choose_gpus(gpus, chosen)
    require_one_model(named)
    if named and is_gpu(chosen):
        chosen, stands_for = choose_device(named[0], gpu, target)
    return chosen, named, stands_for.name


def _study_on(problem: Problem, where: Where, budget_s: float) -> Record:
    """A study of `problem`, without a name and as a study is by default."""
    target, (device, gpus, gpu) = where[3], _devices(*where)
    wanted, versions = target or "", {"evo": __version__}
    return Record("", problem, device, gpu, (), budget_s, gpus=gpus, target=wanted, versions=versions)


def chosen(
    strategy: str,
    seed: int,
    workers: int | None,
    smem_limit: str | int | None,
    rate: float | None,
    until: str | int,
) -> dict[str, Any]:
    """Fields of a study whose values have limits."""
    return {
        "until": parse_until(until),
        "strategy": strategy,
        "rate": rate,
        "seed": whole("seed", seed, 0, LARGEST_SEED),
        "workers": whole("workers", workers or usable_cores(), 1, MOST_WORKERS),
        "smem_limit": parse_bytes(smem_limit) if smem_limit else None,
    }


def _with_workers(study: Record) -> Record:
    """The study; UsageError where it has fewer workers than GPUs."""
    if study.workers < len(study.gpus):
        message = f"{len(study.gpus)} GPUs need as many workers, and there are {study.workers}"
        raise UsageError(message, "more --workers, or fewer --gpus")
    return study


def _found(
    task: str | os.PathLike[str] | Task | Given, folders: tuple[Path, ...]
) -> tuple[Task, tuple[Path, ...], str]:
    """The task, the folders of templates with the one that it lies in, and what a study keeps of a task that
    was given in Python."""
    if isinstance(task, Task):
        task = given(task)
    if isinstance(task, Given):
        return load_task(task.task.name, (task.folder,)), (task.folder, *folders), task.text
    named = os.fspath(task)
    if isinstance(task, str) and os.sep not in named:
        return load_task(named, folders), folders, ""
    folder = Path(named).resolve()
    folders = tuple(dict.fromkeys((folder.parent, *folders)))
    return load_task(folder.name, folders), folders, ""


def several(names: str | Sequence[str] | None) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names or ())
