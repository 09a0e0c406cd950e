"""The first points of a search: the defaults of its templates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from evo.space import FeasibleSet
from evo.strategy import Observation, Proposal
from evo.strategy.observation import times_behind
from evo.trial import Point

Key = tuple[object, ...]
"""A template and a point of it; see `key_of`."""


FAR_BEHIND = 3.0
"""A template whose best kernel took so many times as long as the best of all, in every earlier study that has
one, can wait: two of attention's five were 5 to 20 times slower for each of four shapes on an H200."""
LATER = 50
"""Trials after which its default is tried all the same."""


@dataclass(frozen=True)
class FirstPoints:
    """`at_once` are tried before the strategy is asked, `later` as soon as there are LATER trials."""

    at_once: Sequence[Proposal]
    later: Sequence[Proposal]

    def due(self, number: int) -> Sequence[Proposal]:
        """Those that are tried before trial `number` is left to the strategy."""
        return [*self.at_once, *self.later] if number >= LATER else self.at_once


def first_points(spaces: Mapping[str, FeasibleSet], earlier: Sequence[Observation] = ()) -> FirstPoints:
    """The default point of each template, or the feasible point nearest to it: a person's default is a good
    start, and shows which templates are worth most. `earlier`: trials of other studies, which may say that a
    template can wait.

    The neighbours of the defaults, which once came next, are left to the strategy: over the recorded space of
    `flash_mma` the best after 30 trials was 14 % slower than the optimum with them, and 4 % without."""
    behind = times_behind(earlier)
    defaults = {name: Proposal(name, _default(feasible)) for name, feasible in spaces.items()}
    waiting = {name for name in spaces if behind.get(name, 1.0) >= FAR_BEHIND}
    if waiting == spaces.keys():
        waiting = set()
    return FirstPoints(
        [defaults[name] for name in spaces if name not in waiting],
        [defaults[name] for name in spaces if name in waiting],
    )


def _default(feasible: FeasibleSet) -> Point:
    default = feasible.space.default_for(feasible.problem, feasible.limits)
    if feasible.contains(default):
        return default
    differing = (feasible.indices != feasible.space.indices_of(default)).sum(axis=1)
    return feasible.points[int(differing.argmin())]


def key_of(proposal: Proposal | Observation) -> Key:
    """Equal for equal points of the same template."""
    # repr: True and 1 are equal, and may both be values of one parameter
    return proposal.template, *sorted(_pair(name, repr(value)) for name, value in proposal.point.items())


@lru_cache(maxsize=4096)
def _pair(name: str, value: str) -> tuple[str, str]:
    """One object for equal pairs: a search keeps the keys of all its trials."""
    return name, value
