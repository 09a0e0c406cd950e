"""A planted difference of 1 %: how often evo finds it, by the rule of CONFIRMED.

The baseline does 1 % more than the finalists: a warp counts clock cycles at the end of each replay. How many
cycles that takes is found by trying, because a node of a graph has a price, too; what comes out checks it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.timing.green import Bench
from benchmarks.timing.pairs import FINALISTS, Pairs, comparisons_of
from evo.timing.stopwatch import Call

PROTOCOL = "warm L2, graph replays; CONFIRMED's rounds; the baseline is the same kernel with extra work"
GPU = True
PLANTED = 0.01
PROBES = (2000, 6000)
"""Clock cycles of the first two tries."""
CALIBRATION_ROUNDS = 12


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--comparisons", type=int, default=100)


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    bench = Bench()
    tried = [(cycles, slowdown(bench, cycles)) for cycles in PROBES]
    for _ in range(2):
        (c0, r0), (c1, r1) = tried[-2:]
        cycles = max(1, round(c1 + (PLANTED - r1) * (c1 - c0) / (r1 - r0))) if r1 != r0 else c1
        tried.append((cycles, slowdown(bench, cycles)))
    cycles = min(tried, key=lambda one: abs(one[1] - PLANTED))[0]
    said = {"planted": PLANTED, "cycles": cycles, "calibration": tried}
    for found in comparisons_of(bench, spinner(bench, cycles), asked.comparisons):
        yield said | found


def spinner(bench: Bench, cycles: int) -> Call:
    source = (
        'extern "C" __global__ void spin() {'
        f" const long long begin = clock64(); while (clock64() - begin < {cycles}); }}"
    )
    return bench.idle_kernel(source, "spin")


def slowdown(bench: Bench, cycles: int) -> float:
    """By what share the baseline is slower with an extra node of so many cycles."""
    rounds = Pairs(bench, spinner(bench, cycles)).confirmation(900_000 + cycles, CALIBRATION_ROUNDS)
    logs = [
        np.log(np.median(r.samples_us["base"][on]))
        - np.mean([np.log(np.median(r.samples_us[f"s/{i}"][on])) for i in range(FINALISTS)])
        for r in rounds
        for on in r.inputs
    ]
    return float(np.exp(np.mean(logs)) - 1)
