"""What can go wrong with a database: URLs, rights, disks."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import tempfile
from pathlib import Path

import pytest
import sqlalchemy as sa
from trials import study, timed

from evo.errors import StoreError
from evo.store import Store


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


def test_only_one_folder_is_made(tmp_path: Path) -> None:
    """One that was mistyped is not made with all above it."""
    with pytest.raises(StoreError, match=r"cannot make .*: there is no folder .*/lost\n") as caught:
        Store(tmp_path / "lost" / "runs" / "evo.db")
    assert f"mkdir -p {tmp_path}/lost/runs" in caught.value.hint
    assert list(tmp_path.iterdir()) == []
    Store(tmp_path / "runs" / "evo.db").close()
    assert (tmp_path / "runs" / "evo.db").is_file()


@pytest.mark.parametrize(("path", "kind"), [("/dev/null", "device"), ("/tmp", "folder")])
def test_what_is_no_file(path: str, kind: str) -> None:
    with pytest.raises(StoreError, match=f"^cannot open {path}: it is a {kind}\n"):
        Store(path)


def test_a_disk_that_fails_is_not_a_full_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: sa.Connection) -> None:
        raise sa.exc.OperationalError("", None, sqlite3.OperationalError("disk I/O error"))

    with Store(tmp_path / "evo.db") as store:
        with pytest.raises(StoreError, match=r"^cannot read or write .*evo.db: disk I/O error\n"):
            store._database.write(fail)
        monkeypatch.setattr("evo.store.engine.ROOM", 1 << 60)
        with pytest.raises(StoreError, match="the disk is full"):
            store._database.write(fail)


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
