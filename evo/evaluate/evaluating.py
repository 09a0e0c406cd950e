"""What runs in an evaluator's process: one candidate after the other, and other work while none is there."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import psutil

from evo.child import Report
from evo.trial import Candidate, Trial

RECYCLE_BYTES = 1856 << 20
"""Anonymous memory at which a worker is replaced by a new one (or at 512 MB above what it started with). On
a GPU it starts with 1.0 GB, has 1.6 when it has met 250 kernels (the driver loads the libraries' kernels as
they are first used), and 0.2 MB more with each one after that."""


class Evaluates(Protocol):
    """What works in an evaluator's process."""

    @property
    def usable(self) -> bool:
        """Whether it can take another candidate; if not, its process is replaced."""
        ...

    def evaluate(self, candidate: Candidate, watch: Callable[[str], None], earlier: int) -> Trial:
        """`earlier`: how often the candidate was evaluated before."""
        ...

    def meanwhile(self) -> bool:
        """Does a piece of work that a later candidate would wait for; whether there is more."""
        ...


class Builds(Protocol):
    """Picklable; makes what evaluates."""

    def build(self) -> Evaluates: ...


class Evaluating:
    """Evaluates one candidate after the other with what `Spec.build` makes."""

    def __init__(self, spec: Builds, report: Report) -> None:
        self._report = report
        self._evaluator = spec.build()
        self._limit = max(RECYCLE_BYTES, anonymous_bytes() + (512 << 20))
        self._free_since = time.monotonic()

    @property
    def usable(self) -> bool:
        return self._evaluator.usable and anonymous_bytes() <= self._limit

    def meanwhile(self) -> bool:
        return self._evaluator.meanwhile()

    def evaluate(self, candidate: Candidate, earlier: int) -> Trial:
        idle = time.monotonic() - self._free_since
        self._tell("begin")
        trial = self._evaluator.evaluate(candidate, self._tell, earlier)
        self._free_since = time.monotonic()
        return replace(trial, seconds={"idle": idle, **trial.seconds})

    def _tell(self, stage: str) -> None:
        self._report((stage, time.monotonic()))


def anonymous_bytes() -> int:
    """Memory of this process that is no file's: what leaks. 0 where the system does not tell."""
    memory = psutil.Process().memory_info()
    return int(memory.rss - getattr(memory, "shared", memory.rss))
