"""A study's rig: which GPU it runs on or stands for, its limits, its templates, its workers.

A rig is made from a `Study` alone (and the folders and tools of the machine), so that resuming and replaying
set up exactly what the search had.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from evo.cache import Cache
from evo.errors import Infeasible, MachineError, NothingFound, UnknownName, UsageError
from evo.gpu import KNOWN_GPUS, Gpu, Limits, known_gpu, target
from evo.task import Task, load_task
from evo.template import Template, list_templates, load_template
from evo.trial import GREEN_VISITS

if TYPE_CHECKING:  # these bring torch and SQLAlchemy
    from evo.compile.nvcc import Compiler
    from evo.confirm.bench import Entrant
    from evo.confirm.champions import Champion
    from evo.confirm.worker import RefereeSpec
    from evo.device import Device
    from evo.evaluate import EvaluatorSpec
    from evo.selftest.audit import Audited
    from evo.selftest.zoo import Finding
    from evo.store import Store, Study
    from evo.trial import Candidate, Problem, Trial

DEFAULT_GPU = "L4"
"""What the emulator stands for unless told otherwise."""


def choose_device(asked: str, gpu: str | None, target_name: str | None) -> tuple[str, Gpu]:
    """The device ("cuda:0", "emulator") that `asked` (also "auto", "cuda") means, and its GPU.

    The emulator stands for `gpu`, else for the GPU of the target, else for an L4.
    """
    if target_name is not None:
        target(target_name)  # a wrong name is wrong on every device
    if asked == "auto":
        asked = "emulator" if gpu is not None or not _gpus() else "cuda:0"
    if asked == "emulator":
        name = gpu or (None if target_name is None else target(target_name).name) or DEFAULT_GPU
        chosen = gpu_named(name)
    elif match := re.fullmatch(r"cuda(?::(\d+))?", asked):
        if gpu is not None:
            raise UsageError(
                "--gpu is for the emulator; on a real GPU use --target", "--device emulator --gpu L4"
            )
        asked = f"cuda:{match[1] or 0}"
        chosen = real_gpu(asked)
    else:
        raise UsageError(f"unknown device: {asked}", "auto, cuda:0 (or another number) or emulator")
    if target_name is not None and not Limits.of(chosen).allows(target_name):
        raise UsageError(f"{chosen.name} ({chosen.arch}) cannot run code for {target_name}",
                         "choose a target that is no newer than the GPU")  # fmt: skip
    return asked, chosen


def _gpus() -> list[str]:
    from evo.device.cuda import gpu_names

    return gpu_names()


def gpu_named(name: str) -> Gpu:
    """The known GPU of that name, however it is capitalised; UnknownName if there is none."""
    for known, gpu in KNOWN_GPUS.items():
        if (
            known.lower() == name.strip().lower()
            or known.lower().removeprefix("rtx ") == name.strip().lower()
        ):
            return gpu
    raise UnknownName.among("gpu", name, list(KNOWN_GPUS))


def real_gpu(device: str) -> Gpu:
    """The GPU of "cuda:N"; MachineError where there is none at all, UsageError where N is too large."""
    from evo.device.cuda import gpu_at

    return gpu_at(int(device.removeprefix("cuda:")))


def gpu_of(study: Study) -> Gpu:
    """The GPU of a study: the one at hand, which must be of the same name, or the one it stands for."""
    if study.device == "emulator":
        return gpu_named(study.gpu)
    try:
        gpu = real_gpu(study.device)
    except MachineError as error:
        hint = "it takes such a GPU; profile and ablate also have --device emulator"
        raise MachineError(f"study {study.name} ran on {study.gpu}: {error.message}", hint) from error
    if gpu.name != study.gpu:
        raise MachineError(f"study {study.name} ran on {study.gpu}, {study.device} is {gpu.name}",
                           "times of different GPUs cannot be compared: start another study")  # fmt: skip
    return gpu


def recorded_gpu(study: Study) -> Gpu:
    """The GPU that a study ran on or stands for, also where it is not at hand: what tables know of it.
    MachineError where neither knows it."""
    return known_gpu(study.gpu) or gpu_of(study)


def limits_of(gpu: Gpu, target_name: str, smem_limit: int | None) -> Limits:
    """What prunes the space: the GPU's own limits, or the target's as far as the GPU has them."""
    if not target_name:
        return Limits.of(gpu, smem_limit)
    pruned = Limits.of(target(target_name), smem_limit, instructions=target_name)
    return replace(pruned, smem_bytes=min(pruned.smem_bytes, gpu.smem_per_cta))


def templates_of(task: Task, names: Sequence[str], folders: Sequence[Path]) -> list[Template]:
    """The templates of those names, or all of the task."""
    chosen = list(dict.fromkeys(names)) or list_templates(task.name, folders)
    if not chosen:
        raise UsageError(f"task {task.name} has no template", "add one, or name its folder with --templates")
    return [load_template(task, name, folders) for name in chosen]


def folders_of(study: Study) -> list[Path]:
    """The folders of templates that the study was given."""
    text = str(study.settings.get("templates", ""))
    return [Path(folder) for folder in text.split(os.pathsep) if folder]


def task_of(study: Study) -> Task:
    return load_task(study.problem.task, folders_of(study))


def arch_of(study: Study) -> str:
    """What the study's candidates were compiled for, also where its GPU is not at hand."""
    return recorded_gpu(study).arch


