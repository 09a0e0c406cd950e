"""Trials and studies as rows, and back."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from evo.calls import OwnCalls
from evo.store.damage import require_types
from evo.store.owner import Owner
from evo.store.packing import pack_samples, unpack_samples
from evo.store.times import ranked_columns, times_json, times_of
from evo.study import Study
from evo.trial import (
    Candidate,
    CaseError,
    Extent,
    InputTime,
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
    registers: int | None
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
            trial.resources.registers if trial.resources else None,
            same_as,
        )


@dataclass(frozen=True)
class LeaderboardRow:
    """A row of the leaderboard. Measured medians and estimates are never ranked together.

    `kind`: confirmed, measured (in the search alone), or estimate. Of a confirmed row `median_us`,
    `baselines_us` and `speedup` are what CONFIRMED found, with intervals of `level` that hold for all
    finalists at once, and `search_us` is what the search had measured; `rank` is shared by those whose
    intervals overlap.

    `ranking` says which of the `times` on the timing inputs `median_us` is; rows of different rankings are
    never ranked together. `speedup` is the smallest of theirs: `on` this input, over the baseline `versus`.
    In the search a kernel that lost was timed on fewer than all `timing_inputs`. `own_data` says which
    recorded calls are among them ("": none): times on different ones are never ranked together.

    `cases_run` of `cases_planned` cases of the gate ran in the search; of `classes_missed` less than half;
    `own_share` (0 to 1) is how much of the problem ran there. None: not known.
    `reads`: clocks and places that it reads although its template does not declare them.
    `smem_bytes` is a CTA's dynamic shared memory, in bytes; `static_smem_bytes` comes on top."""

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
    cases_run: int | None = None
    cases_planned: int | None = None
    classes_missed: int | None = None
    reads: str = ""
    own_share: float | None = None
    ranking: str = ""
    on: str = ""
    times: Mapping[str, InputTime] = field(default_factory=dict)
    timing_inputs: int = 0
    own_data: str = ""
    static_smem_bytes: int | None = None


@dataclass(frozen=True)
class Failure:
    """How often trials of a study died of one reason, with the number of one of them as an example."""

    outcome: str
    reason: str
    count: int
    example: int


def launch_digest(launch: LaunchConfig) -> str:
    """Equal for equal launches; with the machine code it identifies what really ran."""
    return digest_of(launch.to_json())


def interned(row: TrialRow) -> TrialRow:
    """The row with names that it shares with all others: a third less memory for 100,000."""
    return replace(row, point={sys.intern(name): value for name, value in row.point.items()})


