"""The default strategy: mutations of the elites, ranked by a model's expected improvement."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from evo.strategy.base import Strategy
from evo.strategy.candidates import Candidates, Positions
from evo.strategy.evolution.distance import Floats
from evo.strategy.evolution.features import Features, Points
from evo.strategy.evolution.gaussian_process import GaussianProcess
from evo.strategy.evolution.model import (
    FITTED_TRIALS,
    REBUILT_EVERY,
    TRAINING_TRIALS,
    Model,
    TrainingSet,
    targets,
)
from evo.strategy.evolution.registers import RegisterModel
from evo.strategy.selection import representative


class Evo(Strategy):
    """An evolutionary search in two layers.

    The template is drawn by how near its best trial is to the best of all. In a template, a pool is kept of
    mutations of the elites (in their micro parameters, or across structures) and of other points: those of
    which a Gaussian process expects most. The most promising point of the pool is tried; every fourth time,
    the most promising of those that differ from the best trial in one parameter. A failure counts as the
    slowest trial. Two models alternate, a rough one and a smooth one that also knows labels: where one is
    misled the other is not.
    """

    name = "evo"

    INITIAL_TRIALS = 8
    """Trials of a template before there is a model: a design that fills the space, as far from each other as
    may be. With six or ten a search took 3 or 4 % more evaluations to 1 % of the best."""
    LEAST_TRIALS = 4
    """Trials that a model needs while the others of the design are under way."""
    DESIGN_POINTS = 512
    """Points at random of which each of them is the farthest one."""
    NEIGHBOUR_EVERY = 4
    """One question in so many looks only next to the best trial."""

    def _reset(self) -> None:
        super()._reset()
        self._models: dict[tuple[str, int], Model] = {}
        self._training_sets: dict[str, TrainingSet] = {}
        self._earlier_trials = {
            name: self._earlier_trials_of(candidates) for name, candidates in self._candidates.items()
        }
        self._expected: dict[str, tuple[Callable[[Points], Floats], ...]] = {}
        self._features: dict[str, Features] = {}
        for name, earlier in self._earlier_trials.items():
            registers = self._registers_at(name, 0)
            self._expected[name] = self._earlier_expectation(earlier, registers)
            self._features[name] = Features(earlier.feasible, self._expected[name], registers)

    def _earlier_trials_of(self, candidates: Candidates) -> Candidates:
        """The trials of a template in earlier studies."""
        earlier = Candidates(candidates.template, candidates.feasible)
        for trial in self._earlier:
            if trial.template == candidates.template:
                earlier.observe(trial.point, trial.score_us, trial.registers)
        return earlier

    def _registers_at(self, template: str, milestone: int) -> RegisterModel | None:
        """What is known of the registers of a template's kernels from earlier studies and the trials up to a
        milestone."""
        earlier, candidates = self._earlier_trials[template], self._candidates[template]
        return RegisterModel.of(
            candidates.feasible,
            [*earlier.tried, *candidates.tried[:milestone]],
            [*earlier.registers, *candidates.registers[:milestone]],
        )

    def _earlier_expectation(
        self, earlier: Candidates, registers: RegisterModel | None
    ) -> tuple[Callable[[Points], Floats], ...]:
        """What earlier studies would expect of points, as a feature. How much it is worth, if anything,
        follows from the trials of this study (`predicts`)."""
        if len(earlier.tried) < 4 * self.INITIAL_TRIALS:
            return ()
        scores = np.array(earlier.scores)
        used = representative(scores, TRAINING_TRIALS, TRAINING_TRIALS // 2)
        features = Features(earlier.feasible, registers=registers)
        x, y = features(np.stack([earlier.tried[i] for i in used])), targets(scores[used])
        fitted = representative(scores[used], FITTED_TRIALS, FITTED_TRIALS // 2)
        process = GaussianProcess(features.labels, features.levels, True, features.derived)
        process.fit(x[fitted], y[fitted])
        mean = process.mean_function(x, (y - y.min()) / (float(np.ptp(y)) or 1.0))
        return (lambda rows: 2 * mean(features(rows)),)

    def _choose(self, with_open: list[Candidates], rng: np.random.Generator, number: int) -> Candidates:
        return self._choose_by_best(with_open, rng, number)

    def _suggest(
        self, candidates: Candidates, rng: np.random.Generator, _refused: list[Positions]
    ) -> Positions | None:
        self.expected_gain = None
        asked = len(candidates.tried) + len(candidates.pending)
        known = len(candidates.tried) if candidates.best(1) else 0
        if asked < self.INITIAL_TRIALS or known < self.LEAST_TRIALS:
            return self._far_point(candidates, rng)
        model = self._model(candidates, asked % 2)
        # rounded: points that differ in a dead parameter are equal, and which of them is a rounding error
        # ahead is not the same on every machine
        gains = model.log_gains(candidates).round(6)
        if gains.max() == -math.inf:
            return None
        self.expected_gain = math.exp(min(0.0, float(gains.max())))
        if asked % self.NEIGHBOUR_EVERY == 0:
            (_, best), *_ = candidates.best(1)
            near = np.where((model.pool != best).sum(axis=1) == 1, gains, -math.inf)
            gains = near if near.max() > -math.inf else gains
        return model.take(int(gains.argmax()))

    def _far_point(self, candidates: Candidates, rng: np.random.Generator) -> Positions:
        """Of some open points the one that is farthest from all that were tried or are under way."""
        points = candidates.some_open(self.DESIGN_POINTS, rng)
        known = [*candidates.tried, *candidates.pending]
        farthest: Positions = points[0]
        if not known:
            return farthest
        features = self._features[candidates.template]
        here, there = features(points), features(np.stack(known))
        gaps = np.abs(here[:, None, :] - there[None, :, :])
        distance = np.where(features.labels, gaps > 0, gaps).sum(axis=2).min(axis=1)
        # rounded: of points that are equally far, the first one is taken on every machine
        farthest = points[int(distance.round(6).argmax())]
        return farthest

    def _model(self, candidates: Candidates, kind: int) -> Model:
        """The model of a template (`kind` 0: rough, 1: smooth) with all that is known. It is built from the
        trials up to a milestone, so that it is a function of these alone. Then the later trials and the
        points under way are added."""
        template = candidates.template
        milestone = milestone_before(len(candidates.tried), self.LEAST_TRIALS, REBUILT_EVERY)
        model = self._models.get((template, kind))
        if model is None or model.milestone != milestone or not model.update(candidates):
            rng = np.random.default_rng([self._seed % 2**63, milestone])
            training = self._training_sets.get(template)
            if training is None or training.milestone != milestone:
                registers = self._registers_at(template, milestone)
                features = Features(candidates.feasible, self._expected[template], registers)
                training = TrainingSet(candidates, milestone, features, rng)
                self._training_sets[template] = training
            model = Model(candidates, training, bool(kind))
            self._models[template, kind] = model
            model.update(candidates)
        return model


def milestone_before(count: int, start: int, every: int) -> int:
    """The last of the rising milestones that is not above `count`."""
    milestone = start
    while milestone // 4 < every:
        following = milestone + max(2, milestone // 4)
        if following > count:
            return milestone
        milestone = following
    return milestone + max(0, count - milestone) // every * every
