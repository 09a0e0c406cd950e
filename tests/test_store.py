"""The store, on SQLite and on a real PostgreSQL server, started from its binaries (skipped without them)."""

from __future__ import annotations

import dataclasses
import math
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from evo.errors import StoreError, UnknownName, UsageError
from evo.store import Store, TrialRow
from evo.store.engine import migrated_to
from evo.store.packing import pack_source, unpack_source
from evo.store.schema import HEAD, metadata
from evo.study import Study
from evo.trial import (
    BufferArg,
    Candidate,
    CaseError,
    Interval,
    LaunchConfig,
    Outcome,
    Problem,
    Resources,
    ScalarArg,
    Timing,
    Trial,
    Value,
    Workspace,
)

PROBLEM = Problem("attention", {"B": 1, "H": 8, "L": 512, "D": 64}, "fp16", {"causal": False})
SOURCE = "// point {}\n" + "".join(
    f"__device__ float f{i}(float x) {{{{ return x * {i}.5f; }}}}\n" for i in range(900)
)


def study(name: str = "mission-1", **changed: object) -> Study:
    return dataclasses.replace(Study(name, PROBLEM, "emulator", "L4", ("flash_mma",), 120.0), **changed)  # type: ignore[arg-type]


def candidate(number: int = 0, template: str = "flash_mma", problem: Problem = PROBLEM) -> Candidate:
    launch = LaunchConfig(
        (8, 8, 1),
        (128, 1, 1),
        24576,
        (BufferArg("q"), BufferArg("o"), ScalarArg(0.125, "f32")),
        workspaces=(Workspace("partial", 4096),),
    )
    point: dict[str, Value] = {
        "k_stages": number % 4,
        "bm": 64,
        "swizzle": "xor",
        "persistent": True,
        "at": number,
    }
    return Candidate(problem, template, point, SOURCE.format(number), "attention_kernel", launch)


def timed(number: int = 0, median_us: float = 8.0, **changed: object) -> Trial:
    trial = Trial(
        candidate(number),
        Outcome.TIMED,
        resources=Resources(128, 0, 16, 0, ("C7508: something",)),
        machine_code=f"code {number}",
        compiler="nvrtc 13.0.88",
        errors=(
            CaseError(PROBLEM.key, "normal", 3, 0.001, 0.02),
            CaseError(PROBLEM.key, "peaky", 4, 0.002, 0.02),
        ),
        timing=Timing(
            (8.0, 8.25, 7.75),
            median_us,
            Interval(median_us - 0.5, median_us + 0.5),
            "warm",
            {"cudnn": 9.1, "flash": 10.27},
            1.14,
            Interval(1.0, 1.2),
            {"sm_mhz": 1980.0},
        ),
        counters={"global_bytes": 1048576, "ratio": 0.25},
        seconds={"compile": 0.31, "gate": 0.02},
        device="NVIDIA H200",
        versions={"torch": "2.11", "evo": "0.1"},
    )
    return dataclasses.replace(trial, **changed)  # type: ignore[arg-type]


def estimated(number: int, estimate_us: float, gpu: str = "L4") -> Trial:
    return Trial(
        candidate(number),
        Outcome.GREEN,
        estimate_us=estimate_us,
        estimate_gpu=gpu,
        device=f"emulator ({gpu})",
    )


def failed(number: int, outcome: Outcome, reason: str) -> Trial:
    return Trial(candidate(number), outcome, reason, "what happened\0", "flash.cu:12", device="emulator (L4)")


