"""The commands that check evo and this machine: gate, audit, doctor."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evo.api.parse import DATABASE, parse_own, parse_problem, task_folders
from evo.cli.options import (
    DEFAULT_TASK,
    MOST,
    MOST_PROCESSES,
    CacheOption,
    DatabaseOption,
    DeviceOption,
    DtypeOption,
    FlagOption,
    GpuOption,
    InputsOption,
    JsonOption,
    NvccOption,
    SeedOption,
    ShapeOption,
    TaskArgument,
    TemplateOption,
    TemplatesOption,
    UnprovenOption,
    nvcc_or_environment,
    open_cache,
    template_names,
)
from evo.cli.parse import form_of, notice, put, say, stdout
from evo.cores import usable_cores
from evo.errors import MachineError, NothingFound, UsageError

if TYPE_CHECKING:
    from evo.gpu import Gpu
    from evo.selftest.mutant_results import MutantResult, MutationTarget
    from evo.selftest.zoo_run import Finding
    from evo.task import Task

TOLD_EVERY_S = 10.0
"""How often a long check says how far it is."""
JobsOption = Annotated[
    int | None,
    typer.Option("--jobs", min=1, max=MOST_PROCESSES, help="Processes at work (default: one a core)."),
]


SelfTestOption = Annotated[
    bool, typer.Option("--self-test", help="Try the gate on kernels that are known to be wrong, or right.")
]
MutateOption = Annotated[
    str | None,
    typer.Option(
        "--mutate",
        metavar="TEMPLATE",
        autocompletion=template_names,
        help="Break this template's kernel in one place after the other.",
    ),
]
ZooOption = Annotated[
    Path | None, typer.Option(metavar="DIR", help="The kernels to try (default: the task's own).")
]
MutantsOption = Annotated[
    int | None, typer.Option(min=1, max=MOST, metavar="N", help="Try N mutants (default: all).")
]


def gate(
    *,
    task: TaskArgument = DEFAULT_TASK,
    self_test: SelfTestOption = False,
    mutate: MutateOption = None,
    zoo: ZooOption = None,
    mutants: MutantsOption = None,
    jobs: JobsOption = None,
    shape: ShapeOption = None,
    flag: FlagOption = None,
    dtype: DtypeOption = None,
    inputs: InputsOption = None,
    templates: TemplatesOption = None,
    device: DeviceOption = "auto",
    gpu: GpuOption = None,
    seed: SeedOption = 0,
    accept_unproven: UnprovenOption = False,
    json: JsonOption = False,
    cache: CacheOption = None,
    nvcc: NvccOption = None,
) -> int:
    """Test the gate itself: planted faults must be refused for the right reason, honest kernels must pass.

    --self-test tries the kernels that the task plants in TASK/cheats, wrong and honest ones; ends with 4 if
    the gate let a wrong one through or refused an honest one. --mutate deletes, moves and changes single
    statements in the PTX of a template's default kernel, and runs each mutant through the gate on the
    emulator; survivors are listed with their line, and with how the check for finalists ends.

    \b
      evo gate attention --self-test
      evo gate attention --self-test --device emulator --zoo my_cheats
      evo gate attention --mutate flash_mma --json > mutants.json
      evo gate rmsnorm --templates ~/kernels --mutate row_warp
    """
    from evo.device.open import choose_device
    from evo.selftest.mutant_results import MutationTarget
    from evo.selftest.zoo import Zoo
    from evo.selftest.zoo_run import try_zoo
    from evo.task import load_task

    if self_test == (mutate is not None):
        what = "--self-test and --mutate at once" if self_test else "neither --self-test nor --mutate"
        raise UsageError(what, "choose one: evo gate --self-test, or evo gate --mutate TEMPLATE")
    folders, built, compiler = task_folders(templates), open_cache(cache).root, nvcc_or_environment(nvcc)
    loaded = load_task(task, folders)
    problem, calls = parse_own(loaded, inputs, shape, dtype, flag or ())
    if mutate is None:
        chosen, stands_for = choose_device(device, gpu, None)
        kernels = Zoo.of(loaded, folders, zoo)
        own = (problem, calls) if calls else None
        if own and problem not in (problems := {one.problem for one in kernels.planted()}):
            known = "; ".join(sorted(at.key for at in problems))
            raise UsageError(f"no planted kernel is of {problem.key}", f"there are some of {known}")
        found = try_zoo(kernels, folders, chosen, stands_for, built, compiler, seed, accept_unproven, own)
        return _tell_zoo(found, json)
    if device not in ("auto", "emulator"):
        raise UsageError("mutants run on the emulator", "leave out --device; --gpu says what it stands for")
    stands_for = _gpu_of_mutants(loaded, mutate, folders, gpu)
    target = MutationTarget(mutate, problem, stands_for, built, compiler, folders, seed=seed, calls=calls)
    return _tell_mutants(target, mutants, jobs or usable_cores(), json)


def _gpu_of_mutants(task: Task, template: str, folders: Sequence[Path], gpu: str | None) -> Gpu:
    """The GPU that the emulator stands for: the one of that name, else one that the template needs."""
    from evo.device.open import gpu_named, gpu_that_runs
    from evo.template import load_template

    needs = load_template(task, template, folders).needs
    return gpu_named(gpu) if gpu else gpu_that_runs(needs)


def _tell_zoo(found: Iterable[Finding], json: bool) -> int:
    from evo.report import as_json
    from evo.report.checks import zoo_line, zoo_summary

    findings = []
    for finding in found:
        findings.append(finding)
        (notice if json else say)(zoo_line(finding))
    say(as_json([asdict(f) for f in findings]) if json else zoo_summary(findings))
    return 0 if all(f.right for f in findings) else NothingFound.exit_code


def _tell_mutants(target: MutationTarget, count: int | None, jobs: int, json: bool) -> int:
    from evo.report import as_json, several
    from evo.report.checks import mutant_line, mutants_summary
    from evo.selftest.mutant_results import record
    from evo.selftest.mutants import try_mutants

    fates: Counter[str] = Counter()
    told = time.monotonic()

    def tell(tried: MutantResult) -> None:
        nonlocal told
        fates[tried.fate] += 1
        if tried.fate == "survived":
            (notice if json else say)(mutant_line(tried))
        if time.monotonic() - told >= TOLD_EVERY_S:
            told = time.monotonic()
            ended = ", ".join(f"{n} {fate}" for fate, n in fates.most_common())
            notice(f"{several(fates.total(), 'mutant')} tried: {ended}")

    notice("the honest kernel comes first, with the check for finalists, which takes a while")
    result = record(target, try_mutants(target, count, jobs, tell))
    sys.stdout.write(as_json(result) if json else mutants_summary(result))
    return 0


def audit(
    *,
    task: TaskArgument = DEFAULT_TASK,
    points: Annotated[
        int, typer.Option(min=2, max=MOST, metavar="N", help="Points to try, over all templates.")
    ] = 200,
    template: TemplateOption = None,
    templates: TemplatesOption = None,
    jobs: JobsOption = None,
    shape: ShapeOption = None,
    flag: FlagOption = None,
    dtype: DtypeOption = None,
    device: DeviceOption = "auto",
    gpu: GpuOption = None,
    seed: SeedOption = 0,
    json: JsonOption = False,
    cache: CacheOption = None,
    nvcc: NvccOption = None,
) -> int:
    """Ask compiler and device about random points: is what the rules allow and refuse true?

    Half of the points are feasible by the rules; one that does not compile or load is a false feasible. The
    others are refused by a rule about the hardware; one that the device grants is a false infeasible. With a
    GPU its driver answers, without one ptxas and the table of GPUs.

    \b
      evo audit --points 400
      evo audit attention --template flash_mma --gpu L4 --json
    """
    from evo.device.open import choose_device
    from evo.report import as_json
    from evo.report.checks import audit_page
    from evo.selftest.audit import audited, summary
    from evo.study import templates_of
    from evo.task import load_task

    folders = task_folders(templates)
    loaded = load_task(task, folders)
    problem = parse_problem(loaded, shape, dtype, flag or ())
    chosen, stands_for = choose_device(device, gpu, None)
    found = audited(
        templates_of(loaded, template or (), folders, stands_for),
        problem,
        chosen,
        stands_for,
        open_cache(cache).root,
        nvcc_or_environment(nvcc),
        points=points,
        seed=seed,
        jobs=jobs or usable_cores(),
    )
    about = {"device": chosen, "gpu": stands_for.name, "problem": problem.key, "seed": seed}
    result = {**about, **summary(list(found))}
    sys.stdout.write(as_json(result) if json else audit_page(result, stdout()))
    return 0


def doctor(
    json: JsonOption = False,
    database: DatabaseOption = DATABASE,
    nvcc: NvccOption = None,
    cache: CacheOption = None,
) -> int:
    """Check this machine: compiler, GPU, driver, tools, database; what works, and what to do about the rest.

    Ends with 0 if a search can run here, on a GPU or on the emulator, and with 3 if none can.
    """
    from evo.report.overview import findings_table
    from evo.selftest.doctor import Places, can_search, examine

    findings = examine(Places(database, open_cache(cache).root, nvcc_or_environment(nvcc)))
    put([findings_table(findings)], form_of(json))
    return 0 if can_search(findings) else MachineError.exit_code
