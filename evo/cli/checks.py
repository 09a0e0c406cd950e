"""The commands about what can be believed: gate, audit."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evo.cli.options import (
    CacheOption,
    CausalOption,
    DeviceOption,
    DtypeOption,
    GpuOption,
    JsonOption,
    NvccOption,
    SeedOption,
    ShapeOption,
    TemplateOption,
    nvcc_or_environment,
    open_cache,
    template_names,
)
from evo.cli.parse import form_of, notice, parse_problem, stdout
from evo.errors import NothingFound, UsageError

if TYPE_CHECKING:
    from evo.selftest.mutant_results import MutantResult

JobsOption = Annotated[
    int | None, typer.Option("--jobs", min=1, help="Processes at work (default: one a core).")
]


def gate(
    *,
    self_test: Annotated[
        bool,
        typer.Option("--self-test", help="Try the gate on kernels that are known to be wrong, or right."),
    ] = False,
    mutate: Annotated[
        str | None,
        typer.Option("--mutate", metavar="TEMPLATE", autocompletion=template_names,
                     help="Break this template's kernel in one place after the other."),
    ] = None,
    zoo: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The kernels to try (default: those of evo).")
    ] = None,
    mutants: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Try N mutants (default: all).")
    ] = None,
    jobs: JobsOption = None,
    shape: ShapeOption = None,
    causal: CausalOption = False,
    dtype: DtypeOption = None,
    device: DeviceOption = "auto",
    gpu: GpuOption = None,
    seed: SeedOption = 0,
    json: JsonOption = False,
    cache: CacheOption = None,
    nvcc: NvccOption = None,
) -> int:  # fmt: skip
    """Test the gate itself: planted faults must be refused for the right reason, honest kernels must pass.

    --self-test tries a zoo of planted kernels and honest ones; ends with 4 if the gate let a wrong one
    through or refused an honest one. --mutate deletes, moves and changes single statements in the PTX of a
    template's default kernel, and runs each mutant through the gate on the emulator; survivors are listed
    with their line, and with how the check for finalists ends.

    \b
      evo gate --self-test
      evo gate --self-test --device emulator --zoo tests/cheats
      evo gate --mutate flash_mma --causal --json > mutants.json
    """
    if self_test == (mutate is not None):
        raise UsageError("what about the gate?", "evo gate --self-test, or evo gate --mutate TEMPLATE")
    if mutate is not None:
        if device not in ("auto", "emulator"):
            raise UsageError(
                "mutants run on the emulator", "leave out --device; --gpu says what it stands for"
            )
        return _mutate(mutate, mutants, jobs, shape, dtype, causal, gpu, seed, json, cache, nvcc)
    return _self_test(zoo, device, gpu, seed, json, cache, nvcc)


def _self_test(
    zoo: Path | None, device: str, gpu: str | None, seed: int, json: bool, cache: Path | None,
    nvcc: Path | None,
) -> int:  # fmt: skip
    from evo.device.open import choose_device
    from evo.report import as_json
    from evo.report.checks import zoo_line, zoo_summary
    from evo.selftest.zoo import try_zoo

    chosen, stands_for = choose_device(device, gpu, None)
    built = open_cache(cache).root
    findings = []
    for finding in try_zoo(zoo, chosen, stands_for, built, nvcc_or_environment(nvcc), seed):
        findings.append(finding)
        (notice if form_of(json) == "json" else print)(zoo_line(finding))
    print(as_json([asdict(f) for f in findings]) if json else zoo_summary(findings))
    return 0 if all(f.right for f in findings) else NothingFound.exit_code


def _mutate(
    template: str, count: int | None, jobs: int | None, shape: str | None, dtype: str | None, causal: bool,
    gpu: str | None, seed: int, json: bool, cache: Path | None, nvcc: Path | None,
) -> int:  # fmt: skip
    from evo.device.open import gpu_named, gpu_that_runs
    from evo.report import as_json
    from evo.report.checks import mutant_line, mutants_summary
    from evo.selftest.mutant_results import MutationTarget, record
    from evo.selftest.mutants import try_mutants
    from evo.task import load_task
    from evo.template import load_template

    task = load_task("attention")
    stands_for = gpu_named(gpu) if gpu else gpu_that_runs(load_template(task, template).needs)
    problem = parse_problem(task, shape, dtype, causal)
    target = MutationTarget(
        template, problem, stands_for, open_cache(cache).root, nvcc_or_environment(nvcc), seed=seed
    )

    def tell(tried: MutantResult) -> None:
        if tried.fate == "survived":
            (notice if form_of(json) == "json" else print)(mutant_line(tried))

    tried = try_mutants(target, count, jobs or os.cpu_count() or 1, tell)
    result = record(target, tried)
    sys.stdout.write(as_json(result) if json else mutants_summary(result))
    return 0


def audit(
    *,
    points: Annotated[int, typer.Option(min=2, metavar="N", help="Points to try, over all templates.")] = 200,
    template: TemplateOption = None,
    jobs: JobsOption = None,
    shape: ShapeOption = None,
    causal: CausalOption = False,
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
      evo audit --template flash_mma --gpu L4 --json
    """
    from evo.device.open import choose_device
    from evo.report import as_json
    from evo.report.checks import audit_page
    from evo.selftest.audit import audited, summary
    from evo.task import load_task

    chosen, stands_for = choose_device(device, gpu, None)
    problem = parse_problem(load_task("attention"), shape, dtype, causal)
    found = list(
        audited(
            template or [], problem, chosen, stands_for, open_cache(cache).root, nvcc_or_environment(nvcc),
            points=points, seed=seed, jobs=jobs or os.cpu_count() or 1,
        )
    )  # fmt: skip
    result = {
        "device": chosen,
        "gpu": stands_for.name,
        "problem": problem.key,
        "seed": seed,
        **summary(found),
    }
    sys.stdout.write(as_json(result) if json else audit_page(result, stdout()))
    return 0
