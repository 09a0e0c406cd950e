"""Trials and studies as rows, and back."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

from evo.store.packing import pack_samples, unpack_samples
from evo.study import Study
from evo.trial import (
    Candidate,
    CaseError,
    Interval,
    LaunchConfig,
    Outcome,
    Point,
    Problem,
    Resources,
    Timing,
    Trial,
    digest_of,
)

DETAIL_LIMIT = 4000
"""Characters of a trial's detail that are kept: a compiler's first errors, not its last thousand."""


@dataclass(frozen=True, slots=True)
class TrialRow:
    """What a search must know of a finished trial: light, without source and samples."""

    number: int
    outcome: Outcome
    reason: str
    template: str
    point: Point
    program: str
    machine_code: str
    launch_digest: str
    median_us: float | None
    estimate_us: float | None
    speedup: float | None
    same_as: int | None

    @property
    def score_us(self) -> float | None:
        """What is minimised: the measured median, or the estimate; None unless correct."""
        if not self.outcome.correct:
            return None
        return self.estimate_us if self.median_us is None else self.median_us

    @classmethod
    def of(cls, number: int, trial: Trial, same_as: int | None = None) -> TrialRow:
        """The row that the store would give back for `trial`."""
        timing = trial.timing
        return cls(
            number,
            trial.outcome,
            trial.reason,
            trial.candidate.template,
            trial.candidate.point,
            trial.candidate.program,
            trial.machine_code,
            launch_digest(trial.candidate.launch),
            timing.median_us if timing else None,
            trial.estimate_us,
            timing.speedup if timing else None,
            same_as,
        )


@dataclass(frozen=True)
class LeaderboardRow:
    """A row of the leaderboard. Measured medians and estimates are never ranked together.

    `kind`: confirmed, measured (in the search alone), or estimate. Of a confirmed row `median_us`,
    `baselines_us` and `speedup` are what CONFIRMED found, with intervals of `level` that hold for all
    finalists at once, and `search_us` is what the search had measured; `rank` is shared by those whose
    intervals overlap."""

    trial: int
    study: str
    number: int
    template: str
    problem: str
    device: str
    outcome: str
    point: Point
    median_us: float | None
    low_us: float | None
    high_us: float | None
    baselines_us: Mapping[str, float]
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    estimate_us: float | None
    estimate_gpu: str
    registers: int | None
    spill_bytes: int | None
    smem_bytes: int
    worst_error: float | None
    kind: str = "measured"
    rank: int = 0
    level: float | None = None
    versus: str | None = None
    verdict: str | None = None
    cold_us: float | None = None
    cold_low_us: float | None = None
    cold_high_us: float | None = None
    cold_speedup: float | None = None
    search_us: float | None = None


@dataclass(frozen=True)
class Failure:
    """How often trials of a study died of one reason, with the number of one of them as an example."""

    outcome: str
    reason: str
    count: int
    example: int


def ranked(rows: Sequence[LeaderboardRow]) -> list[LeaderboardRow]:
    """`rows`, each kind in its order, with ranks: one more than there are rows of the group that are faster,
    of confirmed ones surely faster, so that those whose intervals overlap share a rank. What was measured in
    a search alone comes after all that is confirmed."""
    groups: dict[tuple[str, str, bool, str], list[LeaderboardRow]] = {}
    for row in rows:
        estimated = row.kind == "estimate"
        group = (row.problem, row.device, estimated, row.estimate_gpu if estimated else "")
        groups.setdefault(group, []).append(row)
    places = {row.trial: place for group in groups.values() for row, place in _places(group)}
    return [replace(row, rank=places[row.trial]) for row in rows]


def _places(group: Sequence[LeaderboardRow]) -> Iterator[tuple[LeaderboardRow, int]]:
    confirmed = [row for row in group if row.kind == "confirmed"]
    place, last = 0, None
    for number, row in enumerate(group, 1):
        if row.kind == "confirmed":
            place = 1 + sum((r.high_us or 0.0) < (row.low_us or 0.0) for r in confirmed)
        elif (score := row.median_us or row.estimate_us) != last:
            place, last = number, score
        yield row, place


def launch_digest(launch: LaunchConfig) -> str:
    """Equal for equal launches; with the machine code it identifies what really ran."""
    return digest_of(launch.to_json())


def now() -> str:
    """The time as the database writes it: UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def study_columns(study: Study) -> dict[str, Any]:
    raw = {k: v for k, v in vars(study).items() if k not in ("id", "baselines_us", "folders", "warm_start")}
    settings = {"templates": os.pathsep.join(study.folders), "warm_start": json.dumps(dict(study.warm_start))}
    return raw | {
        "task": study.problem.task,
        "problem": study.problem.key,
        "problem_json": asdict(study.problem),
        "templates": list(study.templates),
        "settings": settings,
        "versions": dict(study.versions),
        "baselines": dict(study.baselines_us),
        "created": study.created or now(),
        "owner": "",
    }


