"""`evo.kernel`: where the champions of a call come from: a task's name, a folder, or a study."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from evo.api.parse import DATABASE, Paths, task_folders
from evo.api.study import Study, load_study
from evo.api.study_set import StudySet, load_studies
from evo.api.task_kernel import TaskKernel
from evo.cache import default_folder
from evo.confirm.champions import Champion, champions, kernels_folders, unkept
from evo.device.open import DEFAULT_GPU, gpu_named
from evo.errors import NothingFound, StoreError, UnknownName, UsageError
from evo.study import recorded_gpu
from evo.task import Task, list_tasks, load_task


def kernel(
    source: str | os.PathLike[str] | Study | StudySet,
    *,
    device: str | None = None,
    gpu: str | None = None,
    templates: Paths | None = None,
    database: str | os.PathLike[str] = DATABASE,
    cache: str | os.PathLike[str] | None = None,
    nvcc: str | os.PathLike[str] | None = None,
) -> TaskKernel:
    """A task as one call: `attention = evo.kernel("attention")`, then `o = attention(q, k, v, causal=True)`.

    `source`: a task, with its champions of ./kernels and of evo; a folder of champions, as `evo promote`
    writes it; a study or its name, whose best kernel is taken, CONFIRMED or not; or a set of studies or its
    name, with the portfolio's kernel for each of its problems. The call chooses by GPU and problem, as
    `evo champion` does, and compiles at first use. Where none serves, the task's fallback does, and the log
    says so once; `explain` tells why.

    `device="emulator"`: CPU tensors run on the emulator, which stands for `gpu` (default: L4). Without it
    they are the fallback's. `templates`, `database`, `cache`, `nvcc`: as in `evo.search`.

    UsageError where there is no such source, NothingFound where a study has no correct kernel."""
    if device not in (None, "emulator") or (gpu is not None and device is None):
        raise UsageError(
            f"a kernel runs where its tensors lie, not on {device or gpu}",
            'for CPU tensors: device="emulator", and gpu="H200" for what it stands for',
        )
    task, found, folders = _found(source, task_folders(templates), os.fspath(database))
    return TaskKernel(
        task,
        found,
        folders,
        Path(cache) if cache else default_folder(),
        nvcc=Path(nvcc) if nvcc else None,
        emulated=gpu_named(gpu or DEFAULT_GPU) if device else None,
    )


Found = tuple[Task, Sequence[Champion], Sequence[Path]]
"""A task, what may serve it, and where its templates are."""


def _found(
    source: str | os.PathLike[str] | Study | StudySet, folders: Sequence[Path], database: str
) -> Found:
    if isinstance(source, (Study, StudySet)):
        return _of_study(source)
    if isinstance(source, str) and source in list_tasks(folders):
        return load_task(source, folders), champions(*kernels_folders()), folders
    if Path(source).is_dir():
        return _of_folder(Path(source).resolve(), folders)
    try:
        return of_studies(os.fspath(source), database)
    except (UnknownName, StoreError) as error:
        hint = f"tasks: {', '.join(list_tasks(folders))}; {database}: {error.message}"
        raise UsageError(f"there is no task, folder or study {os.fspath(source)}", hint) from error


def of_studies(name: str, database: str) -> Found:
    """Of the study of that name, or of the set of studies. UnknownName where there is neither, NothingFound
    where no kernel is correct."""
    try:
        return _of_study(load_study(name, database=database))
    except UnknownName as error:
        try:
            found = load_studies(name, database=database)
        except UnknownName:
            raise error from None
        return _of_study(found)


def _of_folder(folder: Path, folders: Sequence[Path]) -> Found:
    """Of kernels/, or of kernels/TASK."""
    found = champions(folder)
    if not found and any(folder.glob("*/*.json")):
        found = [one for one in champions(folder.parent) if folder in one.path.parents]
    names = sorted({one.problem.task for one in found})
    if len(names) != 1:
        hint = f"name one of its folders: {', '.join(names)}" if names else "`evo promote` keeps some"
        raise UsageError(f"{folder} has champions of {len(names)} tasks", hint)
    return load_task(names[0], folders), found, folders


def _of_study(study: Study | StudySet) -> Found:
    if isinstance(study, StudySet):
        kept, record = study._champions(), study.studies[0]._record()
        if not kept:
            raise NothingFound(f"no study of {study.name} has a correct kernel", "evo studies")
        return record.task(), kept, record.template_folders
    record, best = study._record(), study.best
    if best is None:
        raise NothingFound(f"study {study.name} has no correct kernel", f"evo resume {study.name}")
    arch = record.target or recorded_gpu(record).arch
    return record.task(), [unkept(best._record, record, arch)], record.template_folders
