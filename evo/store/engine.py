"""Connections: opening a database by URL, its schema's version, transactions that wait their turn, and errors
that say what to do."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection, Engine, ExceptionContext
from sqlalchemy.engine.url import URL
from sqlalchemy.exc import DatabaseError, DBAPIError, NoResultFound, NoSuchModuleError, OperationalError

from evo.errors import StoreError
from evo.store.address import Address
from evo.store.damage import from_json, reading
from evo.store.schema import HEAD, VERSION_TABLE, metadata, schema_version
from evo.store.views import VIEWS

BUSY_TIMEOUT_S = 30
RETRIES = 8
"""Attempts at a transaction that another one got in the way of, after SQLite's own busy timeout."""
OUTAGE_S = 120.0
"""How long a server that has answered before may be away: it is restarted, or the network is cut."""
ROOM = 1 << 20
"""Bytes that must be free on a disk, or it is full."""

Result = TypeVar("Result")


class Database:
    """One database, of either kind. `read` and `write` run a function in a transaction and retry it whole
    where another transaction got in the way, so the function must have no other effect."""

    def __init__(self, url: str, create: bool = True, notice: Callable[[str], None] = lambda _: None) -> None:
        self._address = Address.of(url)
        self._notice = notice
        self._unsure = False
        """Whether the change under way may have been committed already."""
        self._answered = False
        """Whether the database has answered before: then it is waited for."""
        if self._address.file:
            _make_room(self._address.file, create)
        self._engine = _engine(self._address)
        self._writer = self._engine.execution_options(evo_writes=True)
        try:
            self._migrate(notice)
        except BaseException:
            self.close()  # else the file stays locked
            raise

    @property
    def name(self) -> str:
        """For messages: the file, or the URL without its password."""
        return self._address.name

    def read(self, query: Callable[[Connection], Result]) -> Result:
        return self._attempt(self._engine, query)

    def write(
        self,
        change: Callable[[Connection], Result],
        undo: Callable[[], None] = lambda: None,
        written: Callable[[Connection], Result | None] = lambda _: None,
    ) -> Result:
        """`undo` is called for each attempt that failed, before the next. Where the connection was lost, the
        change may have been committed all the same: `written` says what it gave, None if it was not."""

        def once(connection: Connection) -> Result:
            found = written(connection) if self._unsure else None
            return change(connection) if found is None else found

        return self._attempt(self._writer, once, undo)

    def close(self) -> None:
        self._engine.dispose()

    def _attempt(
        self, engine: Engine, work: Callable[[Connection], Result], undo: Callable[[], None] = lambda: None
    ) -> Result:
        attempt, self._unsure = 0, False
        until: float | None = None
        while True:
            try:
                with engine.begin() as connection:
                    found = work(connection)
                self._answered = True
                return found
            except BaseException as error:
                undo()
                if not isinstance(error, DBAPIError):
                    if isinstance(error, UnicodeError | LookupError) and self._address.file is None:
                        raise StoreError(f"cannot reach {self.name}: {type(error).__name__}", "") from None
                    raise
                away = self._answered and self._address.file is None and _away(error)
                if away and until is None:
                    until = time.monotonic() + OUTAGE_S
                    self._notice(f"{self.name} does not answer; waiting for it up to {OUTAGE_S:.0f} s")
                self._unsure = self._unsure or away
                patient = time.monotonic() < (until or 0.0) if away else attempt < RETRIES - 1
                if not patient or not (away or _passing(error)):
                    raise self._explain(error) from error
                # jitter: two writers that collided once do not collide again
                time.sleep(random.uniform(0.5, 1.5) * min(1.0, 0.02 * 2**attempt))
                attempt += 1

    def _migrate(self, notice: Callable[[str], None]) -> None:
        """Brings the schema to HEAD; refuses a newer one, and a database that belongs to something else."""
        version = self.read(_version)
        if version == HEAD:
            return
        if self._address.file and version and _reading(self._address.file):
            hint = "copy it to where you may write: the copy is upgraded when it is opened"
            raise StoreError(f"{self.name} has schema {version} and may not be written here", hint)

        def bring(connection: Connection) -> str | None:
            if connection.dialect.name == "postgresql":  # SQLite's writers already stand in line
                connection.execute(sa.text("SELECT pg_advisory_xact_lock(7236)"))
            version = _version(connection)
            if version == HEAD:  # another process was first
                return None
            if version is None:
                self._create(connection)
                return None
            self._upgrade(connection, version)
            return f"database {self.name}: schema upgraded from {version} to {HEAD}"

        message = self.write(bring)
        if message:
            notice(message)

    def _create(self, connection: Connection) -> None:
        strangers = {"studies", "trials"} & set(sa.inspect(connection).get_table_names())
        if strangers:
            listed = ", ".join(sorted(strangers))
            raise StoreError(
                f"{self.name} belongs to another program: it has tables {listed}",
                "give evo a database of its own (an Optuna storage is made by `evo export`)",
            )
        metadata.create_all(connection)
        _make_views(connection)
        schema_version.create(connection)
        connection.execute(sa.insert(schema_version).values(version_num=HEAD))

    def _upgrade(self, connection: Connection, version: str) -> None:
        migrations = _Migrations()
        if version < min(migrations.revisions):
            raise StoreError(
                f"{self.name} was written by an evo of before the release (schema {version})",
                f"this evo upgrades schema {min(migrations.revisions)} and later: use another database",
            )
        if version not in migrations.revisions:
            raise StoreError(
                f"{self.name} was written by a newer evo (schema {version}, this evo knows {HEAD})",
                "upgrade evo, or use another database",
            )
        for name in reversed(VIEWS):  # a column that a view shows cannot go
            connection.execute(sa.text(f"DROP VIEW IF EXISTS {name}"))
        with reading(f"a row of schema {version}", self.name):
            migrations.run(connection)
        _make_views(connection)

    def _explain(self, error: DBAPIError) -> StoreError:
        text = self._address.hidden(str(error.orig).strip())
        low = text.lower()
        if "disk i/o error" in low and self._address.file and _full(self._address.file):
            low = "no space left"  # SQLite says the other where it cannot make its shared memory larger
        for words, what, hint in _EXPLANATIONS:
            if any(word in low for word in words):
                return StoreError(what.format(name=self.name, text=text), hint)
        return StoreError(f"{self.name}: {text}", "")


