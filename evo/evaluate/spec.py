"""All that is needed to make the same evaluator in any process of this machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from evo.cache import Cache
from evo.compile import PARTS, Compiler, find_compiler
from evo.device.open import is_gpu, open_device, part_for, prepare_device
from evo.evaluate.evaluator import Evaluator, Precompiler
from evo.gpu import Gpu, Limits
from evo.study import Setup
from evo.task import load_task
from evo.timing import TimingSettings
from evo.trial import Problem

MOST_EVALUATORS = 4
"""Processes that evaluate on one GPU. Most of a gate is the host's work, so several gates fit beside each
other, and most of a timing has the GPU alone."""
COMPILERS_EACH = 4
"""Workers for each of these processes: so many compile as fast as one evaluates."""
LARGE_BYTES = 64 << 20
"""Problems that move more keep a GPU and its memory busy by themselves: one process evaluates."""


@dataclass(frozen=True)
class EvaluatorSpec:
    """All that is needed to make the same Evaluator in any process of this machine; picklable.

    `device` is "cuda:0" or "emulator", `gpu` the one at hand or the one that the emulator stands for;
    `limits` are what the space was pruned by; `seed` is the study's: the gate's seeds follow from it.
    """

    task: str
    device: str
    gpu: Gpu
    limits: Limits
    cache: Path
    seed: int = 0
    folders: tuple[Path, ...] = ()
    nvcc: Path | None = None
    problem: Problem | None = None
    """Whose baselines are captured when the evaluator is made; else with its first candidate."""
    timing: TimingSettings = field(default_factory=TimingSettings)
    compile_timeout_s: float = 60.0

    @classmethod
    def of(cls, setup: Setup) -> EvaluatorSpec:
        """What makes a study's evaluators on this machine."""
        study = setup.study
        return cls(
            task=study.problem.task,
            device=study.device,
            gpu=setup.gpu,
            limits=setup.limits,
            cache=setup.cache,
            seed=study.seed,
            folders=setup.folders,
            nvcc=setup.nvcc,
            problem=study.problem,
        )

    @property
    def on_gpu(self) -> bool:
        return is_gpu(self.device)

    @property
    def arch(self) -> str:
        """What code is compiled for: the GPU at hand, or the one that the emulator stands for."""
        return self.gpu.arch

    def prepare(self) -> None:
        """What every process needs and one should make first: a compiler that works, the built emulator.

        Raises MachineError where something is missing."""
        prepare_device(self.device, self.cache)
        self.compiler().close()

    def compiler(self, whole: bool = False, background: bool = False) -> Compiler:
        """What gives the device what it runs: a GPU the cubin, the emulator the PTX; `whole`: both, and the
        lines of the source, for tools that name them."""
        return find_compiler(
            self.nvcc,
            Cache(self.cache),
            timeout_s=self.compile_timeout_s,
            parts=PARTS if whole else (part_for(self.device),),
            background=background,
        )

    def evaluators(self, workers: int) -> int:
        """How many processes evaluate when `workers` may work: few on a GPU, where the others compile."""
        if not self.on_gpu:
            return workers
        if self.problem and load_task(self.task, self.folders).nbytes(self.problem) > LARGE_BYTES:
            return 1
        return max(1, min(MOST_EVALUATORS, workers // COMPILERS_EACH))

    def precompiler(self, workers: int) -> Precompiler | None:
        """What compiles ahead of the evaluators; None where the evaluators do it themselves."""
        return Precompiler(self) if self.on_gpu and workers > 0 else None

    def build(self) -> Evaluator:
        """The evaluator; imports torch and takes seconds."""
        import torch

        torch.set_num_threads(1)
        compiler = self.compiler()
        device = open_device(self.device, self.gpu, cache=self.cache, compiler=compiler)
        evaluator = Evaluator(self, device, compiler)
        if self.problem is not None:
            evaluator.get_ready(self.problem)
        return evaluator
