"""How long the emulator takes for 256³ by gemm_wgmma with all checks: a launch, and the gate.

No GPU. About 20 s.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from typing import Any

from evo.cache import default_folder
from evo.device import Region
from evo.evaluate import EvaluatorSpec
from evo.gpu import Limits, target
from evo.task import load_task
from evo.template import load_template
from evo.trial import Point

PROTOCOL = """one launch of 256 x 256 x 256 in bf16 with every check, under each schedule: the median of some,
s; and the whole gate of a candidate for that problem, once its kernel is compiled, s. One thread"""
GPU = False
POINTS: dict[str, Point] = {
    "cooperative, 128 x 128": {"consumers": 2, "bn": 128, "stages": 4, "epilogue": "tma", "splits": 1},
    "in turns, 128 x 128": {
        "schedule": "pingpong", "consumers": 2, "rows": 2, "bn": 128, "stages": 6, "persistent": True,
        "epilogue": "tma", "producer": "warpgroup", "panel": 8, "splits": 1,
    },
    "64 x 64, K in 2 parts": {"stages": 4, "splits": 2},
}  # fmt: skip
"""What each has that is not the template's default."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--launches", type=int, default=5, metavar="N", help="a schedule (default: 5)")


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    import torch

    torch.set_num_threads(1)
    task, gpu = load_task("gemm"), target("sm_90a")
    limits = Limits.of(gpu)
    template, problem = load_template(task, "gemm_wgmma"), task.problem("256,256,256,1")
    evaluator = EvaluatorSpec("gemm", "emulator", gpu, limits, default_folder()).build()
    inputs = task.inputs(problem, "normal", 0, "cpu")
    found: dict[str, Any] = {}
    try:
        for name, changes in POINTS.items():
            candidate = template.candidate({**template.space.default, **changes}, problem)
            binary = evaluator.compiler.compile(candidate.source, candidate.entry, gpu.arch)
            kernel = evaluator.device.load(binary, candidate.launch)
            buffers = {b.name: b for b in task.buffers(problem)}
            memory = {**inputs, "c": torch.zeros(buffers["c"].shape, dtype=torch.bfloat16)}
            for workspace in candidate.launch.workspaces:
                memory[workspace.name] = torch.zeros(workspace.nbytes, dtype=torch.uint8)
            known = {*inputs, "tickets"}
            regions = {
                n: Region(n, x.data_ptr(), x.nbytes, writable=n not in inputs, initialised=n in known)
                for n, x in memory.items()
            }
            seconds = {}
            for schedule in evaluator.device.schedules:
                taken = []
                for _ in range(asked.launches):
                    begin = time.perf_counter()
                    kernel.launch(candidate.launch, regions, schedule)
                    taken.append(time.perf_counter() - begin)
                seconds[schedule] = round(statistics.median(taken), 4)
            begin = time.perf_counter()
            green = evaluator.gate(candidate, 0, thorough=False)
            gate_s = round(time.perf_counter() - begin, 2)
            found[name] = {"launch_s": seconds, "gate_s": gate_s, "gate_launches": green.launches}
            yield found
    finally:
        evaluator.close()
