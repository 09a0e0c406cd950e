"""The index by which a leaderboard finds the best of a problem on a device without looking at the rest."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("trials_by_device", "trials", ["problem", "environment_id", "median_us"])
