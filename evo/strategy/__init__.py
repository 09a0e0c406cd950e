"""What to try next: the search strategies. The only package that imports Optuna.

A strategy gets the history (the finished trials, in the order in which they were reported), the points under
way (`pending`) and the number of the next trial. Its answer is a *pure function* of these and of the seed. It
makes its samplers anew for every question, seeded from (seed, number). So a search that was killed continues
exactly as if it had not been. Whatever a strategy keeps between two questions is a cache.

A strategy proposes only feasible points that were never tried. A sampler may suggest another point: that
suggestion is reported to the sampler as one that violates a constraint, and the sampler is asked again. If
the second suggestion is not open either, the nearest open point is taken. (If such a point were reported as
FAIL, TPE would ignore it and suggest it for ever.)

With several templates the strategy chooses the template first. Each template has a history of its own.
"""

from evo.strategy.base import Observation, Proposal, Strategy
from evo.strategy.export import ExportedTrial, export
from evo.strategy.importance import importances
from evo.strategy.registry import STRATEGIES, make_strategy

__all__ = [
    "STRATEGIES",
    "ExportedTrial",
    "Observation",
    "Proposal",
    "Strategy",
    "export",
    "importances",
    "make_strategy",
]
