"""When a search may end before its budget: its strategy expects nothing more that could be measured."""

from __future__ import annotations

NOISE = 1e-3
"""An expected improvement below this part of the best time is less than the measurement's own noise."""
PATIENCE = 100
"""So many proposals in a row must promise less."""
EARLIEST = 1000
"""Trials before which a model of the space is not believed to know it: less than a minute on a GPU. With
400 a search of one template ended after 21 s of three minutes, and of five it knows less."""


class Convergence:
    """Hears what the strategy expects of each proposal; `patience`: proposals in a row that promise less."""

    def __init__(self, patience: int = PATIENCE) -> None:
        self._patience = patience
        self._hopeless = 0

    def hear(self, gain: float | None) -> None:
        """`gain`: by what part of the best time a proposal may better it; None: the strategy does not say."""
        self._hopeless = self._hopeless + 1 if gain is not None and gain < NOISE else 0

    def reached(self, trials: int) -> bool:
        return trials >= EARLIEST and self._hopeless >= self._patience
