"""`evo report`: one HTML page about one study. It needs no network, no script and no colour, and can be
printed.

The page is made of f-strings and `html.escape`; the charts are made by `evo.report.svg`. No template engine
is used (only evo/template imports Jinja, for CUDA) and no chart library (4 MB of script in every page, and no
chart without script)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from typing import TYPE_CHECKING

from evo.report import Facts, Groups, Table, estimates, plain, point_text, score_text, several, spread_text
from evo.report.ablation import ablation_table
from evo.report.insights import parameters_table
from evo.report.leaderboard import leaderboards
from evo.report.overview import failures_table
from evo.report.profile import conflicts_table, roofline_text
from evo.report.svg import (
    Mark,
    bar_chart,
    convergence_chart,
    interval_chart,
    parallel_chart,
    roofline_chart,
)
from evo.version import __version__

if TYPE_CHECKING:
    from evo.explain.ablation import Ablation
    from evo.explain.insights import Insights, TemplateInsight
    from evo.explain.profiling import Profile
    from evo.store import Failure, LeaderboardRow, TrialRow
    from evo.study import Study
    from evo.trial import Trial

PARALLEL_LINES = 400
"""The parallel coordinates have at most so many lines: the fastest ones, and the others evenly from the
rest."""
CONVERGENCE_DOTS = 3000
"""The convergence has at most so many dots."""
BESIDE_COLUMNS = 9
"""In a table with more columns than this, a long last one stands below its row."""
NEAR = 1.05
"""Estimates up to so many times the lowest are called equal: in a template whose kernels are nearly equal,
none of the ten fastest was among the ten lowest estimates (docs/emulator.md)."""
BOLD_SHARE = 0.05
"""So large a part of the lines, the fastest ones, is drawn bold."""

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""A browser lets the page load nothing at all."""

STYLE = """
:root { color-scheme: light dark; --text: #111; --page: #fff; --clear: #fff0; --dim: #444; --line: #999;
  --grid: #ddd; --dot: #888; --thread: #bbb; --ours: #0b3d91; --code: #f6f6f6; --stripe: #0000000b;
  --shade: #0006 }
@media screen and (prefers-color-scheme: dark) {
  :root { --text: #e6e6e6; --page: #16181c; --clear: #16181c00; --dim: #b4b8be; --line: #6c727a;
    --grid: #33373d; --dot: #868c94; --thread: #5a6068; --ours: #7db4ff; --code: #20242a; --stripe: #ffffff12;
    --shade: #fff5 }
}
body { font: 15px/1.45 system-ui, "DejaVu Sans", sans-serif; color: var(--text); background: var(--page);
  max-width: 980px; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem; margin-bottom: .2rem }
h2 { font-size: 1.15rem; margin: 2rem 0 .4rem; border-bottom: 1px solid var(--line); padding-bottom: .2rem }
p, dl { margin: .4rem 0 }
.note { color: var(--dim) }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem }
dt { color: var(--dim) }
dd { margin: 0; overflow-wrap: anywhere }
h1, p { overflow-wrap: anywhere }
.scroll { overflow-x: auto; scrollbar-width: thin; background:
  linear-gradient(to right, var(--page) 40%, var(--clear)) 0 0 / 3rem 100% no-repeat local,
  linear-gradient(to left, var(--page) 40%, var(--clear)) 100% 0 / 3rem 100% no-repeat local,
  linear-gradient(to right, var(--shade), #0000) 0 0 / .8rem 100% no-repeat scroll,
  linear-gradient(to left, var(--shade), #0000) 100% 0 / .8rem 100% no-repeat scroll }
table { border-collapse: collapse; font-size: 12.5px; font-variant-numeric: tabular-nums }
th { text-align: left; font-weight: 600; border-bottom: 1px solid var(--dim) }
th, td { padding: .15rem .6rem .15rem 0; vertical-align: top; white-space: nowrap }
td.r, th.r { text-align: right }
td.f { white-space: normal; min-width: 8rem }
@media (max-width: 700px) { td.f { min-width: 32rem } }
tr:nth-child(even) td, .two tbody:nth-of-type(even) td { background: var(--stripe) }
.two tbody:nth-of-type(odd) td { background: none }
svg { width: 100%; min-width: 760px; height: auto; display: block; margin: .5rem 0 }
svg text { font-size: 12px; fill: var(--text) }
svg .tick { font-size: 11px; fill: var(--dim) }
svg .halo { paint-order: stroke; stroke: var(--page); stroke-width: 3px }
.axis { stroke: var(--dim); stroke-width: 1; fill: none }
.grid { stroke: var(--grid); stroke-width: 1 }
.dot { fill: var(--dot) }
.line { fill: none; stroke: var(--ours); stroke-width: 2 }
.mark { stroke: var(--dim); stroke-width: 1.2; stroke-dasharray: 6 4 }
.bar { fill: var(--ours) }
.whisker { stroke: var(--text); stroke-width: 2 }
.point { fill: var(--ours) }
.hollow { fill: var(--page); stroke: var(--text); stroke-width: 1.5 }
.roof { fill: none; stroke: var(--text); stroke-width: 2 }
.thread { fill: none; stroke: var(--thread); stroke-width: .6; stroke-opacity: .7 }
.chosen { fill: none; stroke: var(--ours); stroke-width: 1.8 }
pre { font-size: 12px; background: var(--code); border: 1px solid var(--line); padding: .7rem;
  overflow-x: auto }
summary { cursor: pointer }
@media print {
  body { margin: 0; max-width: none }
  pre { white-space: pre-wrap }
  h2 { break-after: avoid }
  svg, tr { break-inside: avoid }
  svg { min-width: 0 }
}
"""


