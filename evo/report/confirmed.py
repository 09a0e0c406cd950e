"""What `evo confirm` shows: finalists and baselines in their order, warm and cold, and which kernels the
baselines ran."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from evo.report import (
    Column,
    Record,
    Table,
    counted_text,
    interval_text,
    kernels_text,
    microseconds,
    on_text,
    ratio_text,
    spread_text,
)
from evo.trial import Standing

if TYPE_CHECKING:
    from evo.store import Confirmation


def confirmation_tables(found: Confirmation) -> list[Table]:
    """The standings, the finalists that were refused, and the kernels of the baselines."""
    tables = [_standings(found)]
    fallen = [f for f in found.finalists if f.outcome != "GREEN"]
    if fallen:
        columns = (
            Column("trial", lambda r: r["name"]),
            Column("outcome", lambda r: r["outcome"]),
            Column("reason", lambda r: r["reason"], folds=True),
            Column("where", lambda r: r["where"], folds=True, wide=True),
        )
        records = tuple(asdict(f) | {"name": f.name} for f in fallen)
        tables.append(Table("Finalists that were refused", columns, records))
    if found.kernels or found.skipped:
        tables.append(_kernels(found))
    return tables


def confirmation_record(found: Confirmation) -> dict[str, Any]:
    """The same for a script."""
    return asdict(found)


def unconfirmed_lines(found: Confirmation | None) -> list[str]:
    """What a search says if its confirmation is not finished, refused a finalist, or left baselines out."""
    if found is None:
        return []
    lines = refused_lines(found)
    lines += [f"baselines not timed: {text}" for text in left_out(found)]
    if found.status != "finished":
        lines.append(f"CONFIRMED is not finished; go on with: evo confirm {found.study} --top {found.top}")
    return lines


def refused_lines(found: Confirmation) -> list[str]:
    """The finalists that were refused, and why."""
    return [
        f"{f.name} was refused when it was confirmed: {f.outcome} {f.reason}"
        for f in found.finalists
        if f.outcome != "GREEN"
    ]


def why_none(study: str, results: Iterable[Confirmation]) -> str:
    """Why confirmations of a study, one a GPU, have no finalist that is correct."""
    refused = dict.fromkeys(line for found in results for line in refused_lines(found))
    return "; ".join(refused) or f"study {study} has no timed trial that is correct"


def left_out(found: Confirmation) -> list[str]:
    """The baselines that were not timed, by reason."""
    reasons: dict[str, list[str]] = {}
    for name, why in sorted(found.skipped.items()):
        reasons.setdefault(why, []).append(name)
    return [f"{', '.join(names)}: {why}" for why, names in reasons.items()]


def _standings(found: Confirmation) -> Table:
    records = [_record(f.name, f.standings) for f in found.green if f.standings]
    names = dict.fromkeys(name for named in found.baselines.values() for name in named)
    for name in names:
        records.append(_record(name, {p: s[name] for p, s in found.baselines.items() if name in s}))
    records.sort(key=lambda r: r["warm"]["median_us"] if r["warm"] else 0.0)
    level = next((f.standings["warm"].interval.level for f in found.green if "warm" in f.standings), 0.99)
    percent = f"{100 * level:.0f} % CI"
    inputs = list(dict.fromkeys(on for r in records if r["warm"] for on in r["warm"]["times"]))
    several = inputs if len(inputs) > 1 else []
    columns = [
        Column("", lambda r: r["name"]),
        Column("warm", lambda r: _time(r["warm"]), right=True),
        Column(percent, lambda r: _interval(r["warm"])),
        Column("vs best baseline", lambda r: _versus(r["warm"])),
        Column("cold", lambda r: _time(r["cold"]), right=True),
        Column(percent, lambda r: _interval(r["cold"]), wide=True),
        Column("vs best baseline", lambda r: _versus(r["cold"]), wide=True),
        *(Column(on, _time_on(on), right=True, wide=True) for on in several),
    ]
    if any(_inputs(r) for r in records):
        columns.append(Column("inputs", _inputs, folds=True))
    title = f"{found.study} · {found.problem} · {found.device} · CONFIRMED"
    if inputs:
        title += f" · {counted_text(records[0]['warm']['ranking'], inputs)}"
    if found.status != "finished":
        title += f" ({found.status})"
    return Table(title, tuple(columns), tuple(records), "no round is finished yet")


def _record(name: str, standings: Mapping[str, Standing]) -> Record:
    return {
        "name": name,
        **{p: asdict(standings[p]) if p in standings else None for p in ("warm", "cold")},
    }


def _time(standing: Mapping[str, Any] | None) -> str:
    return microseconds(standing["median_us"]) if standing else "-"


def _time_on(on: str) -> Callable[[Record], str]:
    """A column of the times on one timing input, warm."""
    return lambda r: _time(r["warm"] and r["warm"]["times"].get(on))


def _inputs(record: Record) -> str:
    return spread_text(record["warm"]["times"]) if record["warm"] else ""


def _interval(standing: Mapping[str, Any] | None) -> str:
    return interval_text(standing["interval"]["low"], standing["interval"]["high"]) if standing else "-"


def _versus(standing: Mapping[str, Any] | None) -> str:
    if not standing or standing["speedup"] is None:
        return ""
    interval = standing["speedup_interval"]
    text = ratio_text(standing["speedup"], interval["low"], interval["high"])
    on = on_text(standing["on"], len(standing["times"]))
    return f"{text} {standing['versus']}{on}" + (", a tie" if standing["verdict"] == "tie" else "")


def _kernels(found: Confirmation) -> Table:
    records = [{"name": name, "runs": kernels_text(ran)} for name, ran in found.kernels.items()]
    records += [{"name": name, "runs": f"not timed: {why}"} for name, why in found.skipped.items()]
    return kernels_table(records)


def kernels_table(records: Sequence[Record]) -> Table:
    """Which kernels baselines ran: `name`, `runs` and, where they are not the same for all, `shapes`."""
    columns = [Column("baseline", lambda r: r["name"])]
    if any(record.get("shapes") for record in records):
        columns.append(Column("at", lambda r: r["shapes"], folds=True))
    columns.append(Column("runs", lambda r: r["runs"], folds=True))
    return Table("Kernels that the baselines ran, by torch's profiler", tuple(columns), tuple(records))
