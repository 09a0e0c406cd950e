"""What each optimisation of one kernel is worth: its parameters switched back, one at a time.

Each variant is compiled, gated and timed in the process of a worker. The original is gated and timed again
before the first variant, between all of them, and after the last: O A O B O … So a drift of the clock meets
both sides of every ratio, and the spread of the originals says how much two trials of one kernel differ
anyway. No ratio within that spread is called an effect.

On the emulator times are estimates and do not vary: there is one original, and no interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import reduce
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from evo.errors import NothingFound, UsageError
from evo.evaluate import EvaluatorSpec
from evo.evaluate.pool import Pool
from evo.gpu import Limits
from evo.space import Parameter
from evo.task import load_task
from evo.template import Template, load_template
from evo.timing.statistics import joined
from evo.trial import MEAN, Candidate, Interval, Point, Problem, Timing, Trial, Value, counting

RESAMPLES = 2000
"""Resamples of the bootstrap."""
ESTIMATE_RESOLUTION = 0.01
"""Two estimates that differ by less, as a fraction, are equal: the emulator's model is not more exact."""

SwitchKind = Literal["off", "default", "neighbour"]


@dataclass(frozen=True)
class Switch:
    """One parameter of a point, switched `to` another value: the one that is off, else the default. Where the
    rules refuse both, another parameter is changed too (`along`); else it is the nearest value that they
    allow. None where the parameter stays; `reason` says why."""

    parameter: Parameter
    value: Value
    to: Value | None
    kind: SwitchKind | None = None
    along: tuple[tuple[str, Value], ...] = ()
    reason: str = ""

    def applied(self, point: Point) -> Point:
        """`point`, switched."""
        assert self.to is not None
        return {**point, self.parameter.name: self.to, **dict(self.along)}


@dataclass(frozen=True)
class SwitchResult:
    """What one parameter's value is worth. `ratio` is the time of the variant / the time of the original:
    above 1, the original's value is the faster one; None where the variant has no time. `along` had to be
    changed with it. `same_code`: the variant is the same machine code. `expected` and `expected_ratio` are
    the template's words and figures."""

    name: str
    value: Value
    to: Value
    kind: SwitchKind
    along: tuple[tuple[str, Value], ...]
    outcome: str
    reason: str
    us: float | None
    ratio: float | None
    interval: Interval | None
    same_code: bool
    registers: int | None
    spill_bytes: int | None
    expected: str
    expected_ratio: tuple[float, float] | None

    def differs(self, spread: float) -> bool:
        """Whether the ratio is an effect, where two trials of one kernel differ by `spread` anyway."""
        if self.ratio is None or self.same_code:
            return False
        low, high = (self.interval.low, self.interval.high) if self.interval else (self.ratio, self.ratio)
        return low > 1 + spread or high < 1 - spread


