"""The first trials of a search, and what pairs of trials say of parameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, combinations

from evo.space import FeasibleSet
from evo.store import TrialRow
from evo.strategy import Observation, Proposal
from evo.trial import Point, Value


@dataclass(frozen=True)
class DeadParameter:
    """A parameter that changes nothing: in all `pairs` of trials that differ in it alone, machine code and
    launch are equal."""

    template: str
    name: str
    pairs: int


class Probes:
    """What is tried before a strategy is asked: the default point of each template (or the feasible point
    nearest to it), then, once all of these are known, the neighbours of the good ones, the best one's first.

    A person's default is a good start, and pairs of points that differ in one parameter show at once which
    parameters do nothing. The answers follow from what is told and tried alone, as a strategy's do.
    """

    FAIR = 2.0
    """A default that takes so many times as long as the best one is left to the strategy: its neighbours
    would cost the most time for the least hope."""

    def __init__(self, spaces: Mapping[str, FeasibleSet]) -> None:
        starts = {name: _start(feasible) for name, feasible in spaces.items()}
        self._starts = _keyed(Proposal(name, start) for name, start in starts.items())
        self._rings = {
            name: _keyed(
                Proposal(name, p) for p in spaces[name].space.neighbours(start) if spaces[name].contains(p)
            )
            for name, start in starts.items()
        }
        self._awaited = set(self._starts)
        """The defaults of which nothing is known."""
        self._scores: dict[str, float] = {}
        self._heard = 0

    def next(self, told: Sequence[Observation], tried: Set[tuple[object, ...]]) -> Proposal | None:
        """The next probe; None where none is left, or none is known to be worth it yet. `told` only grows."""
        for trial in told[self._heard :]:
            key = key_of(trial)
            if key in self._awaited:
                self._awaited.discard(key)
                if trial.score_us is not None:
                    self._scores[trial.template] = trial.score_us
        self._heard = len(told)
        best = min(self._scores.values(), default=0.0)
        fair = [name for name, us in self._scores.items() if us <= self.FAIR * best]
        fair.sort(key=self._scores.__getitem__)
        if len(self._rings) == 1:
            fair = list(self._rings)
        elif self._awaited:
            fair = []
        probes = chain(self._starts.items(), *(self._rings[name].items() for name in fair))
        return next((probe for key, probe in probes if key not in tried), None)


def _keyed(proposals: Iterable[Proposal]) -> dict[tuple[object, ...], Proposal]:
    return {key_of(proposal): proposal for proposal in proposals}


def _start(feasible: FeasibleSet) -> Point:
    default = feasible.space.default
    if feasible.contains(default):
        return default
    differing = (feasible.indices != feasible.space.indices_of(default)).sum(axis=1)
    return feasible.points[int(differing.argmin())]


def dead_parameters(rows: Iterable[TrialRow]) -> list[DeadParameter]:
    """The parameters of which every pair of trials that differ in them alone has the same machine code and
    launch. Trials that did not compile say nothing."""
    kinds: dict[tuple[str, ...], list[tuple[tuple[Value, ...], tuple[str, str]]]] = {}
    for row in rows:
        if row.machine_code:
            names = tuple(sorted(row.point))
            point = tuple(row.point[name] for name in names)
            kinds.setdefault((row.template, *names), []).append(
                (point, (row.machine_code, row.launch_digest))
            )
    pairs: Counter[tuple[str, str]] = Counter()
    alike: Counter[tuple[str, str]] = Counter()
    for (template, *names_of), trials in kinds.items():
        for i, name in enumerate(names_of):  # one by one: the groups of all take a gigabyte of 100,000
            groups: dict[tuple[Value, ...], list[tuple[str, str]]] = {}
            for point, code in trials:
                groups.setdefault(point[:i] + point[i + 1 :], []).append(code)
            for one, other in chain.from_iterable(combinations(codes, 2) for codes in groups.values()):
                pairs[template, name] += 1
                alike[template, name] += one == other
    return [DeadParameter(*key, count) for key, count in sorted(pairs.items()) if alike[key] == count]


def key_of(proposal: Proposal | Observation) -> tuple[object, ...]:
    """Equal for equal proposals."""
    # repr: True and 1 are equal, and may both be values of one parameter
    return proposal.template, *sorted(_pair(name, repr(value)) for name, value in proposal.point.items())


@lru_cache(maxsize=4096)
def _pair(name: str, value: str) -> tuple[str, str]:
    """One object for equal pairs: a search remembers the keys of all its trials."""
    return name, value
