"""Two views for a person at the database's own command line: `leaderboard` and `failures`."""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

LEADERBOARD = """
CREATE VIEW leaderboard AS
SELECT
    rank() OVER (
        PARTITION BY trials.problem, environments.device, trials.median_us IS NULL,
                     CASE WHEN trials.median_us IS NULL THEN trials.estimate_gpu END
        ORDER BY coalesce(trials.median_us, trials.estimate_us)
    ) AS rank,
    CASE WHEN trials.median_us IS NULL THEN 'estimate' ELSE 'measured' END AS kind,
    studies.name AS study,
    trials.number AS number,
    trials.id AS trial,
    trials.template AS template,
    trials.problem AS problem,
    environments.device AS device,
    trials.median_us AS median_us,
    trials.low_us AS low_us,
    trials.high_us AS high_us,
    trials.speedup AS speedup,
    trials.speedup_low AS speedup_low,
    trials.speedup_high AS speedup_high,
    trials.estimate_us AS estimate_us,
    trials.estimate_gpu AS estimate_gpu,
    trials.registers AS registers,
    trials.spill_bytes AS spill_bytes,
    trials.smem_bytes AS smem_bytes,
    trials.worst_error AS worst_error,
    trials.point AS point
FROM trials
JOIN studies ON studies.id = trials.study_id
JOIN environments ON environments.id = trials.environment_id
WHERE trials.outcome IN ('TIMED', 'GREEN')
  AND trials.same_as IS NULL
  AND (trials.median_us IS NOT NULL OR trials.estimate_us IS NOT NULL)
"""

FAILURES = """
CREATE VIEW failures AS
SELECT
    studies.name AS study,
    trials.number AS number,
    trials.id AS trial,
    trials.outcome AS outcome,
    trials.reason AS reason,
    trials.detail AS detail,
    trials.location AS location,
    trials.template AS template,
    trials.problem AS problem,
    trials.point AS point,
    trials.created AS created
FROM trials
JOIN studies ON studies.id = trials.study_id
WHERE trials.outcome NOT IN ('TIMED', 'GREEN')
"""


def upgrade() -> None:
    op.execute(LEADERBOARD)
    op.execute(FAILURES)
