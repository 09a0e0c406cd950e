"""Whether the emulator and a GPU say the same of the same kernels: outputs and verdicts over all templates.

At each head dimension a template runs at every point of a pairwise-covering sample; fp16 and bf16, causal
and not, and ragged lengths take turns, so that each type and mask has its share of at least --points.
Emulator and GPU get the same inputs and the same program: the emulator runs its PTX under each of its
schedules, the GPU runs once what ptxas made of it. A case is GREEN if it ran without a report and its
worst row's relative error against the fp64 reference is below the line of its type. Told by template: how
many verdicts agree, how many outputs agree bit for bit, and the largest difference of the others in units of
the last place of the storage type. Ends with 1 where they disagree or, with one
half alone (`--only emulator` needs no GPU), where a case is not GREEN.
"""

from __future__ import annotations

import argparse
import sys
import time
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
from evo.device import Device, Region
from evo.device.emulator import EmulatorDevice, built_interpreter
from evo.errors import CandidateError, Hung
from evo.gpu import KNOWN_GPUS, Gpu, Limits
from evo.task import Task, load_task
from evo.template import Template, list_templates, load_template
from evo.trial import Candidate, Point, Problem

PROTOCOL = """the same inputs and PTX; one launch on the GPU, one under each of the emulator's schedules; the
worst row's relative error against fp64 below a line; units in the last place where a value is 2^-7 or more"""
GPU = True
LENGTHS = (1, 63, 65, 129, 200, 257)
HEAD_DIMS = (64, 128, 32, 96)
KINDS = tuple(product(("fp16", "bf16"), (False, True)))
NAMED_KINDS = {f"{dtype}{' causal' if causal else ''}": (dtype, causal) for dtype, causal in KINDS}
LINE = {"fp16": 8e-4, "bf16": 6e-3}
"""Worst-row relative error that an honest kernel stays below (it measures 4e-4 and 3.5e-3)."""
CACHE = default_folder()
PATIENCE_S = 120
"""Without any case done for so long, the GPU is taken to hang in one."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", choices=["emulator", "cuda"], help="one half alone")
    parser.add_argument("--gpu", default="H200", choices=list(KNOWN_GPUS), help="whose limits and code")
    parser.add_argument("--points", type=int, default=60, help="at least so many points a type and mask")
    parser.add_argument("--template", action="append", help="only these")
    parser.add_argument("--jobs", type=int, default=2, help="processes")


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    begin = time.perf_counter()
    gpu, task, halves = KNOWN_GPUS[asked.gpu], load_task("attention"), [asked.only or "emulator"]
    halves += ["cuda"] if not asked.only else []
    limits = Limits.of(gpu)
    every = asked.template or list_templates(task.name)
    names = [name for name in every if limits.allows(load_template(task, name).needs)]
    with ThreadPoolExecutor(1) as builder:
        built = builder.submit(built_interpreter, CACHE)
        todo = [c for n in names for c in cases(task, load_template(task, n), limits, asked.points)]
        built.result()
    print(f"{len(todo)} cases, {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
    done = list(compare_all(todo, gpu, halves, asked.jobs))
    rows = {name: row_of(of_template(done, name), len(of_template(todo, name))) for name in names}
    yield {
        "line": LINE,
        "schedules": EmulatorDevice(gpu).schedules,
        "lengths": LENGTHS,
        "head_dims": HEAD_DIMS,
        "seconds": round(time.perf_counter() - begin),
        "templates": rows,
    }
    bad = sum(len(row["not_green"]) + row["not_run"] for row in rows.values())
    if bad:
        raise SystemExit(f"{bad} of {len(todo)} cases are not GREEN or were not run")


@dataclass(frozen=True)
class Case:
    """One candidate to run."""

    name: str
    candidate: Candidate


@dataclass(frozen=True)
class Half:
    """What one device made of a case: its verdict, and the output if it came to one."""

    outcome: str
    why: str = ""
    row_error: float = 0.0
    output: np.ndarray[Any, Any] | None = None


@dataclass(frozen=True)
class Compared:
    """One case, done. `ulp` is the largest difference in units of the last place, -1 with one half alone."""

    case: Case
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


def cases(task: Task, template: Template, limits: Limits, least: int) -> Iterator[Case]:
    """A covering sample at each head dimension that the template serves; types, masks, lengths in turn."""
    rng = np.random.default_rng(7)
    dims = [d for d in HEAD_DIMS if template.supports(task.example.replace(D=d), limits) is None]
    for d in dims:
        example = task.example.replace(B=1, H=2, D=d)
        points = template.space.feasible(limits, example).covering(rng, -(-least * len(KINDS) // len(dims)))
        for number, at in enumerate(rng.permutation(len(points))):
            problem = fitting(template, points[at], limits, example, number)
            yield Case(f"{template.name} {number} {problem.key}", template.candidate(points[at], problem))


def fitting(template: Template, point: Point, limits: Limits, example: Problem, number: int) -> Problem:
    """`example` with the next type and mask, and the next ragged length that the rules allow, else its own;
    all of `example`'s own where they allow nothing else."""
    for turn in range(len(KINDS)):
        dtype, causal = KINDS[(number + turn) % len(KINDS)]
        kind = example.replace(dtype=dtype, causal=causal)
        for step in range(len(LENGTHS)):
            ragged = kind.replace(L=LENGTHS[(number // len(KINDS) + step) % len(LENGTHS)])
            if template.space.why_not(point, limits, ragged) is None:
                return ragged
        if template.space.why_not(point, limits, kind) is None:
            return kind
    return example


# ------------------------------------------------------------------------------------------ running one


class Bench:
    """The compiler and devices of one process."""

    def __init__(self, gpu: Gpu, halves: Sequence[str]) -> None:
        import torch

        torch.set_num_threads(1)
        self.gpu, self.task = gpu, load_task("attention")
        self.compiler: Compiler = find_compiler(None, Cache(CACHE))
        self.devices: dict[str, Device] = {}
        if "emulator" in halves:
            self.devices["emulator"] = EmulatorDevice(gpu)
        if "cuda" in halves:
            from evo.device.cuda import CudaDevice

            self.devices["cuda"] = CudaDevice(0, self.compiler)

    def compare(self, case: Case) -> Compared:
        """Run `case` on every device. What the emulator sees hang is not tried on the GPU, which would."""
        halves: dict[str, Half] = {}
        for name, device in self.devices.items():
            halves[name] = self.half(case, device)
            if halves[name].outcome == Hung.outcome or "deadlock" in halves[name].why:
                break
        outputs = [half.output for half in halves.values() if half.output is not None]
        ulp = units_apart(outputs, case.candidate.problem.dtype) if len(outputs) == 2 else -1
        return Compared(case, {n: Half(h.outcome, h.why, h.row_error) for n, h in halves.items()}, ulp)

    def half(self, case: Case, device: Device) -> Half:
        """The verdict of one device, and the output as 16-bit words."""
        import torch

        problem, launch = case.candidate.problem, case.candidate.launch
        inputs = self.task.inputs(problem, "normal", 1, "cpu")
        expected = self.task.reference(problem, inputs)["o"]
        where = device.torch_device
        held = {name: t.to(where) for name, t in inputs.items()}
        held["o"] = torch.full(expected.shape, float("nan"), dtype=inputs["q"].dtype, device=where)
        for space in launch.workspaces:
            held[space.name] = torch.zeros(space.nbytes, dtype=torch.uint8, device=where)
        regions = {
            name: Region(name, t.data_ptr(), t.numel() * t.element_size(), name not in "qkv", name != "o")
            for name, t in held.items()
        }
        try:
            binary = self.compiler.compile(case.candidate.source, case.candidate.entry, self.gpu.arch)
            kernel = device.load(binary, launch)
            for schedule in device.schedules:
                kernel.launch(launch, regions, schedule)
        except CandidateError as error:
            return Half(error.outcome, f"{error} {error.where}".strip())
        out = held["o"].cpu()
        row_error = float(((out.double() - expected).norm(dim=-1) / expected.norm(dim=-1)).max())
        right = row_error < LINE[problem.dtype]
        return Half(
            "GREEN" if right else "RED",
            "" if right else "wrong result",
            row_error,
            out.view(torch.int16).numpy().ravel(),
        )


def units_apart(outputs: Sequence[np.ndarray[Any, Any]], dtype: str) -> int:
    """The largest difference of two outputs in units of the last place, where the first is at least 2^-7;
    below, where cancellation rules, any difference counts as one."""
    hundredth = 0x2000 if dtype == "fp16" else 0x3C00
    a, b = (ordered(words) for words in outputs)
    return int(np.where(np.abs(a) < hundredth, a != b, np.abs(a - b)).max())


def ordered(words: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """16-bit floats as integers whose differences count units in the last place."""
    wide = words.astype(np.int32)
    return np.where(wide < 0, -(wide & 0x7FFF), wide)


# ------------------------------------------------------------------------------------------ running all

_bench: list[Bench] = []


def open_bench(gpu: Gpu, halves: Sequence[str]) -> None:
    """Called once in every process of the pool."""
    _bench.append(Bench(gpu, halves))


def compare(case: Case) -> Compared:
    return _bench[0].compare(case)


def compare_all(todo: Sequence[Case], gpu: Gpu, halves: Sequence[str], jobs: int) -> Iterator[Compared]:
    """Every case, in the order in which they are done. Stops early, and says so, where nothing more comes."""
    with get_context("spawn").Pool(jobs, open_bench, (gpu, halves)) as pool:
        results = pool.imap_unordered(compare, todo)
        for _ in todo:
            try:
                yield results.next(PATIENCE_S)
            except NothingCame:
                print(f"no case was done for {PATIENCE_S} s; the rest is not run", file=sys.stderr)
                return


def of_template(some: Sequence[Any], name: str) -> list[Any]:
    """The cases, done or not, of one template."""
    return [one for one in some if getattr(one, "case", one).candidate.template == name]


def row_of(done: Sequence[Compared], asked: int) -> dict[str, Any]:
    """One template's row."""
    halves = {half for c in done for half in c.halves}
    problems = [c.case.candidate.problem for c in done]
    kinds = [(problem.dtype, bool(problem["causal"])) for problem in problems]
    return {
        "cases": asked,
        "not_run": asked - len(done),
        "same_verdict": sum(c.agree for c in done),
        "green": sum(c.green for c in done),
        "same_bits": sum(c.ulp == 0 for c in done),
        "largest_ulp": max((c.ulp for c in done), default=-1),
        "worst_row_error": {half: worst_errors(done, half) for half in sorted(halves)},
        "kinds": {name: kinds.count(kind) for name, kind in NAMED_KINDS.items()},
        "not_green": [not_green(c) for c in done if not c.green],
    }


def worst_errors(done: Sequence[Compared], half: str) -> dict[str, float]:
    """The largest row error of one half, by storage type."""
    seen = [(c.case.candidate.problem.dtype, c.halves[half].row_error) for c in done if half in c.halves]
    return {dtype: max((error for kind, error in seen if kind == dtype), default=0.0) for dtype in LINE}


def not_green(compared: Compared) -> dict[str, Any]:
    """A case that is not GREEN, and what each half says of it."""
    case = compared.case
    said = {name: f"{half.outcome} {half.why}"[:600] for name, half in compared.halves.items()}
    return {"case": case.name, "point": dict(case.candidate.point), **said}
