"""Several GPUs in a study: which it has, which one evaluated a trial and by what its times were divided,
which one a confirmation was held on, and by what the GPUs differ."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("studies", sa.Column("gpus", sa.JSON, nullable=False, server_default="[]"))
    for table in ("trials", "confirmations"):
        op.add_column(table, sa.Column("gpu", sa.String, nullable=False, server_default=""))
    op.add_column("trials", sa.Column("divisor", sa.Float, nullable=False, server_default="1"))
    op.create_table(
        "offsets",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("study_id", sa.Integer, sa.ForeignKey("studies.id"), nullable=False),
        *(sa.Column(name, sa.String, nullable=False) for name in ("gpu", "reference", "kernel", "program")),
        sa.Column("turns", sa.Integer, nullable=False),
        *(sa.Column(name, sa.Float, nullable=False) for name in ("ratio", "low", "high", "level")),
        sa.Column("created", sa.String, nullable=False),
        sa.CheckConstraint("ratio > 0 AND ratio < 1e3", name="ratio_is_positive"),
    )
    op.create_index("offsets_by_study", "offsets", ["study_id"])