@dataclass(frozen=True)
class StudyReport:
    """All that a page is made of."""

    study: Study
    rows: Sequence[TrialRow]
    insights: Insights
    ranked: Sequence[LeaderboardRow]
    failures: Sequence[Failure]
    winner: Trial | None
    ablations: Sequence[Ablation]
    profiles: Sequence[Profile]
    groups: Groups = field(default_factory=dict)
    """The task's baseline groups."""


def report_page(found: StudyReport) -> str:
    """The whole page as HTML."""
    title = f"{found.study.name} · {found.study.problem.key}"
    parts = _sections(found)
    sections = "".join(f"<section><h2>{escape(h)}</h2>{body}</section>\n" for h, body in parts)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f'<link rel="icon" href="data:,"><title>{escape(title)}</title><style>{STYLE}</style></head>\n'
        f"<body><h1>{escape(found.study.name)}</h1>{_head(found)}\n{sections}</body></html>\n"
    )


def _sections(found: StudyReport) -> Iterator[tuple[str, str]]:
    best = found.insights.templates[0] if found.insights.templates else None
    if found.ranked:
        tables = leaderboards(found.ranked, {found.study.name: found.groups})
        yield "The best kernels", _near_equals(found) + "".join(_table(t, titled=True) for t in tables)
        yield "Convergence", _convergence(found)
    if found.failures or found.rows:
        yield "How trials ended", _outcomes(found)
    if best is not None and best.best is not None:
        yield f"What matters in {best.template}", _importance(found, best)
        yield f"All points of {best.template}", _parallel(found, best)
    if roofline := _roofline(found):
        yield "Roofline", roofline
    for ablation in found.ablations:
        yield f"What each optimisation of trial {ablation.number} is worth", _ablation(ablation)
    for profile in found.profiles:
        yield f"What limits trial {profile.number}", _profile(profile)
    if found.winner is not None:
        yield "The winning source", _source(found.winner, found.ranked[0])


# --------------------------------------------------------------------------------------------- the sections


def _head(found: StudyReport) -> str:
    study, insights = found.study, found.insights
    device = (
        f"emulator; times are {estimates(study.problem.key, study.templates)} for {study.gpu}"
        if insights.estimated
        else insights.context.machine.gpu
    )
    spent = f"{study.spent_s:.0f} s of {study.budget_s:.0f} s"
    facts = Facts(
        "",
        (
            ("problem", study.problem.key),
            ("device", device),
            ("trials", f"{len(found.rows)}, {sum(row.outcome.correct for row in found.rows)} correct"),
            ("search", f"{study.strategy}, seed {study.seed}, {spent}, {study.status}"),
            ("baselines", ", ".join(f"{n} {us:.3g} µs" for n, us in _baselines(found))),
            ("versions", ", ".join(f"{n} {v}" for n, v in _versions(found))),
            ("made", f"from a study of {study.created[:19].replace('T', ' ')} UTC, by evo {__version__}"),
        ),
    )
    return _facts(facts)


def _baselines(found: StudyReport) -> list[tuple[str, float]]:
    return sorted(found.study.baselines_us.items(), key=lambda item: item[1])


def _versions(found: StudyReport) -> list[tuple[str, str]]:
    if found.winner is None:
        return list(found.study.versions.items())
    return [*found.winner.versions.items(), ("compiler", found.winner.compiler)]


