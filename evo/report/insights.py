"""What `evo insights` shows: the context, the elites and the insights of a study, as text, Markdown or
JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.console import Console

from evo.report import (
    Column,
    Facts,
    Form,
    Groups,
    Record,
    Table,
    as_json,
    estimates,
    intensity_text,
    microseconds,
    plain,
    point_text,
    score_text,
)
from evo.report.leaderboard import leaderboards
from evo.report.overview import dead_parameters_text

if TYPE_CHECKING:
    from evo.explain.insights import Context, Convergence, Insights, TemplateInsight

SHOWN_STEPS = 12
"""A person sees so many steps of the history: the last ones."""
LEAST_PAIRS = 5
"""No ratio is shown that rests on fewer pairs of trials."""


NO_GROUPS: Groups = {}


def insights_text(
    found: Insights, form: Form, console: Console, templates: int = 1, groups: Groups = NO_GROUPS
) -> str:
    """The whole page. Parameters are shown for the best `templates` templates; JSON has all of them.
    `groups`: the task's baseline groups."""
    if form == "json":
        return as_json(asdict(found))
    parts = []
    for heading, blocks in _sections(found, templates, groups):
        texts = [block.render(form, console) for block in blocks]
        if form == "markdown":
            texts = [f"## {heading}\n", *(_below(heading, block, console) for block in blocks)]
        parts.append("\n".join(texts))
    title = f"{found.study} · {found.context.problem}"
    return (f"# {title}\n\n" if form == "markdown" else "") + "\n".join(parts)


def _below(heading: str, block: Table | Facts, console: Console) -> str:
    """A block in Markdown; its title, too, where the heading does not say it already."""
    if isinstance(block, Table) and not block.title.startswith(heading):
        return block.titled_markdown()
    return block.render("markdown", console)


def _sections(found: Insights, templates: int, groups: Groups) -> Iterator[tuple[str, list[Table | Facts]]]:
    yield "Task and hardware", [_context(found, found.context)]
    if found.elites:
        yield "Best trials", [*leaderboards(found.elites, {found.study: groups})]
    if found.history:
        yield "How the best came about", [_history(found)]
    yield "Templates", [_templates(found)]
    for template in found.templates[:templates]:
        yield f"Parameters of {template.template}", [parameters_table(found, template)]
        if template.interactions:
            yield f"What works together in {template.template}", [_interactions(found, template)]
    if found.failures:
        yield "Why trials failed", [_failures(found)]
    yield "Convergence", [_convergence(found, found.convergence)]


def _us(found: Insights, us: float | None) -> str:
    return score_text(None, us) if found.estimated else score_text(us, None)


def _context(found: Insights, context: Context) -> Facts:
    gpu = context.machine
    limit = f", {gpu.smem_limit // 1024} KB allowed" if gpu.smem_limit != gpu.smem_per_cta else ""
    limit += f"; used as {gpu.instructions}" if gpu.instructions != gpu.arch else ""
    rates = ""
    if gpu.tensor_tflops:
        l2 = f"{gpu.l2_bytes / 2**20:.0f} MB of L2 at {gpu.l2_gbps:,.0f} GB/s"
        rates = f"{l2}, DRAM at {gpu.dram_gbps:,.0f} GB/s, Tensor Cores at {gpu.tensor_tflops:,.0f} TFLOP/s"
    floor = (
        f"{microseconds(context.floor_us)}: no kernel is faster ({context.bound})" if context.floor_us else ""
    )
    baselines = sorted(context.baselines_us.items(), key=lambda item: item[1])
    called = estimates(context.problem, context.needs)
    device = f"times are {called} for {gpu.gpu}" if found.estimated else gpu.gpu
    return Facts(
        f"{found.study} · {context.problem} · {device}",
        (
            (
                "work",
                f"{_count(context.flop)}FLOP, {_count(context.nbytes)}B of compulsory traffic: "
                f"{intensity_text(context.intensity)}",
            ),
            (
                "hardware",
                f"{gpu.arch}, {gpu.sms} SMs, {gpu.smem_per_cta // 1024} KB of shared memory a CTA{limit}",
            ),
            ("rates", rates),
            ("ridge", intensity_text(context.ridge) if context.ridge else ""),
            ("floor", floor),
            ("baselines", ", ".join(f"{name} {microseconds(us)}" for name, us in baselines)),
            ("templates", ", ".join(f"{name} ({needs})" for name, needs in context.needs.items())),
        ),
    )


def _history(found: Insights) -> Table:
    steps = found.history[-SHOWN_STEPS:]
    left = len(found.history) - len(steps)
    columns = (
        Column("trial", lambda r: str(r["number"]), right=True),
        Column("time", lambda r: _us(found, r["us"]), right=True),
        Column("gain", lambda r: f"{r['gain']:.3f}x", right=True),
        Column("template", lambda r: str(r["template"])),
        Column("changed", _changes, folds=True),
    )
    title = "How the best came about" + (
        f" (the last {len(steps)} of {left + len(steps)} steps)" if left else ""
    )
    return Table(title, columns, tuple(asdict(step) for step in steps))


