"""Whether the gate ever refuses an honest kernel: its numeric checks over many seeds, on a GPU.

Every template's default (that of flash_wgmma_split also without a maximum) and torch's own flash, cuDNN,
memory-efficient and math kernels, in fp16 and bf16, at head dimensions 64 and 128, causal and not: each seed
has fresh inputs of one family, in turn, at one of the lengths of the gate, in turn, and its output goes
through the checks of `evo.gate.tolerance`, which a candidate's go through. A point serves all lengths that it
would meet in a search at 512. Written: how many were refused, and how near the line the worst one came.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from multiprocessing import get_context
from typing import Any

import torch

from evo.cache import Cache, default_folder
from evo.compile import Compiler, find_compiler
from evo.device import Region
from evo.device.cuda import CudaDevice
from evo.errors import Red
from evo.gate.tolerance import Errors, errors_of, limits_of, refuse
from evo.gpu import Limits
from evo.task import Task, load_task
from evo.template import list_templates, load_template
from evo.trial import Candidate, Problem

PROTOCOL = "the numeric checks of the gate on honest kernels; worst error as a part of its line"
GPU = True
LENGTHS = (1, 63, 64, 65, 127, 129, 200, 257, 512, 1000)
Run = Callable[[Mapping[str, torch.Tensor]], torch.Tensor]


def kernels(
    task: Task, device: CudaDevice, compiler: Compiler, problem: Problem
) -> Iterator[tuple[str, Run]]:
    """Everything honest that serves `problem`."""
    limits = Limits.of(device.gpu)
    for name in list_templates(task.name):
        template = load_template(task, name)
        if template.supports(problem, limits):
            continue
        default = template.space.default
        points = {name: default}
        if "shift" in default:  # no maximum: a weight need not be 1 at one key, where others are exact
            points[f"{name} shift=none"] = {**default, "shift": "none"}
        for title, point in points.items():
            # a point of short lengths may need more shared memory than there is for a longer one
            if not template.space.why_not(point, limits, problem.replace(L=max(512, problem["L"]))):
                yield title, runner(device, compiler, template.candidate(point, problem))
    for name, baseline in task.baselines(problem, device.torch_device).items():
        if name != "hybrid":  # rounds the scores to the storage type: not honest by the task's word
            yield f"torch {name}", baseline


def runner(device: CudaDevice, compiler: Compiler, candidate: Candidate) -> Run:
    """What launches a candidate's kernel on inputs and returns its output, without waiting for it."""
    binary = compiler.compile(candidate.source, candidate.entry, device.gpu.arch)
    kernel = device.load(binary, candidate.launch)
    scratch = {
        w.name: torch.zeros(w.nbytes, dtype=torch.uint8, device=device.torch_device)
        for w in candidate.launch.workspaces
    }

    def run(inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        out = torch.full_like(inputs["q"], torch.nan)
        whole = {**inputs, "o": out, **scratch}
        regions = {
            n: Region(n, t.data_ptr(), t.numel() * t.element_size(), n not in "qkv") for n, t in whole.items()
        }
        kernel.start(candidate.launch, regions)  # judging waits for it
        return out

    return run


def try_combination(combination: tuple[str, int, bool, int, int]) -> dict[str, dict[str, Any]]:
    """All lengths and seeds of one dtype, head dimension and mask, in this process."""
    dtype, dim, causal, heads, seeds = combination
    torch.set_num_threads(1)
    task = load_task("attention")
    results: dict[str, dict[str, Any]] = {}
    with find_compiler(None, Cache(default_folder())) as compiler:
        device = CudaDevice(0, compiler)
        base = task.problem(f"1,{heads},512,{dim}", dtype, causal=causal)
        for at, length in enumerate(LENGTHS):
            chosen = range(at, seeds, len(LENGTHS))
            try_length(task, device, compiler, base.replace(L=length), chosen, results)
    return results


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--heads", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=8, help="processes that share the GPU")


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    begin = time.perf_counter()
    combinations = [
        (dtype, dim, causal, asked.heads, asked.seeds)
        for dtype in ("fp16", "bf16")
        for dim in (64, 128)
        for causal in (False, True)
    ]
    results: dict[str, dict[str, Any]] = {}
    with get_context("spawn").Pool(asked.jobs) as pool:
        for found in pool.imap_unordered(try_combination, combinations):
            results |= found
            took = time.perf_counter() - begin
            print(f"{next(iter(found))} …: {took:.0f} s", file=sys.stderr, flush=True)
            yield {
                "seeds": asked.seeds,
                "lengths": LENGTHS,
                "families": load_task("attention").families.names,
                "judged": sum(r["judged"] for r in results.values()),
                "refused": sum(r["refused"] for r in results.values()),
                "seconds": round(took),
                "kernels": dict(sorted(results.items())),
            }


def try_length(
    task: Task,
    device: CudaDevice,
    compiler: Compiler,
    problem: Problem,
    seeds: range,
    results: dict[str, dict[str, Any]],
) -> None:
    """All kernels at one length, on the same inputs: the reference is computed once a seed."""
    running = list(kernels(task, device, compiler, problem))
    for seed in seeds:
        family = task.families.names[seed // len(LENGTHS) % len(task.families.names)]
        inputs = task.inputs(problem, family, seed, device.torch_device)
        reference = task.reference(problem, inputs)["o"]
        limits = limits_of(reference, task.honest(problem, inputs)["o"], task.tolerance)
        with torch.no_grad():
            outputs = [run(inputs) for _, run in running]
        numbers = torch.stack([errors_of(out, limits) for out in outputs]).tolist()
        for (name, _), out, measured in zip(running, outputs, numbers, strict=True):
            key = f"{name} {problem.dtype} D={problem['D']}{' causal' if problem['causal'] else ''}"
            found = results.setdefault(
                key, {"judged": 0, "refused": 0, "worst_row": 0.0, "worst_element": 0.0}
            )
            found["judged"] += 1
            seen = Errors(*measured)
            if not seen.within:
                found["refused"] += 1
                try:
                    refuse("o", out, limits, seen)
                except Red as red:
                    found.setdefault("first", f"{problem.key} {family} seed={seed}: {red}")
                continue
            found["worst_row"] = max(found["worst_row"], round(seen.row_error / seen.row_limit, 4))
            found["worst_element"] = max(
                found["worst_element"], round(seen.element_error / seen.element_limit, 4)
            )