_EXPLANATIONS = (
    (
        ("database or disk is full", "no space left", "could not extend file"),
        "cannot write {name}: the disk is full ({text})",
        "free some space, then `evo resume`: finished trials are safe",
    ),
    (
        ("disk i/o error",),
        "cannot read or write {name}: {text}",
        "check the disk and what you may still write on it, then `evo resume`: finished trials are safe",
    ),
    (
        ("readonly", "unable to open", "permission denied"),
        "cannot open {name}: {text}",
        "check that you may write there, also to its folder, or copy it and its -wal file",
    ),
    (
        ("not a database", "malformed", "could not decode to utf-8"),
        "{name} is no SQLite database, or a damaged one: {text}",
        "choose another database, or restore this one from a copy",
    ),
    (
        ("locked", "busy"),
        "{name} is locked by another process",
        "end the program that holds a transaction open on it",
    ),
    (
        (
            *("connection refused", "could not translate", "failed to resolve", "authentication failed"),
            *("does not exist", "connection failed", "connection to server"),
        ),
        "cannot reach {name}: {text}",
        "check that the server runs, and the URL's host, user and database",
    ),
)
"""Words in a driver's message -> what to tell a person, and what to do about it."""


def _make_views(connection: Connection) -> None:
    for name, query in VIEWS.items():
        connection.execute(sa.text(f"CREATE VIEW {name} AS {query}"))


class _Migrations:
    """Alembic's side; imported only where a schema must change."""

    def __init__(self) -> None:
        from alembic.config import Config
        from alembic.script import ScriptDirectory

        self._config = Config()
        self._config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
        self._script = ScriptDirectory.from_config(self._config)

    @property
    def revisions(self) -> set[str]:
        return {script.revision for script in self._script.walk_revisions()}

    def run(self, connection: Connection) -> None:
        """NoResultFound where the row of the schema's version is not found again: the file is damaged."""
        from alembic import command
        from alembic.util import CommandError

        self._config.attributes["connection"] = connection
        try:
            command.upgrade(self._config, "head")
        except CommandError as error:
            raise NoResultFound(str(error)) from error


