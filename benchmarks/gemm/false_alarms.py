"""Whether the gate ever refuses an honest product: its numeric checks over many seeds.

Each template's first point and torch's own product, at each of PROBLEMS: each seed has fresh inputs of one
family, in turn, and goes through the checks that a candidate's outputs go through. Written: how many were
refused, and how near the line the worst one came. On an H200 about a minute for 1,000 seeds; `--device
emulator` needs no GPU, and a second for a few seeds of a problem.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from benchmarks.gemm.shapes import problem_of
from evo.cache import default_folder
from evo.device import Region
from evo.device.open import real_gpu
from evo.dtype import dtype_named
from evo.errors import Red
from evo.evaluate import Evaluator, EvaluatorSpec
from evo.gpu import Limits, target
from evo.task import load_task
from evo.template import list_templates, load_template
from evo.trial import Candidate, Problem

PROTOCOL = """the numeric checks of the gate on honest products, seeds and families in turn over problems; the
worst error as a part of its line"""
GPU = True
PROBLEMS = (
    "72,136,200,1", "65,72,1000,1 fp16 layout=NN", "136,72,264,2 layout=TN epilogue=bias_gelu",
    "33,101,520,1 epilogue=residual", "72,136,2048,1 out=fp32", "128,128,16384,1 fp16 out=fp32",
    "64,64,8192,1 out=fp32 epilogue=scale", "1,264,4096,1 fp16", "8,72,4096,1 epilogue=bias_silu", "3,8,8,1",
)  # fmt: skip


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--device", default="cuda:0", help="or emulator (default: cuda:0)")


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    import torch

    task = load_task("gemm")
    gpu = target("sm_90a") if asked.device == "emulator" else real_gpu(asked.device)
    spec = EvaluatorSpec("gemm", asked.device, gpu, Limits.of(gpu), default_folder())
    evaluator = spec.build()
    results: dict[str, dict[str, Any]] = {}
    try:
        for at, text in enumerate(PROBLEMS):
            with torch.no_grad():
                try_problem(evaluator, problem_of(task, text), range(at, asked.seeds, len(PROBLEMS)), results)
            print(f"{text}: {results}", file=sys.stderr, flush=True)
            yield {
                "seeds": asked.seeds,
                "device": asked.device,
                "problems": PROBLEMS,
                "families": task.families.names,
                "judged": sum(found["judged"] for found in results.values()),
                "refused": sum(found["refused"] for found in results.values()),
                "kernels": results,
            }
    finally:
        evaluator.close()


Run = Callable[[Mapping[str, Any]], Any]


def kernels(evaluator: Evaluator, problem: Problem) -> Iterator[tuple[str, Run]]:
    """The first point of each template that serves the problem, and torch's product."""
    task, limits = load_task("gemm"), evaluator.spec.limits
    for name in list_templates("gemm"):
        template = load_template(task, name, gpu=evaluator.spec.gpu)
        if template.supports(problem, limits) is not None:
            continue
        point = template.space.default_for(problem, limits)
        if template.space.why_not(point, limits, problem) is None:
            yield name, runner(evaluator, template.candidate(point, problem))
    if problem["epilogue"] in ("none", "scale"):  # of others torch rounds before the epilogue
        for name, baseline in task.baselines(problem, evaluator.device.torch_device).items():
            yield f"torch {name}", baseline


def runner(evaluator: Evaluator, candidate: Candidate) -> Run:
    """What launches a candidate on inputs and returns c."""
    import torch

    task, device, problem = evaluator.task, evaluator.device, candidate.problem
    binary = evaluator.compiler.compile(candidate.source, candidate.entry, evaluator.spec.arch)
    kernel = device.load(binary, candidate.launch)
    c = next(buffer for buffer in task.buffers(problem) if buffer.written)
    scratch = {
        w.name: torch.zeros(w.nbytes, dtype=torch.uint8, device=device.torch_device)
        for w in candidate.launch.workspaces
    }
    zeroed = {w.name for w in candidate.launch.workspaces if w.zeroed}

    def launched(inputs: Mapping[str, Any]) -> Any:
        out = torch.full(c.shape, torch.nan, dtype=dtype_named(c.dtype).torch, device=device.torch_device)
        whole = {**inputs, "c": out, **scratch}
        regions = {
            n: Region(n, x.data_ptr(), x.nbytes, n not in inputs, n in inputs or n in zeroed)
            for n, x in whole.items()
        }
        kernel.start(candidate.launch, regions, device.schedules[0])
        return out

    return launched


def try_problem(
    evaluator: Evaluator, problem: Problem, seeds: range, results: dict[str, dict[str, Any]]
) -> None:
    """All kernels on the same inputs: the reference is computed once a seed."""
    from evo.gate.tolerance import Errors, errors_of, limits_of, refuse

    task, where = evaluator.task, evaluator.device.torch_device
    running = list(kernels(evaluator, problem))
    for number, seed in enumerate(seeds):
        family = task.families.names[number % len(task.families.names)]
        inputs = task.inputs(problem, family, seed, where)
        limits = limits_of(
            task.reference(problem, inputs)["c"], task.honest(problem, inputs)["c"], task.tolerance
        )
        for name, launched in running:
            out = launched(inputs)
            found = results.setdefault(
                name, {"judged": 0, "refused": 0, "worst_row": 0.0, "worst_element": 0.0}
            )
            found["judged"] += 1
            seen = Errors(*errors_of(out, limits).tolist())
            if not seen.within:
                found["refused"] += 1
                try:
                    refuse("c", out, limits, seen)
                except Red as red:
                    found.setdefault("first", f"{problem.key} {family} seed={seed}: {red} {red.where}")
                continue
            of_row = seen.row_error / seen.row_limit
            of_element = seen.element_error / seen.element_limit if seen.element_limit else 0.0
            found["worst_row"] = max(found["worst_row"], round(of_row, 4))
            found["worst_element"] = max(found["worst_element"], round(of_element, 4))
