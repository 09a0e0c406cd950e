"""By what two GPUs of one model differ."""

from __future__ import annotations

from dataclasses import dataclass

OFF = 0.02
"""A GPU that differs by more than this part is named."""


@dataclass(frozen=True)
class Offset:
    """Times on `gpu` are `ratio` times those on the `reference` (above 1: it is slower), by `turns` in which
    both timed the same kernel: the "reference" kernel of the study, or its "best" so far, known by its
    `program`. `low` and `high` bound the ratio with probability `level`."""

    gpu: str
    reference: str
    kernel: str
    program: str
    turns: int
    ratio: float
    low: float
    high: float
    level: float

    @property
    def is_off(self) -> bool:
        """Whether the GPU differs by more than OFF."""
        return not 1 / (1 + OFF) <= self.ratio <= 1 + OFF
