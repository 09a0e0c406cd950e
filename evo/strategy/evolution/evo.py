"""The default: mutations of the elites, ranked by what a surrogate hopes of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from evo.strategy.base import Strategy
from evo.strategy.candidates import Field, Positions
from evo.strategy.evolution.distance import Floats
from evo.strategy.evolution.features import Features, Rows
from evo.strategy.evolution.model import Surrogate, log_improvement


class Evo(Strategy):
    """Two layers. The template is drawn by how near its best comes to the best of all. In a template, of
    mutations of the elites (in their micro parameters, or across structures) and of others a pool is kept,
    those of which a Gaussian process hopes most, and the most promising of them is tried; every fourth time
    of those that differ from the best trial in one parameter. Failures count as the slowest trial. Two
    surrogates take turns, a rough one and a smooth one that also knows labels: where one is led astray the
    other is not."""

    name = "evo"

    START = 6
    """Trials of a template before there is a model: far from each other."""
    VIEW = 8192
    """Points that are looked at for a pool; a pool of as many at random instead took a tenth more trials."""
    POOL = 1024
    """Points of a pool; with twice as many a search took as many trials."""
    NEAR = 4
    """One question in so many looks only next to the best trial."""
    CAP = 300
    """Trials that a surrogate is built on: the better half, the newest, and some of the others."""
    FITTED = 160
    """Of these, the trials that its weights are fitted to."""
    EVERY = 150
    """A surrogate is built anew, with a new pool, when its trials have grown by a quarter, or by so many."""
    SLOW = 0.8
    """Trials slower than this quantile count as being there: how slow the slow ones are says little."""

    def _reset(self) -> None:
        super()._reset()
        self._minds: dict[tuple[str, int], Mind] = {}
        self._memories: dict[str, Memory] = {}
        self._features = {
            name: Features(field.feasible, self._lore(name, field)) for name, field in self._fields.items()
        }

    def _lore(self, template: str, field: Field) -> tuple[Callable[[Rows], Floats], ...]:
        """What earlier studies would expect of points, as a feature: how much it says, the trials tell."""
        earlier = Field(template, field.feasible)
        for trial in self._earlier:
            if trial.template == template:
                earlier.learn(trial.point, trial.score_us)
        if len(earlier.tried) < 4 * self.START:
            return ()
        scores = np.array(earlier.scores)
        used = _worth_knowing(scores, self.CAP)
        features = Features(field.feasible)
        x, y = features(np.stack([earlier.tried[i] for i in used])), targets(scores[used])
        fitted = _worth_knowing(scores[used], self.FITTED)
        model = Surrogate(features.labels, features.levels, smooth=True)
        model.fit(x[fitted], y[fitted])
        expectation = model.expectation(x, (y - y.min()) / (float(np.ptp(y)) or 1.0))
        return (lambda rows: 2 * expectation(features(rows)),)

    def _choose(self, fields: list[Field], rng: np.random.Generator, number: int) -> Field:
        return self._by_best(fields, rng, number)

    def _wish(self, field: Field, rng: np.random.Generator, _refused: list[Positions]) -> Positions | None:
        self.expected_gain = None
        if len(field.tried) < self.START or field.best(1) == []:
            return self._far(field, rng)
        asked = len(field.tried) + len(field.occupied)
        mind = self._mind(field, asked % 2)
        # rounded: a dead parameter makes equals, and which is a rounding ahead is not the same everywhere
        hope = mind.hopes(field).round(6)
        if hope.max() == -math.inf:
            return None
        self.expected_gain = math.exp(min(0.0, float(hope.max())))
        if asked % self.NEAR == 0:
            (_, best), *_ = field.best(1)
            near = np.where((mind.pool != best).sum(axis=1) == 1, hope, -math.inf)
            hope = near if near.max() > -math.inf else hope
        return mind.wish(int(hope.argmax()))

    def _far(self, field: Field, rng: np.random.Generator) -> Positions:
        """An open point far from those that were tried."""
        points = [field.anything(rng) for _ in range(32)]
        known = [*field.tried, *field.occupied]
        if not known:
            return points[0]
        features = self._features[field.template]
        here, there = features(np.stack(points)), features(np.stack(known))
        gaps = np.abs(here[:, None, :] - there[None, :, :])
        apart = np.where(features.labels, gaps > 0, gaps).sum(axis=2).min(axis=1)
        return points[int(apart.argmax())]

    def _mind(self, field: Field, kind: int) -> Mind:
        """The surrogate of `field`, with all that is told: built from the trials up to a milestone, of which
        alone it is a function, and taught the others and what is under way."""
        told = len(field.tried)
        milestone = milestone_before(told, self.START, self.EVERY)
        mind = self._minds.get((field.template, kind))
        if mind is None or mind.milestone != milestone or not mind.hear(field):
            features = self._features[field.template]
            rng = np.random.default_rng([self._seed % 2**63, milestone])
            memory = self._memories.get(field.template)
            if memory is None or memory.milestone != milestone:
                memory = self._memories[field.template] = Memory(field, milestone, features, rng)
            mind = Mind(field, features, memory, bool(kind))
            self._minds[field.template, kind] = mind
            mind.hear(field)
        return mind


class Memory:
    """What of a field's trials up to a milestone surrogates are built on, and the points they look at."""

    def __init__(self, field: Field, milestone: int, features: Features, rng: np.random.Generator) -> None:
        self.milestone = milestone
        scores = np.array(field.scores[:milestone])
        order = np.argsort(scores, kind="stable")
        self.used = _worth_knowing(scores, Evo.CAP, order).tolist()
        self.scores = scores[self.used]
        elites = [field.tried[i] for i in order[:8] if scores[i] < math.inf]
        view = field.around(elites, Evo.VIEW, rng)
        fresh = ~field.were_tried(view, milestone)
        self.view = view[fresh] if fresh.any() else view
        self.seen = features(self.view)


