"""One trial's page, and how it ended when it was evaluated again."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from rich.console import Console

from evo.report import (
    STYLES,
    Facts,
    an_estimate,
    counted_text,
    interval_text,
    kernels_text,
    microseconds,
    on_text,
    point_text,
    ratio_text,
    score_text,
    several,
    share_text,
    spread_text,
    three_digits,
)
from evo.report.confirmed import left_out
from evo.trial import Extent, InputTime, LaunchConfig, RankedTime, Resources, Timing, Trial, line_of

if TYPE_CHECKING:  # the store brings SQLAlchemy, which a renderer does not need
    from evo.explain.replay import Replay
    from evo.store import Confirmation, Finalist


def trial_page(stored: Trial, console: Console, verdict: tuple[Confirmation, Finalist] | None = None) -> str:
    """Everything a person asks of one trial, but for its code; `verdict`: what CONFIRMED said of it."""
    title = f"{f'trial {stored.name}' if stored.study else 'one try'} · {stored.outcome}"
    confirmed = _confirmed_facts(*verdict) if verdict else ()
    style = STYLES.get(stored.outcome, "bold")
    return Facts(title, (*_facts(stored), *confirmed), style).render("text", console)


def replay_page(stored: Trial, replay: Replay, console: Console) -> str:
    """How a trial ended when it was evaluated again, beside its first result, and how its source differs
    now."""
    same = (
        "same source and launch"
        if replay.same_source
        else "the template renders another source or launch now"
    )
    same_trial = {name: getattr(stored, name) for name in ("study", "number", "same_as", "id")}
    now = replace(replay.trial, **same_trial)
    then = f"{stored.outcome} {score_text(_median(stored), stored.estimate_us)}"
    page = f"{same}\nthen: {then}\nnow:\n{trial_page(now, console)}"
    return page + "".join(_difference(replay))


def _difference(replay: Replay) -> Iterator[str]:
    """A unified diff of the stored source and the one that is rendered now."""
    then, now = (c.source.splitlines(keepends=True) for c in (replay.stored, replay.rendered))
    yield from difflib.unified_diff(then, now, "stored", "rendered now", n=1)


def replay_record(stored: Trial, replay: Replay) -> dict[str, Any]:
    """The same for a script."""
    return {"same_source": replay.same_source, "then": trial_record(stored), "now": _result(replay.trial)}


def _median(trial: Trial) -> float | None:
    return trial.timing.median_us if trial.timing else None


def trial_record(stored: Trial) -> dict[str, Any]:
    """The same for a script, source and samples included."""
    return {name: getattr(stored, name) for name in _STORED} | _result(stored)


def _result(trial: Trial) -> dict[str, Any]:
    """A trial as an evaluator returns it, without what the store adds."""
    return {name: value for name, value in asdict(trial).items() if name not in _STORED}


_STORED = ("id", "study", "number", "created", "same_as")


def _line_at(trial: Trial) -> str:
    """The text of the line that `where` names. A plain .cu file's lines have the author's numbers, those of
    a .cu.jinja file the numbers of the rendered source."""
    named = re.search(r"([\w.-]+\.cuh?):(\d+)", trial.where)
    source = trial.candidate.source
    line = line_of(source, named[1], int(named[2])) if named else 0
    return f"line {named[2]}: {source.splitlines()[line - 1].strip()}" if named and line else ""


def _facts(trial: Trial) -> Iterator[tuple[str, str]]:
    """The lines of a trial's page: label and text, empty where nothing is to be said."""
    candidate = trial.candidate
    yield "problem", candidate.problem.key
    yield "template", candidate.template
    yield "point", point_text(candidate.point)
    yield "reason", trial.reason
    yield "where", trial.where
    yield "source", _line_at(trial)
    yield "detail", trial.detail
    if trial.same_as is not None:
        yield "same as", f"trial {trial.study}/{trial.same_as}: same machine code, same launch"
    if trial.timing:
        yield from _timing_facts(trial.timing)
    if trial.estimate_us is not None:
        estimate = score_text(None, trial.estimate_us)
        called = an_estimate(candidate.problem.key, candidate.template)
        yield "estimate", f"{estimate} for {trial.estimate_gpu}: {called}, not a measurement"
    if trial.errors:
        worst = max(trial.errors, key=lambda e: e.part_of_limit)
        where = f"{worst.problem}, {worst.family}, seed {worst.seed}"
        margin = f"row error {worst.row_error:.2e} of {worst.limit:.2e} allowed"
        how = "the nearest to its limit" if worst.part_of_limit <= 1 else "beyond its limit"
        compared = several(len(trial.errors), "comparison")
        yield "gate", f"{compared} with the reference; {how}: {where}: {margin}"
    if trial.extent:
        yield from _extent_facts(trial.extent)
    yield "marked", f"reads {' '.join(trial.reads)}: it makes no champion" if trial.reads else ""
    if trial.resources:
        yield from _resource_facts(trial.resources, candidate.launch)
    launch = candidate.launch
    cluster = f", clusters of {_by(launch.cluster)}" if launch.cluster != (1, 1, 1) else ""
    if launch.threads:  # none where the template failed
        together = ", cooperative" if launch.cooperative else ""
        yield "launch", f"grid {_by(launch.grid)}, {launch.threads} threads a CTA{cluster}{together}"
    yield "device", trial.device
    yield "compiler", trial.compiler
    yield "versions", ", ".join(f"{name} {version}" for name, version in trial.versions.items())
    yield "seconds", ", ".join(f"{name} {_seconds(value)}" for name, value in trial.seconds.items())
    yield "counters", _numbers({name: value for name, value in trial.counters.items() if value})
    yield "recorded", trial.created


