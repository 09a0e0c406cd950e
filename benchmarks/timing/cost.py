"""What the search spends on timing a contender and a loser: time of the GPU and of the clock on the wall, on
how many timing inputs."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from benchmarks.gpu_time import busy_ms
from benchmarks.timing.green import Bench
from evo.gate import Green
from evo.template import load_template
from evo.timing import TimingSession

PROTOCOL = """warm L2, graph replays; gpu_ms: the union of all kernels and copies by the profiler; wall_ms:
without the profiler; alone_ms: of that no other process may use the GPU; medians"""
GPU = True
INCUMBENTS = {"contender": None, "loser": 0.5, "close_loser": 0.9}
"""The time of the best so far, as a part of the candidate's own."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--times", type=int, default=10)


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    bench = Bench()
    problem = bench.task.example
    session = TimingSession(bench.device, bench.task, problem, seed=1)
    green = bench.green(problem)
    session.incumbent_us = None
    own_us = session.measure(green).median_us
    spent = {
        label: cost(session, green, share and share * own_us, asked.times)
        for label, share in INCUMBENTS.items()
    }
    template = load_template(bench.task, "flash_mma")
    slow = bench.evaluator.gate(template.candidate(template.space.default, problem), 1, False)
    yield spent | {"hopeless": cost(session, slow, 1.0, asked.times)}


def cost(session: TimingSession, green: Green, incumbent_us: float | None, times: int) -> dict[str, float]:
    """Medians of `times` measurements beside a best time so far."""
    taken = []
    for _ in range(times):
        session.incumbent_us = incumbent_us
        gpu_ms, _ = busy_ms(lambda: session.measure(green))
        session.incumbent_us = incumbent_us
        stages = Stages()
        begin = time.perf_counter()
        timing = session.measure(green, stages)
        wall_ms = (time.perf_counter() - begin) * 1e3
        samples = sum(len(one.samples_us) for one in timing.times.values())
        alone_ms = next(ms for name, ms in stages.ended if name == "timing")
        taken.append((gpu_ms, wall_ms, alone_ms, samples, len(timing.times)))
    medians = np.median(np.array(taken), axis=0)
    names = ("gpu_ms", "wall_ms", "alone_ms", "samples", "inputs")
    return dict(zip(names, map(float, medians), strict=True))


class Stages:
    """Notes how many ms each stage took, in the order in which they ended."""

    def __init__(self) -> None:
        self.ended: list[tuple[str, float]] = []

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.ended.append((name, (time.perf_counter() - begin) * 1e3))
