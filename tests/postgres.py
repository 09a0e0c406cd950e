"""A real PostgreSQL server, started from its binaries."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import sqlalchemy as sa


@contextmanager
def server() -> Iterator[str]:
    """URL of a fresh server's maintenance database. The test is skipped where there are no binaries."""
    initdb, as_user = initdb_as_user()
    root = Path(tempfile.mkdtemp(prefix="evo-pg-"))
    if as_user:
        os.chown(root, 65534, 65534)
    try:
        run(root, *as_user, initdb, "-D", f"{root}/db", "-U", "evo", "-A", "trust", "-E", "UTF8", "--no-sync")
        start(root)
        yield f"postgresql://evo@/postgres?host={root}"
    finally:
        with suppress(AssertionError):
            stop(root, "immediate")
        shutil.rmtree(root, ignore_errors=True)


def initdb_as_user() -> tuple[str, list[str]]:
    """The program, and how it is run by a user that is not root. The test is skipped where it cannot be."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: int(p.parent.name))
    initdb = shutil.which("initdb") or (str(folders[-1] / "initdb") if folders else "")
    if not initdb:
        pytest.skip("no PostgreSQL binaries (initdb, pg_ctl)")
    if os.geteuid() != 0:  # the server refuses to run as root
        return initdb, []
    setpriv = shutil.which("setpriv")
    if not setpriv:
        pytest.skip("PostgreSQL refuses to run as root, and there is no setpriv to become someone else")
    return initdb, [setpriv, "--reuid=65534", "--regid=65534", "--clear-groups"]


def run(root: Path, *command: str) -> None:
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def pg_ctl(root: Path) -> list[str]:
    initdb, as_user = initdb_as_user()
    return [*as_user, str(Path(initdb).parent / "pg_ctl"), "-D", f"{root}/db", "-s", "-w", "-t", "250"]


def start(root: Path) -> None:
    """Starts the server of that folder."""
    how = f"-k {root} -c listen_addresses='' -c fsync=off -c dynamic_shared_memory_type=mmap"
    run(root, *pg_ctl(root), "-o", how, "-l", f"{root}/log", "start")


def stop(root: Path, how: str) -> None:
    """Stops it: "fast" ends its connections, "immediate" is a crash."""
    run(root, *pg_ctl(root), "-m", how, "stop")


def folder_of(postgres: str) -> Path:
    """The folder of the server at that URL."""
    return Path(postgres.partition("?host=")[2])


def empty_database(postgres: str) -> str:
    """URL of a new database on a server."""
    name = f"evo_{uuid.uuid4().hex[:12]}"
    engine = sa.create_engine(
        postgres.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT"
    )
    with engine.connect() as connection:
        connection.execute(sa.text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return postgres.replace("/postgres?", f"/{name}?")
