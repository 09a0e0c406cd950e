"""The first points of a search: the templates' defaults and the neighbours of the good ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from functools import lru_cache
from itertools import chain

from evo.space import FeasibleSet
from evo.strategy import Observation, Proposal
from evo.trial import Point

Key = tuple[object, ...]
"""A template and a point of it; see `key_of`."""


class FirstPoints:
    """What is tried before the strategy is asked. First comes the default point of each template (or the
    feasible point nearest to it). When all of these are known, the neighbours of the good ones follow, those
    of the best one first.

    A person's default is a good start, and pairs of points that differ in one parameter show at once which
    parameters do nothing. The points follow from the history alone, as those of a strategy do.
    """

    SLOW_DEFAULT = 2.0
    """The neighbours of a default that takes so many times as long as the best one are left to the strategy:
    they would cost the most time and promise least."""

    def __init__(self, spaces: Mapping[str, FeasibleSet]) -> None:
        defaults = {name: _default(feasible) for name, feasible in spaces.items()}
        self._defaults = _by_key(Proposal(name, point) for name, point in defaults.items())
        self._neighbours = {
            name: _by_key(
                Proposal(name, p) for p in spaces[name].space.neighbours(point) if spaces[name].contains(p)
            )
            for name, point in defaults.items()
        }
        self._unknown = set(self._defaults)
        """The defaults without a result."""
        self._scores: dict[str, float] = {}
        self._observed = 0

    def next(self, history: Sequence[Observation], tried: Set[Key]) -> Proposal | None:
        """The next point; None where none is left, or more must be known first. `history` only grows."""
        for trial in history[self._observed :]:
            key = key_of(trial)
            if key in self._unknown:
                self._unknown.discard(key)
                if trial.score_us is not None:
                    self._scores[trial.template] = trial.score_us
        self._observed = len(history)
        best = min(self._scores.values(), default=0.0)
        good = [name for name, us in self._scores.items() if us <= self.SLOW_DEFAULT * best]
        good.sort(key=self._scores.__getitem__)
        if len(self._neighbours) == 1:
            good = list(self._neighbours)
        elif self._unknown:
            good = []
        points = chain(self._defaults.items(), *(self._neighbours[name].items() for name in good))
        return next((proposal for key, proposal in points if key not in tried), None)


def _by_key(proposals: Iterable[Proposal]) -> dict[Key, Proposal]:
    return {key_of(proposal): proposal for proposal in proposals}


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
