"""The schema: what a new database has, and how an older one comes to it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
import sqlalchemy as sa

from evo.errors import StoreError
from evo.store import Store
from evo.store.schema import HEAD, metadata


def test_a_new_database_has_what_the_code_expects(store: Store) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    def compare(connection: sa.Connection) -> list[object]:
        context = MigrationContext.configure(
            connection, opts={"include_name": lambda name, kind, _: kind != "table" or name != "evo_schema"}
        )
        return list(compare_metadata(context, metadata))

    assert store._database.read(compare) == []
    version = store._database.read(
        lambda c: c.execute(sa.text("SELECT version_num FROM evo_schema")).scalar()
    )
    assert version == HEAD


def test_a_newer_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "evo.db"
    Store(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE evo_schema SET version_num = '9999'")
    connection.close()
    with pytest.raises(StoreError, match="newer evo") as caught:
        Store(path)
    assert "upgrade evo" in caught.value.hint


def test_a_database_older_than_any_that_can_be_upgraded_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "evo.db"
    Store(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE evo_schema SET version_num = '0003'")
    connection.close()
    with pytest.raises(StoreError, match="before the release") as caught:
        Store(path)
    assert "0004 and later" in caught.value.hint


def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "optuna.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE studies (study_id INTEGER)")
    connection.close()
    with pytest.raises(StoreError, match="belongs to another program"):
        Store(path)
    with sqlite3.connect(path) as connection:
        assert [r[0] for r in connection.execute("SELECT name FROM sqlite_master")] == ["studies"]
    connection.close()
