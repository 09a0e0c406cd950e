"""The tree-structured Parzen estimator (Watanabe, arXiv 2304.11127), as Optuna has it."""

from __future__ import annotations

import numpy as np
from optuna.samplers import TPESampler
from optuna.trial import FrozenTrial

from evo.strategy.base import Strategy
from evo.strategy.candidates import Field, Positions
from evo.strategy.optuna_view import sample, view


class Tpe(Strategy):
    """Optuna's multivariate TPE over categories."""

    name = "tpe"

    HISTORY = 500
    """Trials that TPE looks at: its time grows with them, and on recorded spaces 1,000 serve it no better."""

    def _choose(self, fields: list[Field], rng: np.random.Generator, number: int) -> Field:
        return self._by_best(fields, rng, number)

    def _wish(self, field: Field, rng: np.random.Generator, refused: list[Positions], /) -> Positions | None:
        known = recent_and_best(field.trials, field.scores, self.HISTORY)
        unwanted = [field.frozen(p, None) for p in (*field.occupied, *refused)]
        wish = sample(_tpe(rng), view([*known, *unwanted]), field.distributions)
        return field.positions_of(wish) if wish else None


def _tpe(rng: np.random.Generator) -> TPESampler:
    # What is under way is shown as violating its constraint, which is what constant_liar comes to;
    # constant_liar itself would write to the storage.
    return TPESampler(multivariate=True, constant_liar=False, seed=int(rng.integers(2**32)))


def recent_and_best(trials: list[FrozenTrial], scores: list[float], count: int) -> list[FrozenTrial]:
    """All, or of many `count`: a quarter the best, a quarter the newest, the rest evenly from all."""
    if len(trials) <= count:
        return trials
    quarter = count // 4
    chosen = np.zeros(len(trials), bool)
    chosen[np.argsort(np.array(scores), kind="stable")[:quarter]] = True
    chosen[-quarter:] = True
    rest = np.flatnonzero(~chosen)
    chosen[rest[np.linspace(0, len(rest) - 1, count - int(chosen.sum())).astype(int)]] = True
    return [trials[i] for i in np.flatnonzero(chosen)]