def _version(connection: Connection) -> str | None:
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return None
    version = connection.execute(sa.text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()
    return None if version is None else str(version)


def _make_room(file: Path, create: bool) -> None:
    """Makes the file of a database, and its folder where only that is missing."""
    try:
        if file.exists():
            if not file.is_file():
                kind = "folder" if file.is_dir() else "device"
                raise StoreError(f"cannot open {file}: it is a {kind}", "name a file, such as runs/evo.db")
            return
        if not create:
            hint = "run `evo search` first, or name another with --database"
            raise StoreError(f"there is no database {file} yet", hint)
        if not file.parent.parent.exists():
            hint = f"make it (mkdir -p {file.parent}), or name another database"
            raise StoreError(f"cannot make {file}: there is no folder {file.parent.parent}", hint)
        file.parent.mkdir(exist_ok=True)
        # made here, so that the operating system names the reason (SQLite only says "unable to open")
        file.touch()
    except OSError as error:
        hint = "choose another database, or change the folder's rights"
        raise StoreError(f"cannot open {file}: {error.strerror}", hint) from error


def _full(file: Path) -> bool:
    """Whether the disk of that file has no room for the next change."""
    try:
        disk = os.statvfs(file.absolute().parent)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < ROOM


def _engine(address: Address) -> Engine:
    as_json = {"json_serializer": _to_json, "json_deserializer": from_json}
    if address.file is None:
        try:
            return sa.create_engine(address.url, pool_pre_ping=True, hide_parameters=True, **as_json)
        except (NoSuchModuleError, ModuleNotFoundError) as error:
            raise StoreError(
                "PostgreSQL needs the psycopg driver", "pip install 'evo-kernels[postgres]'"
            ) from error
    reads = _reading(address.file)
    url = reads or address.url
    engine = sa.create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_S}, **as_json)
    sa.event.listen(engine, "connect", _set_up_reader if reads else _set_up_sqlite)
    sa.event.listen(engine, "begin", _begin_sqlite)
    sa.event.listen(engine, "handle_error", _name_damage)
    return engine


def _reading(file: Path) -> URL | None:
    """The URL by which a file is read that this process may not write to, or whose folder it may not: as it
    is on a read-only disk. None for any other.

    SQLite makes files beside a database, also to read one. Where it may not, it can read a database that no
    process is changing ("immutable"): one without a write-ahead log, or with an empty one."""
    where = file.absolute()
    if _may_write(where) and _may_write(where.parent):
        return None
    log = where.with_name(f"{where.name}-wal")
    how = {"mode": "ro"} if log.exists() and log.stat().st_size else {"immutable": "1"}
    return URL.create("sqlite", database=f"file:{quote(str(where))}", query={"uri": "true", **how})


def _may_write(path: Path) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def _set_up_reader(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None
    connection.execute("PRAGMA query_only=ON")


def _set_up_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # transactions are begun below, not guessed by the driver
    for _ in range(200):
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            break
        except sqlite3.OperationalError as error:  # this one statement ignores the busy timeout
            if "locked" not in str(error):
                raise
            time.sleep(0.05)
        except UnicodeDecodeError as error:
            raise _malformed() from error
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("PRAGMA foreign_keys=ON")


def _name_damage(context: ExceptionContext) -> None:
    """The error for a damaged file. SQLite quotes its text in a message, which Python cannot read where that
    is no UTF-8."""
    if isinstance(context.original_exception, UnicodeDecodeError):
        raise DatabaseError(context.statement, None, _malformed())


def _malformed() -> sqlite3.DatabaseError:
    return sqlite3.DatabaseError("malformed text, which is no UTF-8")


def _begin_sqlite(connection: Connection) -> None:
    # A writer takes its place in line at once: one that has read first and then wants to write is refused
    # without waiting ("database is locked") when another writer came in between.
    writes = connection.get_execution_options().get("evo_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _passing(error: DBAPIError) -> bool:
    """Whether another transaction, not this one, is the reason: worth another attempt."""
    state = getattr(error.orig, "sqlstate", None)
    text = str(error.orig)
    return state in ("40001", "40P01") or error.connection_invalidated or "locked" in text or "busy" in text


def _away(error: DBAPIError) -> bool:
    """Whether the server is what failed: it was stopped, restarts, or cannot be reached."""
    state = getattr(error.orig, "sqlstate", None)
    if state is not None:
        return state[:2] == "08" or state in ("57P01", "57P02", "57P03")
    return isinstance(error, OperationalError)  # without an answer there is no state


def insert_once(connection: Connection, table: sa.Table, digest: str, values: Mapping[str, Any]) -> int:
    """The id of the row of `digest`, made where it is absent: another process may be making it right now."""
    once = _once(table, connection.dialect.name)
    made = connection.execute(once, {"digest": digest, **values}).scalar()
    if made is None:
        made = connection.execute(sa.select(table.c.id).where(table.c.digest == digest)).scalar_one()
    return int(made)


@cache
def _once(table: sa.Table, dialect: str) -> sa.Executable:
    """Inserts a row unless there is one of its digest; gives the id of what it inserted."""
    insert = postgresql.insert if dialect == "postgresql" else sqlite.insert
    return insert(table).on_conflict_do_nothing(index_elements=["digest"]).returning(table.c.id)


# in the order given: a problem's sizes and a point's parameters have one, and renders show it
_to_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
