"""The strategies by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evo.errors import UnknownName
from evo.space import FeasibleSet
from evo.strategy.base import Proposal, Strategy
from evo.strategy.evolution import Evo
from evo.strategy.nsga2 import Nsga2
from evo.strategy.observation import Observation
from evo.strategy.random import Random
from evo.strategy.threads import one_thread
from evo.strategy.tpe import Tpe

STRATEGIES: dict[str, type[Strategy]] = {s.name: s for s in (Evo, Tpe, Nsga2, Random)}
"""By the name that `--strategy` takes; the first is the default."""


def make_strategy(
    name: str,
    spaces: Mapping[str, FeasibleSet],
    seed: int,
    earlier: Sequence[Observation] = (),
    closed: Sequence[Proposal] = (),
) -> Strategy:
    """The strategy `name` over the feasible points of each template. `earlier`: trials of other studies, for
    a warm start; `closed`: points that it does not propose. UnknownName if there is no such strategy."""
    if name not in STRATEGIES:
        raise UnknownName.among("strategy", name, list(STRATEGIES))
    with one_thread():
        return STRATEGIES[name](spaces, seed, earlier, closed)
