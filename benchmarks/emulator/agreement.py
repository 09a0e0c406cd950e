"""Whether the emulator and a GPU say the same of the same kernels: verdicts and outputs over all templates.

A template runs at points of a pairwise-covering sample at each of its task's ragged shapes; storage types and
flags take turns. Emulator and GPU get the same inputs and the same program: the emulator runs its PTX under
each of its schedules, the GPU runs once what ptxas made of it. A case is GREEN if it ran without a report,
left all alone that it may not change, and the gate's line for outputs holds. Told by template: how many
verdicts agree, how many outputs agree bit for bit, and the largest difference of the others in units of the
last place of their type. Ends with 1 where they disagree or, with one half alone (`--only emulator` needs no
GPU), where a case is not GREEN.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from multiprocessing import TimeoutError as NothingCame
from multiprocessing import get_context
from typing import Any

import numpy as np

from evo.cache import Cache, default_folder
from evo.compile import Compiler, find_compiler
from evo.device import Device
from evo.device.emulator import EmulatorDevice, built_interpreter
from evo.errors import CandidateError, Hung
from evo.gate.memory import GuardedMemory
from evo.gate.tolerance import compare
from evo.gpu import KNOWN_GPUS, Gpu, Limits
from evo.space import FeasibleSet
from evo.task import Task, list_tasks, load_task
from evo.template import Template, list_templates, load_template
from evo.trial import Candidate, Problem, Value

PROTOCOL = """the same inputs and PTX; one launch on the GPU, one under each of the emulator's schedules;
outputs below the gate's line, guards and inputs unchanged; units in the last place where a value is 2^-7 or
more"""
GPU = True
ROWS = ("1,1", "3,63", "5,1000", "2,4100", "4,2049", "7,520")
SHAPES = {
    "attention": tuple(f"1,2,{L},{D}" for L, D in product((1, 63, 65, 129, 200, 257), (64, 128, 32, 96))),
    "gemm": ("1,33,72,1", "7,100,136,2", "65,129,264,1", "130,72,520,1", "16,200,1032,1", "200,257,96,1"),
    "gemm_w4a16": ("1,72,256", "5,136,512", "17,264,1024", "64,72,384"),
    "rmsnorm": ROWS,
    "layernorm": ROWS,
    "softmax": ROWS,
    "cross_entropy": ROWS,
}
CACHE = default_folder()
MOST_PROBLEMS = 48
"""Of a template: shapes with types and flags in turn."""
SEED = 1
PATIENCE_S = 120
"""Without any case done for so long, the GPU is taken to hang in one."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", choices=["emulator", "cuda"], help="one half alone")
    parser.add_argument("--gpu", default="H200", choices=list(KNOWN_GPUS), help="whose limits and code")
    parser.add_argument("--task", action="append", choices=list_tasks(), help="only these")
    parser.add_argument("--template", action="append", help="only these")
    parser.add_argument("--points", type=int, default=240, help="at least so many cases a template")
    parser.add_argument("--jobs", type=int, default=2, help="processes")


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    begin = time.perf_counter()
    gpu, halves = KNOWN_GPUS[asked.gpu], [asked.only or "emulator"]
    halves += ["cuda"] if not asked.only else []
    with ThreadPoolExecutor(1) as builder:
        built = builder.submit(built_interpreter, CACHE)
        todo = {
            f"{task}/{template.name}": list(cases(load_task(task), template, Limits.of(gpu), asked.points))
            for task in asked.task or SHAPES
            for template in templates_of(task, gpu, asked.template)
        }
        built.result()
    every = [case for some in todo.values() for case in some]
    print(f"{len(every)} cases, {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
    done: dict[str, list[Compared]] = {name: [] for name in todo}
    for one in compare_all(every, gpu, halves, asked.jobs):
        done[f"{one.case.problem.task}/{one.case.template}"].append(one)
    rows = {name: row_of(done[name], len(some)) for name, some in todo.items()}
    yield {
        "schedules": EmulatorDevice(gpu).schedules,
        "shapes": {task: SHAPES[task] for task in asked.task or SHAPES},
        "seconds": round(time.perf_counter() - begin),
        "cases": len(every),
        "same_verdict": sum(row["same_verdict"] for row in rows.values()),
        "templates": rows,
    }
    bad = sum(len(row["not_green"]) + row["not_run"] for row in rows.values())
    if bad:
        raise SystemExit(f"{bad} of {len(every)} cases are not GREEN or were not run")


@dataclass(frozen=True)
class Half:
    """What one device made of a case: its verdict; its worst row's error over that row's line; and its
    outputs if it came to some."""

    outcome: str
    why: str = ""
    of_line: float = 0.0
    outputs: tuple[np.ndarray[Any, Any], ...] = ()


@dataclass(frozen=True)
class Compared:
    """One case, done. `ulp` is the largest difference in units of the last place, -1 with one half alone."""

    case: Candidate
    halves: Mapping[str, Half]
    ulp: int = -1

    @property
    def agree(self) -> bool:
        """Whether all outcomes are the same."""
        return len({half.outcome for half in self.halves.values()}) == 1

    @property
    def green(self) -> bool:
        """Whether all are GREEN."""
        return all(half.outcome == "GREEN" for half in self.halves.values())


# ------------------------------------------------------------------------------------------ what is run


def templates_of(task: str, gpu: Gpu, only: Sequence[str] | None) -> list[Template]:
    """The task's templates that the GPU can run."""
    names = [name for name in list_templates(task) if only is None or name in only]
    found = [load_template(load_task(task), name, gpu=gpu) for name in names]
    return [template for template in found if Limits.of(gpu).allows(template.needs)]


def cases(task: Task, template: Template, limits: Limits, least: int) -> Iterator[Candidate]:
    """Points of a covering sample at each shape that the template serves; types and flags in turn."""
    rng = np.random.default_rng(7)
    flags: list[dict[str, Value]] = [
        dict(zip(task.flags, values, strict=True))
        for values in product(*(flag.values for flag in task.flags.values()))
    ]
    kinds = list(product(task.dtypes, flags))
    order = rng.permutation(len(kinds))
    found: list[tuple[Problem, FeasibleSet]] = []
    for number in range(min(MOST_PROBLEMS, max(len(kinds), len(SHAPES[task.name])))):
        dtype, flagged = kinds[order[number % len(kinds)]]
        problem = task.problem(SHAPES[task.name][number % len(SHAPES[task.name])], dtype, **flagged)
        if template.supports(problem, limits) is None:
            feasible = template.space.feasible(limits, problem)
            found += [(problem, feasible)] if len(feasible.indices) else []
    each = -(-least // max(1, len(found)))
    for problem, feasible in found:
        points = feasible.covering(rng, each)
        for at in rng.permutation(len(points))[:each]:
            yield template.candidate(points[at], problem)


# ------------------------------------------------------------------------------------------ running one


class Bench:
    """The compiler and devices of one process."""

    def __init__(self, gpu: Gpu, halves: Sequence[str]) -> None:
        import torch

        torch.set_num_threads(1)
        self.gpu = gpu
        self.compiler: Compiler = find_compiler(None, Cache(CACHE))
        self.devices: dict[str, Device] = {}
        if "emulator" in halves:
            self.devices["emulator"] = EmulatorDevice(gpu)
        if "cuda" in halves:
            from evo.device.cuda import CudaDevice

            self.devices["cuda"] = CudaDevice(0, self.compiler)

    def compare(self, case: Candidate) -> Compared:
        """Run `case` on every device. What the emulator sees hang is not tried on the GPU, which would."""
        halves: dict[str, Half] = {}
        for name, device in self.devices.items():
            halves[name] = self.half(case, device)
            if halves[name].outcome == Hung.outcome or "deadlock" in halves[name].why:
                break
        both = [half.outputs for half in halves.values() if half.outputs]
        dtypes = [one.dtype for one in load_task(case.problem.task).buffers(case.problem) if one.written]
        ulp = max(map(units_apart, *both, dtypes)) if len(both) == 2 else -1
        return Compared(case, {n: Half(h.outcome, h.why, h.of_line) for n, h in halves.items()}, ulp)

    def half(self, case: Candidate, device: Device) -> Half:
        """The verdict of one device, and the outputs."""
        task, problem, launch = load_task(case.problem.task), case.problem, case.launch
        inputs = task.inputs(problem, task.families.plain, SEED, "cpu")
        memory = GuardedMemory(task.buffers(problem), launch.workspaces, torch_device=device.torch_device)
        memory.fill({name: tensor.to(device.torch_device) for name, tensor in inputs.items()}, SEED)
        try:
            binary = self.compiler.compile(case.source, case.entry, self.gpu.arch)
            kernel = device.load(binary, launch)
            for turn, schedule in enumerate(device.schedules):
                memory.poison(turn)
                kernel.launch(launch, memory.regions, schedule)
                memory.refuse_damage(memory.content)
            outputs = {name: out.cpu() for name, out in memory.outputs(memory.content).items()}
            reference, honest = task.reference(problem, inputs), task.honest(problem, inputs)
            found = [compare(n, out, reference[n], honest[n], task.tolerance) for n, out in outputs.items()]
        except CandidateError as error:
            return Half(error.outcome, f"{error} {error.where}".strip())
        of_line = max(one.row_error / one.row_limit for one in found)
        return Half("GREEN", "", of_line, tuple(map(words, outputs.values())))


def words(output: Any) -> np.ndarray[Any, Any]:
    """The bits of a tensor of floating-point numbers, as integers of their size."""
    import torch

    size = {2: torch.int16, 4: torch.int32}[output.element_size()]
    return np.asarray(output.contiguous().view(size).numpy().ravel())


def units_apart(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any], dtype: str) -> int:
    """The largest difference of two outputs in units of the last place, where the first is at least 2^-7;
    below, where cancellation rules, any difference counts as one."""
    hundredth = {"fp16": 0x2000, "bf16": 0x3C00, "fp32": 0x3C000000}[dtype]
    a, b = ordered(one), ordered(other)
    return int(np.where(np.abs(a) < hundredth, a != b, np.abs(a - b)).max(initial=0))


def ordered(bits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Floating-point numbers, by their bits, as integers whose differences count units in the last place."""
    wide = bits.astype(np.int64)
    return np.where(wide < 0, -(wide & np.iinfo(bits.dtype).max), wide)


# ------------------------------------------------------------------------------------------ running all

_bench: list[Bench] = []


def open_bench(gpu: Gpu, halves: Sequence[str]) -> None:
    """Called once in every process of the pool."""
    _bench.append(Bench(gpu, halves))


def compared(case: Candidate) -> Compared:
    return _bench[0].compare(case)


def compare_all(todo: Sequence[Candidate], gpu: Gpu, halves: Sequence[str], jobs: int) -> Iterator[Compared]:
    """Every case, in the order in which they are done. Stops early, and says so, where nothing more comes."""
    with get_context("spawn").Pool(jobs, open_bench, (gpu, halves)) as pool:
        results = pool.imap_unordered(compared, todo)
        for _ in todo:
            try:
                yield results.next(PATIENCE_S)
            except NothingCame:
                print(f"no case was done for {PATIENCE_S} s; the rest is not run", file=sys.stderr)
                return


def row_of(done: Sequence[Compared], asked: int) -> dict[str, Any]:
    """One template's row."""
    halves = sorted({half for one in done for half in one.halves})
    return {
        "cases": asked,
        "not_run": asked - len(done),
        "same_verdict": sum(one.agree for one in done),
        "green": sum(one.green for one in done),
        "same_bits": sum(one.ulp == 0 for one in done),
        "largest_ulp": max((one.ulp for one in done), default=-1),
        "worst_row_of_its_line": {
            half: round(max(one.halves[half].of_line for one in done if half in one.halves), 3)
            for half in halves
        },
        "dtypes": dict(Counter(one.case.problem.dtype for one in done)),
        "problems": len({one.case.problem.key for one in done}),
        "not_green": [not_green(one) for one in done if not one.green],
    }


def not_green(one: Compared) -> dict[str, Any]:
    """A case that is not GREEN, and what each half says of it."""
    said = {name: f"{half.outcome} {half.why}"[:600] for name, half in one.halves.items()}
    return {"problem": one.case.problem.key, "point": dict(one.case.point), **said}
