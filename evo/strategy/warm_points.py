"""The points of earlier studies that a search tries, as long as they are worth it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from evo.strategy.candidates import Candidates, Positions
from evo.strategy.observation import Observation


@dataclass(frozen=True, slots=True)
class WarmStartPoint:
    """A point of a template's space that was among the best of a study."""

    study: str
    template: str
    at: Positions

    @property
    def key(self) -> Key:
        return _key(self.template, self.at)

    def is_near(self, other: WarmStartPoint) -> bool:
        """Whether they differ in one parameter at most."""
        return self.template == other.template and int((self.at != other.at).sum()) <= 1


Key = tuple[str, bytes]


class WarmStartPoints:
    """The best of the earlier trials that are feasible here, unlike each other; the studies take turns. They
    take turns with the points of the strategy's own, too. Those of a study end when some of them were tried
    and none is better than the strategy's own: then it misleads, or has told what it knows."""

    COUNT = 12
    """So many at most; from one study 8 and 16 served as well. With the eight best, near each other, a search
    was behind a cold one at ten trials."""
    ELITES = 16
    """So many of a study are looked at."""
    JUDGED_AFTER = 3
    """Trials of a study's points, and of the strategy's own, after which they are compared. When one was
    enough, no search was sooner near the best, and misled ones were farther off from 10 trials on."""

    def __init__(self, points: Sequence[WarmStartPoint]) -> None:
        self.points = points
        self._studies = {point.key: point.study for point in points}
        self.reset()

    @classmethod
    def of(cls, candidates: Mapping[str, Candidates], earlier: Iterable[Observation]) -> WarmStartPoints:
        """Of `earlier` trials, for the spaces of `candidates`."""
        studies: dict[str, list[tuple[float, WarmStartPoint]]] = {}
        for trial in earlier:
            if trial.score_us is None or trial.template not in candidates:
                continue
            at = candidates[trial.template].locate(trial.point)
            if at is not None and candidates[trial.template].allows(at):
                point = WarmStartPoint(trial.study, trial.template, at)
                studies.setdefault(trial.study, []).append((trial.score_us, point))
        best = [
            sorted(known, key=lambda entry: (entry[0], entry[1].template, entry[1].at.tolist()))[: cls.ELITES]
            for known in studies.values()
        ]
        chosen: list[WarmStartPoint] = []
        while any(best):
            for known in best:
                while known:
                    _, point = known.pop(0)
                    if not any(point.is_near(other) for other in chosen):
                        chosen.append(point)
                        break
        return cls(chosen[: cls.COUNT])

    def reset(self) -> None:
        """Forgets what `observe` was told."""
        self._tried = 0
        """Of the strategy's own."""
        self._best = math.inf
        self._tried_of: dict[str, int] = dict.fromkeys(self._studies.values(), 0)
        self._best_of: dict[str, float] = dict.fromkeys(self._studies.values(), math.inf)

    def observe(self, template: str, point: Positions, score_us: float | None) -> None:
        """Takes in a finished trial, whichever it was."""
        us = math.inf if score_us is None else score_us
        study = self._studies.get(_key(template, point))
        if study is None:
            self._tried, self._best = self._tried + 1, min(self._best, us)
        else:
            self._tried_of[study] += 1
            self._best_of[study] = min(self._best_of[study], us)

    def next(
        self, candidates: Mapping[str, Candidates], under_way: Iterable[tuple[str, Positions]]
    ) -> tuple[Candidates, Positions] | None:
        """The next one that is open; None where it is the turn of the strategy's own, or they have ended."""
        if not self.points:
            return None
        warm, own = sum(self._tried_of.values()), self._tried
        for pending in under_way:
            known = _key(*pending) in self._studies
            warm, own = warm + known, own + (not known)
        if warm > own:
            return None
        for point in self.points:
            known_here = candidates[point.template]
            if known_here.open_count and known_here.is_open(point.at) and not self._has_ended(point.study):
                return known_here, point.at
        return None

    def _has_ended(self, study: str) -> bool:
        enough = min(self._tried_of[study], self._tried) >= self.JUDGED_AFTER
        return enough and self._best_of[study] > self._best


def _key(template: str, point: Positions) -> Key:
    return template, point.tobytes()
