"""What to try next. Optuna's only door.

A strategy is asked with what is known (`told`: finished trials in the order they were told), what is under
way (`pending`) and the number of the trial to propose. Its answer is a *pure function* of these and of the
seed: samplers are made fresh, seeded from (seed, number), at every question, so a search that was killed
continues exactly as if it had not been. Whatever a strategy remembers between questions is a cache.

Only feasible points that were never tried are proposed. A sampler's wish that is infeasible, or was had
before, is told to it as violating a constraint and it is asked again; the second such wish becomes the
nearest point that is open. (Told as FAIL, TPE ignores such a point and proposes it for ever.)

With several templates, the template is chosen first (the top macro choice); each has a history of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evo.errors import UnknownName
from evo.space import FeasibleSet
from evo.strategy.base import Proposal, Strategy, Told
from evo.strategy.evolution.evo import Evo
from evo.strategy.export import Exported, export
from evo.strategy.importance import importances
from evo.strategy.nsga2 import Nsga2
from evo.strategy.random import Random
from evo.strategy.tpe import Tpe

__all__ = [
    "STRATEGIES",
    "Exported",
    "Proposal",
    "Strategy",
    "Told",
    "export",
    "importances",
    "make_strategy",
]

STRATEGIES: dict[str, type[Strategy]] = {s.name: s for s in (Evo, Tpe, Nsga2, Random)}
"""By the name that `--strategy` takes; the first is the default."""


def make_strategy(
    name: str, spaces: Mapping[str, FeasibleSet], seed: int, earlier: Sequence[Told] = ()
) -> Strategy:
    """The strategy `name` over the feasible points of each template; `earlier`: trials of other studies, to
    learn from. UnknownName if there is no such strategy."""
    if name not in STRATEGIES:
        raise UnknownName.among("strategy", name, list(STRATEGIES))
    return STRATEGIES[name](spaces, seed, earlier)
