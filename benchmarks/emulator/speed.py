"""How fast the emulator is: attention kernels at the mission shape and at one head, by build and by check.

Start-up of a fresh process once built; for each kernel and build, the best launch on one thread with all
checks, without, and what a warp instruction costs; the memory that the launches added; seconds of the
one-time build.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.command import environment
from evo.cache import Cache
from evo.compile import Compiler, find_compiler
from evo.device import Region
from evo.device.emulator import EmulatorDevice, EmulatorKernel, built_interpreter, cpu_instructions
from evo.device.emulator.abi import CHECK_ALL
from evo.device.emulator.interpreter import Interpreter
from evo.gpu import KNOWN_GPUS, Limits
from evo.task import load_task
from evo.template import load_template
from evo.trial import Candidate

PROTOCOL = """seconds: the best of several launches on one thread; checked: with all checks, unchecked: with
bounds alone"""
GPU = False
KERNELS = ("flash_mma", "flash_wgmma", "wmma", "scalar")
"""Templates by name, each at its default point."""
SHAPES = ("1,8,512,64", "1,1,512,64")
STANDS_FOR = KNOWN_GPUS["H200"]


LEVELS = ("x86-64-v4", "x86-64-v3", "x86-64")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--builds", nargs="*", help="instruction sets (default: all that this CPU has)")
    parser.add_argument("--kernels", nargs="*", default=list(KERNELS))
    parser.add_argument("--shapes", nargs="*", default=list(SHAPES), help="B,H,L,D")
    parser.add_argument("--no-build-time", action="store_true", help="do not measure the one-time build")


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    native = cpu_instructions()
    builds = asked.builds or (LEVELS[LEVELS.index(native) :] if native in LEVELS else [native])
    libraries = {build: built_interpreter(instructions=build) for build in builds}
    found: dict[str, Any] = {"startup_ms": startup_ms(next(iter(libraries.values()))), "kernels": []}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory() as cache, find_compiler(None, Cache(Path(cache))) as compiler:
        for name in asked.kernels:
            for shape in asked.shapes:
                candidate = candidate_of(name, shape)
                for build in builds if candidate else ():
                    assert candidate is not None
                    figures = measure(candidate, compiler, libraries[build], asked.repeats)
                    row = Measured(name, shape, build, *figures)
                    found["kernels"].append({**asdict(row), "point": dict(candidate.point)})
                    print(row, f"{row.ns_an_instruction:.1f} ns/instruction", file=sys.stderr, flush=True)
                    yield found
    found["added_mib"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    if not asked.no_build_time:
        found["build_s"] = build_seconds()
    yield found


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
    limits = Limits.of(STANDS_FOR)
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
    binary = compiler.compile(candidate.source, candidate.entry, STANDS_FOR.arch)
    best, instructions = [], 0.0
    for checks in (CHECK_ALL, 0):  # bounds are always checked
        device = EmulatorDevice(STANDS_FOR, checks=checks, interpreter=Interpreter(library))
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
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True
    )
    return [float(x) for x in done.stdout.split()]


def build_seconds() -> float:
    """The one-time build, into an empty cache."""
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        built_interpreter(Path(folder))
        return time.perf_counter() - begin
