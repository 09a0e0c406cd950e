"""A study as an Optuna storage, for optuna-dashboard and other programs that read one. It is a copy: evo
never reads it back."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from evo.errors import StoreError, UsageError
from evo.trial import Point, Value

TRIALS_A_WRITE = 200
"""Trials written at a time."""


@dataclass(frozen=True)
class ExportedTrial:
    """A finished trial as Optuna should see it: `us` is its value, None for a failure; `attributes` become
    its user attributes."""

    number: int
    template: str
    point: Point
    us: float | None
    begun: datetime
    ended: datetime
    attributes: Mapping[str, Value | None]


def export(
    url: str, name: str, trials: Sequence[ExportedTrial], attributes: Mapping[str, object], metric: str
) -> int:
    """Writes the trials as study `name` into the Optuna storage at `url` (sqlite:///file.db, postgresql://…),
    in their order; `metric` is what their values are called. Returns how many they are. Failures are FAIL,
    without a value. A parameter has its own name, or `template.parameter` where there are several templates,
    since each has a space of its own.

    UsageError where the storage has a study of that name, StoreError where it cannot be written."""
    templates = {t.template for t in trials}
    distributions = _distributions(trials, alone=len(templates) == 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings about what is experimental in Optuna
        try:
            storage = RDBStorage(url)
            study = optuna.create_study(storage=storage, study_name=name, direction="minimize")
        except optuna.exceptions.DuplicatedStudyError as error:
            hint = "choose another name (--name), or another storage"
            raise UsageError(f"{url} has a study {name} already", hint) from error
        except Exception as error:  # each driver has its own error for a wrong URL
            hint = "an SQLite file: sqlite:///optuna.db; a server: postgresql://user@host/name"
            raise StoreError(f"cannot make an Optuna storage at {url}: {_first_line(error)}", hint) from error
        study.set_metric_names([metric])
        for key, value in attributes.items():
            study.set_user_attr(key, value)
        made = [_trial(t, distributions, alone=len(templates) == 1) for t in trials]
        for begin in range(0, len(made), TRIALS_A_WRITE):
            study.add_trials(made[begin : begin + TRIALS_A_WRITE])
        storage.remove_session()
        storage.engine.dispose()
    return len(made)


def _distributions(trials: Sequence[ExportedTrial], alone: bool) -> dict[str, BaseDistribution]:
    """What the values of each parameter lie in, by those that were tried."""
    values: dict[str, dict[str, Value]] = {}
    for trial in trials:
        for name, value in _named(trial, alone).items():
            values.setdefault(name, {})[f"{type(value).__name__} {value}"] = value
    return {name: _distribution(list(found.values())) for name, found in values.items()}


def _distribution(values: list[Value]) -> BaseDistribution:
    """Numbers keep their order in plots: they lie between the least and the largest, by their logarithm where
    all are powers of two. Anything else is a category."""
    if any(isinstance(v, (bool, str)) for v in values):
        return CategoricalDistribution(tuple(sorted(values, key=str)))
    numbers = sorted(v for v in values if isinstance(v, (int, float)))
    if not all(isinstance(v, int) for v in numbers):
        return FloatDistribution(float(numbers[0]), float(numbers[-1]))
    whole = [int(v) for v in numbers]
    doubling = len(whole) > 1 and all(v > 0 and v & (v - 1) == 0 for v in whole)
    return IntDistribution(whole[0], whole[-1], log=doubling)


def _named(trial: ExportedTrial, alone: bool) -> dict[str, Value]:
    if alone:
        return dict(trial.point)
    return {"template": trial.template} | {f"{trial.template}.{n}": v for n, v in trial.point.items()}


def _trial(trial: ExportedTrial, distributions: Mapping[str, BaseDistribution], alone: bool) -> FrozenTrial:
    params = _named(trial, alone)
    made = create_trial(
        state=TrialState.FAIL if trial.us is None else TrialState.COMPLETE,
        params=params,
        distributions={name: distributions[name] for name in params},
        value=trial.us,
        user_attrs={"template": trial.template, "number": trial.number, **trial.attributes},
    )
    made.datetime_start, made.datetime_complete = trial.begun, trial.ended
    return made


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