class Mind:
    """A surrogate of one field and the pool that it ranks."""

    def __init__(self, field: Field, features: Features, memory: Memory, smooth: bool) -> None:
        self.milestone = memory.milestone
        self._features = features
        self._columns = np.ones(len(features.labels), bool) if smooth else features.plain
        levels = [levels for levels, used in zip(features.levels, self._columns, strict=True) if used]
        self._scores = memory.scores
        """Of the model's rows: infinite where one failed, nan where it is under way."""
        x = self._seen([field.tried[i] for i in memory.used])
        fitted = _worth_knowing(memory.scores, Evo.FITTED)
        self._model = Surrogate(features.labels[self._columns], levels, smooth)
        self._model.fit(x[fitted], targets(memory.scores)[fitted])
        chosen = self._promising(x[fitted], memory.scores[fitted], memory.seen.T[self._columns].T)
        self.pool = memory.view[chosen]
        self._columns_of_pool = memory.seen[chosen]
        self._found = field.find(self.pool)
        self._model.condition(x, self._columns_of_pool[:, self._columns], Evo.EVERY)
        self._told = memory.milestone
        self._under_way: dict[bytes, int] = {}
        """Rows of the model that are points under way."""

    def _promising(self, x: Floats, scores: Floats, view: Floats) -> npt.NDArray[np.intp]:
        """Which of the points `view` (n, features) the model hopes most of, `POOL` of them, having learnt the
        points `x` with their `scores`."""
        if len(view) <= Evo.POOL:
            return np.arange(len(view))
        y = targets(scores)
        hope = log_improvement(*self._model.glance(x, y, view), float(y.min())).round(3)
        bound = np.partition(hope, -Evo.POOL)[-Evo.POOL]
        above, level = hope > bound, np.flatnonzero(hope == bound)
        above[level[: Evo.POOL - int(above.sum())]] = True
        return np.flatnonzero(above)

    def hear(self, field: Field) -> bool:
        """Takes in the trials that were told since, and what is under way; False where it cannot: something
        that was under way is gone."""
        fresh: list[Positions] = []
        scores: list[float] = []
        for point, score in zip(field.tried[self._told :], field.scores[self._told :], strict=True):
            row = self._under_way.pop(point.tobytes(), None)
            if row is None:
                fresh.append(point)
                scores.append(score)
            else:
                self._scores[row] = score
        self._told = len(field.tried)
        under_way = {point.tobytes(): point for point in field.occupied}
        if not self._under_way.keys() <= under_way.keys():
            return False
        for key, point in under_way.items():
            if key not in self._under_way:
                self._under_way[key] = len(self._scores) + len(fresh)
                fresh.append(point)
                scores.append(math.nan)
        if fresh:
            self._model.add(self._features.of_few(fresh)[:, self._columns])
            self._scores = np.append(self._scores, scores)
        return True

    def hopes(self, field: Field) -> Floats:
        """Of each point of the pool the logarithm of the expected improvement, as a part of the best time;
        minus infinity where a point is not open."""
        known = ~np.isnan(self._scores)
        y = np.full(len(known), math.nan)
        y[known] = targets(self._scores[known])
        mean, deviation = self._model.predict(y)
        hope = log_improvement(mean, deviation, float(y[known].min()))
        return np.where(field.open_among(self.pool, self._found), hope, -math.inf)

    def wish(self, number: int) -> Positions:
        """Point `number` of the pool, which will be under way soon."""
        point: Positions = self.pool[number]
        self._features.remember(point, self._columns_of_pool[number])
        return point

    def _seen(self, points: Sequence[Positions] | Positions) -> Floats:
        return self._features(np.asarray(points))[:, self._columns]


def targets(scores: Floats) -> Floats:
    """What a surrogate learns of scores (n,) of which some are infinite: logarithms, the slow ones and the
    failures at one bound."""
    good = scores < math.inf
    y = np.log(np.where(good, scores, 1.0))
    if not good.any():
        return np.zeros(len(scores))
    slow = _quantile(y[good], Evo.SLOW)
    return np.asarray(np.where(good, np.minimum(y, slow), slow))


def _quantile(values: Floats, part: float) -> float:
    """As np.quantile, in an eighth of the time: it was a twentieth of a proposal."""
    rank = part * (len(values) - 1)
    below = int(rank)
    above = min(below + 1, len(values) - 1)
    ordered = np.partition(values, (below, above))
    return float(ordered[below] + (rank - below) * (ordered[above] - ordered[below]))


def milestone_before(count: int, start: int, every: int) -> int:
    """The last of the rising milestones that is not above `count`."""
    milestone = start
    while milestone // 4 < every:
        following = milestone + max(2, milestone // 4)
        if following > count:
            return milestone
        milestone = following
    return milestone + max(0, count - milestone) // every * every


def _worth_knowing(
    scores: Floats, count: int, order: npt.NDArray[np.intp] | None = None
) -> npt.NDArray[np.intp]:
    """All trials, or of many `count`: the better half, a quarter the newest, the rest evenly from all.
    `order`: of the scores, where it is known."""
    if len(scores) <= count:
        return np.arange(len(scores))
    chosen = np.zeros(len(scores), bool)
    best = np.argsort(scores, kind="stable") if order is None else order
    chosen[best[: count // 2]] = True
    chosen[-(count // 4) :] = True
    rest = np.flatnonzero(~chosen)
    chosen[rest[np.linspace(0, len(rest) - 1, count - int(chosen.sum())).astype(int)]] = True
    return np.flatnonzero(chosen)
