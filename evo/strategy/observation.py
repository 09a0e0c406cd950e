"""What a strategy is told of a trial."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from evo.trial import Point


@dataclass(frozen=True, slots=True)
class Observation:
    """A finished trial, as a strategy sees it. `score_us` is minimized; None: the kernel is not correct.
    `study`: the other study that it is from, in a warm start; its scores are comparable within that study.
    `registers` a thread of its kernel; None: not known."""

    template: str
    point: Point
    score_us: float | None
    study: str = ""
    registers: int | None = None


def times_behind(earlier: Iterable[Observation]) -> dict[str, float]:
    """How many times as long the best kernel of each template takes as the best of all, in that earlier study
    where it did best. A template of which no study has a correct kernel is missing."""
    best: dict[str, float] = {}
    best_of: dict[tuple[str, str], float] = {}
    for trial in earlier:
        if trial.score_us is not None:
            best[trial.study] = min(trial.score_us, best.get(trial.study, trial.score_us))
            key = trial.template, trial.study
            best_of[key] = min(trial.score_us, best_of.get(key, trial.score_us))
    behind: dict[str, float] = {}
    for (template, study), score in best_of.items():
        behind[template] = min(score / best[study], behind.get(template, score / best[study]))
    return behind
