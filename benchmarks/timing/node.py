"""An empty kernel as a node of a graph of 256: in a new process, and as it is when kernels are timed."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.timing.green import Bench
from evo.timing.stopwatch import Stopwatch, TimingSettings

PROTOCOL = "graph replays; settled: after work on as many streams as before every timing"
GPU = True


def options(parser: argparse.ArgumentParser) -> None:
    """Nothing."""


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:  # noqa: ARG001
    bench = Bench()
    call = bench.idle_kernel('extern "C" __global__ void empty() {}', "empty")
    watch = Stopwatch(bench.device, TimingSettings())
    replay = watch.capture([call], 256)
    watch.sample([replay], 2)
    (samples,) = watch.sample([replay], 40, lead=True)
    watch.settle()
    (settled,) = watch.sample([replay], 40, lead=True)
    yield {
        "median_us": float(np.median(samples)),
        "low_us": float(samples.min()),
        "settled_us": float(np.median(settled)),
    }
