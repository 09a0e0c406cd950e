"""Rendered sources in the database: each once, as what differs from another one of its template."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from evo.store.engine import insert_once
from evo.store.packing import pack_source, unpack_source
from evo.store.schema import sources
from evo.trial import digest_of

WORTHWHILE = 10
"""A source that is not compressed at least so many times against its base becomes a base itself
(by itself, CUDA source is compressed about four times)."""

_SOURCE_OF = sa.select(sources.c.id).where(sources.c.digest == sa.bindparam("digest"))


class Sources:
    """The door to the table sources. It remembers the newest source of each template that is stored whole."""

    def __init__(self) -> None:
        self._bases: dict[str, tuple[int, str] | None] = {}

    def forget(self) -> None:
        """A transaction failed: a source that it inserted, and that was remembered, is gone."""
        self._bases.clear()

    def add(self, connection: Connection, template: str, text: str) -> int:
        """The id of a source, stored if it is not yet there."""
        digest = digest_of(text.encode())  # as text it would be escaped first, at the price of a commit
        base = self._base(connection, template)
        if base is not None:
            packed = pack_source(text, base[1])
            if WORTHWHILE * len(packed) < len(text):
                values = {"template": template, "base": base[0], "packed": packed}
                return insert_once(connection, sources, digest, values)
        known = connection.execute(_SOURCE_OF, {"digest": digest}).scalar()
        if known is not None:
            return int(known)
        values = {"template": template, "base": None, "packed": pack_source(text, None)}
        number = insert_once(connection, sources, digest, values)
        self._bases[template] = (number, text)
        return number

    def text(self, connection: Connection, number: int) -> str:
        """The source of that id."""
        query = sa.select(sources.c.base, sources.c.packed).where(sources.c.id == number)
        row = connection.execute(query).one()
        base = None if row.base is None else self.text(connection, row.base)
        return unpack_source(row.packed, base)

    def _base(self, connection: Connection, template: str) -> tuple[int, str] | None:
        """The newest source of `template` that is stored whole."""
        if template not in self._bases:
            whole = (sources.c.template == template) & sources.c.base.is_(None)
            query = sa.select(sources.c.id).where(whole).order_by(sources.c.id.desc()).limit(1)
            number = connection.execute(query).scalar()
            self._bases[template] = None if number is None else (number, self.text(connection, number))
        return self._bases[template]
