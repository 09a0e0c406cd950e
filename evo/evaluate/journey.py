"""How far a candidate has come on its way through an evaluator, and what it took."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from evo.trial import Binary, Candidate

Watch = Callable[[str], None]
"""Is told the name of each stage when it begins: "compile", "load", "gate", "timing"; "turn" is the wait for
one's turn on a GPU."""


def unwatched(_stage: str) -> None:
    """Watches nothing."""


class Journey:
    """How far a candidate has come, and the seconds it took by stage; one inside another interrupts it."""

    def __init__(self, candidate: Candidate, watch: Watch) -> None:
        self.candidate = candidate
        self.binary: Binary | None = None
        self.seconds: dict[str, float] = {}
        self._watch = watch
        self._stage, self._since = "", 0.0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        outer = self._stage
        self._enter(name)
        try:
            yield
        finally:
            self._enter(outer)

    def _enter(self, name: str) -> None:
        now = time.perf_counter()
        if self._stage:
            self.seconds[self._stage] = self.seconds.get(self._stage, 0.0) + now - self._since
        self._stage, self._since = name, now
        if name:
            self._watch(name)