def evaluator_of(study: Study, cache: Path, nvcc: Path | None) -> EvaluatorSpec:
    """What makes the study's evaluators on this machine. MachineError where the machine lacks something."""
    from evo.evaluate import EvaluatorSpec

    gpu = gpu_of(study)
    return EvaluatorSpec(
        task=study.problem.task,
        device=study.device,
        limits=limits_of(gpu, study.target, study.smem_limit),
        cache=cache,
        seed=study.seed,
        folders=tuple(folders_of(study)),
        nvcc=nvcc,
        gpu=gpu,
        problem=study.problem,
    )


def referee_of(study: Study, cache: Path, nvcc: Path | None, patient: bool = True) -> RefereeSpec:
    """What makes the referee of the study's finalists, in a process of its own on this machine."""
    from evo.confirm.worker import RefereeSpec

    return RefereeSpec(evaluator_of(study, cache, nvcc), study.problem, patient)


def bench_referee(
    problem: Problem, device: str, gpu: Gpu, cache: Path, nvcc: Path | None, patient: bool
) -> RefereeSpec:
    """What makes the referee of a problem that belongs to no study."""
    from evo.confirm.worker import RefereeSpec
    from evo.evaluate import EvaluatorSpec

    spec = EvaluatorSpec(problem.task, device, gpu, limits_of(gpu, "", None), cache, nvcc=nvcc)
    return RefereeSpec(spec, problem, patient, hostile=False)


def entrant_of(store: Store, name: str, gpu: Gpu) -> Entrant:
    """A stored trial's point, for any problem."""
    from evo.confirm.bench import rendered

    stored = store.trial(name)
    study, candidate = store.study(stored.study), stored.trial.candidate
    template = load_template(task_of(study), candidate.template, folders_of(study))
    origin = f"trial {stored.study}/{stored.number}, found for {candidate.problem.key}"
    return rendered(template, candidate, limits_of(gpu, "", None), origin)


def champion_for(problem: Problem, gpu: Gpu, found: Sequence[Champion]) -> tuple[str, Entrant]:
    """The champion that serves a problem on a GPU, and why it is the one; an entrant that cannot take part
    where there is none."""
    from evo.confirm.bench import Entrant
    from evo.confirm.champions import choose

    try:
        choice = choose(problem, limits_of(gpu, "", None), found)
    except NothingFound as nobody:
        reason = nobody.message

        def refuse(_: Problem) -> Candidate:
            raise Infeasible(reason)

        return "champion", Entrant(refuse)
    origin = f"{choice.champion.name}: {choice.why}"
    return f"champion/{choice.champion.arch}", Entrant(choice.candidate, origin)


def nearest_trial(store: Store, problem: Problem, gpu: Gpu) -> tuple[str, Entrant] | None:
    """The best trial of `problem` on this GPU, CONFIRMED first; else that of the problem nearest to it (same
    mask and storage type, sizes the fewest doublings away) whose template can serve this one; None where
    there is none."""
    kin = [
        study
        for study in store.studies()
        if (study.problem.task, study.problem.dtype, study.problem.flags)
        == (problem.task, problem.dtype, problem.flags)
    ]
    for near in sorted(kin, key=lambda study: _doublings(problem, study.problem)):
        for template in (None, *near.templates):  # the best of all, then the best of each template
            asked = {"problem": near.problem.key, "gpu": gpu.name, "template": template}
            for row in store.leaderboard(**asked, limit=1):
                name = f"{row.study}/{row.number}"
                entrant = None if row.median_us is None else entrant_of(store, name, gpu)
                if entrant and _serves(entrant, problem):
                    return name, entrant
    return None


