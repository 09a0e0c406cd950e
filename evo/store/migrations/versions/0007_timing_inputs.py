"""Times by timing input. What there is was timed on the plain family alone: such times are never ranked with
later ones.

- `studies.ranking` says which of a kernel's times counts.
- `times` of trials and finalists has them by timing input; `trials.timing_inputs` is how many there were.
- `rounds.inputs` names those of a round.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from alembic import op

from evo.store.packing import unpack_samples

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_MANY = 1000
"""Rows that are changed at a time."""
_RATIO = ("speedup", "speedup_low", "speedup_high")
_TIME = ("median_us", "low_us", "high_us", *_RATIO)


def upgrade() -> None:
    op.add_column("studies", sa.Column("ranking", sa.String, nullable=False, server_default="worst"))
    op.execute("UPDATE studies SET ranking = 'plain'")
    op.add_column("trials", sa.Column("times", sa.JSON, nullable=False, server_default="{}"))
    op.add_column("trials", sa.Column("timing_inputs", sa.Integer, nullable=False, server_default="0"))
    _change("trials", (*_TIME, "level", "samples"), ("baselines",), ("times", "timing_inputs"), _trial)
    for name in ("times", "cold_times"):
        op.add_column("finalists", sa.Column(name, sa.JSON))
    own = (*_TIME, *(f"cold_{name}" for name in _TIME), "versus", "cold_versus", "level")
    _change("finalists", own, (), ("times", "cold_times"), _finalist)
    _change("confirmations", (), ("baselines",), (), _confirmation)
    plain = sa.Column("inputs", sa.JSON, nullable=False, server_default='["plain"]')
    op.add_column("rounds", plain)


def _trial(row: Mapping[str, Any]) -> dict[str, Any]:
    if row["median_us"] is None:
        return {"times": {}, "timing_inputs": 0}
    kept = {"samples": len(unpack_samples(row["samples"]))}
    if row["baselines"]:
        kept["baselines"] = row["baselines"]
    versus = ""
    if row["speedup"] is not None and row["baselines"]:  # two may be as good as equal
        timed_us = row["median_us"] * row["speedup"]
        versus = min(row["baselines"], key=lambda name: abs(row["baselines"][name] - timed_us))
    return {"times": {"plain": _time(row, "", versus) | kept}, "timing_inputs": 1}


def _finalist(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        f"{at}times": {"plain": _time(row, at, row[f"{at}versus"] or "")}
        for at in ("", "cold_")
        if row[f"{at}median_us"] is not None
    }


def _confirmation(row: Mapping[str, Any]) -> dict[str, Any]:
    standings = {
        protocol: {
            name: one | {"times": {"plain": _time(one, "", one.get("versus") or "")}}
            for name, one in named.items()
        }
        for protocol, named in row["baselines"].items()
    }
    return {"baselines": standings}


def _time(row: Mapping[str, Any], prefix: str, versus: str) -> dict[str, Any]:
    """The time of one timing input, as JSON has it from now on."""
    found = {name: row[f"{prefix}{name}"] for name in _TIME}
    known = {name: value for name, value in found.items() if value is not None} | {"level": row["level"]}
    if "speedup" in known:
        known["versus"] = versus
    if "speedup_low" in known:
        known["speedup_level"] = row["level"]
    return known


def _change(
    name: str, columns: tuple[str, ...], in_json: tuple[str, ...], added: tuple[str, ...], change: Any
) -> None:
    """Sets columns of every row; `change` makes them from the columns that it knows."""
    known = [sa.column(c) for c in columns] + [sa.column(c, sa.JSON) for c in in_json]
    more = [sa.column(c, sa.Integer if c == "timing_inputs" else sa.JSON) for c in added]
    table = sa.table(name, sa.column("id"), *known, *more)
    connection, last = op.get_bind(), -1
    query = sa.select(table.c.id, *(table.c[c] for c in (*columns, *in_json))).order_by(table.c.id)
    while rows := connection.execute(query.where(table.c.id > last).limit(_MANY)).mappings().all():
        for row in rows:
            if values := change(row):
                connection.execute(sa.update(table).where(table.c.id == row["id"]).values(**values))
        last = rows[-1]["id"]
