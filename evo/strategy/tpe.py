"""The tree-structured Parzen estimator (Watanabe, arXiv 2304.11127), as Optuna implements it."""

from __future__ import annotations

import numpy as np
from optuna.samplers import TPESampler

from evo.strategy.base import Strategy
from evo.strategy.candidates import Candidates, Positions
from evo.strategy.optuna_view import as_study, suggest
from evo.strategy.selection import representative


class Tpe(Strategy):
    """Optuna's multivariate TPE over categories."""

    name = "tpe"

    MODEL_TRIALS = 500
    """Trials that TPE sees: its time grows with them, and on recorded spaces 1,000 serve it no better."""

    def _choose(self, with_open: list[Candidates], rng: np.random.Generator, number: int) -> Candidates:
        return self._choose_by_best(with_open, rng, number)

    def _suggest(
        self, candidates: Candidates, rng: np.random.Generator, refused: list[Positions], /
    ) -> Positions | None:
        trials = candidates.trials
        shown = representative(candidates.scores, self.MODEL_TRIALS, self.MODEL_TRIALS // 4)
        # What is under way is shown as violating its constraint, which has the effect of constant_liar;
        # constant_liar itself would write to the storage.
        unwanted = [candidates.frozen_trial(p, None) for p in (*candidates.pending, *refused)]
        sampler = TPESampler(multivariate=True, constant_liar=False, seed=int(rng.integers(2**32)))
        study = as_study([*(trials[i] for i in shown), *unwanted])
        suggestion = suggest(sampler, study, candidates.distributions)
        return candidates.positions_of(suggestion) if suggestion else None