def now() -> str:
    """The time as the database writes it: UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def study_columns(study: Study) -> dict[str, Any]:
    """The columns of a new study, which no process runs."""
    raw = {name: value for name, value in vars(study).items() if name not in ("id", "baselines_us")}
    return raw | {
        "task": study.problem.task,
        "problem": study.problem.key,
        "problem_json": asdict(study.problem),
        "templates": list(study.templates),
        "calls": asdict(study.calls) if study.calls else None,
        "own_data": study.calls.label if study.calls else "",
        "folders": list(study.folders),
        "gpus": list(study.gpus),
        "until": study.until,
        "starts": list(study.starts),
        "warm_start": dict(study.warm_start),
        "versions": dict(study.versions),
        "baselines": dict(study.baselines_us),
        "created": study.created or now(),
    }


def study_of(row: Mapping[str, Any]) -> Study:
    """The study of a row of studies. One that a process left running when it was killed is interrupted."""
    kept = {k: row[k] for k in row if k in Study.__dataclass_fields__}
    owner = owner_of(row)
    if row["status"] == "running" and not (owner and owner.alive(row["heartbeat"])):
        kept["status"] = "interrupted"
    kept |= {
        "problem": Problem(**row["problem_json"]),
        "templates": tuple(row["templates"]),
        "calls": _calls_of(row["calls"]),
        "folders": tuple(row["folders"]),
        "gpus": tuple(row["gpus"]),
        "starts": tuple(row["starts"]),
        "baselines_us": row["baselines"],
    }
    study = Study(**kept)
    for record in filter(None, (study, study.problem, study.calls)):
        require_types(record)
    return study


def _calls_of(kept: Mapping[str, Any] | None) -> OwnCalls | None:
    return OwnCalls(**{**kept, "numbers": tuple(kept["numbers"])}) if kept else None


def owner_columns(owner: Owner | None) -> dict[str, Any]:
    """The columns of a study that say which process runs it."""
    host, pid, started = (owner.host, owner.pid, owner.started) if owner else (None, None, None)
    return {"owner_host": host, "owner_pid": pid, "owner_started": started}


def owner_of(row: Mapping[str, Any]) -> Owner | None:
    """The process that runs the study of a row, None if none does."""
    if row["owner_host"] is None:
        return None
    return Owner(row["owner_host"], row["owner_pid"], row["owner_started"])


def trial_columns(trial: Trial, study_problem: Problem) -> dict[str, Any]:
    """The columns of a trial, but for its study, source and environment."""
    candidate = trial.candidate
    own_problem = candidate.problem.key != study_problem.key
    row_errors = [e.row_error for e in trial.errors if math.isfinite(e.row_error)]
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
        **_resource_columns(trial.resources),
        "machine_code": trial.machine_code,
        "errors": case_errors(trial.errors),
        "worst_error": max(row_errors, default=None),
        **(_timing_columns(trial.timing) if trial.timing else _UNTIMED),
        "estimate_us": trial.estimate_us,
        "estimate_gpu": trial.estimate_gpu,
        "counters": {k: _short(v) for k, v in trial.counters.items()},
        "seconds": {k: round(v, 4) for k, v in trial.seconds.items()},
        "evaluations": trial.evaluations,
        "gpu": trial.gpu,
        "divisor": trial.divisor,
        **_extent_columns(trial.extent),
        "reads": " ".join(trial.reads),
        "created": now(),
    }


def _extent_columns(extent: Extent | None) -> dict[str, Any]:
    if extent is None:
        return dict.fromkeys(("cases_run", "cases_planned", "classes_missed", "own_share", "extent"))
    return {
        "cases_run": extent.run,
        "cases_planned": extent.planned,
        "classes_missed": len(extent.missed),
        "own_share": extent.own_share,
        "extent": {"cases": dict(extent.cases), "left_out": list(extent.left_out)},
    }


def _extent_of(row: Mapping[str, Any]) -> Extent | None:
    kept = row["extent"]
    if kept is None:
        return None
    cases = {name: (run, planned) for name, (run, planned) in kept["cases"].items()}
    return Extent(cases, row["own_share"], tuple(kept["left_out"]))


def _resource_columns(resources: Resources | None) -> dict[str, Any]:
    return {
        "registers": resources.registers if resources else None,
        "spill_bytes": resources.spill_bytes if resources else None,
        "stack_bytes": resources.stack_bytes if resources else None,
        "static_smem_bytes": resources.static_smem_bytes if resources else None,
        "warnings": [_text(w) for w in resources.warnings] if resources else [],
    }


def _timing_columns(timing: Timing) -> dict[str, Any]:
    return {
        **ranked_columns(timing),
        "level": timing.interval.level,
        "protocol": timing.protocol,
        "samples": pack_samples(tuple(us for one in timing.times.values() for us in one.samples_us)),
        "baselines": timing.baselines_us,
        "times": times_json(timing.times),
        "timing_inputs": timing.inputs,
        "clocks": dict(timing.clocks),
    }


_UNTIMED: dict[str, Any] = {
    **dict.fromkeys(("median_us", "low_us", "high_us", "level", "samples")),
    **dict.fromkeys(("speedup", "speedup_low", "speedup_high")),
    **{"protocol": "", "baselines": {}, "clocks": {}, "times": {}, "timing_inputs": 0},
}
"""The columns of a timing that there is not."""


def trial_of(row: Mapping[str, Any], source: str) -> Trial:
    """The trial of a row of trials, joined with its environment (`device`, `compiler`, `versions`) and with
    the name of its study (`study`)."""
    launch = LaunchConfig.from_json(json.dumps(row["launch"]))
    problem = Problem(**row["problem_json"])
    candidate = Candidate(problem, row["template"], row["point"], source, row["entry"], launch)
    trial = Trial(
        candidate,
        Outcome(row["outcome"]),
        where=row["location"],
        resources=_resources_of(row),
        errors=tuple(CaseError(p, f, s, _or_inf(e), _or_inf(limit)) for p, f, s, e, limit in row["errors"]),
        timing=_timing_of(row),
        extent=_extent_of(row),
        reads=tuple(row["reads"].split()),
        **{name: row[name] for name in _SAME_NAME},
    )
    for record in filter(None, (trial, candidate, problem, launch, trial.resources, trial.timing)):
        require_types(record)
    return trial


_SAME_NAME = (
    *("reason", "detail", "machine_code", "compiler", "estimate_us", "estimate_gpu", "counters", "seconds"),
    *("evaluations", "device", "gpu", "divisor", "versions", "study", "number", "same_as", "created", "id"),
)
"""Fields of a trial that columns are named after."""


def _resources_of(row: Mapping[str, Any]) -> Resources | None:
    if row["registers"] is None:
        return None
    return Resources(
        row["registers"],
        row["spill_bytes"],
        row["stack_bytes"],
        row["static_smem_bytes"],
        tuple(row["warnings"]),
    )


def _timing_of(row: Mapping[str, Any]) -> Timing | None:
    if row["median_us"] is None:
        return None
    samples = iter(unpack_samples(row["samples"]))
    times = {
        name: replace(one, samples_us=tuple(islice(samples, row["times"][name]["samples"])))
        for name, one in times_of(row["times"]).items()
    }
    more = {"protocol": row["protocol"], "inputs": row["timing_inputs"], "clocks": row["clocks"]}
    return Timing.ranked(times, row["ranking"], **more)


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
