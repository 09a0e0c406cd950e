"""Recorded calls that a study's kernels are checked and timed on: their file, its digest and their numbers.
`own_data` tells studies on different calls apart ("": none); their times are never ranked together."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("studies", sa.Column("calls", sa.JSON(none_as_null=True)))
    op.add_column("studies", sa.Column("own_data", sa.String, nullable=False, server_default=""))
