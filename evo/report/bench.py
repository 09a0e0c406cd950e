"""What `evo bench` shows: a table over shapes, the same for a script, and a plot as SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from html import escape
from statistics import fmean
from typing import TYPE_CHECKING, Any

from evo.report import (
    Column,
    Record,
    Table,
    counted_text,
    kernels_text,
    microseconds,
    on_text,
    ratio_text,
    spread_text,
    three_digits,
)
from evo.report.confirmed import kernels_table
from evo.trial import Standing

if TYPE_CHECKING:
    from evo.confirm.bench import Sheet

BAR_HEIGHT, SHAPE_GAP, NAME_WIDTH, BAR_WIDTH = 14, 18, 250, 460
"""The plot's measures in pixels; a bar has at most BAR_WIDTH."""


def bench_tables(sheets: Sequence[Sheet]) -> list[Table]:
    """The times over shapes, and which kernels the baselines ran."""
    ran: dict[tuple[str, str], list[str]] = {}
    for sheet in sheets:
        for name, names in sheet.kernels.items():
            ran.setdefault((name, kernels_text(names)), []).append(_shape(sheet))
    everywhere = len(sheets)
    records = [
        {"name": name, "runs": text, "shapes": "" if len(shapes) == everywhere else "; ".join(shapes)}
        for (name, text), shapes in sorted(ran.items(), key=lambda item: item[0][0])
    ]
    return [bench_table(sheets), *([kernels_table(records)] if records else [])]


def bench_table(sheets: Sequence[Sheet]) -> Table:
    """A row for each entrant on each shape, beside every baseline; the fastest baselines first."""
    slowness: dict[str, list[float]] = {}
    for sheet in sheets:
        for name, s in sheet.baselines.items():
            slowness.setdefault(name, []).append(s.median_us / _best(sheet))
    names = sorted(slowness, key=lambda name: fmean(slowness[name]))
    columns = [
        Column("shape", lambda r: str(r["shape"])),
        Column("kernel", lambda r: str(r["kernel"])),
        Column("time", lambda r: _time(r["us"]), right=True),
        Column("vs best baseline", lambda r: str(r["versus"])),
        *(Column(name, _cell(name), right=True, wide=True) for name in names),
    ]
    records = [record for sheet in sheets for record in _records(sheet)]
    if any(record["inputs"] for record in records):
        columns.append(Column("inputs", lambda r: str(r["inputs"]), folds=True))
    title = f"{sheets[0].device if sheets else ''} · µs, warm L2{_counted(sheets)}"
    return Table(f"{title}; a baseline's time / ours in brackets", tuple(columns), tuple(records))


def _counted(sheets: Sequence[Sheet]) -> str:
    """Which time counts, where that is the same for all."""
    said = {
        counted_text(standing.ranking, list(standing.times))
        for sheet in sheets
        for standing in sheet.standings.values()
    }
    return f", {said.pop()}" if len(said) == 1 else ""


def origin_lines(sheets: Sequence[Sheet]) -> list[str]:
    """Where each entrant comes from."""
    return [
        f"{_shape(s)}: {name} is {origin}" for s in sheets for name, origin in s.origins.items() if origin
    ]


def absent_lines(sheets: Sequence[Sheet]) -> list[str]:
    """The entrants and baselines that could not take part, and why."""
    return [f"{_shape(s)}: {name} took no part: {why}" for s in sheets for name, why in s.absent.items()]


def bench_record(sheets: Sequence[Sheet]) -> list[dict[str, Any]]:
    """All figures for a script."""
    return [asdict(sheet) for sheet in sheets]


def _shape(sheet: Sheet) -> str:
    """The sizes and those flags that are set: `1,8,512,64 causal`."""
    flags = (name if value is True else f"{name}={value}" for name, value in sheet.flags.items() if value)
    return " ".join([sheet.shape, *flags])


def _records(sheet: Sheet) -> list[Record]:
    beside = {name: s.median_us for name, s in sheet.baselines.items()}
    found: list[Record] = []
    for name in sheet.entrants or ("",):
        own = sheet.standings.get(name)
        fastest = min(beside, key=lambda baseline: beside[baseline], default="")
        versus = f"{_time(beside[fastest])} {fastest}" if fastest and not own else ""
        if own and own.speedup_interval:
            tie = ", a tie" if own.verdict == "tie" else ""
            ratio = ratio_text(own.speedup, own.speedup_interval.low, own.speedup_interval.high)
            on = on_text(own.on, len(own.times))
            versus = f"{ratio} {own.versus}{on}{tie}"
        us, times = (own.median_us, own.times) if own else (None, {})
        record = {"shape": _shape(sheet), "kernel": name or "-", "us": us, "versus": versus, "beside": beside}
        found.append(record | {"inputs": spread_text({on: asdict(one) for on, one in times.items()})})
    return found


def _time(us: float | None) -> str:
    return "-" if us is None else three_digits(us)


def _cell(name: str) -> Callable[[Record], str]:
    def cell(record: Record) -> str:
        beside, us = record["beside"].get(name), record["us"]
        return _time(beside) if beside is None or us is None else f"{_time(beside)} ({beside / us:.2f}x)"

    return cell


def bench_svg(sheets: Sequence[Sheet]) -> str:
    """Bars of speed relative to the fastest baseline of each shape (longer is faster; the line is 1). Our
    kernels are dark and baselines light, and each bar says its time: no colour is needed to read it."""
    most = max(
        (_best(sheet) / s.median_us for sheet in sheets for s in sheet.standings.values()), default=1.0
    )
    scale = BAR_WIDTH / max(1.0, most)
    parts: list[str] = []
    y = 30
    for sheet in sheets:
        parts.append(f'<text x="4" y="{y}" font-weight="bold">{escape(sheet.problem)}</text>')
        y += 6
        for name, own in sorted(sheet.standings.items(), key=lambda item: item[1].median_us):
            width = _best(sheet) / own.median_us * scale
            fill = "#1f4e79" if name in sheet.entrants else "#b8c7d6"
            middle, end, height = y + BAR_HEIGHT - 3, NAME_WIDTH + width + 4, BAR_HEIGHT - 2
            parts += [
                f'<text x="{NAME_WIDTH - 6}" y="{middle}" text-anchor="end">{escape(name)}</text>',
                f'<rect x="{NAME_WIDTH}" y="{y}" width="{width:.1f}" height="{height}" fill="{fill}"/>',
                f'<text x="{end:.1f}" y="{middle}">{_bar_text(own)}</text>',
            ]
            y += BAR_HEIGHT
        y += SHAPE_GAP
    at = NAME_WIDTH + scale
    line = (
        f'<line x1="{at:.1f}" y1="20" x2="{at:.1f}" y2="{y - SHAPE_GAP}" stroke="#888" stroke-dasharray="3"/>'
    )
    device = sheets[0].device if sheets else ""
    title = escape(f"Speed relative to the fastest baseline · {device} · warm L2{_counted(sheets)}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{NAME_WIDTH + BAR_WIDTH + 90}" height="{y}" '
        f'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="white"/>'
        f'<text x="4" y="14">{title}</text>{line}{"".join(parts)}</svg>\n'
    )


def _bar_text(own: Standing) -> str:
    mark = spread_text({on: asdict(one) for on, one in own.times.items()})
    return microseconds(own.median_us) + (f", {mark}" if mark else "")


def _best(sheet: Sheet) -> float:
    baselines = [s.median_us for s in sheet.baselines.values()]
    return min(baselines or [s.median_us for s in sheet.standings.values()])
