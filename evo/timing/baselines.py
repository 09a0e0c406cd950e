"""Baselines as graphs, and how much memory one may take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from evo.task import Baseline, Tunable
from evo.timing.inputs import InputSets
from evo.timing.stopwatch import Call, Replay, Stopwatch, launches_per_replay


def capture_baselines(
    watch: Stopwatch, sets: InputSets, baselines: Mapping[str, Baseline]
) -> tuple[dict[str, Replay], dict[str, str]]:
    """Baselines as graphs, by name; and those that cannot be captured, with the reason. One that is Tunable
    is tuned first, once. None may take more than half of the memory that is free before it, and that the gate
    does not need."""
    import torch

    captured, skipped = {}, {}
    for name, run in baselines.items():
        limit = 0
        try:
            if isinstance(run, Tunable) and run.chosen is None:
                times = time_variants(watch, sets, run)
                run.choose(min(times, key=lambda variant: times[variant]))
            with half_of_free_memory(watch.device.torch_device, sets.gate_bytes) as limit:
                captured[name] = _captured(watch, sets.of_baseline(run))
        except RuntimeError as error:
            skipped[name] = refusal(error, limit)
        if name in skipped:  # what it took is free by now: others need it
            torch.cuda.empty_cache()
    return captured, skipped


def time_variants(watch: Stopwatch, sets: InputSets, tunable: Tunable) -> dict[str, float]:
    """µs a call, by variants, of those that run here: all captured, then sampled in turns. RuntimeError with
    the first one's reason where none runs."""
    replays, skipped = capture_baselines(watch, sets, tunable.variants)
    if not replays:
        raise RuntimeError(next(iter(skipped.values()), "no variants"))
    watch.settle()
    watch.sample(list(replays.values()), 1)
    taken = watch.sample(list(replays.values()), 2 * watch.settings.few, lead=True)
    return {name: float(np.median(samples)) for name, samples in zip(replays, taken, strict=True)}


@contextmanager
def half_of_free_memory(torch_device: str, reserved: int = 0) -> Iterator[int]:
    """Meanwhile this process gets no more than half of the GPU memory that is free now, `reserved` bytes not
    counted: torch raises its OutOfMemoryError. Gives that limit in bytes."""
    import torch

    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(torch_device)
    limit = max(0, free - reserved) // 2
    most = torch.cuda.memory_reserved(torch_device) + limit
    torch.cuda.set_per_process_memory_fraction(most / total, torch_device)
    try:
        yield limit
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, torch_device)


def refusal(error: RuntimeError, limit: int) -> str:
    """Why a baseline that ended with `error` takes no part; `limit`: the memory that it might take, bytes."""
    first = (str(error).splitlines() or [type(error).__name__])[0]
    if "out of memory" in first.lower() or "OutOfMemoryError" in first:
        return f"it needs more than {limit / 1e9:.1f} GB, half of the free memory"
    return first


def _captured(watch: Stopwatch, calls: list[Call]) -> Replay:
    import torch

    watch.run([calls[0], *calls])  # once more: the first call sets libraries up
    watch.device.finish()
    torch.cuda.empty_cache()  # a capture does not take back what calls have freed
    launches = launches_per_replay(watch.estimate(calls), watch.settings)
    if watch.settings.protocol == "cold":
        launches = max(launches, len(calls))
    torch.cuda.empty_cache()
    return watch.capture(calls, launches)