@dataclass(frozen=True)
class Ablation:
    """What each parameter of trial `study/number` is worth, the most valuable first, and which stayed and
    why.

    Original and variants are what the template renders today; `same_source`: that is the stored source, too.
    `originals_us` are the original's medians in the order in which they were taken; `spread` is the largest
    deviation of one of them from their median, as a fraction. `estimated`: the emulator's estimates for
    `gpu`."""

    study: str
    number: int
    problem: str
    template: str
    point: Point
    device: str
    gpu: str
    estimated: bool
    originals_us: tuple[float, ...]
    spread: float
    rows: tuple[SwitchResult, ...]
    stayed: tuple[tuple[str, Value, str], ...]
    same_source: bool
    versions: dict[str, str]
    created: str

    @property
    def original_us(self) -> float:
        return float(np.median(self.originals_us))

    def to_record(self) -> dict[str, Any]:
        """As JSON has it; `from_record` reads it."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Ablation:
        rows = tuple(_row_of(row) for row in record["rows"])
        stayed = tuple((name, value, reason) for name, value, reason in record["stayed"])
        return cls(
            **{**record, "rows": rows, "stayed": stayed, "originals_us": tuple(record["originals_us"])}
        )


def _row_of(record: dict[str, Any]) -> SwitchResult:
    interval, expected = record["interval"], record["expected_ratio"]
    return SwitchResult(
        **{
            **record,
            "along": tuple((name, value) for name, value in record["along"]),
            "interval": Interval(**interval) if interval else None,
            "expected_ratio": tuple(expected) if expected else None,
        }
    )


def switches(template: Template, point: Point, limits: Limits, problem: Problem) -> list[Switch]:
    """A switch for each parameter of `point`."""
    return [_switch(template, parameter, point, limits, problem) for parameter in template.space.parameters]


def _switch(
    template: Template, parameter: Parameter, point: Point, limits: Limits, problem: Problem
) -> Switch:
    value, space = point[parameter.name], template.space
    wanted: list[tuple[SwitchKind, Value]] = [("default", parameter.default)]
    if parameter.off is not None:
        wanted.insert(0, ("off", parameter.off))
    if value == wanted[0][1]:
        return Switch(parameter, value, None, reason=f"is {wanted[0][0]}")
    wanted = [(kind, to) for kind, to in wanted if to != value]
    near: list[tuple[SwitchKind, Value]] = [("neighbour", v) for v in parameter.neighbours(value)]
    alone: list[Switch] = [Switch(parameter, value, to, kind) for kind, to in wanted]
    together = [
        replace(switch, along=((other.name, there),))
        for switch in alone
        for other in space.parameters
        for there in _others(other, point[other.name])
        if other.name != parameter.name
    ]
    nearest = [Switch(parameter, value, to, kind) for kind, to in near]
    reason = "has no other value"
    for i, switch in enumerate((*alone, *together, *nearest)):
        why = space.why_not(switch.applied(point), limits, problem)
        if why is None:
            return switch
        reason = f"{switch.to}: {why}" if i == 0 else reason
    return Switch(parameter, value, None, reason=reason)


def _others(parameter: Parameter, value: Value) -> list[Value]:
    """The values that a parameter may take to allow a switch of another one: off, default, its neighbours."""
    wanted = (parameter.off, parameter.default, *parameter.neighbours(value))
    return [v for v in dict.fromkeys(wanted) if v is not None and v != value]


def ablate(
    trial: Trial, spec: EvaluatorSpec, workers: int, notice: Callable[[str], None] = lambda _: None
) -> Ablation:
    """Evaluates every variant. `notice` gets a line for every trial.

    UsageError where the template no longer has the trial's parameters, NothingFound where the original is not
    correct (any more)."""
    candidate = trial.candidate
    template = load_template(load_task(spec.task, spec.folders), candidate.template, spec.folders, spec.gpu)
    try:
        point = template.space.parse(candidate.point)
    except UsageError as error:
        message = f"template {template.name} has changed since {trial.name}: {error.message}"
        raise UsageError(message, "ablate a trial of a newer study") from error
    planned = switches(template, point, spec.limits, candidate.problem)
    moved = [(s, s.to) for s in planned if s.to is not None]
    variants = [template.candidate(s.applied(point), candidate.problem) for s, _ in moved]
    original = template.candidate(point, candidate.problem)
    originals, trials = _trials(original, variants, spec, workers, notice)
    if originals[0].score_us is None:
        first = originals[0]
        raise NothingFound(f"{trial.name} is {first.outcome} now: {first.reason}", first.detail)
    medians = tuple(t.score_us for t in originals if t.score_us is not None)
    centre = float(np.median(medians))
    rows = [
        _worth(switch, to, trial, originals[i : i + 2])
        for i, ((switch, to), trial) in enumerate(zip(moved, trials, strict=True))
    ]
    rows.sort(key=lambda row: -(row.ratio or 0.0))
    return Ablation(
        trial.study,
        trial.number,
        candidate.problem.key,
        candidate.template,
        point,
        originals[0].device,
        spec.gpu.name,
        not spec.on_gpu,
        medians,
        max(abs(us / centre - 1) for us in medians) if spec.on_gpu else ESTIMATE_RESOLUTION,
        tuple(rows),
        tuple((s.parameter.name, s.value, s.reason) for s in planned if s.to is None),
        original.digest == candidate.digest,
        dict(originals[0].versions),
        datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _trials(
    original: Candidate,
    variants: Sequence[Candidate],
    spec: EvaluatorSpec,
    workers: int,
    notice: Callable[[str], None],
) -> tuple[list[Trial], list[Trial]]:
    """The trials of the originals (one before, between and after the variants; on the emulator one for all),
    and of the variants."""
    if not spec.on_gpu:
        first, *others = _run([original, *variants], spec, workers, notice)
        return [first] * (len(variants) + 1), others
    _compile_ahead([original, *variants], spec, workers)
    patient = replace(spec, timing=replace(spec.timing, margin=math.inf, hopeless=math.inf))
    order = [original, *(c for variant in variants for c in (variant, original))]
    trials = _run(order, patient, 1, notice)
    return trials[::2], trials[1::2]


def _compile_ahead(candidates: Sequence[Candidate], spec: EvaluatorSpec, workers: int) -> None:
    """Into the cache, on all cores: the trials themselves run one after the other."""
    precompile = spec.precompiler(workers)
    if precompile is None:
        return
    try:
        with ThreadPoolExecutor(workers) as threads:
            list(threads.map(precompile, candidates))
    finally:
        precompile.close()


def _run(
    candidates: Sequence[Candidate], spec: EvaluatorSpec, workers: int, notice: Callable[[str], None]
) -> list[Trial]:
    """The trials of `candidates`, in their order: with one worker also run in that order."""
    done: dict[int, Trial] = {}
    with Pool(spec, workers) as pool:
        for number, candidate in enumerate(candidates):
            pool.submit(number, candidate)
        while len(done) < len(candidates):
            for number, trial in pool.wait(1.0):
                done[number] = trial
                notice(f"{len(done)} of {len(candidates)}: {trial.outcome} {trial.reason}".rstrip())
    return [done[number] for number in range(len(candidates))]


def _worth(switch: Switch, to: Value, trial: Trial, originals: Sequence[Trial]) -> SwitchResult:
    ratio, interval = _ratio(trial, originals)
    parameter, resources, point = switch.parameter, trial.resources, originals[0].candidate.point
    assert switch.kind is not None
    same = bool(trial.machine_code) and trial.machine_code == originals[0].machine_code
    return SwitchResult(
        parameter.name,
        switch.value,
        to,
        switch.kind,
        tuple((n, v) for n, v in trial.candidate.point.items() if v != point[n] and n != parameter.name),
        str(trial.outcome),
        trial.reason,
        trial.score_us,
        ratio,
        interval,
        same and trial.candidate.launch == originals[0].candidate.launch,
        resources.registers if resources else None,
        resources.spill_bytes if resources else None,
        parameter.expected,
        parameter.worth if switch.kind == "off" else None,
    )


def _ratio(trial: Trial, originals: Sequence[Trial]) -> tuple[float | None, Interval | None]:
    """Time of the variant / time of the originals around it, with the interval of independent bootstraps."""
    around = [t.score_us for t in originals if t.score_us is not None]
    if trial.score_us is None or not around:
        return None, None
    if trial.timing is None:
        return trial.score_us / around[0], None
    timings = [t.timing for t in originals if t.timing]
    rng = np.random.default_rng(0)
    own, others = _resampled([trial.timing], rng), _resampled(timings, rng)
    low, high = np.quantile(own / others, (0.025, 0.975))
    joint = reduce(joined, timings)
    return trial.timing.median_us / joint.median_us, Interval(float(low), float(high))


def _resampled(timings: Sequence[Timing], rng: np.random.Generator) -> NDArray[np.float64]:
    """RESAMPLES bootstrapped times by the ranking of the timings, whose samples are put together."""
    first = timings[0]
    medians = [
        np.median(rng.choice(samples, (RESAMPLES, len(samples))), axis=1)
        for name in counting(first.times, first.ranking)
        for samples in [np.concatenate([t.times[name].samples_us for t in timings if name in t.times])]
    ]
    every = np.array(medians)
    found: NDArray[np.float64] = every.mean(axis=0) if first.ranking == MEAN else every.max(axis=0)
    return found


def verdict(row: SwitchResult, spread: float) -> str:
    """In words: what came of it, and how that compares with what the template expected."""
    if row.ratio is None:
        return f"{row.outcome}: {row.reason}" if row.reason else row.outcome
    if row.same_code:
        return "same machine code"
    if not row.differs(spread):
        found = "no difference"
    else:
        found = f"helps {row.ratio:.2f}x" if row.ratio > 1 else f"hurts {1 / row.ratio:.2f}x"
    return ", ".join((found, *_against_expected(row, spread)))


def _against_expected(row: SwitchResult, spread: float) -> Iterator[str]:
    if row.expected_ratio is None or row.ratio is None:
        return
    low, high = row.expected_ratio
    if row.ratio * (1 + spread) < low:
        yield "less than expected"
    elif row.ratio * (1 - spread) > high:
        yield "more than expected"
    else:
        yield "as expected"