# ---- a real server


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """URL of a fresh server's maintenance database; the server ends with the tests."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: int(p.parent.name))
    initdb = shutil.which("initdb") or (str(folders[-1] / "initdb") if folders else "")
    if not initdb:
        pytest.skip("no PostgreSQL binaries (initdb, pg_ctl)")
    as_user: list[str] = []
    root = Path(tempfile.mkdtemp(prefix="evo-pg-"))
    if os.geteuid() == 0:  # the server refuses to run as root
        setpriv = shutil.which("setpriv")
        if not setpriv:
            pytest.skip("PostgreSQL refuses to run as root, and there is no setpriv to become someone else")
        as_user = [setpriv, "--reuid=65534", "--regid=65534", "--clear-groups"]
        os.chown(root, 65534, 65534)
    pg_ctl = [*as_user, str(Path(initdb).parent / "pg_ctl"), "-D", f"{root}/db", "-s", "-w"]

    def run(*command: str) -> None:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    try:
        run(*as_user, initdb, "-D", f"{root}/db", "-U", "evo", "-A", "trust", "-E", "UTF8", "--no-sync")
        run(*pg_ctl, "-o", f"-k {root} -c listen_addresses='' -c fsync=off", "-l", f"{root}/log", "start")
        yield f"postgresql://evo@/postgres?host={root}"
    finally:
        subprocess.run(
            [*pg_ctl, "-m", "immediate", "stop"], cwd=root, capture_output=True, timeout=60, check=False
        )
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of either kind."""
    if request.param == "sqlite":
        return str(tmp_path / "runs" / "evo.db")
    server: str = request.getfixturevalue("postgres")
    name = f"evo_{uuid.uuid4().hex[:12]}"
    engine = sa.create_engine(
        server.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT"
    )
    with engine.connect() as connection:
        connection.execute(sa.text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return server.replace("/postgres?", f"/{name}?")


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with Store(url) as opened:
        yield opened


# ---- what goes in comes out


@pytest.mark.parametrize(
    "trial",
    [
        timed(),
        timed(resources=None, machine_code="", errors=()),
        estimated(1, 12.5),
        dataclasses.replace(failed(2, Outcome.RED, "row error"), detail="fine"),
    ],
)
def test_a_trial_comes_back_as_it_was(store: Store, trial: Trial) -> None:
    mine = store.create(study())
    store.add(mine, 7, trial)
    stored = store.trial("mission-1/7")
    assert stored == trial
    assert stored.candidate.problem.key == PROBLEM.key
    assert list(stored.candidate.point) == list(trial.candidate.point), "the order of the parameters renders"
    assert store.trial(stored.id) == stored
    assert store.rows(mine) == [TrialRow.of(7, trial)]


def test_a_trial_of_another_problem_keeps_it(store: Store) -> None:
    mine = store.create(study())
    other = PROBLEM.replace(L=2048, causal=True)
    store.add(mine, 0, timed(candidate=candidate(problem=other)))
    assert store.trial("mission-1/0").candidate.problem == other


def test_a_study_comes_back_as_it_was(store: Store) -> None:
    first = study(
        smem_limit=49152,
        target="sm_89",
        rate=0.51,
        folders=("/some/folder", "/another"),
        warm_start={"earlier": 3},
        versions={"evo": "0.1"},
        seed=2**40,
    )
    made = store.create(first)
    assert dataclasses.replace(made, id=0, created="") == first
    store.set_baselines(made, {"cudnn": 9.1})
    again = store.set_budget(made, 240.0)
    assert (again.budget_s, again.baselines_us, again.rate) == (240.0, {"cudnn": 9.1}, 0.51)
    store.create(study("mission-2"))
    assert [s.name for s in store.studies()] == ["mission-1", "mission-2"]
    assert store.unused_name("mission") == "mission-3"


def test_rejects_names(store: Store) -> None:
    store.create(study())
    with pytest.raises(UsageError, match="already"):
        store.create(study())
    for name in ("", "a/b", " a", "12"):
        with pytest.raises(UsageError, match="unusable"):
            store.create(study(name))
    with pytest.raises(UnknownName) as caught:
        store.study("mision-1")
    assert "did you mean mission-1?" in caught.value.hint
    with pytest.raises(UnknownName, match="unknown study"):
        store.trial("nothing/1")
    with pytest.raises(UnknownName, match="unknown trial"):
        store.trial("mission-1/1")
    with pytest.raises(UsageError, match="malformed trial"):
        store.trial("mission-1/x")
    with pytest.raises(UnknownName):
        store.leaderboard(study="nothing")


def test_a_number_is_recorded_once(store: Store) -> None:
    mine = store.create(study())
    store.add(mine, 0, timed())
    with pytest.raises(StoreError):
        store.add(mine, 0, timed(1))
    assert [row.machine_code for row in store.rows(mine)] == ["code 0"]
    store.add(
        mine, 1, timed(1)
    )  # what the failed transaction had inserted besides is not assumed to be there
    assert store.trial("mission-1/1") == timed(1)


def test_another_visit_changes_what_it_found_and_nothing_else(store: Store) -> None:
    mine, other = store.create(study()), store.create(study("other-1"))
    store.add(mine, 0, timed(0, 7.0))
    store.add(mine, 1, timed(1, 6.0))
    store.add(mine, 2, timed(2, 6.0), same_as=1)
    store.add(other, 1, timed(5, 9.0))
    before = {name: store.trial(name) for name in ("mission-1/0", "mission-1/1", "mission-1/2", "other-1/1")}
    found = before["mission-1/1"]
    assert found.timing
    more = dataclasses.replace(
        found.timing,
        samples_us=(8.0,) * 6,
        median_us=8.0,
        interval=Interval(7.5, 8.5),
        clocks={"sm_mhz": 1900.0, "visits": 2.0},
    )
    again = dataclasses.replace(found, timing=more, seconds={"gate": 99.0}, device="another")
    store.revise(mine, [1, 2], again, 12.5)
    for name, number in (("mission-1/1", 1), ("mission-1/2", 2)):
        was, now = before[name], store.trial(name)
        assert now == dataclasses.replace(was, timing=more)
        assert (now.id, now.number, now.created) == (was.id, number, was.created)
    assert [r.number for r in store.leaderboard(study="mission-1")] == [0, 1]
    assert store.study("mission-1").spent_s == 12.5

    errors = (CaseError(PROBLEM.key, "normal", 9, 0.5, 0.02),)
    red = dataclasses.replace(
        found, outcome=Outcome.RED, reason="race", detail="two", where="k.cu:3", errors=errors, timing=None
    )
    store.revise(mine, [1, 2], dataclasses.replace(red, seconds={"gate": 99.0}), 13.0)
    assert store.trial("mission-1/1") == red
    assert [r.number for r in store.leaderboard(study="mission-1")] == [0]
    assert [(f.reason, f.count) for f in store.failures(mine)] == [("race", 2)]
    assert [row.median_us for row in store.rows(mine)] == [7.0, None, None]
    for name in ("mission-1/0", "other-1/1"):
        assert store.trial(name) == before[name]


def test_numbers_that_are_none_are_null(store: Store) -> None:
    mine = store.create(study())
    errors = (
        CaseError(PROBLEM.key, "normal", 0, math.nan, 0.02),
        CaseError(PROBLEM.key, "huge", 0, 0.5, 0.02),
    )
    store.add(mine, 0, dataclasses.replace(failed(0, Outcome.RED, "row error"), errors=errors))
    stored = store.trial("mission-1/0")
    assert [e.row_error for e in stored.errors] == [math.inf, 0.5]
    for wrong in (math.inf, -1.0, 0.0):
        with pytest.raises(StoreError):
            store.add(mine, 1, timed(1, median_us=wrong))
        with pytest.raises(StoreError):
            store.add(mine, 1, estimated(1, wrong))
    with pytest.raises(Exception, match="JSON compliant"):
        store.add(mine, 1, timed(1, seconds={"gate": math.nan}))
    assert len(store.rows(mine)) == 1


@pytest.mark.parametrize("base", [None, "", SOURCE.format(1), SOURCE[:20000], SOURCE * 3, "x" * 100])
@pytest.mark.parametrize("text", ["", "é", SOURCE.format("two"), SOURCE[3000:], SOURCE * 2])
def test_sources_survive_packing(text: str, base: str | None) -> None:
    assert unpack_source(pack_source(text, base), base) == text


def test_edited_sources_survive_packing() -> None:
    dice = random.Random(3)
    base = SOURCE.format(1).split("\n")
    for _ in range(50):
        lines = list(base)
        for _ in range(dice.randrange(8)):
            at, size = dice.randrange(len(lines)), dice.randrange(5)
            edits = [[], ["}"] * size, [f"new {dice.random()}"], lines[at : at + 40], dice.sample(base, size)]
            lines[at : at + size] = dice.choice(edits)
        text = "\n".join(lines)
        assert unpack_source(pack_source(text, SOURCE.format(1)), SOURCE.format(1)) == text


def test_similar_sources_are_small() -> None:
    base, other = SOURCE.format(1), SOURCE.replace("f300(", "g300(").format(2)
    assert len(base) > 40000
    assert len(pack_source(other, base)) < 120


def test_sources_of_older_databases_are_read() -> None:
    base, text = SOURCE.format(1).encode(), SOURCE.replace("f300(", "g300(").format(2).encode()
    packed = b""
    for start in range(0, len(text), 12288):
        packer = zlib.compressobj(9, zdict=base[max(0, start - 8192) : start + 20480])
        part = packer.compress(text[start : start + 12288]) + packer.flush()
        packed += len(part).to_bytes(2, "little") + part
    assert unpack_source(packed, base.decode()) == text.decode()


# ---- questions


def test_leaderboard_ranks_measured_times_and_never_mixes_estimates_in(store: Store) -> None:
    mine, other = store.create(study()), store.create(study("other-1"))
    store.add(mine, 0, timed(0, 9.0))
    store.add(mine, 1, timed(1, 7.0))
    store.add(mine, 2, estimated(2, 0.5))
    store.add(mine, 3, failed(3, Outcome.RED, "race"))
    store.add(mine, 4, timed(4, 6.0), same_as=1)
    store.add(other, 0, timed(5, 8.0))
    ranked = store.leaderboard()
    assert [(r.study, r.number) for r in ranked] == [
        ("mission-1", 1),
        ("other-1", 0),
        ("mission-1", 0),
        ("mission-1", 2),
    ]
    assert ranked[0].median_us == 7.0
    assert ranked[0].estimate_us is None
    assert ranked[0].baselines_us == {"cudnn": 9.1, "flash": 10.27}
    assert ranked[0].point == candidate(1).point
    assert ranked[3].median_us is None
    assert ranked[3].estimate_us == 0.5
    assert [r.number for r in store.leaderboard(study="mission-1", limit=1)] == [1, 2]
    assert [r.number for r in store.leaderboard(gpu="h200", limit=1)] == [1]
    assert [r.number for r in store.leaderboard(gpu="l4")] == [2]
    assert store.leaderboard(gpu="%") == []
    assert store.leaderboard(template="wmma") == []
    assert store.leaderboard(task="gemm") == []
    assert len(store.leaderboard(problem=PROBLEM.key, task="attention", template="flash_mma")) == 4
    assert store.count(mine) == {"TIMED": 3, "GREEN": 1, "RED": 1}


def test_failures_are_counted_by_reason(store: Store) -> None:
    mine = store.create(study())
    for number, reason in enumerate(["race", "row error", "race"]):
        store.add(mine, number, failed(number, Outcome.RED, reason))
    store.add(mine, 9, timed(9))
    assert [dataclasses.astuple(f) for f in store.failures(mine)] == [
        ("RED", "race", 2, 0),
        ("RED", "row error", 1, 1),
    ]


def test_views_answer_the_command_line_while_a_search_writes(tmp_path: Path) -> None:
    if not shutil.which("sqlite3"):
        pytest.skip("no sqlite3 command")
    with Store(tmp_path / "evo.db") as store:
        mine = store.create(study())
        store.add(mine, 0, timed(0, 9.0))
        store.add(mine, 1, timed(1, 7.0))
        store.add(mine, 2, estimated(2, 0.5))
        store.add(mine, 3, failed(3, Outcome.HUNG, "no answer"))

        def ask(query: str) -> list[str]:
            command = ["sqlite3", str(tmp_path / "evo.db"), query]
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()

        ranks = ask(
            "SELECT rank, kind, number, median_us, estimate_us FROM leaderboard ORDER BY kind DESC, rank"
        )
        assert ranks == ["1|measured|1|7.0|", "2|measured|0|9.0|", "1|estimate|2||0.5"]
        assert ask("SELECT study, outcome, reason FROM failures") == ["mission-1|HUNG|no answer"]
        assert ask("SELECT point ->> 'swizzle' FROM leaderboard LIMIT 1") == ["xor"]


def test_views_on_postgresql(postgres: str) -> None:
    engine = sa.create_engine(
        postgres.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT"
    )
    with engine.connect() as connection:
        connection.execute(sa.text("CREATE DATABASE views"))
    engine.dispose()
    with Store(postgres.replace("/postgres?", "/views?")) as store:
        mine = store.create(study())
        store.add(mine, 0, timed(0, 9.0))
        store.add(mine, 1, failed(1, Outcome.RED, "race"))
        query = sa.text("SELECT rank, kind, number, point->>'swizzle' FROM leaderboard")
        assert [tuple(r) for r in store._database.read(lambda c: c.execute(query).all())] == [
            (1, "measured", 0, "xor")
        ]
        assert len(store._database.read(lambda c: c.execute(sa.text("SELECT * FROM failures")).all())) == 1


# ---- the schema's history


def test_migrations_build_what_the_code_expects(store: Store) -> None:
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


def test_an_older_database_is_upgraded_with_a_message(tmp_path: Path) -> None:
    path = str(tmp_path / "evo.db")
    with migrated_to(path, "0001"):
        pass
    said: list[str] = []
    with Store(path, notice=said.append) as store:
        store.create(study())
    assert said == [f"database {path}: schema upgraded from 0001 to {HEAD}"]
    Store(path, notice=said.append).close()
    assert len(said) == 1


def test_a_newer_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "evo.db"
    Store(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE evo_schema SET version_num = '9999'")
    connection.close()
    with pytest.raises(StoreError, match="newer evo") as caught:
        Store(path)
    assert "upgrade evo" in caught.value.hint


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


# ---- what can go wrong


@pytest.mark.parametrize(
    "url", ["", "  ", "mysql://a/b", "postgresql:/x", "a://", "sqlite://host/x.db", "://", "x://y:z"]
)
def test_malformed_urls(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError) as caught:
        Store(url)
    assert caught.value.hint


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(StoreError, match="cannot reach") as caught:
        Store("postgresql://me:secret@127.0.0.1:1/evo?connect_timeout=3")
    assert "secret" not in str(caught.value)


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "evo.db"
    path.write_text("hello, this is a text and not a database at all" * 100)
    with pytest.raises(StoreError, match="no SQLite database"):
        Store(path)


def test_a_missing_database_is_only_made_on_request(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no database"):
        Store(tmp_path / "evo.db", create=False)
    assert not (tmp_path / "evo.db").exists()


def test_no_permission_on_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir()
    folder.chmod(0o555)
    tmp_path.chmod(0o755)
    # as root, permissions do not hold: become nobody for a moment
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        with pytest.raises(StoreError, match=r"cannot open .*Permission denied") as caught:
            Store(folder / "evo.db")
    finally:
        if root:
            os.seteuid(0)
    assert "rights" in caught.value.hint


def test_a_read_only_database() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to write and then open as someone else")
    folder = Path(tempfile.mkdtemp(prefix="evo-ro-"))
    folder.chmod(0o755)
    with Store(folder / "evo.db") as store:
        store.create(study())
    os.seteuid(65534)
    try:
        with pytest.raises(StoreError, match="cannot open"):
            Store(folder / "evo.db").create(study("b"))
    finally:
        os.seteuid(0)
        shutil.rmtree(folder)


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    with Store(tmp_path / "evo.db") as store:
        mine = store.create(study())
        store.add(mine, 0, timed(0))

    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", small], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("cannot mount a small file system here (needs root)")
    try:
        store = Store(small / "evo.db")
        mine = store.create(study())
        kept = 0
        with pytest.raises(StoreError, match="disk is full") as caught:  # noqa: PT012 - fails at some number
            for kept in range(10_000):
                store.add(mine, kept, timed(kept))
        assert "finished trials are safe" in caught.value.hint
        assert kept > 3
        store.close()
        subprocess.run(["mount", "-o", "remount,size=4m", small], check=True)
        with Store(small / "evo.db") as again:
            assert [row.number for row in again.rows(mine)] == list(range(kept))
            again.add(mine, kept, timed(kept))
            assert again.trial(f"mission-1/{kept}") == timed(kept)
            assert (
                again._database.read(lambda c: c.execute(sa.text("PRAGMA integrity_check")).scalar()) == "ok"
            )
    finally:
        subprocess.run(["umount", small], check=True)


# ---- several processes


def test_a_study_is_searched_by_one_process_at_a_time(store: Store, url: str) -> None:
    mine = store.create(study())
    script = (
        "import sys, time; from evo.store import Store\n"
        "store = Store(sys.argv[1]); store.claim(store.study('mission-1'), 4)\n"
        "print('claimed', flush=True); time.sleep(60)"
    )
    other = subprocess.Popen([sys.executable, "-c", script, url], stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    try:
        assert other.stdout.readline() == "claimed\n"
        with pytest.raises(UsageError, match="is being searched"):
            store.claim(mine, 3)
    finally:
        other.kill()
        other.communicate()
    assert store.claim(mine, 3).status == "running"
    assert store.claim(mine, 3).status == "running", "this process has it already"
    store.release(mine, "interrupted", 12.5)
    assert (store.study("mission-1").status, store.study("mission-1").spent_s) == ("interrupted", 12.5)


WRITER = """
import sys
sys.path.insert(0, sys.argv[3])
from test_store import Store, study, timed
name, count = sys.argv[2], int(sys.argv[4])
with Store(sys.argv[1]) as store:
    mine = store.create(study(name))
    for number in range(count):
        store.add(mine, number, timed(number), spent_s=float(number))
"""


def test_two_writers_and_a_reader_are_never_locked_out(url: str) -> None:
    # the writers also race to make the database
    command = [sys.executable, "-c", WRITER, url]
    here = str(Path(__file__).parent)
    writers = [
        subprocess.Popen([*command, name, here, "150"], stderr=subprocess.PIPE, text=True)
        for name in ("a-1", "b-1")
    ]
    reads = 0
    with Store(url) as reader:
        while any(writer.poll() is None for writer in writers):
            reader.leaderboard(limit=10)
            reads += 1
            time.sleep(0.005)
        problems = [writer.communicate()[1] for writer in writers]
        assert problems == ["", ""]
        assert reads > 5
        for name in ("a-1", "b-1"):
            assert [row.number for row in reader.rows(reader.study(name))] == list(range(150))
            assert reader.trial(f"{name}/149") == timed(149)


def test_a_trial_takes_little_room(tmp_path: Path) -> None:
    with Store(tmp_path / "evo.db") as store:
        mine = store.create(study())
        for number in range(100):
            errors = tuple(CaseError(PROBLEM.key, "normal", seed, 0.00123 * seed, 0.02) for seed in range(24))
            timing = dataclasses.replace(
                timed().timing, samples_us=tuple(8 + (number * k % 97) / 1000 for k in range(500))
            )  # type: ignore[type-var]
            store.add(mine, number, timed(number, errors=errors, timing=timing))
    assert sum(f.stat().st_size for f in tmp_path.iterdir()) / 100 < 20_000
