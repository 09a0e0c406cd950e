"""A genetic algorithm: Optuna's NSGA-II with one objective."""

from __future__ import annotations

import numpy as np
from optuna.samplers import NSGAIISampler
from optuna.study import Study as OptunaStudy
from optuna.trial import FrozenTrial

from evo.strategy.base import Strategy
from evo.strategy.candidates import Candidates, Positions
from evo.strategy.optuna_view import as_study, suggest


class Nsga2(Strategy):
    """Optuna's NSGA-II as a genetic algorithm with one objective. A generation is a run of `POPULATION`
    trials of a template in the order of its history, so that generations, too, follow from the history
    alone."""

    name = "nsga2"

    POPULATION = 24

    def _reset(self) -> None:
        super()._reset()
        self._parents: dict[str, dict[int, list[FrozenTrial]]] = {name: {} for name in self._candidates}

    def _suggest(
        self, candidates: Candidates, rng: np.random.Generator, _refused: list[Positions]
    ) -> Positions | None:
        sampler = _Generations(self.POPULATION, int(rng.integers(2**32)), self._parents[candidates.template])
        suggestion = suggest(sampler, as_study(candidates.trials), candidates.distributions)
        if not suggestion:
            return None
        # NSGA-II leaves out what it mutates: those are drawn here
        drawn = {name: int(rng.integers(len(d.choices))) for name, d in candidates.distributions.items()}
        return candidates.positions_of({**drawn, **suggestion})


class _Generations(NSGAIISampler):
    """NSGA-II whose generations are counted off the history instead of kept in the trials' attributes.

    `parents` is a cache of the selected parents by generation, which depend on finished generations alone."""

    def __init__(self, population: int, seed: int, parents: dict[int, list[FrozenTrial]]) -> None:
        super().__init__(population_size=population, seed=seed)
        self._size = population
        self._parents_of = parents

    def get_trial_generation(self, study: OptunaStudy, trial: FrozenTrial) -> int:  # noqa: ARG002
        return len(study.get_trials(deepcopy=False)) // self._size

    def get_population(self, study: OptunaStudy, generation: int) -> list[FrozenTrial]:
        return study.get_trials(deepcopy=False)[generation * self._size : (generation + 1) * self._size]

    def get_parent_population(self, study: OptunaStudy, generation: int) -> list[FrozenTrial]:
        for g in range(1, generation + 1):  # upwards: no recursion, however many generations there are
            if g not in self._parents_of:
                self._parents_of[g] = self.select_parent(study, g)
        return self._parents_of[generation] if generation else []