def study_of(row: Mapping[str, Any]) -> Study:
    kept = {k: row[k] for k in row if k in Study.__dataclass_fields__}
    settings = row["settings"]
    folders = str(settings.get("templates", "")).split(os.pathsep)
    kept |= {
        "folders": tuple(folder for folder in folders if folder),
        "warm_start": json.loads(str(settings.get("warm_start", "{}"))),
        "problem": Problem(**row["problem_json"]),
        "templates": tuple(row["templates"]),
        "baselines_us": row["baselines"],
    }
    return Study(**kept)


def trial_columns(trial: Trial, study_problem: Problem) -> dict[str, Any]:
    """The columns of a trial, but for its study, source and environment."""
    candidate, timing, resources = trial.candidate, trial.timing, trial.resources
    own_problem = candidate.problem.key != study_problem.key
    row_errors = [e.row_error for e in trial.errors if math.isfinite(e.row_error)]
    ratio = timing.speedup_interval if timing else None
    launch = candidate.launch.to_json()
    detail = trial.detail
    if len(detail) > DETAIL_LIMIT:
        detail = detail[:DETAIL_LIMIT] + " …"
    return {
        "outcome": str(trial.outcome),
        "reason": _text(trial.reason),
        "detail": _text(detail),
        "location": _text(trial.where),
        "template": candidate.template,
        "point": dict(candidate.point),
        "problem": candidate.problem.key,
        "problem_json": asdict(candidate.problem) if own_problem else None,
        "program": candidate.program,
        "entry": candidate.entry,
        "launch": json.loads(launch),
        "launch_digest": digest_of(launch),
        "threads": candidate.launch.threads,
        "smem_bytes": candidate.launch.smem_bytes,
        "registers": resources.registers if resources else None,
        "spill_bytes": resources.spill_bytes if resources else None,
        "stack_bytes": resources.stack_bytes if resources else None,
        "static_smem_bytes": resources.static_smem_bytes if resources else None,
        "warnings": [_text(w) for w in resources.warnings] if resources else [],
        "machine_code": trial.machine_code,
        "errors": case_errors(trial.errors),
        "worst_error": max(row_errors, default=None),
        "median_us": timing.median_us if timing else None,
        "low_us": timing.interval.low if timing else None,
        "high_us": timing.interval.high if timing else None,
        "level": timing.interval.level if timing else None,
        "protocol": timing.protocol if timing else "",
        "samples": pack_samples(timing.samples_us) if timing else None,
        "baselines": dict(timing.baselines_us) if timing else {},
        "speedup": timing.speedup if timing else None,
        "speedup_low": ratio.low if ratio else None,
        "speedup_high": ratio.high if ratio else None,
        "estimate_us": trial.estimate_us,
        "estimate_gpu": trial.estimate_gpu,
        "counters": {k: _short(v) for k, v in trial.counters.items()},
        "seconds": {k: round(v, 4) for k, v in trial.seconds.items()},
        "clocks": dict(timing.clocks) if timing else {},
        "created": now(),
    }


def trial_of(row: Mapping[str, Any], source: str) -> Trial:
    """The trial of a row of trials joined with its environment (`device`, `compiler`, `versions`) and its
    study (`study`)."""
    timing = resources = None
    if row["median_us"] is not None:
        level = row["level"]
        ratio = (
            Interval(row["speedup_low"], row["speedup_high"], level)
            if row["speedup_low"] is not None
            else None
        )
        timing = Timing(
            unpack_samples(row["samples"]),
            row["median_us"],
            Interval(row["low_us"], row["high_us"], level),
            row["protocol"],
            row["baselines"],
            row["speedup"],
            ratio,
            row["clocks"],
        )
    if row["registers"] is not None:
        resources = Resources(
            row["registers"],
            row["spill_bytes"],
            row["stack_bytes"],
            row["static_smem_bytes"],
            tuple(row["warnings"]),
        )
    launch = LaunchConfig.from_json(json.dumps(row["launch"]))
    candidate = Candidate(
        Problem(**row["problem_json"]), row["template"], row["point"], source, row["entry"], launch
    )
    return Trial(
        candidate,
        Outcome(row["outcome"]),
        row["reason"],
        row["detail"],
        row["location"],
        resources,
        row["machine_code"],
        row["compiler"],
        tuple(CaseError(p, f, s, _or_inf(e), _or_inf(limit)) for p, f, s, e, limit in row["errors"]),
        timing,
        row["estimate_us"],
        row["estimate_gpu"],
        row["counters"],
        row["seconds"],
        row["device"],
        row["versions"],
        row["study"],
        row["number"],
        row["same_as"],
        row["created"],
        row["id"],
    )


def case_errors(errors: Sequence[CaseError]) -> list[list[Any]]:
    """A row error that is no number (a NaN in the output) is null, and the trial is RED."""
    return [[e.problem, e.family, e.seed, _finite(e.row_error), _finite(e.limit)] for e in errors]


def _finite(number: float) -> float | None:
    return float(number) if math.isfinite(number) else None


def _or_inf(number: float | None) -> float:
    return math.inf if number is None else number


def _short(number: float) -> float | int | None:
    """A counter in few characters: whole where it is whole, six digits otherwise."""
    if not math.isfinite(number):
        return None
    return int(number) if number == int(number) else float(f"{number:.6g}")


def _text(text: str) -> str:
    """Without NUL, which PostgreSQL's text cannot hold, and without lone surrogates."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()
