"""Gate and time points of the Hopper attention templates, one line each, beside torch's backends.

    python benchmarks/hopper_points.py                        the named points at the mission shape
    python benchmarks/hopper_points.py --shape 2,16,4096,64 --points long
    python benchmarks/hopper_points.py --random 50 --seed 1   50 random feasible points a template
    python benchmarks/hopper_points.py --device emulator --shape 1,2,200,64

Times are medians of replayed CUDA graphs of 50 launches, warm L2, one input set, µs a launch: a first look.
`--quick` checks the problem itself against the fp64 reference, instead of the whole gate.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from evo.cache import Cache
from evo.device import Region
from evo.errors import CandidateError
from evo.gate import check
from evo.gpu import Limits, target
from evo.nvcc import Compiler, find_compiler
from evo.task import Task, load_task
from evo.template import Template, load_template
from evo.trial import LaunchConfig, Point, Problem

SPLIT, RING = "flash_wgmma_split", "flash_wgmma"
Named = tuple[str, str, dict[str, Any]]

THREADS, HALF, HEADS = {"copies": "threads"}, {"message": "half"}, {"grid_order": "head_fastest"}
ALL: dict[str, Any] = {**THREADS, **HALF, **HEADS, "epilogue": "wide"}

SHORT: list[Named] = [
    ("cl2 4x64", SPLIT, {}),
    ("cl2 4x64 wide", SPLIT, {"epilogue": "wide"}),
    ("cl2 4x64 chunk 32 wide", SPLIT, {"chunk": 32, "epilogue": "wide"}),
    ("cl2 4x64 barrier", SPLIT, {"exchange": "barrier"}),
    ("cl2 4x64 poly 2/8 wide", SPLIT, {"polynomials": 2, "epilogue": "wide"}),
    ("cl2 4x64 heads", SPLIT, {"epilogue": "wide", **HEADS}),
    ("cl2 4x64 half", SPLIT, {"epilogue": "wide", **HALF}),
    ("cl2 4x64 threads", SPLIT, {"epilogue": "wide", **THREADS}),
    ("cl2 4x64 threads heads", SPLIT, {"epilogue": "wide", **THREADS, **HEADS}),
    ("cl2 4x64 tma all", SPLIT, {"epilogue": "wide", **HALF, **HEADS}),
    ("cl2 4x64 tma all first", SPLIT, {"epilogue": "wide", "shift": "first", **HALF, **HEADS}),
    ("cl2 4x64 all", SPLIT, ALL),
    ("cl2 4x64 all direct", SPLIT, {**ALL, "epilogue": "direct"}),
    ("cl2 4x64 all chunk 32", SPLIT, {**ALL, "chunk": 32}),
    ("cl2 4x64 all chunk 16", SPLIT, {**ALL, "chunk": 16}),
    ("cl2 4x64 all poly 1/8", SPLIT, {**ALL, "polynomials": 1}),
    ("cl2 4x64 all poly 2/8", SPLIT, {**ALL, "polynomials": 2}),
    ("cl2 4x64 all poly 2/8 chunk 32", SPLIT, {**ALL, "polynomials": 2, "chunk": 32}),
    ("cl2 4x64 all barrier", SPLIT, {**ALL, "exchange": "barrier"}),
    ("cl2 2x128 all", SPLIT, {**ALL, "bn": 128}),
    ("cl2 8x32 all", SPLIT, {**ALL, "bn": 32, "chunk": 32}),
    ("cl2 4x64 first full", SPLIT, {**ALL, "shift": "first", "message": "full"}),
    ("cl2 4x64 first", SPLIT, {**ALL, "shift": "first"}),
    ("cl2 4x64 first chunk 32", SPLIT, {**ALL, "shift": "first", "chunk": 32}),
    ("cl2 4x64 first chunk 16", SPLIT, {**ALL, "shift": "first", "chunk": 16}),
    ("cl2 k2 2x64 all", SPLIT, {**ALL, "key_groups": 2}),
    ("cl2 k2 1x128 all", SPLIT, {**ALL, "bn": 128, "key_groups": 2}),
    ("cl2 k2 2x64 first", SPLIT, {**ALL, "key_groups": 2, "shift": "first"}),
    ("cl4 2x64 all", SPLIT, {**ALL, "cluster_kv": 4}),
    ("k2 4x64 all", SPLIT, {**ALL, "cluster_kv": 1, "key_groups": 2}),
    ("k4 2x64 all", SPLIT, {**ALL, "cluster_kv": 1, "key_groups": 4}),
    ("r1 bn64 st4", RING, {"row_groups": 1, "bn": 64, "stages": 4, "producer": "warp"}),
    ("r1 k2 bn64 st4", RING, {"row_groups": 1, "key_groups": 2, "bn": 64, "stages": 4, "producer": "warp"}),
    ("r2 bn128 st2", RING, {}),
]
LONG: list[Named] = [
    ("r2 bn128 none", RING, {"overlap": "none"}),
    ("r2 bn128 values", RING, {}),
    ("r2 bn128 turns", RING, {"overlap": "turns"}),
    ("r2 bn128 turns poly 1/8", RING, {"overlap": "turns", "polynomials": 1}),
    ("r2 bn128 turns always", RING, {"overlap": "turns", "rescale": "always"}),
    ("r2 bn176 turns", RING, {"bn": 176, "overlap": "turns"}),
    ("r2 bn192 turns", RING, {"bn": 192, "overlap": "turns"}),
    ("r3 bn80 turns", RING, {"row_groups": 3, "bn": 80, "overlap": "turns"}),
    ("r3 bn128 values", RING, {"row_groups": 3}),
    ("r3 bn128 turns", RING, {"row_groups": 3, "overlap": "turns"}),
    ("r2 bn128 turns st3", RING, {"stages": 3, "overlap": "turns"}),
    ("r2 bn128 turns cl2", RING, {"cluster_m": 2, "overlap": "turns"}),
    ("r2 bn128 turns tma", RING, {"epilogue": "tma", "overlap": "turns"}),
    ("r2 bn128 turns persistent", RING, {"persistent": True, "overlap": "turns"}),
    ("r2 bn128 turns persistent tma", RING, {"persistent": True, "overlap": "turns", "epilogue": "tma"}),
    ("r2 bn128 turns longest", RING, {"longest_first": True, "overlap": "turns"}),
    ("r1 bn128 2 CTAs", RING, {"row_groups": 1, "producer": "warp", "min_ctas": 2}),
    ("r1 bn128 2 CTAs wide", RING, {"row_groups": 1, "producer": "warp", "min_ctas": 2, "epilogue": "wide"}),
    ("r1 k2 bn64 st4", RING, {"row_groups": 1, "key_groups": 2, "bn": 64, "stages": 4, "producer": "warp"}),
    ("r1 bn48 3 CTAs", RING, {"row_groups": 1, "bn": 48, "producer": "warp", "min_ctas": 3}),
]  # fmt: skip


def main() -> None:
    args = arguments()
    task = load_task("attention")
    problem = task.problem(args.shape, args.dtype, causal=args.causal)
    compiler = find_compiler(None, Cache(Path.home() / ".cache" / "evo"))
    bench = Bench(open_device(args.device, compiler), compiler, task, problem)
    device = bench.device
    print(f"{device.name}; {compiler.version}; {problem.key}", flush=True)
    timed = device.kind == "cuda" and not args.no_time
    if timed:
        inputs = task.inputs(problem, "normal", 0, device.torch_device)
        for name, run in task.baselines(problem, device.torch_device).items():
            print(f"{name:32} {graph_us(partial(run, inputs)):9.2f} us", flush=True)
    limits = Limits.of(device.gpu)
    for name, template, point in chosen(task, limits, problem, args):
        begin = time.perf_counter()
        line = f"{name:32} "
        if why := template.space.why_not(point, limits, problem):
            print(f"{line}infeasible: {why}", flush=True)
            continue
        try:
            line += bench.judged(template, point, args.quick)
            if timed:
                line += f" {bench.kernel_us(template, point):9.2f} us"
        except CandidateError as error:
            line += f"{error.outcome} {error.reason}: {error.detail[:300]} {error.where[:200]}"
        print(f"{line}  ({time.perf_counter() - begin:.1f} s)", flush=True)


def arguments() -> argparse.Namespace:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--shape", default="1,8,512,64")
    parser.add_argument("--dtype", default="fp16", choices=("fp16", "bf16"))
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--points", default="short", choices=("short", "long"))
    parser.add_argument("--only", default="", help="named points whose name contains this")
    parser.add_argument("--random", type=int, default=0, help="random feasible points a template instead")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda", choices=("cuda", "emulator"))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--no-time", action="store_true")
    return parser.parse_args()


def open_device(kind: str, compiler: Compiler) -> Any:
    if kind == "emulator":
        from evo.device.emulator import EmulatorDevice

        return EmulatorDevice(target("sm_90a"))
    from evo.device.cuda import CudaDevice

    return CudaDevice(0, compiler)


def chosen(
    task: Task, limits: Limits, problem: Problem, args: argparse.Namespace
) -> Iterator[tuple[str, Template, Point]]:
    """The points asked for: (name, template, point)."""
    templates = {name: load_template(task, name) for name in (SPLIT, RING)}
    if not args.random:
        for name, stem, changed in {"short": SHORT, "long": LONG}[args.points]:
            if args.only in name:
                yield name, templates[stem], {**templates[stem].space.default, **changed}
        return
    rng = np.random.default_rng(args.seed)
    for template in templates.values():
        feasible = template.space.feasible(limits, problem)
        for _ in range(args.random if len(feasible.indices) else 0):
            point = feasible.sample(rng)
            yield " ".join([template.name, *(str(v) for v in point.values())]), template, point


@dataclass
class Bench:
    """Where points are judged and timed."""

    device: Any  # a Device; the CUDA one, for timing
    compiler: Compiler
    task: Task
    problem: Problem

    def loaded(self, template: Template, point: Point, problem: Problem) -> tuple[Any, LaunchConfig]:
        candidate = template.candidate(point, problem)
        binary = self.compiler.compile(candidate.source, candidate.entry, self.device.gpu.arch)
        return self.device.load(binary, candidate.launch), candidate.launch

    def judged(self, template: Template, point: Point, quick: bool) -> str:
        """What ptxas says of a point, and the gate."""
        resources = self.loaded(template, point, self.problem)[0].binary.resources
        said = f"r{resources.registers:<3} sp{resources.spill_bytes:<4} w{len(resources.warnings)}"
        if quick:
            return f"{said} row error {self.row_error(template, point):.1e}"
        green = check(
            partial(self.loaded, template, point), self.device, self.task, self.problem,
            template.tiles(point, self.problem), seed=1, deterministic=template.deterministic,
        )  # fmt: skip
        worst = max((e.row_error / e.limit for e in green.errors), default=0.0)
        return f"{said} GREEN {green.launches} launches, worst {worst:.2f} of the limit"

    def row_error(self, template: Template, point: Point) -> float:
        """The largest |o - reference| of a row, over the row's norm."""
        kernel, launch = self.loaded(template, point, self.problem)
        tensors, regions = self.buffers()
        kernel.launch(launch, regions)
        expected = self.task.reference(self.problem, tensors)["o"]
        error = (tensors["o"].double() - expected).norm(dim=-1) / expected.norm(dim=-1)
        return float(error.max())

    def buffers(self) -> tuple[dict[str, Any], dict[str, Region]]:
        import torch

        tensors = dict(self.task.inputs(self.problem, "normal", 0, self.device.torch_device))
        tensors["o"] = torch.full_like(tensors["q"], float("nan"))
        sizes = {name: t.numel() * t.element_size() for name, t in tensors.items()}
        return tensors, {n: Region(n, t.data_ptr(), sizes[n], n == "o") for n, t in tensors.items()}

    def kernel_us(self, template: Template, point: Point) -> float:
        kernel, launch = self.loaded(template, point, self.problem)
        _, regions = self.buffers()
        return graph_us(lambda: kernel.enqueue(launch, regions, self.device.stream))


def graph_us(call: Callable[[], Any], calls: int = 50, replays: int = 40) -> float:
    """Median µs a call of a CUDA graph of `calls` calls; of 5 if a call takes more than 1 ms."""
    import torch

    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream), torch.no_grad():
        call()
        stream.synchronize()
        begin.record()
        call()
        end.record()
        stream.synchronize()
        if begin.elapsed_time(end) > 1:
            calls, replays = 5, 10
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(calls):
                call()
        samples: list[float] = []
        for replay in range(replays + 5):
            begin.record()
            graph.replay()
            end.record()
            stream.synchronize()
            if replay >= 5:
                samples.append(begin.elapsed_time(end) * 1e3 / calls)
    return statistics.median(samples)


if __name__ == "__main__":
    main()
