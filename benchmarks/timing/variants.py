"""Baselines with settings: the time of each variant, which one evo chose, and each baseline's largest error.

With the caches that they find (TORCHINDUCTOR_CACHE_DIR, TRITON_CACHE_DIR).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.timing.green import Bench
from evo.confirm.rounds import Rounds
from evo.task import Tunable
from evo.timing import time_variants
from evo.timing.inputs import InputSets
from evo.timing.stopwatch import Stopwatch, TimingSettings

PROTOCOL = "warm L2, graph replays; ten rounds of CONFIRMED at the mission shape; errors against fp64"
GPU = True


def options(parser: argparse.ArgumentParser) -> None:
    """Nothing."""


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:  # noqa: ARG001
    bench = Bench()
    import torch

    problem, settings = bench.task.example, TimingSettings()
    begin = time.perf_counter()
    entered = Rounds(bench.device, bench.task, problem, patient=True)
    rounds = [entered.round("warm", 0, {}).samples_us]
    seconds = time.perf_counter() - begin
    rounds += [entered.round("warm", seed, {}).samples_us for seed in range(1, 10)]
    watch, sets = Stopwatch(bench.device, settings), InputSets(bench.device, bench.task, problem, settings, 9)
    found: dict[str, Any] = {"first_round_seconds": seconds, "skipped": dict(entered.skipped)}
    inputs = bench.task.inputs(problem, "normal", 1, bench.device.torch_device)
    expected = bench.task.reference(problem, inputs)["o"]
    for name, run in entered.baselines.items():
        if name in entered.skipped:
            continue
        with torch.no_grad(), bench.device.alone():
            times = time_variants(watch, sets, run) if isinstance(run, Tunable) else {}
            error = float((run(inputs).double() - expected).abs().max())
        found[name] = {
            "rounds_us": [
                {on: float(np.median(own)) for on, own in samples[name].items()} for samples in rounds
            ],
            "largest_error": error,
        }
        if isinstance(run, Tunable):
            found[name] |= {"chosen": run.chosen, "variants_us": times}
    kernels = entered.kernels()
    for name, ran in kernels.items():
        found[name]["kernels"] = ran
    yield found
