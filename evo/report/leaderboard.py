"""The leaderboard: a table for each problem and device, and all rows for a script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from evo.report import (
    SDPA,
    Column,
    Record,
    Table,
    best_baseline,
    compared_with,
    count,
    interval_text,
    point_text,
    ratio_text,
    score_text,
)

if TYPE_CHECKING:  # the store brings SQLAlchemy, which a renderer does not need
    from evo.store import LeaderboardRow


def leaderboards(ranked: Sequence[LeaderboardRow]) -> list[Table]:
    """A table for each problem and device: times of different ones have no common order. CONFIRMED times,
    times of the search alone and estimates are never in one table."""
    groups: dict[tuple[str, str, str, str], list[LeaderboardRow]] = {}
    for row in ranked:
        estimated_for = row.estimate_gpu if row.median_us is None else ""
        groups.setdefault((row.problem, row.device, row.kind, estimated_for), []).append(row)
    return [_leaderboard(rows) for rows in groups.values()]


def leaderboard_records(ranked: Sequence[LeaderboardRow]) -> Table:
    """All rows in one table, for JSON and CSV."""
    return Table("", (), tuple(_ranked_record(row) for row in ranked))


def _ranked_record(row: LeaderboardRow) -> dict[str, Any]:
    """A ratio is to the baseline that it names; that to SDPA is to its fastest backend, where one was timed
    beside the kernel."""
    best = compared_with(row.median_us, row.speedup, row.baselines_us)
    if row.versus and row.median_us is not None and row.speedup is not None:
        best = row.versus, row.baselines_us.get(row.versus, row.median_us * row.speedup)
    sdpa = best_baseline({name: us for name, us in row.baselines_us.items() if name in SDPA})
    return asdict(row) | {
        "best_baseline": best[0] if best else None,
        "best_baseline_us": best[1] if best else None,
        "fastest_sdpa": sdpa[0] if sdpa else None,
        "fastest_sdpa_us": sdpa[1] if sdpa else None,
        "sdpa_speedup": sdpa[1] / row.median_us if sdpa and row.median_us else None,
    }


def _leaderboard(rows: Sequence[LeaderboardRow]) -> Table:
    first = rows[0]
    title = f"{first.problem} · {first.device}"
    columns = [
        Column("#", lambda r: f"{r['rank']}{r['tied']}", right=True),
        Column("trial", lambda r: f"{r['study']}/{r['number']}"),
    ]
    if first.median_us is None:
        title += f" · times are estimates for {first.estimate_gpu}, not measurements"
        columns += [Column("estimate", lambda r: score_text(None, r["estimate_us"]), right=True)]
    else:
        title += " · CONFIRMED" if first.kind == "confirmed" else " · not CONFIRMED"
        level = f"{100 * (first.level or 0.95):.0f} % CI"
        columns += [
            Column("time", lambda r: score_text(r["median_us"], None), right=True),
            Column(level, lambda r: interval_text(r["low_us"], r["high_us"]), wide=True),
            Column("vs best baseline", _versus),
            Column("vs fastest SDPA", _versus_sdpa, wide=True),
        ]
        if first.kind == "confirmed":
            columns += [Column("cold", lambda r: score_text(r["cold_us"], None), right=True, wide=True)]
    columns += [
        Column("regs", lambda r: count(r["registers"]), right=True, wide=True),
        Column("spill", lambda r: count(r["spill_bytes"]), right=True, wide=True),
        Column("smem", lambda r: f"{r['smem_bytes'] / 1024:.1f}K", right=True, wide=True),
        Column("template", lambda r: str(r["template"])),
        Column("point", lambda r: point_text(r["point"]), folds=True),
    ]
    ranks = [row.rank for row in rows]
    records = tuple(_ranked_record(r) | {"tied": "=" if ranks.count(r.rank) > 1 else ""} for r in rows)
    return Table(title, tuple(columns), records)


def _versus(record: Record) -> str:
    text = ratio_text(record["speedup"], record["speedup_low"], record["speedup_high"])
    tie = ", a tie" if record["verdict"] == "tie" else ""
    return f"{text} {record['best_baseline'] or ''}".rstrip() + tie


def _versus_sdpa(record: Record) -> str:
    return f"{record['sdpa_speedup']:.2f}x {record['fastest_sdpa']}" if record["sdpa_speedup"] else "-"
