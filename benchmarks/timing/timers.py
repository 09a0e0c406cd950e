"""evo's median against Triton's do_bench_cudagraph, for our kernel and for baselines.

One set of inputs, as Triton has it: in turns, both for a few milliseconds on a GPU that has rested; and then,
after Triton has kept the GPU busy for as long as it does by itself, both at once again. A kernel that draws
much power lowers the clock within that time, so clock and power are read after each.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.timing.green import SHAPES, Bench
from evo.timing.inputs import InputSets
from evo.timing.stopwatch import Call, Replay, Stopwatch, TimingSettings, launches_per_replay

PROTOCOL = "warm L2, graph replays on one set of inputs; medians of both timers, in turns"
GPU = True
REST_S = 0.1
"""Before two timers are compared: the clock recovers from what was measured before."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shape", action="append", help="only this one; may be repeated")


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    bench = Bench()
    rows: list[dict[str, Any]] = []
    for shape in asked.shape or SHAPES:
        for name, own, watch in contestants(bench, shape):
            rows.append({"shape": shape, "kernel": name} | beside_triton(bench, own, watch))
            yield {"rows": rows}


def contestants(bench: Bench, shape: str) -> list[tuple[str, Sequence[Call], Stopwatch]]:
    settings = TimingSettings(sets=1)
    problem = bench.task.problem(shape)
    green = bench.green(problem)
    sets = InputSets(bench.device, bench.task, problem, settings, 9)
    baselines = bench.task.baselines(problem, bench.device.torch_device)
    calls: dict[str, Sequence[Call]] = {name: sets.of_baseline(run) for name, run in baselines.items()}
    calls["ours"] = sets.of_kernel(green.kernel, green.launch)
    if problem["L"] > 2048:
        del calls["math"]
    watch = Stopwatch(bench.device, settings)
    return [(name, own, watch) for name, own in calls.items()]


def beside_triton(bench: Bench, own: Sequence[Call], watch: Stopwatch) -> dict[str, Any]:
    import torch
    from triton.testing import do_bench_cudagraph

    def ours(replay: Replay) -> float:
        watch.sample([replay], 2)
        (samples,) = watch.sample([replay], 10, lead=True)
        return float(np.median(samples))

    def theirs(rep: int) -> float:
        return 1e3 * float(do_bench_cudagraph(own[0], rep=rep, return_mode="median"))

    row: dict[str, Any] = {}
    with torch.no_grad(), bench.device.alone():
        watch.run(own)
        replay = watch.capture(own, launches_per_replay(watch.estimate(own), watch.settings))
        bench.device.finish()
        time.sleep(REST_S)
        taken: dict[str, list[float]] = {"evo": [], "triton": []}
        for which in ("evo", "triton", "triton", "evo") * 2:
            taken[which].append(ours(replay) if which == "evo" else theirs(2))
            row |= _clocks(bench, which)
        row |= {f"{which}_us": float(np.median(values)) for which, values in taken.items()}
        row |= {"triton_long_us": theirs(20), **_clocks(bench, "triton_long")}
        row |= {"evo_after_us": ours(replay), **_clocks(bench, "evo_after")}
    row["ratio"] = row["evo_us"] / row["triton_us"]
    row["ratio_long"] = row["evo_us"] / row["triton_long_us"]
    row["ratio_after"] = row["evo_after_us"] / row["triton_long_us"]
    return row


def _clocks(bench: Bench, label: str) -> dict[str, float | None]:
    """SM clock and power right after a measurement."""
    read = bench.device.clocks.readings()
    return {f"{label}_mhz": read.get("sm_mhz"), f"{label}_w": read.get("power_w")}
