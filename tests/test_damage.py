"""Damaged rows, and what a person asks of a database with some."""

from __future__ import annotations

import contextlib
import lzma
import random
import re
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from command import ROOT, Evo, two_studies
from finals import SimulatedWorker
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from landscape import LandscapeWorkers, enough, new_study, spaces_of

from evo.confirm import confirm
from evo.errors import EvoError, StoreError
from evo.loop import search
from evo.report.confirmed import confirmation_tables
from evo.store import Store
from evo.store.schema import confirmations, finalists, rounds, studies, trials


def change(path: Path, table: str, column: str, value: object, where: str) -> None:
    """What the schema forbids is possible too: a disk asks nobody."""
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(
            "UPDATE sqlite_master SET sql = replace(sql, ' NOT NULL', '') WHERE type = 'table'"
        )
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (value,))


COLUMNS = [("trials", c.name) for c in trials.c] + [("studies", c.name) for c in studies.c]
VALUES = st.one_of(
    st.none(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.binary(max_size=9),
    st.sampled_from(["", "{", "[]", "{}", "null", '"x"', "[1]", '{"B": []}', "\x1b[2J", "x\ny", "NaN"]),
)  # fmt: skip


@settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(where=st.sampled_from(COLUMNS), value=VALUES)
def test_no_damage_of_a_row_is_a_bug(tmp_path: Path, where: tuple[str, str], value: object) -> None:
    whole, path = tmp_path / "whole.db", tmp_path / "evo.db"
    if not whole.exists():
        two_studies(whole)
    shutil.copy(whole, path)
    with contextlib.suppress(sqlite3.Error):  # a duplicate
        change(path, *where, value, "id = 1")
    said: list[str] = []
    asks: tuple[Callable[[Store], object], ...] = (
        lambda s: s.studies(),
        lambda s: s.leaderboard(),
        lambda s: s.trial("mission-1/0"),
        lambda s: s.trial(1),
        lambda s: s.rows(s.study("mission-1")),
        lambda s: s.failures(s.study("laptop-1")),
    )
    with Store(path, notice=said.append) as store:
        for ask in asks:
            with contextlib.suppress(EvoError):
                ask(store)


@pytest.mark.parametrize(
    ("column", "value"),
    [("point", "{"), ("point", None), ("launch", "[]"), ("outcome", "BLUE"), ("registers", "many"),
     ("problem_json", "[1, 2]"), ("errors", '{"a": 1}'), ("samples", b"not zlib"), ("samples", 7)],
)  # fmt: skip
def test_a_damaged_trial_is_named(tmp_path: Path, evo: Evo, column: str, value: object) -> None:
    path = tmp_path / "runs" / "evo.db"
    two_studies(path)
    change(path, "trials", column, value, "study_id = 1 AND number = 1")
    said = evo("show", "mission-1/1")
    assert said.code == 3
    assert said.err.startswith("error: trial mission-1/1 is damaged in runs/evo.db: ")
    assert "hint: restore" in said.err
    assert evo("show", "mission-1/0").code == 0
    board = evo("leaderboard")
    assert board.code == 0, board.err
    assert "mission-1/2" in board.out
    assert "mission-1/1" in board.out or column == "outcome" or "left out: trial mission-1/1" in board.err


def damaged(whole: bytes, seed: int) -> bytes:
    """The file with bytes that are in no text: in its schema, in one place, or all over it."""
    bad, rng = bytearray(whole), random.Random(seed)
    if seed % 3 == 0:
        bad[whole.index(b"CREATE TABLE", rng.randrange(3000)) + rng.randrange(60)] = 0xFF
    elif seed % 3 == 1:
        at = rng.randrange(100, len(bad) - 64)
        bad[at : at + 64] = b"\xff" * 64
    else:
        for at in rng.sample(range(100, len(bad)), 50):
            bad[at] = 0xFF
    return bytes(bad)


@pytest.mark.parametrize("schema", ["0004", "this"])
def test_no_damage_of_a_file_is_a_bug(tmp_path: Path, schema: str) -> None:
    """SQLite quotes what is damaged in its message, which Python then cannot read."""
    path, known = tmp_path / "evo.db", ROOT / "tests/databases/schema-0004.db.xz"
    if schema == "this":
        two_studies(path)
    whole = path.read_bytes() if schema == "this" else lzma.decompress(known.read_bytes())
    refused: list[EvoError] = []
    for seed in range(30):
        path.write_bytes(damaged(whole, seed))
        try:
            with Store(path) as store:
                for study in store.studies():
                    store.rows(study), store.times(study), store.spans(study), store.count(study)
                store.leaderboard()
        except EvoError as error:
            refused.append(error)
        for log in tmp_path.glob("evo.db-*"):
            log.unlink()
    assert len(refused) > 10
    assert all(error.hint for error in refused)
    assert any("malformed text" in error.message for error in refused)


@pytest.mark.parametrize(("column", "value"), [("seconds", "{"), ("created", "x"), ("times", "[1]")])
def test_what_an_export_reads_is_named_too(tmp_path: Path, column: str, value: str) -> None:
    path = tmp_path / "evo.db"
    two_studies(path)
    change(path, "trials", column, value, "study_id = 1 AND number = 1")
    with Store(path) as store, pytest.raises(StoreError, match=r"^trial mission-1/1 is damaged in .*evo\.db"):
        store.spans(store.study("mission-1")), store.times(store.study("mission-1"))


def test_a_damaged_study_is_left_out_and_said(tmp_path: Path, evo: Evo) -> None:
    path = tmp_path / "runs" / "evo.db"
    two_studies(path)
    change(path, "studies", "problem_json", "{", "id = 1")
    said = evo("studies")
    assert said.code == 0
    assert "laptop-1" in said.out
    assert "mission-1" not in said.out
    assert re.search("^left out: study mission-1 is damaged", said.err, re.MULTILINE)
    assert evo("show", "mission-1/0").code == 3


def test_a_resumed_search_names_the_trial_that_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "evo.db"
    two_studies(path)
    change(path, "trials", "point", "7", "study_id = 1 AND number = 2")
    with Store(path) as store, pytest.raises(StoreError, match="trial mission-1/2 is damaged"):
        store.rows(store.study("mission-1"))


@pytest.fixture(scope="module")
def confirmed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of the landscape, and a confirmation of it."""
    path = tmp_path_factory.mktemp("confirmed") / "evo.db"
    with Store(path) as store:
        study = store.create(new_study(strategy="random"))
        search(study, store, spaces_of(path.parent / "t"), LandscapeWorkers(), enough(60))
        found = confirm(store.study("land-1"), store, SimulatedWorker(), top=2)
    assert found is not None
    assert found.status == "finished"
    return path


def whole(store: Store) -> None:
    """Reads the confirmation and all that belongs to it, and makes its tables."""
    if found := store.confirmations.newest(store.study("land-1")):
        confirmation_tables(found)
        for protocol in ("warm", "cold"):
            store.confirmations.rounds(found, protocol)


@pytest.mark.parametrize(
    ("table", "column", "value", "named"),
    [("confirmations", "baselines", "[1]", "confirmation 1 of land-1"),
     ("confirmations", "kernels", '{"flash": 7}', "confirmation 1 of land-1"),
     ("confirmations", "top", "all", "confirmation 1 of land-1"),
     ("finalists", "times", '{"normal": {}}', "finalist land-1/"),
     ("finalists", "times", '{"normal": {"median_us": "x", "low_us": 1, "high_us": 1, "level": 1}}',
      "finalist land-1/"),
     ("finalists", "cold_times", "7", "finalist land-1/"),
     ("finalists", "outcome", 7, "finalist land-1/"),
     ("rounds", "samples", b"not zlib", "round 0 of confirmation 1 of land-1"),
     ("rounds", "finalists", '[["land-1/1", 99]]', "round 0 of confirmation 1 of land-1")],
)  # fmt: skip
def test_a_damaged_row_of_a_confirmation_is_named(
    confirmed: Path, tmp_path: Path, table: str, column: str, value: object, named: str
) -> None:
    path = tmp_path / "evo.db"
    shutil.copy(confirmed, path)
    change(path, table, column, value, "id = 1")
    with Store(path) as store, pytest.raises(StoreError, match=f"^{named}.* is damaged in .*evo.db") as said:
        whole(store)
    assert "restore" in (said.value.hint or "")


CONFIRMATION_COLUMNS = [
    (table.name, column.name) for table in (confirmations, finalists, rounds) for column in table.c
]


@settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(where=st.sampled_from(CONFIRMATION_COLUMNS), value=VALUES)
def test_no_damage_of_a_confirmation_is_a_bug(
    confirmed: Path, tmp_path: Path, where: tuple[str, str], value: object
) -> None:
    path = tmp_path / "evo.db"
    shutil.copy(confirmed, path)
    with contextlib.suppress(sqlite3.Error):
        change(path, *where, value, "id = 1")
    with Store(path) as store, contextlib.suppress(EvoError):
        whole(store)
