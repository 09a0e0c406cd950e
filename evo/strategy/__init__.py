"""What to try next: the search strategies. The only package that imports Optuna.

A strategy gets the history (the finished trials, in the order in which they were reported), the points under
way (`pending`) and the number of the next trial. Its answer is a *pure function* of these and of the seed. It
makes its samplers anew for every question, seeded from (seed, number). So a search that was killed continues
exactly as if it had not been. Whatever a strategy keeps between two questions is a cache.

A strategy proposes only feasible points that were never tried. A sampler may suggest another point: that
suggestion is reported to the sampler as one that violates a constraint, and the sampler is asked again. If
the second suggestion is not open either, the nearest open point is taken. (If such a point were reported as
FAIL, TPE would ignore it and suggest it for ever.)

`importance` and `export` are imported by their own names, where they are needed: with them Optuna brings
scikit-learn, where that is installed, and a search would begin a second later.

With several templates the strategy chooses the template first. Each template has a history of its own.
"""

from evo.strategy.base import Proposal, Strategy
from evo.strategy.evolution.across import AcrossProblems
from evo.strategy.observation import Observation
from evo.strategy.registry import STRATEGIES, make_strategy

__all__ = [
    "STRATEGIES",
    "AcrossProblems",
    "Observation",
    "Proposal",
    "Strategy",
    "make_strategy",
]
