"""Confirmations: finalists, rounds, samples; the view `confirmed`; a leaderboard that ranks them first."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

CONFIRMED = """
CREATE VIEW confirmed AS
SELECT
    finalists.trial_id AS trial_id,
    finalists.confirmation_id AS confirmation_id,
    finalists.level AS level,
    finalists.median_us AS median_us,
    finalists.low_us AS low_us,
    finalists.high_us AS high_us,
    finalists.speedup AS speedup,
    finalists.speedup_low AS speedup_low,
    finalists.speedup_high AS speedup_high,
    finalists.versus AS versus,
    finalists.verdict AS verdict,
    finalists.cold_median_us AS cold_median_us,
    finalists.cold_low_us AS cold_low_us,
    finalists.cold_high_us AS cold_high_us,
    finalists.cold_speedup AS cold_speedup,
    finalists.cold_speedup_low AS cold_speedup_low,
    finalists.cold_speedup_high AS cold_speedup_high,
    finalists.cold_versus AS cold_versus,
    finalists.cold_verdict AS cold_verdict
FROM finalists
WHERE finalists.median_us IS NOT NULL
  AND finalists.outcome = 'GREEN'
  AND finalists.id = (
      SELECT max(newest.id) FROM finalists AS newest
      WHERE newest.trial_id = finalists.trial_id
        AND (newest.median_us IS NOT NULL OR newest.outcome <> 'GREEN')
  )
"""

# Ties: a CONFIRMED row's rank is one more than there are rows that are surely faster, so that rows whose
# intervals overlap that of a better one share its rank. Rows that are not CONFIRMED come after all that are.
# A trial that the thorough gate refused is in no ranking; one that hung or crashed there is not CONFIRMED.
LEADERBOARD = """
CREATE VIEW leaderboard AS
WITH ranked AS (
    SELECT
        CASE WHEN confirmed.trial_id IS NOT NULL THEN 'confirmed'
             WHEN trials.median_us IS NULL THEN 'estimate' ELSE 'measured' END AS kind,
        coalesce(confirmed.median_us, trials.median_us, trials.estimate_us) AS score_us,
        CASE WHEN trials.median_us IS NULL THEN trials.estimate_gpu ELSE '' END AS estimated_for,
        environments.device AS device,
        studies.name AS study,
        confirmed.median_us AS confirmed_us,
        confirmed.low_us AS confirmed_low,
        confirmed.high_us AS confirmed_high,
        confirmed.speedup AS confirmed_speedup,
        confirmed.speedup_low AS confirmed_speedup_low,
        confirmed.speedup_high AS confirmed_speedup_high,
        confirmed.versus AS versus,
        confirmed.verdict AS verdict,
        confirmed.cold_median_us AS cold_us,
        confirmed.cold_speedup AS cold_speedup,
        trials.*
    FROM trials
    JOIN studies ON studies.id = trials.study_id
    JOIN environments ON environments.id = trials.environment_id
    LEFT JOIN confirmed ON confirmed.trial_id = trials.id
    WHERE trials.outcome IN ('TIMED', 'GREEN')
      AND trials.same_as IS NULL
      AND (trials.median_us IS NOT NULL OR trials.estimate_us IS NOT NULL)
      AND NOT EXISTS (
          SELECT 1 FROM finalists
          WHERE finalists.trial_id = trials.id AND finalists.outcome NOT IN ('GREEN', 'HUNG', 'CRASHED')
      )
)
SELECT
    CASE WHEN kind = 'confirmed' THEN 1 + (
        SELECT count(*) FROM confirmed AS other
        JOIN trials AS others ON others.id = other.trial_id
        JOIN environments AS elsewhere ON elsewhere.id = others.environment_id
        WHERE others.problem = ranked.problem AND elsewhere.device = ranked.device
          AND other.high_us < ranked.confirmed_low
    ) ELSE rank() OVER (
        PARTITION BY problem, device, estimated_for
        ORDER BY CASE WHEN kind = 'confirmed' THEN 0 ELSE 1 END, score_us
    ) END AS rank,
    kind,
    study,
    number,
    id AS trial,
    template,
    problem,
    device,
    coalesce(confirmed_us, median_us) AS median_us,
    CASE WHEN confirmed_us IS NULL THEN low_us ELSE confirmed_low END AS low_us,
    CASE WHEN confirmed_us IS NULL THEN high_us ELSE confirmed_high END AS high_us,
    CASE WHEN confirmed_us IS NULL THEN speedup ELSE confirmed_speedup END AS speedup,
    CASE WHEN confirmed_us IS NULL THEN speedup_low ELSE confirmed_speedup_low END AS speedup_low,
    CASE WHEN confirmed_us IS NULL THEN speedup_high ELSE confirmed_speedup_high END AS speedup_high,
    estimate_us,
    estimate_gpu,
    registers,
    spill_bytes,
    smem_bytes,
    worst_error,
    point,
    versus,
    verdict,
    cold_us,
    cold_speedup,
    median_us AS search_us
