"""How fast is the emulator? Attention kernels at the mission shape and at one head, by build and by check.

    python benchmarks/emulator_speed.py [--json results.json] [--repeats 9] [--builds x86-64-v4 x86-64-v3]

Prints: start-up of a fresh process once built; for each kernel and build, the best launch on one thread with
all checks, without, and what a warp instruction costs; the memory that the launches added; seconds of the
one-time build.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from evo.cache import Cache
from evo.compile.nvcc import Compiler, find_compiler
from evo.device import Region
from evo.device.emulator import EmulatorDevice, EmulatorKernel, built_interpreter, cpu_instructions
from evo.device.emulator.interpreter import CHECK_ALL, Interpreter
from evo.gpu import KNOWN_GPUS, Limits
from evo.task import load_task
from evo.template import load_template
from evo.trial import Candidate

KERNELS = ("flash_mma", "flash_wgmma", "wmma", "scalar")
"""Templates by name, each at its default point."""
SHAPES = {"mission": "1,8,512,64", "one head": "1,1,512,64"}
GPU = KNOWN_GPUS["H200"]


@dataclass(frozen=True)
class Measured:
    """One kernel on one build: best of several launches."""

    kernel: str
    shape: str
    build: str
    checked_s: float
    unchecked_s: float
    instructions: float
    row_error: float

    @property
    def ns_an_instruction(self) -> float:
        return self.checked_s / self.instructions * 1e9


def candidate_of(template_name: str, shape: str) -> Candidate | None:
    """The template's default point at a shape, or None if there is no such template or it does not fit."""
    task = load_task("attention")
    problem = task.problem(shape)
    template = load_template(task, template_name)
    limits = Limits.of(GPU)
    if template.supports(problem, limits):
        return None
    point = dict(template.space.default)
    if template.space.why_not(point, limits, problem):
        feasible = template.space.feasible(limits, problem)
        point = dict(feasible.points[0])
    return template.candidate(point, problem)


def measure(
    candidate: Candidate, compiler: Compiler, library: Path, repeats: int
) -> tuple[float, float, float, float]:
    """Best seconds with and without checks, warp instructions, and the worst row's relative error."""
    task = load_task("attention")
    problem = candidate.problem
    inputs = task.inputs(problem, "normal", 0, "cpu")
    tensors = dict(inputs)
    for spec in task.buffers(problem):
        if spec.role == "out":
            tensors[spec.name] = torch.empty(spec.shape, dtype=next(iter(inputs.values())).dtype)
    regions = {
        name: Region(name, t.data_ptr(), t.numel() * t.element_size(), name not in inputs)
        for name, t in tensors.items()
    }
    scratch = [np.zeros(w.nbytes + 256, np.uint8) for w in candidate.launch.workspaces]
    for work, raw in zip(candidate.launch.workspaces, scratch, strict=True):
        regions[work.name] = Region(work.name, raw.ctypes.data + -raw.ctypes.data % 256, work.nbytes, True)
    binary = compiler.compile(candidate.source, candidate.entry, GPU.arch)
    best, instructions = [], 0.0
    for checks in (CHECK_ALL, 0):  # bounds are always checked
        device = EmulatorDevice(GPU, checks=checks, interpreter=Interpreter(library))
        kernel: EmulatorKernel = device.load(binary, candidate.launch)
        reports = [kernel.launch(candidate.launch, regions, "late_copies") for _ in range(repeats)]
        best.append(min(report.seconds for report in reports))
        instructions = reports[0].counters["instructions"]
    reference = task.reference(problem, inputs)
    errors = [
        ((tensors[name].double() - exact).norm(dim=-1) / exact.norm(dim=-1)).max().item()
        for name, exact in reference.items()
    ]
    return best[0], best[1], instructions, max(errors)


def startup_ms(library: Path) -> dict[str, float]:
    """A fresh process: what it imports, loading the library, and all of it through the cache."""
    code = (
        "import time; a = time.perf_counter(); from evo.device.emulator import EmulatorDevice; "
        "from evo.gpu import KNOWN_GPUS; from evo.device.emulator.interpreter import Interpreter; "
        f"b = time.perf_counter(); library = Interpreter({str(library)!r}); "
        "EmulatorDevice(KNOWN_GPUS['H200'], interpreter=library); "
        "print(b - a, time.perf_counter() - b)"
    )
    best = [min(x) * 1e3 for x in zip(*[_run(code) for _ in range(5)], strict=True)]
    return {"imports": round(best[0], 1), "load": round(best[1], 1)}


def _run(code: str) -> list[float]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [float(x) for x in done.stdout.split()]


def build_seconds() -> float:
    """The one-time build, into an empty cache."""
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        built_interpreter(Path(folder))
        return time.perf_counter() - begin


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument(
        "--builds", nargs="*", default=None, help="instruction sets [default: all that this CPU has]"
    )
    parser.add_argument("--kernels", nargs="*", default=list(KERNELS))
    parser.add_argument("--library", type=Path, help="measure this built library instead")
    parser.add_argument("--no-build-time", action="store_true", help="do not measure the one-time build")
    options = parser.parse_args()
    levels = ["x86-64-v4", "x86-64-v3", "x86-64"]
    native = cpu_instructions()
    builds = options.builds or (levels[levels.index(native) :] if native in levels else [native])
    figures: dict[str, Any] = {"cpu": _cpu(), "kernels": []}
    compiler = find_compiler(None, Cache(Path.home() / ".cache" / "evo"))
    if options.library:
        builds, libraries = [options.library.stem], {options.library.stem: options.library}
    else:
        libraries = {build: built_interpreter(instructions=build) for build in builds}
    figures["startup_ms"] = startup_ms(next(iter(libraries.values())))
    start = figures["startup_ms"]
    print(f"{figures['cpu']}; start-up {start['load']} ms once built (imports {start['imports']} ms)")
    print("kernel        shape      build        all checks   bounds only   ns/instr.   worst row")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for name in options.kernels:
        for label, shape in SHAPES.items():
            try:
                candidate = candidate_of(name, shape)
            except Exception as error:  # noqa: BLE001  # a benchmark goes on without a template that is not there
                print(f"{name:<14}{error}")
                break
            if candidate is None:
                break
            for build in builds:
                row = Measured(
                    name, label, build, *measure(candidate, compiler, libraries[build], options.repeats)
                )
                figures["kernels"].append({**row.__dict__, "point": dict(candidate.point)})
                print(
                    f"{name:<14}{label:<11}{build:<11}{row.checked_s:>10.4f} s {row.unchecked_s:>11.4f} s"
                    f"{row.ns_an_instruction:>12.1f}{row.row_error:>12.1e}",
                    flush=True,
                )
    figures["added_mib"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"memory added by the launches: {figures['added_mib']:.0f} MiB")
    compiler.close()
    if not options.no_build_time:
        figures["build_s"] = build_seconds()
        print(f"one-time build: {figures['build_s']:.1f} s")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 0


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else ():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    import platform

    return platform.machine()


if __name__ == "__main__":
    sys.exit(main())
