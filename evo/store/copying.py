"""Copies studies from one database into another, of either kind, and compares what is there with what was.

References between rows are by id, and ids are the database's own: each row gets a new one, and what refers
to it follows. Rows that databases share by content, environments and sources, are not doubled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, RowMapping

from evo.errors import StoreError, UnknownName, UsageError
from evo.store.damage import NoJson
from evo.store.engine import Database, insert_once
from evo.store.schema import (
    confirmations,
    environments,
    finalists,
    offsets,
    rounds,
    sources,
    studies,
    trials,
)

SHARED = (environments, sources)
"""Known by their digests."""
OF_STUDIES = (trials, offsets, confirmations, finalists, rounds)
"""Each behind those that it refers to."""
ROWS_AT_ONCE = 500
_OWNER = ("owner_host", "owner_pid", "owner_started", "heartbeat")
_Ids = dict[str, dict[int, int]]
"""The ids there by those here, by table."""


def copy_studies(
    source: str, target: str, names: Sequence[str], notice: Callable[[str], None]
) -> dict[str, int]:
    """Copies the studies of these names (all, if none is named) with all that belongs to them; how many rows
    of each table were copied. It happens whole or not at all, and each row was read back and compared.

    A study that was running is interrupted in the copy. UnknownName where there is no such study, UsageError
    where the target has one of the same name, StoreError where a database cannot be read or written, or what
    was read back is not what was written."""
    here, there = Database(source, False, notice), Database(target, True, notice)
    try:
        return here.read(lambda reading: _copied(reading, there, names))
    finally:
        here.close()
        there.close()


def _copied(reading: Connection, there: Database, names: Sequence[str]) -> dict[str, int]:
    if reading.dialect.name == "postgresql":
        reading.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
    known = list(reading.execute(sa.select(studies.c.name).order_by(studies.c.id)).scalars())
    for name in names:
        if name not in known:
            raise UnknownName.among("study", name, known)
    chosen = [name for name in known if name in names or not names]

    def write(writing: Connection) -> dict[str, int]:
        taken = set(writing.execute(sa.select(studies.c.name)).scalars()) & set(chosen)
        if taken:
            listed = ", ".join(sorted(taken))
            raise UsageError(
                f"{there.name} has studies of the same names: {listed}", "name others: --study NAME"
            )
        return _Copy(reading, writing, chosen).run()

    return there.write(write)


class _Copy:
    """One copy, within a transaction of each database."""

    def __init__(self, reading: Connection, writing: Connection, names: Sequence[str]) -> None:
        self._reading, self._writing = reading, writing
        self._ids: _Ids = {}
        self._wanted = sa.select(studies.c.id).where(studies.c.name.in_(names))

    def run(self) -> dict[str, int]:
        own = sa.select(trials).where(trials.c.study_id.in_(self._wanted)).subquery()
        held = sa.select(confirmations.c.id).where(confirmations.c.study_id.in_(self._wanted))
        used = sa.union(
            sa.select(own.c.environment_id),
            sa.select(confirmations.c.environment_id).where(confirmations.c.id.in_(held)),
        )
        mine: dict[str, sa.ColumnElement[bool]] = {
            "environments": environments.c.id.in_(used),
            "sources": sources.c.id.in_(self._with_bases(own)),
            "studies": studies.c.id.in_(self._wanted),
            **{table.name: table.c.study_id.in_(self._wanted) for table in (trials, offsets, confirmations)},
            **{table.name: table.c.confirmation_id.in_(held) for table in (finalists, rounds)},
        }
        counts = {}
        for table in (*SHARED, studies, *OF_STUDIES):
            self._ids[table.name] = {}
            counts[table.name] = sum(map(len, self._tables(table, mine[table.name])))
        return counts

    @staticmethod
    def _with_bases(own: sa.Subquery) -> sa.Select[Any]:
        """The sources of trials, and those that these are packed against."""
        found = sa.select(own.c.source_id.label("id")).cte("found", recursive=True)
        bases = sa.select(sources.c.base).join(found, sources.c.id == found.c.id)
        return sa.select(found.union(bases.where(sources.c.base.isnot(None))).c.id)

    def _tables(self, table: sa.Table, mine: sa.ColumnElement[bool]) -> Iterator[Sequence[RowMapping]]:
        """Copies the rows of a table, a number of them at a time, and compares them."""
        query = sa.select(table).where(mine).order_by(table.c.id)
        for rows in self._reading.execute(query).mappings().partitions(ROWS_AT_ONCE):
            self._require_whole(table, rows)
            known = self._ids[table.name]
            if table in SHARED:
                for row in rows:  # one by one: a source may be packed against the one before
                    known[row["id"]] = self._share(table, row)
            else:
                there = [self._there(table, row) for row in rows]
                insert = sa.insert(table).returning(table.c.id, sort_by_parameter_order=True)
                made = self._writing.execute(insert, there).scalars()
                known |= {row["id"]: number for row, number in zip(rows, made, strict=True)}
            self._compare(table, rows, [known[row["id"]] for row in rows])
            yield rows

    def _share(self, table: sa.Table, row: RowMapping) -> int:
        values = self._there(table, row)
        return insert_once(self._writing, table, values.pop("digest"), values)

    def _there(self, table: sa.Table, row: RowMapping) -> dict[str, Any]:
        """A row as the target has it, without its id."""
        values = {name: value for name, value in row.items() if name != "id"}
        for column in table.c:
            for key in column.foreign_keys:
                if values[column.name] is not None:
                    values[column.name] = self._ids[key.column.table.name][values[column.name]]
        if table is studies:
            values |= dict.fromkeys(_OWNER)
            values["status"] = "interrupted" if row["status"] == "running" else row["status"]
        return values

    def _require_whole(self, table: sa.Table, rows: Sequence[RowMapping]) -> None:
        for row in rows:
            if any(isinstance(value, NoJson) for value in row.values()):
                hint = "evo show says which study and trial it is"
                raise StoreError(f"row {row['id']} of {table.name} is damaged: nothing was copied", hint)

    def _compare(self, table: sa.Table, rows: Sequence[RowMapping], ids: Sequence[int]) -> None:
        """StoreError unless the target has what was read here."""
        query = sa.select(table).where(table.c.id.in_(ids))
        found = {row["id"]: dict(row) for row in self._writing.execute(query).mappings()}
        names = [
            c.name for c in table.c if c.name not in ("id", *(("base", "packed") if table is sources else ()))
        ]
        for row, made in zip(rows, ids, strict=True):
            wanted, got = self._there(table, row), found.get(made, {})
            differs = [name for name in names if got.get(name) != wanted[name]]
            if differs:
                what = f"row {row['id']} of {table.name} came out otherwise: {', '.join(differs)}"
                raise StoreError(f"{what}; nothing was copied", "please report this")
