"""Studies of a set: how many kernels are to serve all of its problems."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("studies", sa.Column("portfolio", sa.Integer, nullable=False, server_default="0"))
