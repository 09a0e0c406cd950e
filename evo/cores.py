"""How many processor cores this process may use, and for what."""

from __future__ import annotations

import os

MOST_EVALUATORS = 4
"""Processes that evaluate on one GPU. Most of a gate is the host's work, so several gates fit beside each
other, and most of a timing has the GPU alone."""
COMPILERS_EACH = 4
"""Workers for each of these processes: so many compile as fast as one evaluates."""


def usable_cores() -> int:
    """Cores that this process may run on: where a job of a cluster or `taskset` leaves it some of the
    machine's, those alone; 1 at least."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1


def evaluators_on_a_gpu(workers: int) -> int:
    """How many processes evaluate on a GPU that has so many workers, where the others compile."""
    return max(1, min(MOST_EVALUATORS, workers // COMPILERS_EACH))
