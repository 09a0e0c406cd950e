"""Warm start: the trials of other studies in the database that a search learns from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from evo.confirm.choice import distance
from evo.device.open import is_gpu
from evo.errors import UsageError
from evo.loop.waves import wave_factors
from evo.space import FeasibleSet
from evo.store import Store, TrialRow
from evo.strategy import Observation
from evo.study import Study
from evo.trial import Outcome, Point

AUTO = "auto"
NONE = "none"
AUTO_STUDIES = 3
"""So many studies `auto` chooses."""
LEAST_CORRECT = 20
"""A study with fewer correct trials is too small for `auto`."""


def warm_start_sources(store: Store, study: Study, asked: Sequence[str]) -> dict[str, int]:
    """The studies that `study` is warm-started from: their names, and how many trials each has now. `asked`:
    names of studies, `auto` for the most similar ones (which is what nothing means), or `none`.

    UnknownName where there is no such study, UsageError where it is of another task."""
    if NONE in asked:
        return {}
    chosen = {name: store.study(name) for name in asked if name != AUTO}
    for other in chosen.values():
        if other.problem.task != study.problem.task:
            hint = f"it searches {other.problem.task}, not {study.problem.task}"
            raise UsageError(f"study {other.name} knows nothing of this task", hint)
    if AUTO in asked or not asked:
        chosen |= {other.name: other for other in _most_similar(store, study)}
    return {name: sum(store.count(other).values()) for name, other in chosen.items()}


def earlier_trials(store: Store, study: Study, spaces: Mapping[str, FeasibleSet]) -> list[Observation]:
    """The trials that `study` is warm-started from. `spaces`: the feasible points of its templates.

    Scores are fractions of the best of their study, so that those of different shapes and GPUs can stand side
    by side, after a correction for how the CTAs fill the SMs there and here (`wave_factors`)."""
    trials = []
    for name, count in study.warm_start.items():
        other = store.study(name)
        rows = store.rows(other)[:count]
        factors = wave_factors(rows, [row.registers for row in rows], other.problem, other.gpu, spaces)
        scores = [None if r.score_us is None else r.score_us * f for r, f in zip(rows, factors, strict=True)]
        best = min((score for score in scores if score is not None), default=1.0)
        trials += [
            Observation(row.template, point, None if score is None else score / best, name, row.registers)
            for row, point, score in zip(rows, _named_here(rows, spaces), scores, strict=True)
        ]
    return trials


def _named_here(rows: Sequence[TrialRow], spaces: Mapping[str, FeasibleSet]) -> Iterator[Point]:
    """The points of trials by the names that kernels have for the problem here."""
    for row in rows:
        known = spaces.get(row.template)
        yield row.point if known is None else known.named(row.point)


def _most_similar(store: Store, study: Study) -> list[Study]:
    """Studies of the same task that share a template: the same problem first, then those with measured times,
    then the same GPU, then the nearest sizes, then the newest."""
    others = [
        other
        for other in store.studies()
        if other.problem.task == study.problem.task
        and (not study.templates or set(other.templates) & set(study.templates))
    ]
    others.sort(
        key=lambda o: (
            o.problem.key != study.problem.key,
            not is_gpu(o.device),
            o.gpu != study.gpu,
            distance(o.problem, study.problem) + (o.problem.dtype != study.problem.dtype),
            -o.id,
        )
    )
    large = (other for other in others if _correct(store, other) >= LEAST_CORRECT)
    return list(islice(large, AUTO_STUDIES))


def _correct(store: Store, study: Study) -> int:
    counts = store.count(study)
    return sum(counts.get(outcome, 0) for outcome in Outcome if outcome.correct)
