"""What runs in an evaluator's process: one candidate after the other, and other work while none is there."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

import psutil

from evo.child import Report
from evo.errors import NotEnoughMemory
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

    def evaluate(
        self,
        candidate: Candidate,
        watch: Callable[[str], None],
        earlier: int,
        best_us: float | None,
        compares: bool,
    ) -> Trial:
        """`earlier`: how often the candidate was evaluated before; `best_us`: the best time of its problem so
        far, if there is one; `compares`: GPUs are compared by it."""
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
        with _memory_enough("what evaluates"):
            self._evaluator = spec.build()
        self._limit = max(RECYCLE_BYTES, anonymous_bytes() + (512 << 20))
        self._free_since = time.monotonic()

    @property
    def usable(self) -> bool:
        return self._evaluator.usable and anonymous_bytes() <= self._limit

    def meanwhile(self) -> bool:
        return self._evaluator.meanwhile()

    def evaluate(
        self, candidate: Candidate, earlier: int, best_us: float | None = None, compares: bool = False
    ) -> Trial:
        idle = time.monotonic() - self._free_since
        self._tell("begin")
        with _memory_enough(candidate.problem.key):
            trial = self._evaluator.evaluate(candidate, self._tell, earlier, best_us, compares)
        self._free_since = time.monotonic()
        return replace(trial, seconds={"idle": idle, **trial.seconds})

    def _tell(self, stage: str) -> None:
        self._report((stage, time.monotonic()))


@contextmanager
def _memory_enough(what: str) -> Iterator[None]:
    """Turns what NumPy, torch and CUDA raise where memory is short into NotEnoughMemory."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        said = str(error).strip().partition("\n")[0]
        if not isinstance(error, MemoryError) and not _SHORT_OF_MEMORY.search(said):
            raise
        hint = "search a smaller --shape, with fewer --workers, or on a machine with more memory"
        raise NotEnoughMemory(f"not enough memory for {what}: {said or 'none is left'}", hint) from error


_SHORT_OF_MEMORY = re.compile(
    r"out of memory|not enough memory|can't allocate|cannot allocate|bad alloc", re.I
)


def anonymous_bytes() -> int:
    """Memory of this process that is no file's: what leaks. 0 where the system does not tell."""
    memory = psutil.Process().memory_info()
    return int(memory.rss - getattr(memory, "shared", memory.rss))
