"""Random search."""

from __future__ import annotations

from evo.strategy.base import Strategy


class Random(Strategy):
    """Every open point of a template is equally likely: what the other strategies are compared with."""

    name = "random"

    def _suggest(self, *_: object) -> None:
        return None
