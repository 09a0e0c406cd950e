"""What a task has to beat, and what computes a problem that no kernel serves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from evo.task.tensors import Tensors

Baseline = Callable[[Tensors], Any]
"""An implementation to beat: it takes the inputs by name and returns the output."""


@dataclass(frozen=True)
class Fallback:
    """What computes a problem that no kernel serves: its name for a person, and a call like a baseline's."""

    name: str
    run: Baseline


class Tunable:
    """A baseline with settings, of which none is the fastest everywhere: all `variants` compute the same.
    evo.timing times them all, because the libraries' own tuning is luck where a call takes a few µs. Then it
    says by `choose` which one the baseline is from now on. Until then it is the first."""

    def __init__(self, variants: Mapping[str, Baseline]) -> None:
        self.variants = dict(variants)
        self.chosen: str | None = None
        """The name of the variant that was chosen."""

    def choose(self, name: str) -> None:
        if name not in self.variants:
            raise KeyError(name)
        self.chosen = name

    def __call__(self, inputs: Tensors) -> Any:
        return self.variants[self.chosen or next(iter(self.variants))](inputs)
