"""What scratch memory costs a call: a product whose CTAs share K and join, beside the same without a split.

On a GPU (under a minute): 16 rows against 2112 x 7168 in bf16, by gemm_skinny at its suited point with a
split of 4 and of 1, and by torch.matmul: the host's µs a call, what a program waits, eager and in a graph,
and how many nodes the graph has.
"""

from __future__ import annotations

import argparse
import ctypes
from collections.abc import Iterator
from typing import Any

from benchmarks.leaving.mission import IN_GRAPH, captured
from benchmarks.leaving.turns import Work, device_us, host_us, told

PROTOCOL = """µs a call. host: 100 calls are made without waiting, the GPU finishes outside of the time.
eager: 200 calls one after another and a synchronization, divided by 200. graph: 20 calls in a CUDA graph, 10
replays and a synchronization, divided by 200. Variants in turns, medians over rounds with 95 % intervals by
order statistics; speedups are bootstrapped over rounds. Kernels are rendered and compiled, and not gated."""
GPU = True
SHAPE = "16,2112,7168,1"
SPLITS = (4, 1)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=60, metavar="N", help="rounds (default: 60)")


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    import torch

    if not torch.cuda.is_available():
        raise SystemExit("error: this needs an NVIDIA GPU")
    m, n, k, _ = map(int, SHAPE.split(","))
    a = torch.randn(1, m, k, device="cuda").bfloat16()
    b = torch.randn(1, n, k, device="cuda").bfloat16()
    out = torch.empty(1, m, n, device="cuda", dtype=torch.bfloat16)
    found: dict[str, Any] = {}
    calls: dict[str, Work] = {"matmul": lambda: torch.matmul(a, b.mT, out=out)}
    exact = a.double() @ b.mT.double()
    for split in SPLITS:
        call = kernel_of(split)
        apart = (call(a, b, out=out).double() - exact).abs().max()
        found[f"split {split}"] = {"served by": str(call.explain(a, b).decision), "error": float(apart)}
        calls[f"split {split}"] = lambda call=call: call(a, b, out=out)  # type: ignore[misc]
    yield found
    found["host"] = told(host_us(calls, asked.rounds, 100, torch.cuda.synchronize), "matmul")
    yield found
    found["eager"] = told(device_us(calls, asked.rounds, 200), "matmul")
    graphs = {name: captured(call) for name, call in calls.items()}
    found["nodes a call in the graph"] = {name: nodes(graph) / IN_GRAPH for name, graph in graphs.items()}
    replays = {name: graph.replay for name, graph in graphs.items()}
    samples = device_us(replays, asked.rounds, 10)
    each = {name: [us / IN_GRAPH for us in values] for name, values in samples.items()}
    yield {**found, "graph": told(each, "matmul")}


def nodes(graph: Any) -> int:
    """How many a captured graph has."""
    count = ctypes.c_size_t()
    handle = ctypes.c_void_p(graph.raw_cuda_graph())
    if ctypes.CDLL("libcuda.so.1").cuGraphGetNodes(handle, None, ctypes.byref(count)):
        raise RuntimeError("the driver does not tell the nodes of a graph")
    return count.value


def kernel_of(split: int) -> Any:
    """gemm_skinny alone, as evo.kernel would call it."""
    from evo.api.task_kernel import TaskKernel
    from evo.cache import default_folder
    from evo.confirm.champions import unkept
    from evo.device.open import real_gpu
    from evo.gpu import Limits
    from evo.study import Study
    from evo.task import load_task
    from evo.template import load_template
    from evo.trial import Outcome, Trial

    task, limits = load_task("gemm"), Limits.of(real_gpu("cuda:0"))
    template, problem = load_template(task, "gemm_skinny", (), limits.gpu), task.problem(SHAPE)
    point = {**template.space.default_for(problem, limits), "split": split}
    trial = Trial(template.candidate(point, problem), Outcome.GREEN, study="scratch", number=split)
    study = Study("scratch", problem, "cuda:0", limits.gpu.name, ("gemm_skinny",), 60.0)
    return TaskKernel(task, [unkept(trial, study, limits.gpu.arch)], (), default_folder())
