"""A database that a group shares: many writers at once, a server that is restarted, copies both ways."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from command import Evo
from finals import SimulatedWorker
from landscape import LandscapeWorkers, enough, new_study, spaces_of
from postgres import empty_database, folder_of, server, start, stop
from trials import estimated, failed, study, timed

from evo.confirm import confirm
from evo.errors import StoreError, UnknownName, UsageError
from evo.loop import search
from evo.store import Store
from evo.store.copying import copy_studies
from evo.trial import Offset, Outcome

WRITERS = 50


@pytest.fixture(scope="module")
def own_server() -> Iterator[str]:
    """A server that may be stopped: no other test has it."""
    with server() as url:
        yield url


def write(
    url: str, name: str, count: int, half: threading.Barrier, down: threading.Event, said: list[str]
) -> None:
    """Writes a study, and notes what its store says. In the middle it waits for others, and for `down`."""
    with Store(url, notice=said.append) as store:
        mine = store.create_numbered(study(name))
        for number in range(count):
            if number == count // 2:
                half.wait(300)
                assert down.wait(300)
            store.add(mine, number, timed(number), spent_s=float(number))
        store.release(mine, "finished", 1.0)


def test_fifty_writers_lose_nothing_when_the_server_is_restarted(own_server: str) -> None:
    """Half of them go on to write after it was stopped; the others, which write on, may be done before."""
    url, count = empty_database(own_server), 6
    half, down, at_once = threading.Barrier(WRITERS + 1), threading.Event(), threading.Event()
    at_once.set()
    said: list[list[str]] = [[] for _ in range(WRITERS)]
    Store(url).close()
    with ThreadPoolExecutor(WRITERS) as threads:
        writers = [
            threads.submit(write, url, "attention", count, half, down if at % 2 else at_once, said[at])
            for at in range(WRITERS)
        ]
        half.wait(300)
        stop(folder_of(own_server), "immediate")
        down.set()
        end = time.monotonic() + 60
        while not all(said[1::2]) and time.monotonic() < end:
            time.sleep(0.05)
        start(folder_of(own_server))
        for writer in writers:
            writer.result()
    assert all(map(bool, said[1::2])), "the restart was felt"
    assert all("does not answer; waiting" in text for texts in said for text in texts)
    with Store(url) as store:
        found = store.studies()
        assert sorted(s.name for s in found) == sorted(f"attention-{n}" for n in range(1, WRITERS + 1))
        assert {s.status for s in found} == {"finished"}
        for one in found:
            assert [row.number for row in store.rows(one)] == list(range(count))
        assert store.trial("attention-7/5") == timed(5)
        best = store.leaderboard(limit=1000)
    assert len({row.study for row in best}) == WRITERS, "one leaderboard over all"


def test_what_was_committed_when_the_connection_was_lost_is_not_written_twice(own_server: str) -> None:
    """The server ends the connection behind a commit, before anybody hears of it."""
    url = empty_database(own_server)
    with Store(url) as store:
        mine = store.create(study())
        lost: list[int] = []

        def lose(connection: sa.Connection) -> None:
            if len(lost) < 1 and connection.get_execution_options().get("evo_writes"):
                lost.append(1)
                raw: Any = connection.connection.dbapi_connection
                raw.commit()
                raw.close()

        sa.event.listen(store._database._engine, "commit", lose)
        store.add(mine, 0, timed(0), spent_s=1.0)
        assert lost
        assert [row.number for row in store.rows(mine)] == [0]
        assert store.trial("mission-1/0") == timed(0)


def test_a_server_that_never_answered_is_not_waited_for(tmp_path: Path) -> None:
    """Nor said to be waited for, as a server is that did answer."""
    said: list[str] = []
    with pytest.raises(StoreError, match="cannot reach"):
        Store(f"postgresql://evo:secret@/postgres?host={tmp_path}", notice=said.append)
    assert said == []


@pytest.mark.slow
def test_searches_in_processes_of_their_own_survive_a_restart(own_server: str, tmp_path: Path) -> None:
    url = empty_database(own_server)
    script = str(Path(__file__).with_name("landscape.py"))
    names = [f"land-{number}" for number in range(3)]
    for name in names:
        (tmp_path / name).mkdir()
    searches = [
        subprocess.Popen(
            [sys.executable, script, url, name, "600", "2", "0.05"],
            stdout=subprocess.PIPE,
            text=True,
            cwd=tmp_path / name,
        )
        for name in names
    ]
    for one in searches:
        assert one.stdout
        one.stdout.readline()
    stop(folder_of(own_server), "fast")
    time.sleep(3)
    start(folder_of(own_server))
    ends = [one.communicate(timeout=300)[0] for one in searches]
    assert all(out.endswith("exhausted\n") for out in ends)
    with Store(url) as store:
        for name in names:
            numbers = [row.number for row in store.rows(store.study(name))]
            assert numbers == list(range(len(numbers)))
            assert len(numbers) > 300


# ---- copies


def fill(store: Store, folder: Path) -> None:
    """A confirmed study of a search, and one with everything else."""
    land = store.create(new_study(strategy="random"))
    search(land, store, spaces_of(folder), LandscapeWorkers(), enough(60))
    confirm(store.study("land-1"), store, SimulatedWorker(), top=3)
    mine = store.create(study())
    for number in range(4):
        store.add(mine, number, timed(number, 8.0 + number, gpu="GPU-b", divisor=1.05))
    store.add(mine, 4, estimated(4, 3.25))
    store.add(mine, 5, failed(5, Outcome.RED, "row error"))
    store.add(mine, 6, timed(6), same_as=0)
    store.offsets.add(mine, Offset("GPU-b", "GPU-a", "best", "p", 10, 1.05, 1.04, 1.06, 0.95))
    store.claim(mine, 3)


def everything(store: Store) -> dict[str, Any]:
    """What a store says of its studies; ids are its own."""
    found: dict[str, Any] = {}
    for one in store.studies():
        rows = store.rows(one)
        newest = store.confirmations.newest(one)
        found[one.name] = {
            "study": {k: v for k, v in vars(one).items() if k not in ("id", "status")},
            "rows": rows,
            "trials": [store.trial(f"{one.name}/{row.number}") for row in rows],
            "created": [store.trial(f"{one.name}/{row.number}").created for row in rows],
            "offsets": store.offsets.of(one),
            "rounds": newest and [store.confirmations.rounds(newest, p) for p in ("warm", "cold")],
            "finalists": newest and [(f.name, f.outcome, f.standings) for f in newest.finalists],
            "best": [(r.rank, r.kind, r.number, r.median_us) for r in store.leaderboard(study=one.name)],
        }
    return found


def test_a_copy_to_a_server_and_back_is_the_same(postgres: str, tmp_path: Path, evo: Evo) -> None:
    here, back = tmp_path / "here.db", tmp_path / "back.db"
    with Store(here) as store:
        fill(store, tmp_path)
        expected = everything(store)
    url = empty_database(postgres).replace("evo@", "evo:s3cret@")
    said = evo("database", "copy", str(here), url)
    assert said.code == 0, said.err
    count = sum(len(one["rows"]) for one in expected.values())
    assert f"{count} trials" in said.err
    assert count > 20
    assert "s3cret" not in said.out + said.err
    assert evo("database", "copy", url, str(back)).code == 0
    for place in (url, str(back)):
        with Store(place) as store:
            assert everything(store) == expected
            assert store.study("mission-1").status == "interrupted"
            store.release(store.claim(store.study("mission-1"), 1), "interrupted", 1.0)
            store.add(store.study("mission-1"), 7, timed(7))  # ids go on
    with closing(sqlite3.connect(back)) as connection, closing(sqlite3.connect(here)) as first:
        for table in ("trials", "sources", "environments", "rounds", "finalists"):
            counted = f"SELECT count(*) FROM {table}"
            more = connection.execute(counted).fetchone()[0] - first.execute(counted).fetchone()[0]
            assert more == (1 if table in ("trials", "sources") else 0)
    again = evo("database", "copy", str(here), url)
    assert again.code == 2
    assert "has studies of the same names: land-1, mission-1" in again.err
    assert "s3cret" not in again.err


def test_one_study_joins_others(tmp_path: Path) -> None:
    with Store(tmp_path / "a.db") as a, Store(tmp_path / "b.db") as b:
        for store, name in ((a, "one"), (a, "two"), (b, "three")):
            mine = store.create(study(name))
            for number in range(3):
                store.add(mine, number, timed(number))
    said: list[str] = []
    there = str(tmp_path / "b.db")
    counts = copy_studies(str(tmp_path / "a.db"), there, ["two"], said.append)
    assert (counts["studies"], counts["trials"], counts["sources"]) == (1, 3, 3)
    with pytest.raises(UnknownName, match="unknown study: four"):
        copy_studies(str(tmp_path / "a.db"), there, ["four"], said.append)
    with pytest.raises(UsageError, match="same names: two"):
        copy_studies(str(tmp_path / "a.db"), there, [], said.append)
    with Store(there) as store:
        assert [one.name for one in store.studies()] == ["three", "two"]
        assert [store.trial(f"two/{n}") for n in range(3)] == [timed(n) for n in range(3)]
    with closing(sqlite3.connect(there)) as connection:
        assert connection.execute("SELECT count(*) FROM sources").fetchone() == (3,), "sources are shared"
        assert connection.execute("SELECT count(*) FROM environments").fetchone() == (1,)


def test_a_damaged_row_is_not_copied(tmp_path: Path) -> None:
    here = tmp_path / "a.db"
    with Store(here) as store:
        store.add(store.create(study()), 0, timed(0))
    with closing(sqlite3.connect(here)) as connection:
        connection.execute("UPDATE trials SET point = '{'")
        connection.commit()
    with pytest.raises(StoreError, match="row 1 of trials is damaged: nothing was copied"):
        copy_studies(str(here), str(tmp_path / "b.db"), [], lambda _: None)
    with Store(tmp_path / "b.db") as store:
        assert store.studies() == []
