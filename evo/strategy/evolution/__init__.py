"""The strategy `evo`: an evolutionary search with a model of the times."""

from evo.strategy.evolution.evo import Evo

__all__ = ["Evo"]