def _extent_facts(extent: Extent) -> Iterator[tuple[str, str]]:
    """How much of the gate's plan ran."""
    text = (
        f"{extent.run} of {extent.planned} cases ran; the study's own problem: {share_text(extent.own_share)}"
    )
    yield "checked", f"UNPROVEN: {text}" if extent.missed else text
    yield "not checked", "\n".join(extent.left_out)


def _confirmed_facts(found: Confirmation, finalist: Finalist) -> Iterator[tuple[str, str]]:
    """What CONFIRMED found: a time by protocol, or why the trial was refused; and what the baselines ran."""
    if finalist.outcome != "GREEN":
        yield "CONFIRMED", f"refused: {finalist.outcome} {finalist.reason} {finalist.where}".rstrip()
    for protocol, own in finalist.standings.items():
        time = f"{_time_facts(own)}, {protocol} L2"
        yield "CONFIRMED", f"{time}: {own.verdict}" if own.verdict else time
        for on, one in own.times.items() if len(own.times) > 1 else ():
            yield "", f"{_time_facts(one)} on {on}"
    beside = sorted(found.baselines.get("warm", {}).items(), key=lambda item: item[1].median_us)
    yield "beside it", ", ".join(f"{name} {microseconds(s.median_us)}" for name, s in beside)
    for name, ran in found.kernels.items():
        yield f"{name} ran", kernels_text(ran)
    for text in left_out(found):
        yield "not timed", text
    yield "sanitizer", finalist.sanitizer


def _timing_facts(timing: Timing) -> Iterator[tuple[str, str]]:
    yield "time", f"{_time_facts(timing)}, {timing.protocol} L2"
    for on, one in timing.times.items():
        yield f"on {on}", f"{_time_facts(one)}, median of {len(one.samples_us)} samples"
    if not timing.complete:
        yield "timed on", f"{len(timing.times)} of {timing.inputs} inputs: it had lost by then"
    baselines = sorted(timing.baselines_us.items(), key=lambda item: item[1])
    yield "baselines", ", ".join(f"{name} {microseconds(us)}" for name, us in baselines)
    yield "clocks", _numbers(timing.clocks)


def _time_facts(time: RankedTime | InputTime) -> str:
    """`5.46 µs, 95% CI [5.41, 5.51], worst of normal, sharp (data-dependent 3.41 to 5.46), 1.66x cudnn`."""
    text = f"{microseconds(time.median_us)}, {time.interval.level:.0%} CI "
    text += interval_text(time.interval.low, time.interval.high)
    on = ""
    if isinstance(time, RankedTime) and time.times:
        on = on_text(time.on, len(time.times))
        mark = spread_text({name: asdict(one) for name, one in time.times.items()})
        text += f", {counted_text(time.ranking, list(time.times))}" + (f" ({mark})" if mark else "")
    if time.speedup is not None:
        ratio = time.speedup_interval
        speedup = ratio_text(time.speedup, ratio.low if ratio else None, ratio.high if ratio else None)
        text += f", {speedup} {time.versus}".rstrip() + on
    return text


def _resource_facts(resources: Resources, launch: LaunchConfig) -> Iterator[tuple[str, str]]:
    smem = (resources.static_smem_bytes + launch.smem_bytes) / 1024
    spilled = f"{resources.spill_bytes} bytes spilled, {resources.stack_bytes} bytes of stack"
    yield "resources", f"{resources.registers} registers, {spilled}, {smem:.1f} KB of shared memory"
    yield "warnings", "\n".join(resources.warnings)


def _by(sides: Sequence[int]) -> str:
    """`8x4`, `1`: sides without trailing ones."""
    count = max((i for i, side in enumerate(sides, 1) if side > 1), default=1)
    return "x".join(str(side) for side in sides[:count])


def _seconds(value: float) -> str:
    return three_digits(value) if value >= 0.001 else "0"


def _numbers(named: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:,.6g}" for name, value in named.items())
