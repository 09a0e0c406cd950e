"""Random search."""

from __future__ import annotations

from evo.strategy.base import Strategy


class Random(Strategy):
    """Every open point of a template alike: the yardstick."""

    name = "random"

    def _wish(self, *_: object) -> None:
        return None
