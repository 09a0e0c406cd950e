"""A template's history as an Optuna study that its samplers can read but not change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.storages import InMemoryStorage
from optuna.study import Study as OptunaStudy
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

optuna.logging.set_verbosity(optuna.logging.WARNING)  # it would report every such study as created


class _ReadOnlyStorage(InMemoryStorage):
    """Shows Optuna trials that it does not own."""

    def __init__(self, trials: list[FrozenTrial]) -> None:
        super().__init__()
        self._shown = trials

    def get_all_trials(
        self,
        study_id: int,  # noqa: ARG002
        deepcopy: bool = True,  # noqa: ARG002
        states: Any = None,
    ) -> list[FrozenTrial]:
        return self._shown if states is None else [t for t in self._shown if t.state in states]


def as_study(trials: list[FrozenTrial]) -> OptunaStudy:
    """An Optuna study that has exactly these trials."""
    storage = _ReadOnlyStorage(trials)
    storage.create_new_study([StudyDirection.MINIMIZE], "history")
    return OptunaStudy("history", storage, sampler=optuna.samplers.RandomSampler(0))


def suggest(
    sampler: BaseSampler, study: OptunaStudy, space: Mapping[str, BaseDistribution]
) -> dict[str, Any]:
    """What `sampler` suggests next; empty where it has no opinion yet."""
    now = FrozenTrial(-1, TrialState.RUNNING, None, None, None, {}, {}, {}, {}, {}, trial_id=-1)
    return sampler.sample_relative(study, now, dict(space))


def frozen_trial(
    number: int, params: dict[str, Any], space: Mapping[str, BaseDistribution], score_us: float | None
) -> FrozenTrial:
    """A finished trial for Optuna. A failure violates a constraint; Optuna then ignores its value."""
    failed = score_us is None
    trial = create_trial(
        params=params,
        distributions={name: space[name] for name in params},
        value=0.0 if score_us is None else score_us,
        constraints={"correct": 1.0 if failed else 0.0},
    )
    trial.number = number
    return trial
