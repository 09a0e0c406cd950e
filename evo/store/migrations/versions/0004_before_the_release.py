"""The schema that databases of before release 0.1.0 have. A new database is not made of it: see schema.py."""

from __future__ import annotations

revision = "0004"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nothing: such a database was made by an older evo."""
