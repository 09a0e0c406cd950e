"""The tables. A new database is made from this file; migrations/versions brings an older one to the
same (a test compares the two). The views are in views.py."""

from __future__ import annotations

import sqlalchemy as sa

HEAD = "0013"
"""The newest revision in migrations/versions (a test holds the two together), so that opening an up-to-date
database needs no Alembic. Another table, column or view is another revision."""

VERSION_TABLE = "evo_schema"
"""Not Alembic's default name: an Optuna storage has tables of our names and its own `alembic_version`."""

schema_version = sa.Table(
    VERSION_TABLE, sa.MetaData(), sa.Column("version_num", sa.String(32), primary_key=True)
)
"""Alembic's own table."""

metadata = sa.MetaData()

studies = sa.Table(
    "studies",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.String, nullable=False, unique=True),
    sa.Column("task", sa.String, nullable=False),
    sa.Column("problem", sa.String, nullable=False),
    sa.Column("problem_json", sa.JSON, nullable=False),
    sa.Column("device", sa.String, nullable=False),
    sa.Column("gpu", sa.String, nullable=False),
    sa.Column("target", sa.String, nullable=False),
    sa.Column("smem_limit", sa.Integer),
    sa.Column("gpus", sa.JSON, nullable=False, server_default="[]"),
    sa.Column("until", sa.String, nullable=False, server_default="converged"),
    sa.Column("starts", sa.JSON, nullable=False, server_default="[]"),
    sa.Column("portfolio", sa.Integer, nullable=False, server_default="0"),
    sa.Column("templates", sa.JSON, nullable=False),
    sa.Column("strategy", sa.String, nullable=False),
    sa.Column("seed", sa.BigInteger, nullable=False),
    sa.Column("workers", sa.Integer, nullable=False),
    sa.Column("lookahead", sa.Integer, nullable=False),
    sa.Column("budget_s", sa.Float, nullable=False),
    sa.Column("spent_s", sa.Float, nullable=False),
    sa.Column("rate", sa.Float),
    sa.Column("status", sa.String, nullable=False),
    sa.Column("owner_host", sa.String),
    sa.Column("owner_pid", sa.Integer),
    sa.Column("owner_started", sa.BigInteger),
    sa.Column("heartbeat", sa.Float),
    sa.Column("folders", sa.JSON, nullable=False, server_default="[]"),
    sa.Column("warm_start", sa.JSON, nullable=False, server_default="{}"),
    sa.Column("accept_unproven", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("ranking", sa.String, nullable=False, server_default="worst"),
    sa.Column("calls", sa.JSON(none_as_null=True)),
    sa.Column("own_data", sa.String, nullable=False, server_default=""),
    sa.Column("given", sa.String, nullable=False, server_default=""),
    sa.Column("versions", sa.JSON, nullable=False),
    sa.Column("baselines", sa.JSON, nullable=False),
    sa.Column("created", sa.String, nullable=False),
    sa.CheckConstraint("budget_s > 0", name="budget_is_positive"),
)

environments = sa.Table(
    "environments",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("digest", sa.String, nullable=False, unique=True),
    sa.Column("device", sa.String, nullable=False),
    sa.Column("compiler", sa.String, nullable=False),
    sa.Column("versions", sa.JSON, nullable=False),
)

sources = sa.Table(
    "sources",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("digest", sa.String, nullable=False, unique=True),
    sa.Column("template", sa.String, nullable=False),
    sa.Column("base", sa.Integer, sa.ForeignKey("sources.id")),
    sa.Column("packed", sa.LargeBinary, nullable=False),
    sa.Index("sources_by_template", "template", "base"),
)

