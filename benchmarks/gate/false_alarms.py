"""Whether the gate ever refuses an honest kernel: the whole check for candidates, over many seeds.

Each template of a task at its first point and at --points random ones, over PROBLEMS in turn: every seed
draws lengths, families, flags and values anew, as for a candidate of a search. Written for each template: how
many checks were made, how many ended RED and why, and how near its line the worst error came. On an H200
about a minute a task for 1,000 seeds; `--device emulator` needs no GPU, and a second or more for each seed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import numpy as np

from benchmarks.gemm.shapes import problem_of
from evo.cache import default_folder
from evo.device.open import is_gpu, real_gpu
from evo.errors import CandidateError, Red, UsageError
from evo.evaluate import Evaluator, EvaluatorSpec
from evo.gpu import Limits, target
from evo.task import load_task
from evo.template import Template, list_templates, load_template
from evo.trial import Candidate, Problem

PROTOCOL = """the check for candidates on honest kernels: a template's first point and random ones (seed 7),
the seeds in turn over problems and points; worst: the largest error of a case as a part of its line"""
GPU = True
PROBLEMS = {
    "attention": tuple(
        f"1,2,512,{dim} {dtype} causal={causal}"
        for dim in (64, 128)
        for dtype in ("fp16", "bf16")
        for causal in (0, 1)
    ),
    "gemm": (
        "72,136,200,1", "65,72,1000,1 fp16 layout=NN", "136,72,264,2 layout=TN epilogue=bias_gelu",
        "33,101,520,1 epilogue=residual", "72,136,2048,1 out=fp32", "64,64,8192,1 out=fp32 epilogue=scale",
        "1,264,4096,1 fp16", "8,72,4096,1 epilogue=bias_silu", "3,8,8,1",
    ),
    "gemm_w4a16": ("1,128,512", "3,256,1024 zeros=1", "16,128,2048", "33,64,512 zeros=1"),
    "rmsnorm": (
        "37,4096 bf16", "5,1000 fp16 gap=1", "64,2048 bf16 residual=1", "3,16384 fp32", "9,777 bf16 gap=8",
    ),
    "layernorm": ("37,4096 bf16", "5,1000 fp16 gap=1", "3,16384 fp32", "9,777 bf16 gap=8"),
    "softmax": ("37,4096 bf16", "5,1000 fp16 gap=1 log=1", "3,16384 fp32", "9,777 bf16 gap=8"),
    "cross_entropy": ("37,4096 bf16", "5,1000 fp16 gap=1 lse=1", "3,16384 fp32", "9,777 bf16 gap=8 lse=1"),
}  # fmt: skip
"""By task: a shape text, a storage type, and flags."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--task", action="append", choices=list(PROBLEMS), help="default: all")
    parser.add_argument("--seeds", type=int, default=1000, help="of each template (default: 1000)")
    parser.add_argument("--points", type=int, default=3, help="random ones of each problem (default: 3)")
    parser.add_argument("--jobs", type=int, default=8, help="processes that share the device (default: 8)")
    parser.add_argument("--device", default="cuda:0", help="or emulator (default: cuda:0)")


@dataclass(frozen=True)
class Work:
    """The seeds that the points of a template meet at one problem."""

    task: str
    template: str
    problem: str
    seeds: range
    points: int
    device: str


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    begin = time.perf_counter()
    results: dict[str, dict[str, Any]] = {}
    with get_context("spawn").Pool(asked.jobs) as pool:
        for work, found in pool.imap_unordered(tried, planned(asked)):
            name = f"{work.task} {work.template}"
            results[name] = joined(results.get(name, {}), found)
            seconds = round(time.perf_counter() - begin)
            print(f"{seconds} s: {name} {work.problem}: {found}", file=sys.stderr, flush=True)
            yield {
                "seeds": asked.seeds,
                "device": asked.device,
                "checks": sum(one["checks"] for one in results.values()),
                "refused": sum(one["refused"] for one in results.values()),
                "seconds": seconds,
                "templates": dict(sorted(results.items())),
            }


def planned(asked: argparse.Namespace) -> list[Work]:
    """Each template with those problems that it serves, its seeds dealt out among them."""
    gpu = target("sm_90a") if not is_gpu(asked.device) else real_gpu(asked.device)
    limits, found = Limits.of(gpu), []
    for name in asked.task or PROBLEMS:
        task = load_task(name)
        for title in list_templates(name):
            template = load_template(task, title, gpu=gpu)
            texts = [text for text in PROBLEMS[name] if serves(template, problem_of(task, text), limits)]
            for at, text in enumerate(texts):
                seeds = range(at, asked.seeds, len(texts))
                found.append(Work(name, title, text, seeds, asked.points, asked.device))
    return found


def serves(template: Template, problem: Problem, limits: Limits) -> bool:
    """Whether the template has points for the problem: where it has any, its first one is among them."""
    if template.supports(problem, limits) is not None:
        return False
    return template.space.why_not(template.space.default_for(problem, limits), limits, problem) is None


def tried(work: Work) -> tuple[Work, dict[str, Any]]:
    """In a process of its own: how the checks of one template at one problem ended."""
    import torch

    torch.set_num_threads(1)
    gpu = target("sm_90a") if not is_gpu(work.device) else real_gpu(work.device)
    evaluator = EvaluatorSpec(work.task, work.device, gpu, Limits.of(gpu), default_folder()).build()
    found: dict[str, Any] = {"checks": 0, "refused": 0, "worst": 0.0}
    ends: Counter[str] = Counter()
    try:
        try:
            candidates = honest(work, evaluator)
        except UsageError:  # kernels of few rows have no point for many
            return work, {**found, "other ends": {"no point is feasible": len(work.seeds)}}
        for number, seed in enumerate(work.seeds):
            candidate = candidates[number % len(candidates)]
            found["checks"] += 1
            try:
                green = evaluator.gate(candidate, seed, thorough=False)
            except Red as red:
                found["refused"] += 1
                found.setdefault(
                    "first", f"{candidate.problem.key} {candidate.point} seed={seed}: {red} {red.where}"
                )
            except CandidateError as other:  # e.g. a point that spills too much to be launched: no verdict
                ends[f"{other.outcome} {other.reason}"] += 1
            else:
                parts = [error.part_of_limit for error in green.errors]
                found["worst"] = max(found["worst"], round(max(parts, default=0.0), 4))
    finally:
        evaluator.close()
    return work, {**found, **({"other ends": dict(ends)} if ends else {})}


def honest(work: Work, evaluator: Evaluator) -> list[Candidate]:
    """The template's first point for the problem, and random ones."""
    task, limits, rng = load_task(work.task), evaluator.spec.limits, np.random.default_rng(7)
    template = load_template(task, work.template, gpu=evaluator.spec.gpu)
    problem = problem_of(task, work.problem)
    feasible = template.space.feasible(limits, problem)
    points = [
        template.space.default_for(problem, limits),
        *(feasible.sample(rng) for _ in range(work.points)),
    ]
    return [template.candidate(point, problem) for point in points]


def joined(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """What two parts of a template's seeds say together."""
    if not one:
        return other
    ends = Counter(one.get("other ends", {})) + Counter(other.get("other ends", {}))
    return {
        "checks": one["checks"] + other["checks"],
        "refused": one["refused"] + other["refused"],
        "worst": max(one["worst"], other["worst"]),
        **({"first": one.get("first") or other.get("first")} if "first" in {**one, **other} else {}),
        **({"other ends": dict(ends)} if ends else {}),
    }
