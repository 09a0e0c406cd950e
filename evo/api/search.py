"""`evo.search`: from what a person asks for to a study with its result."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evo.api.given import Given, given
from evo.api.inputs import parse_own
from evo.api.running import adopted, begin
from evo.api.study import Study
from evo.api.values import (
    DATABASE,
    Flags,
    Paths,
    Shape,
    parse_budget,
    parse_bytes,
    task_folders,
    whole,
)
from evo.cache import default_folder
from evo.calls import with_calls
from evo.device.open import choose_device
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
    rank: str = "worst",
    accept_unproven: bool = False,
    workers: int | None = None,
    device: str = "auto",
    gpu: str | None = None,
    target: str | None = None,
    smem_limit: str | int | None = None,
    database: str | os.PathLike[str] = DATABASE,
    cache: str | os.PathLike[str] | None = None,
    nvcc: str | os.PathLike[str] | None = None,
    progress: bool = True,
    spare: Spare | None = None,
) -> Study:
    """Searches for the fastest correct kernel of `task`; the study with what was found.

    `task`: a name, the folder that has its task.py, or a Task (its `study` goes on, where there is one). The
    other names and defaults are those of the options of `evo search`, which its --help explains; no
    environment variable is read. `budget`: "90m", seconds, or "$7" at `rate` dollars an hour. `shape`:
    "1,8,512", numbers in that order, or a mapping by name. `flag`: a mapping, or "NAME=VALUE" texts.
    `progress=False` is silent. `spare`: a process that becomes the first evaluator.

    Ctrl-C (a notebook's interrupt) ends the search, keeps every trial and gives the study; a second one is a
    KeyboardInterrupt. Raises EvoErrors: UsageError for what cannot be, MachineError for what this machine
    lacks, NothingFound where no kernel is correct (the study has the reasons)."""
    loaded, folders, text = _found(task, task_folders(templates))
    problem, calls = parse_own(loaded, inputs, shape, dtype, flag or ())
    asked = replace(
        _study_on(problem, device, gpu, target, parse_budget(budget, rate)),
        **_chosen(strategy, seed, workers, smem_limit),
        name=study or "",
        templates=_several(template),
        rate=rate,
        accept_unproven=accept_unproven,
        ranking=ranking_named(rank, with_calls(loaded, problem, calls)),
        calls=calls,
        folders=tuple(map(str, folders)),
        given=text,
    )
    tools = Path(cache) if cache else default_folder(), Path(nvcc) if nvcc else None
    place = os.fspath(database)
    if text and (again := _gone_on(asked, place, tools, progress)):
        return again
    result = begin(Setup.of(asked, *tools), place, _several(warm_start), screen(progress), spare)
    return Study(result.study.name, place, *tools, result)


def _gone_on(asked: Record, database: str, tools: tuple[Path, Path | None], progress: bool) -> Study | None:
    """The study of a task that is given again, where there is one, after what is left of its budget."""
    there = adopted(asked, database, screen(progress))
    if there is None:
        return None
    found = Study(there.name, database, *tools)
    over = there.status == "exhausted" or asked.budget_s <= there.spent_s
    return found if over else found.resume(asked.budget_s, progress=progress)


def _study_on(problem: Problem, device: str, gpu: str | None, target: str | None, budget_s: float) -> Record:
    """A study of `problem` on a device, without a name and as a study is by default."""
    chosen, stands_for = choose_device(device, gpu, target)
    versions = {"evo": __version__}
    return Record("", problem, chosen, stands_for.name, (), budget_s, target=target or "", versions=versions)


def _chosen(strategy: str, seed: int, workers: int | None, smem_limit: str | int | None) -> dict[str, Any]:
    """Fields of a study whose values have limits."""
    return {
        "strategy": strategy,
        "seed": whole("seed", seed, 0, LARGEST_SEED),
        "workers": whole("workers", workers or os.cpu_count() or 1, 1, MOST_WORKERS),
        "smem_limit": parse_bytes(smem_limit) if smem_limit else None,
    }


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


def _several(names: str | Sequence[str] | None) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names or ())
