"""The commands that keep what won: promote, champion."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated

import typer

from evo.cli.options import (
    DATABASE,
    DatabaseOption,
    JsonOption,
    KernelsOption,
    gpu_names,
    open_store,
    task_names,
)
from evo.cli.parse import form_of, notice, parse_problem


def promote(
    trial: Annotated[str, typer.Argument(metavar="TRIAL", help="STUDY/NUMBER of a CONFIRMED trial.")],
    kernels: KernelsOption = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Also where the champion there is is as fast.")
    ] = False,
    database: DatabaseOption = DATABASE,
) -> None:
    """Keep a CONFIRMED kernel as the champion of its problem and architecture.

    Writes its source, which compiles with bare nvcc, and a record of where it comes from: study, trial,
    point, what the gate measured, the times of CONFIRMED beside every baseline, and all versions.

    \b
      evo confirm mission && evo promote mission/224
    """
    from evo.confirm.champions import kernels_folder
    from evo.confirm.champions import promote as keep
    from evo.study import recorded_gpu

    with open_store(database) as store:
        stored = store.trial(trial)
        study = store.study(stored.study)
        champion = keep(
            stored, study, store.confirmations.newest(study), study.target or recorded_gpu(study).arch,
            kernels or kernels_folder(), replace=replace,
        )  # fmt: skip
    print(champion.path)


def champion(
    *,
    task: Annotated[str, typer.Argument(metavar="TASK", autocompletion=task_names)] = "attention",
    shape: Annotated[str | None, typer.Option(metavar="B,H,L,D", help="The sizes.")] = None,
    causal: Annotated[bool, typer.Option("--causal", help="A query sees no later keys.")] = False,
    dtype: Annotated[str | None, typer.Option(metavar="fp16|bf16", help="The storage type.")] = None,
    gpu: Annotated[str, typer.Option(autocompletion=gpu_names, help="For which GPU.")] = "H200",
    kernels: KernelsOption = None,
    json: JsonOption = False,
) -> None:
    """Say which champion serves a problem on a GPU, how it is launched, and why this one.

    \b
      evo champion --shape 1,8,512,64 --gpu H200
      evo champion --shape 1,8,600,64 --gpu L4 --json | jq .launch
    """
    from evo.confirm.champions import champions, choose
    from evo.device.open import gpu_named
    from evo.gpu import Limits
    from evo.report import as_json
    from evo.task import load_task

    problem = parse_problem(load_task(task), shape, dtype, causal)
    choice = choose(problem, Limits.of(gpu_named(gpu)), champions(kernels))
    if form_of(json) == "json":
        found = {"source": str(choice.champion.path), "why": choice.why, "exact": choice.exact,
                 "entry": choice.champion.record["entry"], "launch": asdict(choice.launch)}  # fmt: skip
        sys.stdout.write(as_json(found))
        return
    print(choice.champion.path)
    notice(choice.why)
