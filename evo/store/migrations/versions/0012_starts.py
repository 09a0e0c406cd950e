"""Searches that start again elsewhere: whether a study may, and with which trials it did."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("studies", sa.Column("until", sa.String, nullable=False, server_default="converged"))
    op.add_column("studies", sa.Column("starts", sa.JSON, nullable=False, server_default="[]"))