def _changes(record: Record) -> str:
    if not record["changed"]:
        return "another template" if record["gain"] > 1 else "the first"
    return ", ".join(f"{name}: {plain(a)} → {plain(b)}" for name, (a, b) in record["changed"].items())


def _templates(found: Insights) -> Table:
    columns = (
        Column("template", lambda r: str(r["template"])),
        Column("trials", lambda r: str(r["trials"]), right=True),
        Column("correct", lambda r: str(r["correct"]), right=True),
        Column("best", lambda r: _us(found, r["best_us"]), right=True),
        Column("such as", lambda r: "-" if r["best"] is None else f"#{r['best']}", right=True),
        Column(
            "additive R²",
            lambda r: "-" if r["additive_r2"] is None else f"{r['additive_r2']:.2f}",
            right=True,
            wide=True,
        ),
    )
    records = tuple(
        {k: v for k, v in asdict(t).items() if k not in ("parameters", "interactions")}
        for t in found.templates
    )
    return Table("Templates", columns, records)


def parameters_table(found: Insights, template: TemplateInsight) -> Table:
    """What the trials say of each parameter of one template, the most important first."""
    columns = (
        Column("parameter", lambda r: str(r["name"])),
        Column("importance", lambda r: _percent(r["importance"]), right=True),
        Column("explains", lambda r: _percent(r["explained"]), right=True, wide=True),
        Column("best", lambda r: plain(r["best"]["value"]) if r["best"] else "-"),
        Column(
            "trials", lambda r: f"{r['best']['correct']}/{template.correct}" if r["best"] else "-", right=True
        ),
        Column(
            "fastest tenth",
            lambda r: _us(found, r["best"]["decile_us"]) if r["best"] else "-",
            right=True,
            wide=True,
        ),
        Column("alone, in pairs", _pairs),
        Column("values tried (fastest tenth)", lambda r: _values(found, r), folds=True, wide=True),
    )
    return Table(f"Parameters of {template.template}", columns, tuple(asdict(p) for p in template.parameters))


def _pairs(record: Record) -> str:
    """The value that does best where nothing else differs; it need not be the one of the fastest trials."""
    enough = [p for p in record["paired"] if p["pairs"] >= LEAST_PAIRS]
    if not enough:
        return "-"
    top = enough[0]
    return f"{plain(top['value'])}: {top['ratio']:.3f}x, {top['won']}/{top['pairs']}"


def _values(found: Insights, record: Record) -> str:
    return ", ".join(
        f"{plain(v['value'])}: {_us(found, v['decile_us'])} ({v['correct']})" for v in record["values"]
    )


def _interactions(found: Insights, template: TemplateInsight) -> Table:
    columns = (
        Column("parameters", lambda r: " × ".join(r["names"])),
        Column("share", lambda r: _percent(r["share"]), right=True),
        Column("best together", lambda r: point_text(dict(zip(r["names"], r["best"], strict=True)))),
        Column("beyond each", lambda r: f"{r['gain']:.2f}x", right=True, wide=True),
        Column("trials", lambda r: str(r["trials"]), right=True, wide=True),
        Column("fastest", lambda r: _us(found, r["best_us"]), right=True),
    )
    title = f"What works together in {template.template}: share of what a sum of effects leaves"
    return Table(title, columns, tuple(asdict(i) for i in template.interactions))


def _failures(found: Insights) -> Table:
    def likely(r: Record) -> str:
        return f"{r['name']}={plain(r['value'])}: {r['times']:.1f}x as often" if r["times"] else "-"

    columns = (
        Column("outcome", lambda r: str(r["outcome"])),
        Column("trials", lambda r: str(r["count"]), right=True),
        Column("such as", lambda r: f"#{r['example']}", right=True),
        Column("most with", likely),
        Column("reason", lambda r: str(r["reason"]), folds=True),
    )
    return Table("Why trials failed", columns, tuple(asdict(f) for f in found.failures))


def _convergence(found: Insights, convergence: Convergence) -> Facts:
    within = ", ".join(f"within {share} from trial {n} on" for share, n in convergence.within.items())
    gain = convergence.last_gain
    half = (
        "" if gain is None else ("gained nothing" if gain <= 1.0005 else f"made the best {gain:.3f}x as fast")
    )
    return Facts(
        "Convergence",
        (
            ("best", f"{_us(found, convergence.best_us)} in the search, of {convergence.trials} trials"),
            ("came", within),
            ("since", f"{convergence.since} trials without an improvement"),
            ("second half", half),
            (
                "dead",
                "\n".join(dead_parameters_text(found.dead)) or "no parameter is known to change nothing",
            ),
        ),
    )


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"


def _count(number: float) -> str:
    """`537 M`, `2.10 M`."""
    for unit in ("", "k", "M", "G"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:,.3g} T"
