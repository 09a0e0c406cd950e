"""The clocks and places that a trial's kernel reads undeclared ("": none, or not known)."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("trials", sa.Column("reads", sa.String, nullable=False, server_default=""))
