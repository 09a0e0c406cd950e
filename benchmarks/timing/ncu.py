"""What Nsight Compute says of our kernels' durations: lone launches, caches left as they are."""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.command import environment
from benchmarks.timing.green import SHAPES, Bench
from evo.timing.inputs import InputSets
from evo.timing.stopwatch import TimingSettings

PROTOCOL = "gpu__time_duration.sum of 8 launches of each shape, clocks and caches left as they are; median"
GPU = True
LAUNCHES = 8
"""Of each shape."""
PROFILER = (
    *("ncu", "--clock-control", "none", "--cache-control", "none", "--profile-from-start", "off"),
    *("--metrics", "gpu__time_duration.sum", "--csv", "--print-units", "base"),
)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--launch", action="store_true", help=argparse.SUPPRESS)


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    if asked.launch:  # under the profiler
        launch_all(Bench())
        return
    script = str(Path(__file__).parents[1] / "run.py")
    command = [*PROFILER, sys.executable, script, "timing/ncu", "--launch"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    rows = list(csv.DictReader(line for line in done.stdout.splitlines() if line.startswith('"')))
    times = [float(row["Metric Value"].replace(",", "")) / 1e3 for row in rows]
    if len(times) != LAUNCHES * len(SHAPES):
        raise SystemExit(f"error: ncu says: {(done.stdout + done.stderr)[-600:]}")
    medians = [float(np.median(times[i : i + LAUNCHES])) for i in range(0, len(times), LAUNCHES)]
    yield {"rows": [{"shape": s, "ncu_us": us} for s, us in zip(SHAPES, medians, strict=True)]}


def launch_all(bench: Bench) -> None:
    """What Nsight Compute looks at."""
    import torch

    for shape in SHAPES:
        problem = bench.task.problem(shape)
        green = bench.green(problem)
        sets = InputSets(bench.device, bench.task, problem, TimingSettings(), 9)
        calls = sets.of_kernel(green.kernel, green.launch)
        for call in calls:
            call()
        bench.device.finish()
        torch.cuda.cudart().cudaProfilerStart()
        for i in range(LAUNCHES):
            calls[i % len(calls)]()
        bench.device.finish()
        torch.cuda.cudart().cudaProfilerStop()
