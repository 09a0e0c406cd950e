"""A database that an evo of before release 0.1.0 wrote is opened, and nothing in it is lost.

databases/README.md says how it was made, and what the code that wrote it said of it.
"""

from __future__ import annotations

import dataclasses
import json
import lzma
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from finals import SimulatedWorker
from landscape import LandscapeWorkers, sequence, spaces_of
from postgres import empty_database

from evo.confirm import confirm
from evo.loop import search
from evo.store import Store
from evo.store.schema import HEAD, metadata
from evo.trial import Outcome, Trial, digest_of

DATABASES = Path(__file__).with_name("databases")


@cache
def text(name: str) -> str:
    return lzma.decompress((DATABASES / name).read_bytes()).decode()


@pytest.fixture
def known() -> dict[str, Any]:
    """What the code that wrote the database said of it."""
    found: dict[str, Any] = json.loads(text("schema-0004.json.xz"))
    return found


@pytest.fixture(params=["sqlite", "postgresql"])
def older(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The database as that code left it, in a file or on a server."""
    if request.param == "sqlite":
        path = tmp_path / "evo.db"
        path.write_bytes(lzma.decompress((DATABASES / "schema-0004.db.xz").read_bytes()))
        return str(path)
    url = empty_database(request.getfixturevalue("postgres"))
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"), poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.exec_driver_sql(text("schema-0004.sql.xz"))
    return url


@pytest.fixture
def store(older: str) -> Iterator[Store]:
    with Store(older) as opened:
        yield opened


def plain(value: Any) -> Any:
    """A value as JSON has it; the order of a mapping is part of it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return str(value) if isinstance(value, Outcome) else value


def rows(store: Store, query: str) -> list[dict[str, Any]]:
    found = store._database.read(lambda c: c.execute(sa.text(query)).mappings().all())
    return [dict(row) for row in found]


# ---- what is in it


def test_it_is_upgraded_once_and_says_so(older: str) -> None:
    said: list[str] = []
    with Store(older, notice=said.append) as store:
        assert said == [f"database {store.name}: schema upgraded from 0004 to {HEAD}"]
    Store(older, notice=said.append).close()
    assert len(said) == 1


def test_it_has_the_schema_of_a_new_database(store: Store, tmp_path: Path) -> None:
    def compare(connection: sa.Connection) -> list[object]:
        tables = {"include_name": lambda name, kind, _: kind != "table" or name != "evo_schema"}
        return list(compare_metadata(MigrationContext.configure(connection, opts=tables), metadata))

    assert store._database.read(compare) == []
    with Store(tmp_path / "new.db") as new:
        assert store._database.read(views) == new._database.read(views)


def views(connection: sa.Connection) -> dict[str, set[str]]:
    """The columns of each view."""
    inspector = sa.inspect(connection)
    return {view: {c["name"] for c in inspector.get_columns(view)} for view in inspector.get_view_names()}


def test_its_studies(store: Store, known: dict[str, Any]) -> None:
    # what came later is as it was when nobody could ask for it
    later = {
        "accept_unproven": False,
        "ranking": "plain",
        "calls": None,
        "given": "",
        "gpus": [],
        "until": "converged",
        "starts": [],
        "portfolio": 0,
    }
    assert [plain(study) for study in store.studies()] == [one | later for one in known["studies"]]
    planted = store.study("planted-1")
    assert planted.folders == ("/tmp/more-kernels", "/tmp/no-kernels")
    assert planted.warm_start == {"attention-1": 51}


def test_its_trials(store: Store, known: dict[str, Any]) -> None:
    assert len(known["trials"]) > 100
    for one in known["trials"]:
        trial = store.trial(f"{one['study']}/{one['number']}")
        assert stored(trial) == expected(one), trial.name
        assert store.trial(one["id"]) == trial
    for study in store.studies():
        mine = [one for one in known["trials"] if one["study"] == study.name]
        light = [(r.number, str(r.outcome), r.program, r.launch_digest, r.same_as) for r in store.rows(study)]
        assert light == [
            (o["number"], o["trial"]["outcome"], o["program"], o["launch_digest"], o["same_as"]) for o in mine
        ]


def stored(trial: Trial) -> dict[str, Any]:
    """A trial of today, by the names that `expected` has."""
    found: dict[str, Any] = plain(trial)
    source = found["candidate"].pop("source")
    return found | {"source_digest": digest_of(source.encode())}


def expected(one: dict[str, Any]) -> Any:
    """A trial as the older code had it. How often it was evaluated was among its clocks and counters."""
    trial = one["trial"]
    timed = (trial["timing"] or {"clocks": {}})["clocks"].pop("visits", 1)
    green = trial["counters"].pop("green_visits", 0)
    if trial["timing"] is not None:
        trial["timing"] = timing_today(trial["timing"])
    trial["candidate"]["launch"] |= {"cooperative": False, "constants": []}  # no launch was, or had any
    added = {name: one[name] for name in ("id", "study", "number", "created", "same_as", "source_digest")}
    later = {"evaluations": timed + green, "extent": None, "reads": [], "gpu": "", "divisor": 1.0}
    return trial | added | later


def one_input(then: dict[str, Any], versus: str, **more: Any) -> dict[str, Any]:
    """A time of then, which was on plain inputs alone, as it is written today."""
    time = {name: then[name] for name in ("median_us", "interval", "speedup", "speedup_interval")}
    time["versus"] = versus
    on = "" if time["speedup"] is None else "plain"
    return time | {"on": on, "ranking": "plain", "times": {"plain": time | more}}


def timing_today(then: dict[str, Any]) -> dict[str, Any]:
    beside, ratio = then["baselines_us"], then["speedup"]
    versus = "" if ratio is None else min(beside, key=lambda b: abs(beside[b] - ratio * then["median_us"]))
    found = one_input(then, versus, baselines_us=beside, samples_us=then["samples_us"])
    return found | {"protocol": then["protocol"], "inputs": 1, "clocks": then["clocks"]}


def standing_today(then: dict[str, Any]) -> dict[str, Any]:
    nothing: dict[str, Any] = {"baselines_us": {}, "samples_us": []}
    return one_input(then, then["versus"], **nothing) | {"verdict": then["verdict"]}


def row_today(then: dict[str, Any]) -> dict[str, Any]:
    """A row of the leaderboard; only an estimate has no time on any input."""
    if then["median_us"] is None:
        return then | {"ranking": "", "on": "", "times": {}, "timing_inputs": 0, "own_data": ""}
    level, ratio, beside = then["level"], then["speedup"], then["baselines_us"]
    own = {"low": then["low_us"], "high": then["high_us"], "level": level}
    around = {"low": then["speedup_low"], "high": then["speedup_high"], "level": level}
    versus = then["versus"] or min(beside, key=lambda b: abs(beside[b] - ratio * then["median_us"]))
    time = {
        "median_us": then["median_us"],
        "interval": own,
        "speedup": ratio,
        "speedup_interval": around,
        "versus": versus,
        "baselines_us": beside,
        "samples_us": [],
    }
    more = {"ranking": "plain", "on": "plain", "times": {"plain": time}, "timing_inputs": 1, "own_data": ""}
    return then | more | {"versus": versus}


def test_its_confirmations_with_every_sample(store: Store, known: dict[str, Any]) -> None:
    assert [c["status"] for c in known["confirmations"]] == ["running", "finished", "finished", "running"]
    for one in known["confirmations"]:
        rounds = one.pop("rounds")
        for finalist in one["finalists"]:
            finalist["standings"] = {p: standing_today(s) for p, s in finalist["standings"].items()}
        for named in one["baselines"].values():
            named |= {name: standing_today(standing) for name, standing in named.items()}
        found = store.confirmations.get(one["id"])
        assert plain(found) == one | {"gpu": ""}
        finalists = {finalist.name for finalist in found.finalists}
        for protocol, then in rounds.items():
            taken = store.confirmations.rounds(found, protocol)
            plain_only = [{name: own["plain"] for name, own in plain(r.samples_us).items()} for r in taken]
            assert plain_only == [r["samples_us"] for r in then]
            assert all(r.inputs == ("plain",) for r in taken)
            assert all(set(r.finalists_us) <= finalists for r in taken)
            assert all(set(r.baselines_us) == {"cudnn", "flash", "math"} for r in taken)
            for name in ("protocol", "seed", "clocks", "throttled"):
                assert [plain(getattr(r, name)) for r in taken] == [r[name] for r in then]
    for study in store.studies():
        assert store.confirmations.contenders(study, 8) == known["contenders"][study.name]
        assert plain(store.confirmations.refused(study)) == known["refused"][study.name]


def test_its_leaderboards_and_failures(store: Store, known: dict[str, Any]) -> None:
    unknown = dict.fromkeys(("cases_run", "cases_planned", "classes_missed", "own_share")) | {"reads": ""}
    for board in known["leaderboards"]:
        static = [None if row["registers"] is None else 0 for row in board["rows"]]  # as its trials say
        rows = zip(board["rows"], static, strict=True)
        expected_rows = [row_today(row) | unknown | {"static_smem_bytes": n} for row, n in rows]
        assert [plain(row) for row in store.leaderboard(**board["asked"])] == expected_rows, board["asked"]
    kinds = {row["kind"] for board in known["leaderboards"] for row in board["rows"]}
    assert kinds == {"confirmed", "measured", "estimate"}
    for study in store.studies():
        assert [plain(failure) for failure in store.failures(study)] == known["failures"][study.name]


def test_its_view_of_the_leaderboard(store: Store, known: dict[str, Any]) -> None:
    columns = list(known["view"][0])
    found = rows(store, f"SELECT {', '.join(columns)} FROM leaderboard ORDER BY trial")
    points = [row.pop("point") for row in found]
    assert [json.loads(p) if isinstance(p, str) else p for p in points] == [
        json.loads(row.pop("point")) for row in known["view"]
    ]
    assert found == known["view"]


# ---- what can be done with it


@pytest.mark.parametrize(
    "older", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)], indirect=True
)
def test_its_search_is_resumed(store: Store, tmp_path: Path) -> None:
    study = store.study("land-1")
    before = sequence(store, study)
    spaces = spaces_of(tmp_path / "t")
    longer = replace(study, budget_s=120.0)
    assert search(longer, store, spaces, LandscapeWorkers()).stopped == "exhausted"
    after = sequence(store, study)
    assert len(after) > len(before) == 33
    assert after[: len(before)] == before
    whole = store.create(replace(study, name="land-2", budget_s=120.0, spent_s=0.0))
    search(whole, store, spaces, LandscapeWorkers())
    assert len(after) == len(set(after)), "no point twice"
    assert {trial[1:] for trial in after} == {trial[1:] for trial in sequence(store, whole)}, (
        "the same trials as those of a search that nothing ended, which begins with other points today"
    )


def test_a_confirmation_that_was_killed_goes_on(store: Store) -> None:
    study = store.study("land-1")
    cut = store.confirmations.newest(study)
    assert cut is not None
    before = store.confirmations.rounds(cut, "warm")
    found = confirm(study, store, SimulatedWorker(versions={"x": "2"}, inputs=("plain",)), top=3)
    assert found is not None
    assert (found.id, found.status) == (cut.id, "finished")
    assert store.confirmations.rounds(found, "warm")[: len(before)] == before


@pytest.mark.nvcc
@pytest.mark.slow
def test_its_search_on_the_emulator_is_resumed_by_the_command(tmp_path: Path) -> None:
    path = tmp_path / "evo.db"
    path.write_bytes(lzma.decompress((DATABASES / "schema-0004.db.xz").read_bytes()))
    words = ["resume", "attention-1", "--budget", "+10s", "--database", str(path)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, "-m", "evo", *words]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    assert "schema upgraded from 0004" in done.stderr
    with Store(path) as store:
        assert len(store.rows(store.study("attention-1"))) > 51