FROM ranked
"""

_STANDING = (
    ("median_us", sa.Float), ("low_us", sa.Float), ("high_us", sa.Float), ("speedup", sa.Float),
    ("speedup_low", sa.Float), ("speedup_high", sa.Float), ("versus", sa.String), ("verdict", sa.String),
)  # fmt: skip


def upgrade() -> None:
    op.create_table(
        "confirmations",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("study_id", sa.Integer, sa.ForeignKey("studies.id"), nullable=False),
        sa.Column("problem", sa.String, nullable=False),
        sa.Column("status", sa.String, nullable=False),
        sa.Column("top", sa.Integer, nullable=False),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("environment_id", sa.Integer, sa.ForeignKey("environments.id"), nullable=False),
        sa.Column("baselines", sa.JSON, nullable=False),
        sa.Column("skipped", sa.JSON, nullable=False),
        sa.Column("kernels", sa.JSON, nullable=False),
        sa.Column("created", sa.String, nullable=False),
        sa.Column("ended", sa.String, nullable=False),
    )
    op.create_table(
        "finalists",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("confirmation_id", sa.Integer, sa.ForeignKey("confirmations.id"), nullable=False),
        sa.Column("trial_id", sa.Integer, sa.ForeignKey("trials.id"), nullable=False),
        sa.Column("outcome", sa.String, nullable=False),
        sa.Column("reason", sa.String, nullable=False),
        sa.Column("detail", sa.String, nullable=False),
        sa.Column("location", sa.String, nullable=False),
        sa.Column("errors", sa.JSON, nullable=False),
        sa.Column("sanitizer", sa.String, nullable=False),
        sa.Column("level", sa.Float),
        *(sa.Column(f"{protocol}{name}", kind) for protocol in ("", "cold_") for name, kind in _STANDING),
        sa.UniqueConstraint("confirmation_id", "trial_id", name="one_finalist_a_trial"),
        sa.CheckConstraint("median_us > 0 AND median_us < 1e12", name="confirmed_median_is_a_time"),
        sa.CheckConstraint("cold_median_us > 0 AND cold_median_us < 1e12", name="cold_median_is_a_time"),
    )
    op.create_index("finalists_by_trial", "finalists", ["trial_id"])
    op.create_table(
        "rounds",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("confirmation_id", sa.Integer, sa.ForeignKey("confirmations.id"), nullable=False),
        sa.Column("protocol", sa.String, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("contestants", sa.JSON, nullable=False),
        sa.Column("samples", sa.LargeBinary, nullable=False),
        sa.Column("clocks", sa.JSON, nullable=False),
        sa.Column("throttled", sa.Integer, nullable=False),
        sa.Column("created", sa.String, nullable=False),
        sa.UniqueConstraint("confirmation_id", "protocol", "number", name="one_round_a_number"),
    )
    op.execute("DROP VIEW leaderboard")
    op.execute(CONFIRMED)
    op.execute(LEADERBOARD)