def _near_equals(found: StudyReport) -> str:
    """A sentence where several kernels have nearly the lowest estimate."""
    times = [row.estimate_us for row in found.rows if row.estimate_us is not None]
    if not found.insights.estimated or not times:
        return ""
    near = sum(us <= min(times) * NEAR for us in times)
    if near < 2:
        return ""
    words = (
        f"{near} of {len(times)} correct kernels are estimated within {100 * (NEAR - 1):.0f} % of the best. "
        "The estimate cannot tell these apart: on a GPU any of them may be the fastest, so time them there."
    )
    return f'<p class="note">{words}</p>'


def _convergence(found: StudyReport) -> str:
    trials = [(row.number, row.score_us) for row in found.rows if row.score_us is not None]
    step = max(1, len(trials) // CONVERGENCE_DOTS)
    best = {step.number for step in found.insights.history}
    shown = [t for i, t in enumerate(trials) if i % step == 0 or t[0] in best]
    marks = [Mark(name, us) for name, us in _baselines(found)]
    unit = f"µs, estimated for {found.study.gpu}" if found.insights.estimated else "µs"
    c = found.insights.convergence
    within = ", ".join(f"within {share} from trial {n} on" for share, n in c.within.items())
    since = f" The last {several(c.since, 'trial')} found nothing faster." if c.since else ""
    words = f"The best kernel so far was near the final one: {within}.{since}"
    chart = convergence_chart(shown, marks, unit, estimated=found.insights.estimated)
    return f"<p>{escape(words)}</p>{chart}"


def _outcomes(found: StudyReport) -> str:
    counts: dict[str, int] = {}
    for row in found.rows:
        label = str(row.outcome) if row.outcome.correct else f"{row.outcome}: {row.reason}"
        counts[label] = counts.get(label, 0) + 1
    total = len(found.rows)
    bars = [
        (label, float(n), f"{n} ({100 * n / total:.0f} %)")
        for label, n in sorted(counts.items(), key=lambda item: -item[1])[:20]
    ]
    table = _table(failures_table(found.failures)) if found.failures else "<p>No trial failed.</p>"
    return bar_chart(bars, "Trials by outcome and reason", 320) + table


def _importance(found: StudyReport, best: TemplateInsight) -> str:
    known = [(p.name, p.importance or 0.0) for p in best.parameters if p.importance is not None]
    bars = [(name, share, f"{100 * share:.0f} %") for name, share in known]
    words = (
        "Bars: what sets the best tenth of the trials apart (PED-ANOVA). Table: how much of the variance of "
        "log time a parameter alone explains; its best value, and the trials that this rests on; what a "
        "value does in pairs of trials that differ in nothing else (time with another / time with it, pairs "
        "won)."
    )
    chart = bar_chart(bars, "Importance of each parameter") or "<p>Importance needs 50 trials.</p>"
    return f'<p class="note">{words}</p>{chart}{_table(parameters_table(found.insights, best))}'


def _parallel(found: StudyReport, best: TemplateInsight) -> str:
    rows = sorted(
        (r for r in found.rows if r.template == best.template and r.score_us is not None),
        key=lambda r: r.score_us or 0.0,
    )
    names = [p.name for p in best.parameters if len(p.values) > 1]
    axes = []
    for parameter in (p for p in best.parameters if p.name in names):
        values = [v.value for v in parameter.values]
        numeric = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)
        ordered = sorted(values, key=float) if numeric else sorted(values, key=str)
        axes.append((parameter.name, [plain(v) for v in ordered]))
    bold = max(1, round(BOLD_SHARE * len(rows)))
    rest = rows[bold:]
    step = max(1, len(rest) // max(1, PARALLEL_LINES - bold))
    shown = rows[:bold] + rest[::step]
    lines = [
        ([labels.index(plain(row.point[name])) for name, labels in axes], row.score_us or 0.0)
        for row in shown
    ]
    words = f"Each line is a correct trial; bold: the fastest {bold} of {len(rows)}; {len(shown)} are drawn."
    unit = "~µs" if found.insights.estimated else "µs"
    return f'<p class="note">{words}</p>{parallel_chart(axes, lines, unit, bold)}'


def _roofline(found: StudyReport) -> str:
    context, machine = found.insights.context, found.insights.context.machine
    best_us = found.insights.convergence.best_us
    if best_us is None or not machine.tensor_tflops:
        return ""
    label = "~best" if found.insights.estimated else "best"
    named = [(label, best_us), *_baselines(found)]
    first = found.ranked[0] if found.ranked else None
    if first is not None and first.kind == "confirmed" and first.median_us is not None:
        beside = sorted(first.baselines_us.items(), key=lambda item: item[1])
        named = [(f"{label}, CONFIRMED", first.median_us), *beside]
    points = [(name, context.intensity, context.flop / us / 1e6) for name, us in named]
    chart = roofline_chart(points, {"L2": machine.l2_gbps, "DRAM": machine.dram_gbps}, machine.tensor_tflops)
    words = (
        f"Work of the definition over the time; compulsory traffic {context.nbytes / 1e6:.3g} MB. "
        f"No kernel is faster than {context.floor_us:.3g} µs ({context.bound}). Filled: the best trial; "
        "hollow: baselines."
    )
    return f'<p class="note">{escape(words)}</p>{chart}'


def _ablation(found: Ablation) -> str:
    rows = [
        (
            f"{r.name}: {plain(r.value)} → {plain(r.to)}",
            r.ratio,
            r.interval.low if r.interval else r.ratio,
            r.interval.high if r.interval else r.ratio,
        )
        for r in found.rows
        if r.ratio is not None
    ]
    called = estimates(found.problem, [found.template])
    where = f"{called} for {found.gpu}" if found.estimated else f"measured on {found.device}, 95 % intervals"
    words = f"Time without / time with, {where}: right of the dashed line the optimisation helps."
    chart = interval_chart(rows, 1.0, "What each optimisation is worth")
    return f'<p class="note">{escape(words)}</p>{chart}{_table(ablation_table(found))}'


def _profile(found: Profile) -> str:
    seen = "of its peak" if found.kind == "measured" else "of the longest pipe (a model)"
    bars = [(name, percent, f"{percent:.0f} % {seen}") for name, percent in found.units.items()]
    facts = Facts(
        "",
        (
            ("verdict", found.verdict),
            ("evidence", "; ".join(found.evidence)),
            ("roofline", roofline_text(found.roofline) if found.roofline else ""),
            ("no counters", found.absent),
        ),
    )
    conflicts = _table(conflicts_table(found), titled=True) if found.conflicts else ""
    return _facts(facts) + bar_chart(bars, "How busy each unit is") + conflicts


def _source(winner: Trial, row: LeaderboardRow) -> str:
    time = score_text(row.median_us, row.estimate_us) + (" CONFIRMED" if row.kind == "confirmed" else "")
    point = point_text(winner.candidate.point)
    if mark := spread_text({on: asdict(one) for on, one in row.times.items()}):
        time += f" ({mark})"
    words = f"Trial {winner.name}, {time}: {point}. It compiles by itself."
    source = escape(winner.candidate.source)
    lines = winner.candidate.source.count("\n")
    summary = f"<summary>{lines} lines of CUDA</summary>"
    return f"<p>{escape(words)}</p><details>{summary}<pre>{source}</pre></details>"


# ----------------------------------------------------------------------------------------- tables and facts


def _table(table: Table, titled: bool = False) -> str:
    """The columns that a wide terminal shows; of many, a last one that folds stands below its row."""
    if not table.records:
        return f"<p>{escape(table.empty)}</p>"
    columns = table.columns
    below = columns[-1] if len(columns) > BESIDE_COLUMNS and columns[-1].folds else None
    shown = columns[:-1] if below else columns
    kinds = ["r" if column.right else "f" if column.folds else "" for column in shown]
    head = "".join(
        f'<th class="{kind}">{escape(column.heading)}</th>' for kind, column in zip(kinds, shown, strict=True)
    )
    rows = []
    for record in table.records:
        cells = "".join(
            f'<td class="{kind}">{escape(column.cell(record))}</td>'
            for kind, column in zip(kinds, shown, strict=True)
        )
        rows.append(f"<tr>{cells}</tr>")
        if below:
            words = f'<td class="f" colspan="{len(shown)}">{escape(below.cell(record))}</td>'
            rows[-1] = f"<tbody>{rows[-1]}<tr>{words}</tr></tbody>"
    title = f"<p>{escape(table.title)}</p>" if titled and table.title else ""
    body = "".join(rows) if below else f"<tbody>{''.join(rows)}</tbody>"
    two = ' class="two"' if below else ""
    head = f"<thead><tr>{head}</tr></thead>"
    return f'{title}<div class="scroll" tabindex="0"><table{two}>{head}{body}</table></div>'


def _facts(facts: Facts) -> str:
    lines = "".join(f"<dt>{escape(label)}</dt><dd>{escape(text)}</dd>" for label, text in facts.lines if text)
    return f"<dl>{lines}</dl>"
