"""Where a database is: a path, or a URL. No message says its password."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.engine.url import URL, make_url
from sqlalchemy.exc import ArgumentError

from evo.errors import StoreError, passwords_of, without_passwords

_HINT = (
    "a file (runs/evo.db) or postgresql://user@host/name; "
    "in a password write @ : / ? # as %40 %3A %2F %3F %23"
)
_NO_PATH = re.compile(r"[A-Za-z][\w+]*:(?!\\)|.*://|.*[?&;]\w*(?:pass|secret)\w*=|.*:[^/]*@", re.IGNORECASE)


@dataclass(frozen=True)
class Address:
    """One database. `file` of an SQLite one; `name` for messages: the file, or the URL without its password
    and what may be another one."""

    url: URL
    file: Path | None
    name: str
    _passwords: frozenset[str]

    @classmethod
    def of(cls, text: str) -> Address:
        """The address that a path or a URL names. StoreError where it is neither."""
        url = _parse(text)
        if url.get_backend_name() == "sqlite":
            file = Path(url.database or "")
            return cls(url, file, str(file), frozenset())
        name = url.set(query={}).render_as_string(hide_password=True)
        return cls(url, None, name, passwords_of(text) | ({url.password} if url.password else set()))

    def hidden(self, text: str) -> str:
        """`text`, from a driver, without the password."""
        return without_passwords(text, self._passwords)


def _parse(text: str) -> URL:
    if not _NO_PATH.match(text):
        if not text.strip() or "\0" in text:
            raise StoreError("no database is named", _HINT)
        return URL.create("sqlite", database=text)
    malformed = StoreError("malformed database URL", _HINT)
    try:
        url = make_url(text)
        backend = url.get_backend_name()
    except (ArgumentError, ValueError):
        raise malformed from None
    if backend == "sqlite" and url.database and not url.host:
        return url
    # what stands behind a password that was not written as a URL has it would be shown as a host or a name
    odd = any(sign in (part or "") for part in (url.host, url.database, url.username) for sign in "@:?# \t\n")
    if backend not in ("postgresql", "postgres") or (odd and not (url.host or "").count(":") > 1):
        raise malformed
    return url.set(drivername="postgresql+psycopg")
