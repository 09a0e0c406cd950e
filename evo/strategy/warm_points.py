"""The points of earlier studies that a search tries, as long as they are worth it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from evo.space import FeasibleSet
from evo.strategy.candidates import Candidates, Positions
from evo.trial import Point

WarmStartPoint = tuple[str, Positions]
"""A template, and a point of its space."""


class WarmStartPoints:
    """The best of the earlier trials that are feasible here, unlike each other. They take turns with the
    points of the strategy's own, and end when they are not better than these: then the earlier studies
    mislead, or have told what they know."""

    COUNT = 8
    """So many at most; with the eight best, near each other, a search was behind a cold one at ten trials."""
    JUDGED_AFTER = 1
    """Trials of either kind after which they are compared."""

    def __init__(self, points: Sequence[WarmStartPoint]) -> None:
        self._points = points
        self._keys = {_key(*point) for point in points}
        self.reset()

    @classmethod
    def of(
        cls, spaces: Mapping[str, FeasibleSet], earlier: Iterable[tuple[str, Point, float]]
    ) -> WarmStartPoints:
        """Of `earlier` trials, each a template, a point and a score."""
        known = {name: Candidates(name, feasible) for name, feasible in spaces.items()}
        for template, values, score_us in earlier:
            if template in known:
                known[template].observe(values, score_us, feasible_only=True)
        best = [(us, name, at) for name, each in known.items() for us, at in each.best(Candidates.ELITES)]
        best.sort(key=lambda entry: (entry[0], entry[1], entry[2].tolist()))
        chosen: list[WarmStartPoint] = []
        for _, name, point in best:
            if len(chosen) < cls.COUNT and all(
                name != other or (point != at).sum() > 1 for other, at in chosen
            ):
                chosen.append((name, point))
        return cls(chosen)

    def reset(self) -> None:
        """Forgets what `observe` was told."""
        self._tried = [0, 0]
        self._best = [math.inf, math.inf]

    def observe(self, template: str, point: Positions, score_us: float | None) -> None:
        """Takes in a finished trial, whichever it was."""
        own = _key(template, point) not in self._keys
        self._tried[own] += 1
        self._best[own] = min(self._best[own], math.inf if score_us is None else score_us)

    def next(
        self, candidates: Mapping[str, Candidates], under_way: Iterable[WarmStartPoint]
    ) -> tuple[Candidates, Positions] | None:
        """The next one that is open; None where it is the turn of the strategy's own, or they have ended."""
        if not self._points or self._misleading():
            return None
        begun = list(self._tried)
        for pending in under_way:
            begun[_key(*pending) not in self._keys] += 1
        if begun[0] > begun[1]:
            return None
        for name, point in self._points:
            if candidates[name].open_count and candidates[name].is_open(point):
                return candidates[name], point
        return None

    def _misleading(self) -> bool:
        return min(self._tried) >= self.JUDGED_AFTER and self._best[0] > self._best[1]


def _key(template: str, point: Positions) -> tuple[str, bytes]:
    return template, point.tobytes()
