"""Which parameters decide whether a trial is among the best: Optuna's PED-ANOVA.

"PED-ANOVA: Efficiently Quantifying Hyperparameter Importance in Arbitrary Subspaces" (Watanabe, Bansal and
Hutter, arXiv 2304.10255). It asks what a search wants to know: how far the
values of the best trials are distributed otherwise than those of all. It needs no forest of trees (fANOVA
needs one, and scikit-learn with it).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.importance import PedAnovaImportanceEvaluator
from optuna.trial import FrozenTrial, TrialState

from evo.strategy.optuna_view import as_study
from evo.trial import Point, Value

LEAST_TRIALS = 50
"""With fewer trials the best tenth of them is too few to say anything."""


def importances(
    points: Sequence[Point], scores_us: Sequence[float], best_share: float = 0.1
) -> Mapping[str, float]:
    """The importance of each parameter, adding up to 1, for being among the best `best_share` of the trials.

    `points` have equal parameters, `scores_us` are their times. Empty where there are fewer than LEAST_TRIALS
    trials, or where no parameter has two values."""
    if len(points) < LEAST_TRIALS:
        return {}
    values = {name: list(dict.fromkeys(_typed(p[name]) for p in points)) for name in points[0]}
    varied = {name: found for name, found in values.items() if len(found) > 1}
    if not varied or len(set(scores_us)) < 2:
        return {}
    distributions: dict[str, BaseDistribution] = {
        name: CategoricalDistribution(tuple(range(len(found)))) for name, found in varied.items()
    }
    trials = [
        FrozenTrial(  # made by hand: it tells trials apart by their ids
            number,
            TrialState.COMPLETE,
            score,
            None,
            None,
            {name: found.index(_typed(p[name])) for name, found in varied.items()},
            distributions,
            {},
            {},
            {},
            trial_id=number,
        )
        for number, (p, score) in enumerate(zip(points, scores_us, strict=True))
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that it is experimental, and how it deals with ties
        evaluator = PedAnovaImportanceEvaluator(target_quantile=best_share, evaluate_on_local=True)
        found_importances = evaluator.evaluate(as_study(trials))
    total = sum(found_importances.values())
    if not total:
        return {}
    shares = {name: max(0.0, float(found_importances[name])) / total for name in varied}
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def _typed(value: Value) -> tuple[str, Value]:
    """True and 1 are equal, and may both be values of one parameter."""
    return type(value).__name__, value
