"""Release 0.1.0: what was packed into texts and JSON has columns of its own.

- `studies.settings` held folders as one text, and the warm start as JSON in JSON.
- `studies.owner` was "HOST process PID.STARTED".
- A round's `contestants` were finalists and baselines, told apart by a slash in the name.
- How often a trial was evaluated was among its clocks, or among its counters where it was RED at last.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any

import sqlalchemy as sa
from alembic import op

from evo.store.packing import pack_samples, unpack_samples

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_MANY = 1000
"""Rows that are changed at a time."""


def upgrade() -> None:
    _studies()
    _trials()
    _rounds()


def _studies() -> None:
    op.add_column("studies", sa.Column("owner_host", sa.String))
    op.add_column("studies", sa.Column("owner_pid", sa.Integer))
    op.add_column("studies", sa.Column("owner_started", sa.BigInteger))
    op.add_column("studies", sa.Column("folders", sa.JSON, nullable=False, server_default="[]"))
    op.add_column("studies", sa.Column("warm_start", sa.JSON, nullable=False, server_default="{}"))
    texts = ("owner", "owner_host", "owner_pid", "owner_started")
    studies = _table("studies", *texts, in_json=("settings", "folders", "warm_start"))
    _change(studies, sa.true(), ("owner", "settings"), _study)
    op.drop_column("studies", "owner")
    op.drop_column("studies", "settings")


def _study(row: Any) -> dict[str, Any]:
    folders = [folder for folder in str(row.settings.get("templates", "")).split(os.pathsep) if folder]
    warm_start = json.loads(row.settings.get("warm_start", "{}"))
    owner = re.fullmatch(r"(.*) process (\d+)(?:\.(\d+))?", row.owner)
    host, pid, started = owner.groups() if owner else (None, None, None)
    return {
        "folders": folders,
        "warm_start": warm_start,
        "owner_host": host,
        "owner_pid": pid and int(pid),
        "owner_started": started and int(started),
    }


def _trials() -> None:
    op.add_column("trials", sa.Column("evaluations", sa.Integer, nullable=False, server_default="1"))
    trials = _table("trials", "evaluations", in_json=("clocks", "counters"))
    again = _text(trials, "clocks").like('%"visits"%') | _text(trials, "counters").like('%"green_visits"%')
    _change(trials, again, ("clocks", "counters"), _trial)
    for name in ("trials_by_median", "trials_by_device", "trials_by_estimate"):
        op.drop_index(name, "trials")
    columns = ["problem", "environment_id", "estimate_gpu", "median_us", "estimate_us"]
    op.create_index("trials_by_time", "trials", columns)


def _trial(row: Any) -> dict[str, Any]:
    clocks, counters = dict(row.clocks), dict(row.counters)
    timed = clocks.pop("visits", 1)
    green = counters.pop("green_visits", None)
    return {"clocks": clocks, "counters": counters, "evaluations": int(timed if green is None else green + 1)}


def _rounds() -> None:
    op.add_column("rounds", sa.Column("baselines", sa.JSON, nullable=False, server_default="[]"))
    op.add_column("rounds", sa.Column("finalists", sa.JSON, nullable=False, server_default="[]"))
    rounds = _table("rounds", "samples", in_json=("contestants", "baselines", "finalists"))
    _change(rounds, sa.true(), ("contestants", "samples"), _round)
    op.drop_column("rounds", "contestants")


def _round(row: Any) -> dict[str, Any]:
    """Samples are now those of the baselines, then those of the finalists."""
    samples, at = unpack_samples(row.samples), 0
    taken: dict[str, tuple[float, ...]] = {}
    for name, count in row.contestants:
        taken[name] = samples[at : at + count]
        at += count
    baselines = [name for name in taken if "/" not in name]
    finalists = [name for name in taken if "/" in name]
    return {
        "baselines": [[name, len(taken[name])] for name in baselines],
        "finalists": [[name, len(taken[name])] for name in finalists],
        "samples": pack_samples(tuple(s for name in baselines + finalists for s in taken[name])),
    }


def _change(table: sa.TableClause, which: Any, known: tuple[str, ...], change: Any) -> None:
    """Sets columns of the rows `which`; `change` makes them from the columns `known` of a row."""
    connection = op.get_bind()
    query = sa.select(table.c.id, *(table.c[name] for name in known)).where(which).order_by(table.c.id)
    last = -1
    while rows := connection.execute(query.where(table.c.id > last).limit(_MANY)).all():
        changes = [{"of_id": row.id, **change(row)} for row in rows]
        connection.execute(sa.update(table).where(table.c.id == sa.bindparam("of_id")), changes)
        last = rows[-1].id


def _table(name: str, *columns: str, in_json: tuple[str, ...]) -> sa.TableClause:
    return sa.table(
        name, sa.column("id"), *map(sa.column, columns), *(sa.column(c, sa.JSON) for c in in_json)
    )


def _text(table: sa.TableClause, column: str) -> sa.ColumnElement[str]:
    return sa.cast(table.c[column], sa.Text)
