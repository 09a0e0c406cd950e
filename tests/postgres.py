"""A real PostgreSQL server, started from its binaries."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa


@contextmanager
def server() -> Iterator[str]:
    """URL of a fresh server's maintenance database. The test is skipped where there are no binaries."""
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
        stop = [*pg_ctl, "-m", "immediate", "stop"]
        subprocess.run(stop, cwd=root, capture_output=True, timeout=60, check=False)
        shutil.rmtree(root, ignore_errors=True)


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
