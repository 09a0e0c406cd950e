"""A GPU, its tools, and GREEN kernels of default points: what the benchmarks of timing take times of."""

from __future__ import annotations

import tempfile
from pathlib import Path

from evo.device.cuda import CudaDevice
from evo.device.open import real_gpu
from evo.evaluate import Evaluator, EvaluatorSpec, trial_seed
from evo.gate import Green
from evo.gpu import Limits
from evo.task import load_task
from evo.template import load_template
from evo.timing.stopwatch import Call
from evo.trial import LaunchConfig, Problem

SHAPES = ("1,8,512,64", "1,8,1024,64", "1,8,2048,64", "4,16,2048,64", "2,16,4096,64", "2,16,4096,128")


class Bench:
    """The kernel is the default point of `flash_mma` or, on Hopper and for short sequences, of
    `flash_wgmma_split`."""

    def __init__(self) -> None:
        gpu = real_gpu("cuda:0")
        self.task = load_task("attention")
        self.cache = Path(tempfile.mkdtemp(prefix="evo-evidence-"))
        self.spec = EvaluatorSpec("attention", "cuda:0", gpu, Limits.of(gpu), self.cache)
        self.evaluator: Evaluator = self.spec.build()
        assert isinstance(self.evaluator.device, CudaDevice)
        self.device = self.evaluator.device
        self.template = "flash_wgmma_split" if gpu.compute_capability == (9, 0) else "flash_mma"

    def green(self, problem: Problem) -> Green:
        name = self.template if problem["L"] <= 1024 else "flash_mma"
        template = load_template(self.task, name)
        feasible = template.space.feasible(self.spec.limits, problem)
        default = template.space.default
        point = default if feasible.contains(default) else feasible.points[0]
        candidate = template.candidate(point, problem)
        return self.evaluator.gate(candidate, trial_seed(0, candidate), False)

    def idle_kernel(self, source: str, entry: str) -> Call:
        """A launch of one warp that has nothing to do with attention."""
        compiler, launch = self.evaluator.compiler, LaunchConfig((1, 1, 1), (32, 1, 1), 0, ())
        kernel = self.device.load(compiler.compile(source, entry, self.device.gpu.arch), launch)
        return lambda: kernel.start(launch, {})
