"""What a study keeps of a task that was given in Python ("": its task is in a file)."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("studies", sa.Column("given", sa.String, nullable=False, server_default=""))
