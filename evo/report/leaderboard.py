"""The leaderboard: a table for each problem and device, and all rows for a script."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from evo.report import (
    Column,
    Groups,
    Record,
    Table,
    cases_text,
    count,
    counted_text,
    estimates,
    group_key,
    group_record,
    interval_text,
    on_text,
    point_text,
    ratio_text,
    score_text,
    spread_text,
    trust_text,
)
from evo.trial import varies

if TYPE_CHECKING:  # the store brings SQLAlchemy, which a renderer does not need
    from evo.store import LeaderboardRow


NO_GROUPS: Mapping[str, Groups] = {}


def leaderboards(ranked: Sequence[LeaderboardRow], groups: Mapping[str, Groups] = NO_GROUPS) -> list[Table]:
    """A table for each problem, device, ranking and set of recorded calls: times of different ones have no
    common order. CONFIRMED times, times of the search alone and estimates are never in one table. `groups`:
    of each study its baseline groups; a table has a column for each of them."""
    tables: dict[tuple[str, ...], list[LeaderboardRow]] = {}
    for row in ranked:
        estimated_for = row.estimate_gpu if row.median_us is None else ""
        of_one_kind = (row.problem, row.device, row.kind, row.ranking, row.own_data, estimated_for)
        tables.setdefault(of_one_kind, []).append(row)
    return [_leaderboard(rows, groups) for rows in tables.values()]


def leaderboard_records(ranked: Sequence[LeaderboardRow], groups: Mapping[str, Groups] = NO_GROUPS) -> Table:
    """All rows in one table, for JSON and CSV."""
    return Table("", (), tuple(_ranked_record(row, groups.get(row.study, {})) for row in ranked))


def _ranked_record(row: LeaderboardRow, groups: Groups) -> dict[str, Any]:
    """A speedup is over the baseline that it names; that of a group is over the fastest one of the group that
    was timed beside the kernel."""
    at = row.times.get(row.on)
    best_us = at.median_us * at.speedup if at and at.speedup else None
    return asdict(row) | {
        "best_baseline": row.versus or None,
        "best_baseline_us": at.baselines_us.get(row.versus or "", best_us) if at else None,
        "data_dependent": varies([time.median_us for time in row.times.values()]),
        **group_record(groups, row.times, row.ranking),
    }


def _leaderboard(rows: Sequence[LeaderboardRow], groups: Mapping[str, Groups]) -> Table:
    first = rows[0]
    shared: Groups = {group: names for row in rows for group, names in groups.get(row.study, {}).items()}
    title = f"{first.problem} · {first.device}"
    columns = [
        Column("#", lambda r: f"{r['rank']}{r['tied']}", right=True),
        Column("trial", _trial),
    ]
    if first.median_us is None:
        called = estimates(first.problem, (row.template for row in rows))
        title += f" · times are {called} for {first.estimate_gpu}, not measurements"
        title += f" · {trust_text(first.problem, (row.template for row in rows))}"
        columns += [Column("estimate", lambda r: score_text(None, r["estimate_us"]), right=True)]
    else:
        title += " · CONFIRMED" if first.kind == "confirmed" else " · not CONFIRMED"
        if inputs := list(dict.fromkeys(name for row in rows for name in row.times)):
            title += f" · {counted_text(first.ranking, inputs)}"
        level = f"{100 * (first.level or 0.95):.0f} % CI"
        columns += [
            Column("time", lambda r: score_text(r["median_us"], None), right=True),
            Column(level, lambda r: interval_text(r["low_us"], r["high_us"]), wide=True),
            Column("vs best baseline", _versus),
            *(Column(f"vs fastest {group}", _versus_group(group), wide=True) for group in shared),
        ]
        if first.kind == "confirmed":
            columns += [Column("cold", lambda r: score_text(r["cold_us"], None), right=True, wide=True)]
        if any(_inputs(asdict(row)) for row in rows):
            columns += [Column("inputs", _inputs, folds=True)]
    if any(row.cases_run != row.cases_planned for row in rows):  # else all ran, or it is not known
        columns += [Column("cases", _cases, right=True)]
    columns += [
        Column("regs", lambda r: count(r["registers"]), right=True, wide=True),
        Column("spill", lambda r: count(r["spill_bytes"]), right=True, wide=True),
        Column("smem", _smem, right=True, wide=True),
        Column("template", lambda r: str(r["template"])),
        Column("point", lambda r: point_text(r["point"]), folds=True),
    ]
    ranks = [row.rank for row in rows]
    records = tuple(
        _ranked_record(r, shared) | {"tied": "=" if ranks.count(r.rank) > 1 else ""} for r in rows
    )
    return Table(title, tuple(columns), records)


def _trial(record: Record) -> str:
    """Its name, and whether it is ranked although some class of the gate's cases hardly ran on it, or
    although it reads clocks and places."""
    marks = f"{' UNPROVEN' if record['classes_missed'] else ''}{' reads ' * bool(record['reads'])}"
    return f"{record['study']}/{record['number']}{marks}{record['reads']}"


def _smem(record: Record) -> str:
    """A CTA's shared memory: what the launch asks for, and what the kernel has by itself."""
    return f"{(record['smem_bytes'] + (record['static_smem_bytes'] or 0)) / 1024:.1f}K"


def _cases(record: Record) -> str:
    """How many of the gate's cases ran, of how many."""
    return cases_text(record["cases_run"], record["cases_planned"])


def _inputs(record: Record) -> str:
    """Whether the time depends on the data, and on how many timing inputs the kernel was timed."""
    return spread_text(record["times"], record["timing_inputs"] if record["kind"] == "measured" else 0)


def _versus(record: Record) -> str:
    text = ratio_text(record["speedup"], record["speedup_low"], record["speedup_high"])
    tie = ", a tie" if record["verdict"] == "tie" else ""
    on = on_text(record["on"], max(record["timing_inputs"], len(record["times"])))
    return f"{text} {record['versus'] or ''}".rstrip() + on + tie


def _versus_group(group: str) -> Callable[[Record], str]:
    key = group_key(group)

    def cell(record: Record) -> str:
        speedup = record[f"{key}_speedup"]
        return f"{speedup:.2f}x {record[f'fastest_{key}']}" if speedup else "-"

    return cell
