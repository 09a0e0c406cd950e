"""A study: one search, what it was told to do, and what it needs on this machine.

A `Study` is a value: what the store keeps of one search. `Setup.of(study)` finds what it needs here (GPU,
limits, task, templates) once; what evaluates, confirms or explains the study is given the setup. So a
search, its resumption and a replay work with the same things.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from evo.calls import OwnCalls
from evo.device.open import gpu_named, is_gpu, real_gpu
from evo.errors import EvoError, MachineError, UsageError
from evo.gpu import Gpu, Limits, known_gpu
from evo.task import Task, load_task
from evo.template import Template, list_templates, load_template
from evo.trial import WORST, Problem


@dataclass(frozen=True)
class Study:
    """One search: a problem on one device with one strategy and budget, and how far it has come.

    `lookahead` is how many candidates are under way at once. With one worker it decides what the strategy
    knew at each proposal, so a resumed study keeps it (0: its first search will say). `folders` are the
    folders of templates that it was given, absolute paths. `warm_start` names the studies that it learns
    from, and how many trials each had then. `smem_limit` is in bytes, `rate` in dollars an hour. Where it
    takes what is UNPROVEN (`accept_unproven`), such kernels are GREEN, and marked. `ranking` says which of a
    kernel's times on the timing inputs counts: "worst", "mean" or the name of one. `calls` are recorded
    inputs of its problem that kernels are checked and timed on beside those of the task. `given` is what is
    kept of a task that was given in Python: a digest and source text; "" for one that is in a file. `gpus`
    are the devices that evaluate at once ("cuda:0", "cuda:1"; "emulator:0"), the first of them `device` if
    that is a GPU; () for `device` alone. `until` says when the search ends: "budget", "converged" or how many
    trials it may have ("200"); `starts` are the numbers of the trials with which it started again elsewhere.
    `portfolio`: where it is of a search for many problems, how many kernels may serve them all; 0: it is of
    none.
    """

    name: str
    problem: Problem
    device: str
    gpu: str
    templates: tuple[str, ...]
    budget_s: float
    strategy: str = "evo"
    seed: int = 0
    workers: int = 1
    lookahead: int = 0
    gpus: tuple[str, ...] = ()
    target: str = ""
    smem_limit: int | None = None
    rate: float | None = None
    accept_unproven: bool = False
    ranking: str = WORST
    calls: OwnCalls | None = None
    until: str = "budget"
    starts: tuple[int, ...] = ()
    portfolio: int = 0
    folders: tuple[str, ...] = ()
    given: str = ""
    warm_start: Mapping[str, int] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    status: str = "new"
    spent_s: float = 0.0
    baselines_us: Mapping[str, float] = field(default_factory=dict)
    created: str = ""
    id: int = 0

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices that evaluate."""
        return self.gpus or (self.device,)

    def on_gpus(self, devices: tuple[str, ...]) -> Study:
        """The study, evaluated by those devices; finalists are confirmed on the first."""
        return replace(self, gpus=devices, device=devices[0] if is_gpu(devices[0]) else self.device)

    @property
    def most_trials(self) -> float:
        """How many trials its search may have: infinity unless `until` is a number."""
        return int(self.until) if self.until.isdecimal() else math.inf

    @property
    def starts_again(self) -> bool:
        """Whether its search starts again elsewhere when it has converged: not where times are estimates, of
        which more would tell nothing."""
        return self.until != "converged" and is_gpu(self.device)

    @property
    def left_s(self) -> float:
        """Seconds of the budget that are left."""
        return max(0.0, self.budget_s - self.spent_s)

    @property
    def template_folders(self) -> tuple[Path, ...]:
        """The folders of templates that the study was given."""
        return tuple(Path(folder) for folder in self.folders)

    def task(self) -> Task:
        """The study's task. UnknownName where it is not there any more; BadTemplate where it is broken;
        UsageError where it was given in Python, by a process that is gone."""
        if self.given and not all(folder.is_dir() for folder in self.template_folders):
            raise UsageError(
                f"the task of study {self.name} was given in Python, and is in no file",
                f"go on from Python: evo.tune or evo.search with the same arguments and study={self.name!r}",
            )
        return load_task(self.problem.task, self.template_folders)

    def baseline_groups(self) -> Mapping[str, tuple[str, ...]]:
        """The baseline groups of the study's task; none where the task cannot be loaded any more."""
        try:
            return self.task().baseline_groups
        except EvoError:
            return {}


@dataclass(frozen=True)
class Setup:
    """What a study needs on this machine, found once.

    `gpu` is the GPU at hand, or the one that the emulator stands for; `limits` are what the study's spaces
    are pruned by; `cache` is the folder of built things; `nvcc` the CUDA compiler that a person named."""

    study: Study
    gpu: Gpu
    limits: Limits
    task: Task
    cache: Path
    nvcc: Path | None = None

    @classmethod
    def of(cls, study: Study, cache: Path, nvcc: Path | None = None) -> Setup:
        """The setup for running the study's kernels. MachineError where its GPU is not at hand."""
        return cls._with(study, _gpu_at_hand(study), cache, nvcc)

    @classmethod
    def elsewhere(cls, study: Study, gpu: Gpu, cache: Path, nvcc: Path | None = None) -> Setup:
        """The setup for a study whose kernels other machines run, on GPUs like `gpu`."""
        return cls._with(study, gpu, cache, nvcc)

    @classmethod
    def recorded(cls, study: Study) -> Setup:
        """The setup for looking at a study, also where its GPU is not at hand. MachineError where neither
        this machine nor the table of GPUs knows that GPU."""
        return cls._with(study, recorded_gpu(study), Path(), None)

    @classmethod
    def _with(cls, study: Study, gpu: Gpu, cache: Path, nvcc: Path | None) -> Setup:
        limits = Limits.of(gpu, study.smem_limit, target_name=study.target)
        return cls(study, gpu, limits, study.task(), cache, nvcc)

    @property
    def folders(self) -> tuple[Path, ...]:
        return self.study.template_folders

    @cached_property
    def templates(self) -> tuple[Template, ...]:
        """The study's templates; all of the task where it names none."""
        return tuple(templates_of(self.task, self.study.templates, self.folders, self.gpu))


def templates_of(
    task: Task, names: Sequence[str], folders: Sequence[Path], gpu: Gpu | None = None
) -> list[Template]:
    """The templates of those names, or all of the task; launches are made for `gpu`. UsageError where the
    task has none."""
    chosen = list(dict.fromkeys(names)) or list_templates(task.name, folders)
    if not chosen:
        raise UsageError(f"task {task.name} has no template", "add one, or name its folder with --templates")
    return [load_template(task, name, folders, gpu) for name in chosen]


def recorded_gpu(study: Study) -> Gpu:
    """The GPU that a study ran on or stands for, also where it is not at hand. MachineError where neither
    this machine nor the table of GPUs knows it."""
    return known_gpu(study.gpu) or _gpu_at_hand(study)


def _gpu_at_hand(study: Study) -> Gpu:
    """The GPU at hand, which must be of the study's name; for the emulator the one that it stands for."""
    if not is_gpu(study.device):
        return gpu_named(study.gpu)
    try:
        gpu = real_gpu(study.device)
    except MachineError as error:
        hint = "it takes such a GPU; profile and ablate also have --device emulator"
        raise MachineError(f"study {study.name} ran on {study.gpu}: {error.message}", hint) from error
    if gpu.name != study.gpu:
        hint = "times of different GPUs cannot be compared: start another study"
        raise MachineError(f"study {study.name} ran on {study.gpu}, {study.device} is {gpu.name}", hint)
    return gpu
