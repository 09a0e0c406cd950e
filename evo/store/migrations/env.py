"""Alembic's entry: runs the migrations on the connection that the store hands over, in its transaction."""

from __future__ import annotations

from alembic import context

from evo.store.schema import VERSION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
)
context.run_migrations()
