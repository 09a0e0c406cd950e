"""The process that ncu looks into: launches one candidate on its task's inputs, a few times, and ends.

python -m evo.explain.launch_once JOB        a pickled (EvaluatorSpec, Candidate)
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

from evo.device import Region
from evo.device.open import open_device
from evo.evaluate import EvaluatorSpec
from evo.explain.ncu import WARM_UP
from evo.task import load_task
from evo.trial import Candidate


def launch(candidate: Candidate, spec: EvaluatorSpec, times: int) -> None:
    """Compiles `candidate` with the lines of its source, which change no instruction, and launches it
    `times` times on the plain family of inputs."""
    import torch

    task = load_task(spec.task, spec.folders)
    compiler = spec.compiler(whole=True)
    device = open_device(spec.device, spec.gpu, cache=spec.cache, compiler=compiler)
    try:
        binary = compiler.compile(candidate.source, candidate.entry, spec.arch)
        kernel = device.load(binary, candidate.launch)
        where, problem = device.torch_device, candidate.problem
        buffers = task.inputs(problem, task.families.plain, spec.seed, where)
        inputs = set(buffers)
        dtypes = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
        for spec_ in task.buffers(problem):
            if spec_.role == "out":
                buffers[spec_.name] = torch.empty(spec_.shape, dtype=dtypes[spec_.dtype], device=where)
        for w in candidate.launch.workspaces:
            buffers[w.name] = torch.zeros(w.nbytes, dtype=torch.uint8, device=where)
        regions = {
            name: Region(name, t.data_ptr(), t.numel() * t.element_size(), name not in inputs)
            for name, t in buffers.items()
        }
        for _ in range(times):
            kernel.launch(candidate.launch, regions)
    finally:
        device.close()
        compiler.close()


if __name__ == "__main__":
    spec, candidate = pickle.loads(Path(sys.argv[1]).read_bytes())
    launch(candidate, spec, WARM_UP + 1)
