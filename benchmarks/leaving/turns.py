"""Timing several calls in turns, and what is said of each."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from evo.timing.statistics import bootstrap_ratio, median_interval

Work = Callable[[], object]


def host_us(calls: Mapping[str, Work], rounds: int, together: int, wait: Work) -> dict[str, list[float]]:
    """µs that the host needs to make each call: `together` calls are made without waiting, and `wait` lets
    the device finish outside of the time. The order is another one in each round."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    order, rng = list(calls), random.Random(0)
    for number in range(rounds + 2):
        rng.shuffle(order)
        for name in order:
            call = calls[name]
            wait()
            begin = time.perf_counter()
            for _ in range(together):
                call()
            took = (time.perf_counter() - begin) / together * 1e6
            if number >= 2:  # the first ones load and choose
                found[name].append(took)
    wait()
    return found


def device_us(calls: Mapping[str, Work], rounds: int, together: int) -> dict[str, list[float]]:
    """µs a call from before the first to the end of the last of `together` calls, host and GPU: what a
    program waits. In turns, as `host_us`."""
    import torch

    found: dict[str, list[float]] = {name: [] for name in calls}
    order, rng = list(calls), random.Random(0)
    for number in range(rounds + 2):
        rng.shuffle(order)
        for name in order:
            call = calls[name]
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(together):
                call()
            torch.cuda.synchronize()
            took = (time.perf_counter() - begin) / together * 1e6
            if number >= 2:
                found[name].append(took)
    return found


def told(samples: Mapping[str, list[float]], versus: str = "") -> dict[str, dict[str, Any]]:
    """Medians with 95 % intervals, and how many times as long `versus` takes."""
    result = {}
    for name, one in samples.items():
        values = np.array(one)
        interval = median_interval(values)
        said: dict[str, Any] = {
            "median_us": round(float(np.median(values)), 3),
            "interval": [round(interval.low, 3), round(interval.high, 3)],
        }
        if versus and name != versus:
            ratio, around = bootstrap_ratio(np.array(samples[versus]), values, seed=0)
            said["speedup"] = round(ratio, 3)
            said["speedup_interval"] = [round(around.low, 3), round(around.high, 3)]
        result[name] = said
    return result
