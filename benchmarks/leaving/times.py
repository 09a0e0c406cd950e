"""Every champion of a task on every problem of the others that its code serves: what `evo export --times`
takes.

On a GPU, some seconds a pair.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.leaving.turns import device_us, told

PROTOCOL = """µs a launch: graphs of 20 launches of evo.kernel of one champion alone into the same output,
20 replays one after another and a synchronization, divided by 400; the champions of a problem in turns,
medians over rounds. Inputs are of the task's plain family; the L2 is warm. `intervals` are of 95 %."""
GPU = True
IN_GRAPH = REPLAYS = 20


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--task", default="attention", metavar="TASK")
    parser.add_argument("--rounds", type=int, default=20, metavar="N", help="rounds (default: 20)")
    parser.add_argument("--kernels", type=Path, metavar="DIR", help="a folder of champions")


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    import torch

    from evo.confirm.champions import champions, kernels_folders
    from evo.task import load_task

    if not torch.cuda.is_available():
        raise SystemExit("error: this needs an NVIDIA GPU")
    task = load_task(asked.task)
    found = [one for one in champions(*kernels_folders(asked.kernels)) if one.problem.task == task.name]
    times: dict[str, dict[str, float]] = {}
    intervals: dict[str, dict[str, list[float]]] = {}
    for problem in {one.problem.key: one.problem for one in found}.values():
        graphs = {one.name: graph for one in found if (graph := _graph(task, one, problem)) is not None}
        replays = {name: graph.replay for name, graph in graphs.items()}
        for name, said in told(device_us(replays, asked.rounds, REPLAYS)).items():
            times.setdefault(name, {})[problem.key] = said["median_us"] / IN_GRAPH
            intervals.setdefault(name, {})[problem.key] = [us / IN_GRAPH for us in said["interval"]]
        yield {"times": times, "intervals": intervals}


def _graph(task: Any, champion: Any, problem: Any) -> Any:
    """A captured graph of launches; None where the champion's code does not serve the problem here."""
    import torch

    from evo.api.task_kernel import TaskKernel
    from evo.cache import default_folder

    call = TaskKernel(task, [champion], (), default_folder())
    inputs = task.inputs(problem, task.families.plain, 0, "cuda")
    with torch.no_grad():
        if call.explain(**inputs, **problem.flags).decision.kernel != champion.name:
            return None
        written = call(**inputs, **problem.flags)
        outputs = written if isinstance(written, dict) else {task.buffers(problem)[-1].name: written}
        out = {name: tensor for name, tensor in outputs.items() if name not in inputs}
        stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(IN_GRAPH):
                call(**inputs, **problem.flags, out=out)
    return graph
