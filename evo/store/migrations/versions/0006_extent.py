"""How much of the gate's plan ran, by trial (NULL: not known); whether a study ranks what is UNPROVEN."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    accepts = sa.Column("accept_unproven", sa.Boolean, nullable=False, server_default=sa.false())
    op.add_column("studies", accepts)
    for name in ("cases_run", "cases_planned", "classes_missed"):
        op.add_column("trials", sa.Column(name, sa.Integer))
    op.add_column("trials", sa.Column("own_share", sa.Float))
    op.add_column("trials", sa.Column("extent", sa.JSON))
