"""What `evo ablate` shows: a row for each parameter that was switched, the most valuable first."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Console

from evo.explain.ablation import verdict
from evo.report import (
    Column,
    Facts,
    Form,
    Record,
    Table,
    as_json,
    count,
    estimates,
    plain,
    point_text,
    score_text,
)

if TYPE_CHECKING:
    from evo.explain.ablation import Ablation, SwitchResult


def ablation_text(found: Ablation, form: Form, console: Console) -> str:
    """The whole page, or all of it as JSON."""
    if form == "json":
        return as_json(found.to_record())
    return "\n".join(block.render(form, console) for block in (ablation_table(found), _remarks(found)))


def ablation_table(found: Ablation) -> Table:
    """Without what stayed."""
    columns = (
        Column("parameter", lambda r: str(r["name"])),
        Column("switched", _switched),
        Column("time", lambda r: _us(found, r["us"]), right=True),
        Column("worth", lambda r: _ratio(found, r["ratio"]), right=True, wide=True),
        Column("95 % CI", _interval, wide=True),
        Column("regs", lambda r: count(r["registers"]), right=True, wide=True),
        Column("spill", lambda r: count(r["spill_bytes"]), right=True, wide=True),
        Column("finding", lambda r: str(r["verdict"]), folds=True),
        Column("expected", lambda r: str(r["expected"] or "-"), folds=True, wide=True),
    )
    title = f"What each optimisation of {found.study}/{found.number} is worth"
    return Table(title, columns, tuple(_record(row, found.spread) for row in found.rows), "nothing to switch")


def _record(row: SwitchResult, spread: float) -> dict[str, Any]:
    return asdict(row) | {"verdict": verdict(row, spread)}


def _remarks(found: Ablation) -> Facts:
    stayed = [f"{name}={plain(value)} ({reason})" for name, value, reason in found.stayed]
    grain = f"what differs by less than {100 * found.spread:.1f} % is called no difference"
    called = estimates(found.problem, [found.template])
    noise = f"times are {called} for {found.gpu}, a model; {grain}"
    if not found.estimated:
        medians = ", ".join(score_text(us, None) for us in found.originals_us)
        noise = (
            f"the original was timed {len(found.originals_us)} times, between all others: {medians}; {grain}"
        )
    source = "" if found.same_source else "the template renders another source now than the trial's"
    lines = (
        ("kernel", f"{found.template} {_us(found, found.original_us)}"),
        ("point", point_text(found.point)),
        ("problem", found.problem),
        ("device", found.device),
        ("not switched", "; ".join(stayed)),
        ("noise", noise),
        ("note", source),
    )
    return Facts("The kernel", lines)


def _us(found: Ablation, us: float | None) -> str:
    return score_text(None, us) if found.estimated else score_text(us, None)


def _ratio(found: Ablation, ratio: float | None) -> str:
    return "-" if ratio is None else f"{'~' if found.estimated else ''}{ratio:.3f}x"


def _switched(record: Record) -> str:
    along = "".join(f", {name}={plain(value)}" for name, value in record["along"])
    kind = "near" if record["kind"] == "neighbour" else record["kind"]
    return f"{plain(record['value'])} → {plain(record['to'])} ({kind}{along})"


def _interval(record: Record) -> str:
    interval = record["interval"]
    return f"[{interval['low']:.3f}, {interval['high']:.3f}]" if interval else "-"