trials = sa.Table(
    "trials",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("study_id", sa.Integer, sa.ForeignKey("studies.id"), nullable=False),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("outcome", sa.String, nullable=False),
    sa.Column("reason", sa.String, nullable=False),
    sa.Column("detail", sa.String, nullable=False),
    sa.Column("location", sa.String, nullable=False),
    sa.Column("template", sa.String, nullable=False),
    sa.Column("point", sa.JSON, nullable=False),
    sa.Column("problem", sa.String, nullable=False),
    sa.Column("problem_json", sa.JSON),
    sa.Column("program", sa.String, nullable=False),
    sa.Column("same_as", sa.Integer),
    sa.Column("source_id", sa.Integer, sa.ForeignKey("sources.id"), nullable=False),
    sa.Column("entry", sa.String, nullable=False),
    sa.Column("launch", sa.JSON, nullable=False),
    sa.Column("launch_digest", sa.String, nullable=False),
    sa.Column("threads", sa.Integer, nullable=False),
    sa.Column("smem_bytes", sa.Integer, nullable=False),
    sa.Column("registers", sa.Integer),
    sa.Column("spill_bytes", sa.Integer),
    sa.Column("stack_bytes", sa.Integer),
    sa.Column("static_smem_bytes", sa.Integer),
    sa.Column("warnings", sa.JSON, nullable=False),
    sa.Column("machine_code", sa.String, nullable=False),
    sa.Column("environment_id", sa.Integer, sa.ForeignKey("environments.id"), nullable=False),
    sa.Column("errors", sa.JSON, nullable=False),
    sa.Column("worst_error", sa.Float),
    sa.Column("median_us", sa.Float),
    sa.Column("low_us", sa.Float),
    sa.Column("high_us", sa.Float),
    sa.Column("level", sa.Float),
    sa.Column("protocol", sa.String, nullable=False),
    sa.Column("samples", sa.LargeBinary),
    sa.Column("baselines", sa.JSON, nullable=False),
    sa.Column("speedup", sa.Float),
    sa.Column("speedup_low", sa.Float),
    sa.Column("speedup_high", sa.Float),
    sa.Column("estimate_us", sa.Float),
    sa.Column("estimate_gpu", sa.String, nullable=False),
    sa.Column("counters", sa.JSON, nullable=False),
    sa.Column("seconds", sa.JSON, nullable=False),
    sa.Column("clocks", sa.JSON, nullable=False),
    sa.Column("evaluations", sa.Integer, nullable=False, server_default="1"),
    sa.Column("cases_run", sa.Integer),
    sa.Column("cases_planned", sa.Integer),
    sa.Column("classes_missed", sa.Integer),
    sa.Column("own_share", sa.Float),
    sa.Column("extent", sa.JSON(none_as_null=True)),
    sa.Column("reads", sa.String, nullable=False, server_default=""),
    sa.Column("gpu", sa.String, nullable=False, server_default=""),
    sa.Column("divisor", sa.Float, nullable=False, server_default="1"),
    sa.Column("times", sa.JSON, nullable=False, server_default="{}"),
    sa.Column("timing_inputs", sa.Integer, nullable=False, server_default="0"),
    sa.Column("created", sa.String, nullable=False),
    sa.UniqueConstraint("study_id", "number", name="one_trial_a_number"),
    # A number column holds a measured number or nothing: no inf, no -1 (and SQLite stores NaN as NULL).
    sa.CheckConstraint("median_us > 0 AND median_us < 1e12", name="median_is_a_time"),
    sa.CheckConstraint("estimate_us > 0 AND estimate_us < 1e12", name="estimate_is_a_time"),
    sa.CheckConstraint("worst_error >= 0 AND worst_error < 1e300", name="error_is_finite"),
    # the best of each leaderboard, without a look at the rest
    sa.Index("trials_by_time", "problem", "environment_id", "estimate_gpu", "median_us", "estimate_us"),
)

confirmations = sa.Table(
    "confirmations",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("study_id", sa.Integer, sa.ForeignKey("studies.id"), nullable=False),
    sa.Column("problem", sa.String, nullable=False),
    sa.Column("status", sa.String, nullable=False),
    sa.Column("top", sa.Integer, nullable=False),
    sa.Column("seed", sa.BigInteger, nullable=False),
    sa.Column("environment_id", sa.Integer, sa.ForeignKey("environments.id"), nullable=False),
    sa.Column("gpu", sa.String, nullable=False, server_default=""),
    sa.Column("baselines", sa.JSON, nullable=False),
    sa.Column("skipped", sa.JSON, nullable=False),
    sa.Column("kernels", sa.JSON, nullable=False),
    sa.Column("created", sa.String, nullable=False),
    sa.Column("ended", sa.String, nullable=False),
)

_STANDING = (
    ("median_us", sa.Float),
    ("low_us", sa.Float),
    ("high_us", sa.Float),
    ("speedup", sa.Float),
    ("speedup_low", sa.Float),
    ("speedup_high", sa.Float),
    ("versus", sa.String),
    ("verdict", sa.String),
    ("times", sa.JSON(none_as_null=True)),
)

finalists = sa.Table(
    "finalists",
    metadata,
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
    sa.Index("finalists_by_trial", "trial_id"),
)

rounds = sa.Table(
    "rounds",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("confirmation_id", sa.Integer, sa.ForeignKey("confirmations.id"), nullable=False),
    sa.Column("protocol", sa.String, nullable=False),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("seed", sa.BigInteger, nullable=False),
    sa.Column("baselines", sa.JSON, nullable=False, server_default="[]"),
    sa.Column("finalists", sa.JSON, nullable=False, server_default="[]"),
    sa.Column("inputs", sa.JSON, nullable=False, server_default='["plain"]'),
    sa.Column("samples", sa.LargeBinary, nullable=False),
    sa.Column("clocks", sa.JSON, nullable=False),
    sa.Column("throttled", sa.Integer, nullable=False),
    sa.Column("created", sa.String, nullable=False),
    sa.UniqueConstraint("confirmation_id", "protocol", "number", name="one_round_a_number"),
)

offsets = sa.Table(
    "offsets",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("study_id", sa.Integer, sa.ForeignKey("studies.id"), nullable=False),
    sa.Column("gpu", sa.String, nullable=False),
    sa.Column("reference", sa.String, nullable=False),
    sa.Column("kernel", sa.String, nullable=False),
    sa.Column("program", sa.String, nullable=False),
    sa.Column("turns", sa.Integer, nullable=False),
    sa.Column("ratio", sa.Float, nullable=False),
    sa.Column("low", sa.Float, nullable=False),
    sa.Column("high", sa.Float, nullable=False),
    sa.Column("level", sa.Float, nullable=False),
    sa.Column("created", sa.String, nullable=False),
    sa.CheckConstraint("ratio > 0 AND ratio < 1e3", name="ratio_is_positive"),
    sa.Index("offsets_by_study", "study_id"),
)
