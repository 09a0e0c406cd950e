"""What a strategy is told of a trial."""

from __future__ import annotations

from dataclasses import dataclass

from evo.trial import Point


@dataclass(frozen=True, slots=True)
class Observation:
    """A finished trial, as a strategy sees it. `score_us` is minimized; None: the kernel is not correct.
    `study`: the other study that it is from, in a warm start; its scores are comparable within that study."""

    template: str
    point: Point
    score_us: float | None
    study: str = ""
