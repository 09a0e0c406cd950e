"""How long the GPU itself is at work, by torch's profiler."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


def busy_ms(work: Callable[[], object]) -> tuple[float, int]:
    """Milliseconds in which the GPU did anything at all while `work` ran, and how many kernels and copies
    that was."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as watched:
        work()
        torch.cuda.synchronize()
    return _union_ms(_spans(watched))


def _spans(watched: Any) -> Iterator[tuple[int, int]]:
    """(begin, end), ns, of everything that ran on the GPU."""
    for event in watched.profiler.kineto_results.events():
        if "CUDA" in str(event.device_type()) and event.duration_ns() > 0:
            yield event.start_ns(), event.start_ns() + event.duration_ns()


def _union_ms(spans: Iterator[tuple[int, int]]) -> tuple[float, int]:
    """Milliseconds that the spans cover together, and how many there are."""
    covered, until, count = 0, 0, 0
    for begin, end in sorted(spans):
        covered += max(0, end - max(begin, until))
        until = max(until, end)
        count += 1
    return covered / 1e6, count