def _serves(entrant: Entrant, problem: Problem) -> bool:
    try:
        entrant.candidate(problem)
    except Infeasible:
        return False
    return True


def _doublings(a: Problem, b: Problem) -> float:
    return sum(abs(math.log2(size / b.sizes[name])) for name, size in a.sizes.items())


@dataclass(frozen=True)
class Replay:
    """A stored trial and what became of it now. `rendered` is the source that its template gives today."""

    stored: Candidate
    rendered: Candidate
    trial: Trial

    @property
    def same_source(self) -> bool:
        """Whether the template still renders the stored bytes, and launches them the same way."""
        return self.rendered.digest == self.stored.digest


def replay(trial: Trial, spec: EvaluatorSpec) -> Replay:
    """Renders the trial's point again, and takes the *stored* source through the whole pipeline in this
    process: compile, gate, timing. A trial that was RED on a later visit meets the inputs of that visit."""
    stored = trial.candidate
    task = load_task(spec.task, spec.folders)
    template = load_template(task, stored.template, spec.folders)
    rendered = template.candidate(stored.point, stored.problem)
    evaluator = spec.build()
    try:
        visit = int(trial.counters.get(GREEN_VISITS, 0))
        return Replay(stored, rendered, evaluator.evaluate(stored, visit=visit))
    finally:
        evaluator.close()


def try_zoo(
    zoo: Path | None, device: str, gpu: Gpu, cache: Path, nvcc: Path | None, seed: int = 0
) -> Iterator[Finding]:
    """The gate's test of itself; on a GPU in a process that may hang or die, and what passes there goes to
    the emulator, as finalists do. UsageError where `zoo` (default: the one that comes with evo) is not
    there."""
    from evo.selftest.zoo import load_zoo, self_test, self_test_isolated, try_finalist

    package = Path(__file__).parent
    own = package / "cheats"  # in a wheel
    folder = zoo or (own if own.is_dir() else package.parent / "tests" / "cheats")
    if not any(folder.glob("*.cu")):
        raise UsageError(
            f"no planted kernels in {folder}", "name their folder, tests/cheats in evo's source: --zoo DIR"
        )
    make = partial(_gate_tools, device, gpu, cache, nvcc)
    planted = load_zoo(folder, load_task("attention"))
    emulator, compiler, task = _gate_tools("emulator", gpu, cache, nvcc)
    try:
        if device == "emulator":
            yield from self_test(planted, emulator, compiler, task, seed)
        else:
            yield from self_test_isolated(
                planted, make, seed, second=lambda p: try_finalist(p, emulator, compiler, task, seed)
            )
    finally:
        compiler.close()


def gpu_that_runs(template: Template) -> Gpu:
    """What the emulator stands for by default, if the template runs there, else the target that it needs."""
    default = gpu_named(DEFAULT_GPU)
    return default if Limits.of(default).allows(template.needs) else target(template.needs)


def audited(
    templates: Sequence[str], problem: Problem, device: str, gpu: Gpu, cache: Path, nvcc: Path | None,
    *, points: int, seed: int, jobs: int,
) -> Iterator[Audited]:  # fmt: skip
    """Random points of those templates (default: all of the problem's task) and what became of them."""
    from evo.selftest.audit import audit

    made, compiler, task = _gate_tools(device, gpu, cache, nvcc)
    try:
        chosen = templates_of(task, templates, ())
        yield from audit(chosen, problem, Limits.of(gpu), made, compiler, points=points, seed=seed, jobs=jobs)
    finally:
        compiler.close()


def _gate_tools(device: str, gpu: Gpu, cache: Path, nvcc: Path | None) -> tuple[Device, Compiler, Task]:
    from evo.compile.nvcc import find_compiler
    from evo.device.cuda import CudaDevice
    from evo.device.emulator import EmulatorDevice

    compiler = find_compiler(nvcc, Cache(cache))
    made: Device
    if device == "emulator":
        made = EmulatorDevice(gpu, cache=cache)
    else:
        made = CudaDevice(int(device.removeprefix("cuda:")), compiler)
    return made, compiler, load_task("attention")
