"""What no output may have: passwords, and codes that a terminal obeys."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import tempfile
from pathlib import Path

import pytest
from command import Evo, two_studies
from hypothesis import given, settings
from hypothesis import strategies as st

from evo.api.parse import parse_budget, parse_bytes
from evo.errors import BadTemplate, UsageError, without_passwords
from evo.report import for_terminal
from evo.space import Parameter
from evo.store import Store

SECRETS = (
    "postgresql://me:s3cret@127.0.0.1:1/evo?connect_timeout=1",
    "postgresql://me:s3cret%40x@127.0.0.1:1/evo?connect_timeout=1",
    "postgresql://me:s3cret@x@127.0.0.1:1/evo",
    "postgresql://127.0.0.1:1/evo?user=me&password=s3cret&connect_timeout=1",
    "postgresql://127.0.0.1:1/evo?user=me&password=s3cret&nonsense=1",
    "postgresql://me@127.0.0.1:s3cret/evo",
    "postgresql://me/x:s3cret@127.0.0.1/evo",
    "postgresql:/me:s3cret@127.0.0.1/evo",
    "postgres//me:s3cret@127.0.0.1/evo",
    "mysql://me:s3cret@127.0.0.1/evo",
    "nonsense://me:s3cret@127.0.0.1/evo",
    "://me:s3cret@127.0.0.1/evo",
    "me:s3cret@127.0.0.1/evo",
    "me:s3cret@127.0.0.1",
    "127.0.0.1/evo?password=s3cret",
    "sqlite://me:s3cret@host/x.db",
    "postgresql://me:s3cret@" + "x" * 70 + ".invalid/evo",
    "postgresql://me:s3cret@[::1/evo",
)


@pytest.mark.parametrize("url", SECRETS)
def test_no_password_is_shown(evo: Evo, url: str) -> None:
    for words in (["studies"], ["show", "a/1"], ["resume", "a", "--budget", "+1h"]):
        said = evo(*words, "--database", url)
        assert said.code in (2, 3), said
        assert "s3cret" not in said.out + said.err
        assert said.err.splitlines()[-1].startswith(("hint: ", "error: ", "  ", "\t"))
        assert "Traceback" not in said.err


def test_a_traceback_shows_no_password(evo: Evo, monkeypatch: pytest.MonkeyPatch) -> None:
    def bug(url: str) -> None:
        raise RuntimeError(f"{url} and s3cret again")

    monkeypatch.setattr("evo.cli.results.open_store", bug)
    said = evo("studies", "--database", SECRETS[0])
    assert said.code == 1
    assert "RuntimeError: postgresql://me:***@127.0.0.1:1/evo?connect_timeout=1 and *** again" in said.err


@settings(max_examples=100, deadline=None, derandomize=True)
@given(password=st.text("abc%:/?#@ 1", min_size=8, max_size=12), tail=st.text("/?&=x", max_size=5))
def test_any_url_with_a_password_is_told_without_it(password: str, tail: str) -> None:
    word = password.strip()
    if len(word) >= 8:
        for text in (f"x://me:{word}@host{tail}", f"cannot reach x://me:{word}@host"):
            assert word not in without_passwords(text) or " " in word


ODD = "a\x1b]0;title\x07\x1b[2J\x9b31m\u202e\r\nb"


def _no_codes(text: str) -> None:
    assert all(c.isprintable() or c == "\n" for c in text), repr(text)


def test_what_databases_and_compilers_say_is_cleaned(evo: Evo, tmp_path: Path) -> None:
    path = tmp_path / "runs" / "evo.db"
    two_studies(path)
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE studies SET name = ? WHERE id = 1", (ODD,))
        columns = ("reason", "detail", "location", "template", "estimate_gpu")
        for column in columns:
            connection.execute(f"UPDATE trials SET {column} = ?", (ODD,))
        point = json.dumps({ODD: ODD})
        connection.execute("UPDATE trials SET point = ?, warnings = ?", (point, json.dumps([ODD])))
        connection.execute("UPDATE environments SET device = device || ?, compiler = ?", (ODD, ODD))
    for words in (
        *(["studies"], ["studies", "--json"], ["leaderboard"], ["leaderboard", "--json"]),
        *(["leaderboard", "--markdown"], ["leaderboard", "--csv"], ["show", "laptop-1/1"], ["show", "1"]),
        *(["show", "1", "--json"], ["show", f"{ODD}/77"], ["resume", ODD], ["leaderboard", "--study", ODD]),
        *([ODD], ["search", ODD, "--budget", "1m"], ["search", "--budget", ODD]),
    ):
        said = evo(*words)
        assert said.code in (0, 2, 3), said.err
        _no_codes(said.out + said.err)
    assert "\\x1b]0;title" in evo("studies").out
    assert json.loads(evo("studies", "--json").out)[0]["name"] == ODD
    for line in evo("studies").out.splitlines():
        assert not line.startswith("b")


@pytest.mark.parametrize("name", [ODD, "a\nb", "a\tb", "\x7f", "\u202eabc", "x" * 201, "\ud800"])
def test_no_study_gets_such_a_name(evo: Evo, tmp_path: Path, name: str) -> None:
    from trials import study

    with Store(tmp_path / "evo.db") as store:
        with pytest.raises(UsageError, match="unusable study name"):
            store.create(study(name))
        assert store.studies() == []
    assert evo("studies", "--database", "evo.db").code == 0


@settings(max_examples=200, deadline=None, derandomize=True)
@given(text=st.text(max_size=20))
def test_any_text_is_printable_afterwards(text: str) -> None:
    _no_codes(for_terminal(text))
    assert for_terminal(text, lines=False).isprintable()
    if text.isprintable():
        assert for_terminal(text) == text


@pytest.mark.parametrize(
    "words",
    [
        ["search", "--budget", "1m", "--seed", str(2**63)],
        ["search", "--budget", "1m", "--workers", str(10**20)],
        ["search", "--budget", "1m", "--rate", "inf"],
        ["search", "--budget", "9" * 400 + "h"],
        ["search", "--budget", "1m", "--smem-limit", "9" * 400],
        ["search", "--budget", "1m", "--shape", ",".join(["9" * 30] * 4)],
        ["leaderboard", "--limit", str(10**30)],
        ["gate", "--self-test", "--seed", str(2**64)],
        ["gate", "--mutate", "flash_mma", "--jobs", str(10**20)],
        ["audit", "--points", str(10**20)],
        ["bench", "--rounds", str(10**20)],
        ["insights", "a", "--top", str(10**20)],
        ["show", "a/" + "9" * 5000],
        ["show", "a/²"],
        ["show", "٣"],
    ],
)
def test_numbers_beyond_all_bounds_are_told(evo: Evo, words: list[str]) -> None:
    said = evo(*words)
    assert said.code in (2, 3), said.err
    assert "Traceback" not in said.err
    assert said.err.startswith("error: ")


@settings(max_examples=200, deadline=None, derandomize=True)
@given(text=st.text("0123456789.eEkKiIbBhmsd$+- ", max_size=400))
def test_any_budget_and_size_is_a_number_or_refused(text: str) -> None:
    with contextlib.suppress(UsageError):
        assert 0 < parse_budget(text, 0.5) < 1e9
    with contextlib.suppress(UsageError):
        assert 0 < parse_bytes(text) < 2**31


@pytest.mark.parametrize("value", [b"1", None, (1,), 1j, float("nan"), float("inf"), 2**63, -(10**30), [1]])
def test_a_value_that_nothing_can_hold_is_refused(value: object) -> None:
    with pytest.raises((BadTemplate, TypeError), match=r"unusable value|unhashable"):
        Parameter("bm", (1, value), 1)  # type: ignore[arg-type]


def test_a_database_that_may_only_be_read_is_read(evo: Evo) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to write and then read as another user")
    folder = Path(tempfile.mkdtemp(prefix="evo-ro-"))
    try:
        folder.chmod(0o755)
        two_studies(folder / "evo.db")
        os.seteuid(65534)
        try:
            for words in (["studies"], ["leaderboard"], ["show", "mission-1/0"], ["insights", "mission-1"]):
                said = evo(*words, "--database", str(folder / "evo.db"))
                assert said.code == 0, said.err
        finally:
            os.seteuid(0)
        assert [path.name for path in folder.iterdir()] == ["evo.db"]
        with Store(folder / "evo.db") as writer:  # a log that only its writer can join with the rest
            writer.claim(writer.study("mission-1"), 1)
            shutil.copy(folder / "evo.db-wal", folder / "kept")
        shutil.move(folder / "kept", folder / "evo.db-wal")
        os.seteuid(65534)
        try:
            said = evo("studies", "--database", str(folder / "evo.db"))
        finally:
            os.seteuid(0)
        assert said.code in (0, 3)
        assert said.code == 0 or "copy it and its -wal file" in said.err
    finally:
        shutil.rmtree(folder)


def test_a_read_only_disk_is_read(evo: Evo, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a tmpfs cannot be mounted here (it takes root)")
    try:
        two_studies(disk / "evo.db")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        for words in (["studies"], ["leaderboard"], ["show", "mission-1/0"]):
            said = evo(*words, "--database", str(disk / "evo.db"))
            assert said.code == 0, said.err
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
