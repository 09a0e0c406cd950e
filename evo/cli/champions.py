"""The commands that keep what won: promote, champion."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from evo.api.values import DATABASE, parse_problem, task_folders
from evo.cli.options import (
    DEFAULT_TASK,
    DatabaseOption,
    DtypeOption,
    FlagOption,
    JsonOption,
    KernelsOption,
    ShapeOption,
    TaskArgument,
    TemplatesOption,
    gpu_names,
    open_store,
)
from evo.cli.parse import form_of, notice


def promote(
    trial: Annotated[str, typer.Argument(metavar="TRIAL", help="STUDY/NUMBER of a CONFIRMED trial.")],
    kernels: Annotated[Path, typer.Option(metavar="DIR", help="Where champions are kept.")] = Path("kernels"),
    replace: Annotated[
        bool, typer.Option("--replace", help="Also where the champion there is is as fast.")
    ] = False,
    database: DatabaseOption = DATABASE,
) -> None:
    """Keep a CONFIRMED kernel as the champion of its problem and architecture.

    Writes its source, which compiles with bare nvcc, and a record of where it comes from: study, trial,
    point, what the gate measured, the times of CONFIRMED beside every baseline, and all versions. Both go
    into the folder TASK/ARCHITECTURE below --kernels.

    \b
      evo confirm mission && evo promote mission/224
    """
    from evo.confirm.champions import promote as keep
    from evo.study import recorded_gpu

    with open_store(database) as store:
        stored = store.trial(trial)
        study = store.study(stored.study)
        champion = keep(
            stored,
            study,
            store.confirmations.newest(study),
            study.target or recorded_gpu(study).arch,
            kernels,
            replace=replace,
        )
    print(champion.path)


def champion(
    *,
    task: TaskArgument = DEFAULT_TASK,
    shape: ShapeOption = None,
    flag: FlagOption = None,
    dtype: DtypeOption = None,
    templates: TemplatesOption = None,
    gpu: Annotated[str, typer.Option(autocompletion=gpu_names, help="For which GPU.")] = "H200",
    kernels: KernelsOption = None,
    json: JsonOption = False,
) -> None:
    """Say which champion serves a problem on a GPU, how it is launched, and why this one.

    \b
      evo champion --shape 1,8,512,64 --gpu H200
      evo champion --shape 1,8,600,64 --gpu L4 --json | jq .launch
    """
    from evo.confirm.champions import champions, choose, kernels_folders
    from evo.device.open import gpu_named
    from evo.gpu import Limits
    from evo.report import as_json
    from evo.task import load_task

    folders = task_folders(templates)
    problem = parse_problem(load_task(task, folders), shape, dtype, flag or ())
    choice = choose(problem, Limits.of(gpu_named(gpu)), champions(*kernels_folders(kernels)), folders)
    if form_of(json) == "json":
        found = {
            "source": str(choice.champion.path),
            "why": choice.why,
            "exact": choice.exact,
            "entry": choice.champion.record["entry"],
            "launch": asdict(choice.launch),
        }
        sys.stdout.write(as_json(found))
        return
    print(choice.champion.path)
    notice(choice.why)
