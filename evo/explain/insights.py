"""What a study's trials say together: EvoEngineer's three kinds of information in one value.

"EvoEngineer" (arXiv 2510.03760) steers a search by I1, the task and the hardware; I2, the best candidates so
far and how they came about; and I3, insights drawn from all trials. Here I3 is computed: which parameters
matter, which of their values are best and on how many trials that rests, which of them work only together,
why trials fail, what changes nothing, and whether more searching is likely to help.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from evo.explain.effects import (
    LEAST_MODEL_TRIALS,
    AdditiveModel,
    Interaction,
    PairedEffect,
    ScoredTrial,
    by_value,
    paired_effects,
)
from evo.gpu import Roof
from evo.loop import DeadParameter, dead_parameters
from evo.space import Parameter
from evo.store import Failure, LeaderboardRow, TrialRow
from evo.strategy.importance import importances
from evo.study import Setup
from evo.template import Template
from evo.trial import Point, Value

LEAST_SUPPORT = 5
"""A value with fewer trials is not called the best one (unless all values have fewer)."""
MOST_INTERACTIONS = 5
"""At most so many interactions of a template are listed."""
LEAST_FREQUENCY_RATIO = 2.0
"""A value is named for a kind of failure if it is so many times as frequent there as among all trials."""


@dataclass(frozen=True)
class Machine:
    """The hardware, as far as it decides what can be fast: of the GPU that the study ran on, or stood for.
    `instructions` and `smem_limit` are what templates were allowed of it."""

    gpu: str
    arch: str
    instructions: str
    sms: int
    smem_per_cta: int
    smem_limit: int
    clock_ghz: float
    dram_gbps: float
    l2_gbps: float
    l2_bytes: int
    tensor_tflops: float


@dataclass(frozen=True)
class Context:
    """I1: the task, and what the hardware allows. `intensity` in FLOP a byte of compulsory traffic; `ridge`,
    the intensity from which on arithmetic is the bound; `floor_us`, what no kernel can be faster than (0:
    unknown); `bound` by what."""

    problem: str
    flop: int
    nbytes: int
    intensity: float
    ridge: float
    floor_us: float
    bound: str
    baselines_us: Mapping[str, float]
    machine: Machine
    needs: Mapping[str, str]
    """The instruction set of each template."""


@dataclass(frozen=True)
class Improvement:
    """I2: a trial that was faster than all before it. `changed`: the values that differ from the best before,
    as `name: from -> to`; empty where the template is another."""

    number: int
    template: str
    us: float
    gain: float
    """Time of the best before / time of this one."""
    changed: Mapping[str, tuple[Value, Value]]


@dataclass(frozen=True)
class ValueSupport:
    """One value of a parameter: how often it was tried, how often right, its best time and the median of its
    fastest tenth, in µs."""

    value: Value
    tried: int
    correct: int
    best_us: float | None
    decile_us: float | None


@dataclass(frozen=True)
class ParameterInsight:
    """What the trials say of one parameter. `importance`: PED-ANOVA's share for being among the best tenth;
    `explained`: the share of the variance of log time that only it explains; None where trials are too few.
    `best` by the fastest tenth of the values with enough trials; `paired`: the best value against others
    where nothing else differs."""

    name: str
    meaning: str
    expected: str
    importance: float | None
    explained: float | None
    best: ValueSupport | None
    values: tuple[ValueSupport, ...]
    paired: tuple[PairedEffect, ...]


@dataclass(frozen=True)
class FailureInsight:
    """Why trials failed, and the parameter value that is most over-represented among them: `times` as
    frequent as among all trials of the template (None: no value stands out)."""

    outcome: str
    reason: str
    count: int
    example: int
    name: str = ""
    value: Value | None = None
    times: float | None = None


@dataclass(frozen=True)
class TemplateInsight:
    """One template: its trials, its best, and its parameters, the most important first. `additive_r2`: how
    much of the variance of log time a sum over parameters explains: near 1, nothing but the parameters by
    themselves matters."""

    template: str
    trials: int
    correct: int
    best_us: float | None
    best: int | None
    parameters: tuple[ParameterInsight, ...]
    additive_r2: float | None
    interactions: tuple[Interaction, ...]


@dataclass(frozen=True)
class Convergence:
    """How the best time fell. `within`: from which trial on the best was within 10, 5, 1 % of the final one;
    `since`: trials after the last improvement; `last_gain`: what the second half of all trials gained."""

    trials: int
    best_us: float | None
    within: Mapping[str, int]
    since: int
    last_gain: float | None


@dataclass(frozen=True)
class Insights:
    """I1, I2 and I3 of a study. Times are `estimated`, by the emulator for `machine.gpu`, or measured."""

    study: str
    device: str
    estimated: bool
    context: Context
    elites: tuple[LeaderboardRow, ...]
    history: tuple[Improvement, ...]
    templates: tuple[TemplateInsight, ...]
    failures: tuple[FailureInsight, ...]
    dead: tuple[DeadParameter, ...]
    convergence: Convergence


def insights(
    setup: Setup,
    rows: Sequence[TrialRow],
    elites: Sequence[LeaderboardRow],
    failures: Sequence[Failure],
) -> Insights:
    """What `rows`, the trials of the study, say together. The setup's templates are as they are now; they may
    have changed since the trials, so only their words are used."""
    study = setup.study
    known = {t.name: t for t in setup.templates}
    measured = [row for row in rows if row.score_us is not None]
    order = sorted({r.template for r in rows}, key=lambda name: _best_of(rows, name))
    return Insights(
        study.name,
        study.device,
        all(row.median_us is None for row in measured),
        _context(setup),
        tuple(elites),
        tuple(_history(measured)),
        tuple(_template(name, [r for r in rows if r.template == name], known.get(name)) for name in order),
        tuple(_failure(failure, rows) for failure in failures),
        tuple(dead_parameters(rows)),
        _convergence(rows),
    )


# ------------------------------------------------------------------------------------- I1: task and hardware


def _context(setup: Setup) -> Context:
    gpu, problem = setup.gpu, setup.study.problem
    flop, nbytes = setup.task.flop(problem), setup.task.nbytes(problem)
    roof = Roof.over(gpu, flop, nbytes)
    return Context(
        problem=problem.key,
        flop=flop,
        nbytes=nbytes,
        intensity=roof.intensity,
        ridge=roof.ridge,
        floor_us=roof.floor_us,
        bound=roof.bound,
        baselines_us=setup.study.baselines_us,
        machine=Machine(
            gpu=gpu.name,
            arch=gpu.arch,
            instructions=setup.limits.instructions,
            sms=gpu.sms,
            smem_per_cta=gpu.smem_per_cta,
            smem_limit=setup.limits.smem_bytes,
            clock_ghz=gpu.clock_ghz,
            dram_gbps=gpu.dram_gbps,
            l2_gbps=gpu.l2_gbps,
            l2_bytes=gpu.l2_bytes,
            tensor_tflops=gpu.tensor_tflops,
        ),
        needs={t.name: t.needs for t in setup.templates},
    )


# -------------------------------------------------------------------------------- I2: the elite history


def _history(measured: Sequence[TrialRow]) -> list[Improvement]:
    steps: list[Improvement] = []
    best: TrialRow | None = None
    for row in measured:
        us = row.score_us or 0.0
        if best is None or us < (best.score_us or 0.0):
            gain = 1.0 if best is None else (best.score_us or 0.0) / us
            steps.append(Improvement(row.number, row.template, us, gain, _changed(best, row)))
            best = row
    return steps


def _changed(before: TrialRow | None, row: TrialRow) -> dict[str, tuple[Value, Value]]:
    if before is None or before.template != row.template:
        return {}
    return {
        name: (before.point[name], value)
        for name, value in row.point.items()
        if name in before.point and before.point[name] != value
    }


def _convergence(rows: Sequence[TrialRow]) -> Convergence:
    scored = [(row.number, row.score_us) for row in rows if row.score_us is not None]
    if not scored:
        return Convergence(len(rows), None, {}, len(rows), None)
    final = min(us for _, us in scored)
    within = {
        f"{percent} %": next(n for n, us in scored if us <= final * (1 + percent / 100))
        for percent in (10, 5, 1)
    }
    last = next(n for n, us in scored if us == final)
    half = rows[len(rows) // 2].number
    early = min((us for n, us in scored if n < half), default=None)
    since = sum(row.number > last for row in rows)
    return Convergence(len(rows), final, within, since, None if early is None else early / final)


# -------------------------------------------------------------------------------------------- I3: insights


def _best_of(rows: Sequence[TrialRow], template: str) -> float:
    return min((r.score_us for r in rows if r.template == template and r.score_us), default=float("inf"))


def _template(name: str, rows: Sequence[TrialRow], template: Template | None) -> TemplateInsight:
    trials = [ScoredTrial(r.number, r.point, r.score_us) for r in rows if r.score_us is not None]
    best = min(trials, key=lambda t: t.us, default=None)
    model = AdditiveModel(trials) if len(trials) >= LEAST_MODEL_TRIALS else None
    words = {p.name: p for p in template.space.parameters} if template else {}
    shares = importances([t.point for t in trials], [t.us for t in trials]) if trials else {}
    explained = model.explained() if model else {}
    paired = paired_effects(trials)
    found = [
        replace(
            _parameter(parameter, rows, trials, words.get(parameter)),
            importance=shares.get(parameter),
            explained=explained.get(parameter),
            paired=tuple(paired.get(parameter, ())),
        )
        for parameter in rows[0].point
    ]
    found.sort(key=lambda p: (-(p.importance or 0.0), -(p.explained or 0.0)))
    return TemplateInsight(
        name,
        len(rows),
        len(trials),
        best.us if best else None,
        best.number if best else None,
        tuple(found),
        model.r2 if model else None,
        tuple(model.interactions()[:MOST_INTERACTIONS]) if model else (),
    )


def _parameter(
    name: str, rows: Sequence[TrialRow], trials: Sequence[ScoredTrial], words: Parameter | None
) -> ParameterInsight:
    """What the values of one parameter say by themselves."""
    groups = by_value(trials, name)
    counts = Counter((type(r.point[name]).__name__, r.point[name]) for r in rows)
    values = [_support(value, counts[kind, value], groups.get((kind, value), [])) for kind, value in counts]
    right = [v for v in values if v.decile_us is not None]
    enough = [v for v in right if v.correct >= LEAST_SUPPORT] or right
    best = min(enough, key=lambda v: v.decile_us or 0.0, default=None)
    return ParameterInsight(
        name,
        words.meaning if words else "",
        words.expected if words else "",
        None,
        None,
        best,
        tuple(sorted(values, key=lambda v: v.decile_us or float("inf"))),
        (),
    )


def _support(value: Value, tried: int, correct: Sequence[ScoredTrial]) -> ValueSupport:
    times = sorted(t.us for t in correct)
    fastest = times[: max(1, len(times) // 10)]
    return ValueSupport(
        value, tried, len(times), times[0] if times else None, median(fastest) if times else None
    )


def _failure(failure: Failure, rows: Sequence[TrialRow]) -> FailureInsight:
    """`failure`, and the value that its trials have more often than others of their template."""
    mine = [r for r in rows if str(r.outcome) == failure.outcome and r.reason == failure.reason]
    plain = FailureInsight(failure.outcome, failure.reason, failure.count, failure.example)
    if len(mine) < LEAST_SUPPORT:
        return plain
    template = Counter(r.template for r in mine).most_common(1)[0][0]
    mine, others = ([r for r in some if r.template == template] for some in (mine, rows))
    among, overall = (Counter(item for r in some for item in _items(r.point)) for some in (mine, others))

    def times(item: tuple[str, str, Value]) -> float:
        return (among[item] / len(mine)) / (overall[item] / len(others))

    likely = [
        i
        for i in among
        if among[i] >= max(LEAST_SUPPORT, len(mine) / 2) and times(i) >= LEAST_FREQUENCY_RATIO
    ]
    if not likely:
        return plain
    top = max(likely, key=times)
    return FailureInsight(
        failure.outcome, failure.reason, failure.count, failure.example, top[0], top[2], times(top)
    )


def _items(point: Point) -> list[tuple[str, str, Value]]:
    return [(name, type(value).__name__, value) for name, value in point.items()]
