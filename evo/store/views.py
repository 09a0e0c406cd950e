"""The views, in SQL that both SQLite and PostgreSQL understand.

The view `leaderboard` is the leaderboard's only rule: rank, kind and order of every trial.
"""

from __future__ import annotations

import sqlalchemy as sa

from evo.store.schema import trials

_CONFIRMED = """
SELECT finalists.* FROM finalists
WHERE finalists.median_us IS NOT NULL
  AND finalists.outcome = 'GREEN'
  AND finalists.id = (
      SELECT max(newest.id) FROM finalists AS newest
      WHERE newest.trial_id = finalists.trial_id
        AND (newest.median_us IS NOT NULL OR newest.outcome <> 'GREEN')
  )
"""
"""What the newest finished confirmation of a trial found, if it was correct there."""

_REFUSED = """
SELECT finalists.trial_id, finalists.outcome, finalists.reason FROM finalists
WHERE finalists.outcome NOT IN ('GREEN', 'HUNG', 'CRASHED')
"""
refused = sa.table("refused", sa.column("trial_id"), sa.column("outcome"), sa.column("reason"))
"""The trials that the thorough gate refused for good. One that hung or crashed there is not refused, as the
machine may be the cause; but it is not CONFIRMED."""

_ELIGIBLE = """
SELECT trials.* FROM trials
WHERE trials.outcome IN ('TIMED', 'GREEN')
  AND trials.same_as IS NULL
  AND (trials.median_us IS NOT NULL OR trials.estimate_us IS NOT NULL)
  AND NOT EXISTS (SELECT 1 FROM refused WHERE refused.trial_id = trials.id)
"""
eligible = sa.table("eligible", *(sa.column(c.name, c.type) for c in trials.c))
"""The trials that may be ranked: correct, with a time, and not refused."""

LEADERBOARD = """
WITH entrants AS (
    SELECT
        CASE WHEN confirmed.trial_id IS NOT NULL THEN 'confirmed'
             WHEN eligible.median_us IS NULL THEN 'estimate' ELSE 'measured' END AS kind,
        CASE WHEN eligible.median_us IS NULL THEN eligible.estimate_gpu ELSE '' END AS estimated_for,
        coalesce(confirmed.median_us, eligible.median_us, eligible.estimate_us) AS score_us,
        environments.device AS device,
        studies.name AS study,
        CASE WHEN eligible.median_us IS NULL THEN '' ELSE studies.ranking END AS ranking,
        CASE WHEN eligible.median_us IS NULL THEN '' ELSE studies.own_data END AS own_data,
        eligible.times AS search_times, eligible.timing_inputs, confirmed.times AS sure_times,
        eligible.id, eligible.number, eligible.outcome, eligible.template, eligible.problem, eligible.point,
        eligible.median_us, eligible.low_us, eligible.high_us, eligible.level,
        eligible.speedup, eligible.speedup_low, eligible.speedup_high, eligible.baselines,
        eligible.estimate_us, eligible.estimate_gpu, eligible.registers, eligible.spill_bytes,
        eligible.smem_bytes, eligible.static_smem_bytes, eligible.worst_error,
        eligible.cases_run, eligible.cases_planned, eligible.classes_missed, eligible.own_share,
        eligible.reads,
        confirmed.confirmation_id,
        confirmed.low_us AS sure_low_us, confirmed.high_us AS sure_high_us, confirmed.level AS sure_level,
        confirmed.speedup AS sure_speedup, confirmed.speedup_low AS sure_speedup_low,
        confirmed.speedup_high AS sure_speedup_high, confirmed.versus, confirmed.verdict,
        confirmed.cold_median_us, confirmed.cold_low_us, confirmed.cold_high_us, confirmed.cold_speedup
    FROM {eligible} AS eligible
    JOIN studies ON studies.id = eligible.study_id
    JOIN environments ON environments.id = eligible.environment_id
    LEFT JOIN confirmed ON confirmed.trial_id = eligible.id
), sure AS (
    SELECT eligible.problem, environments.device, studies.ranking, studies.own_data,
           confirmed.high_us
    FROM confirmed
    CROSS JOIN {eligible} AS eligible  -- SQLite then begins with the few that are confirmed
    JOIN environments ON environments.id = eligible.environment_id
    JOIN studies ON studies.id = eligible.study_id
    WHERE eligible.id = confirmed.trial_id
)
SELECT
    CASE WHEN kind = 'confirmed' THEN 1 + (
        SELECT count(*) FROM sure
        WHERE sure.problem = entrants.problem AND sure.device = entrants.device
          AND sure.ranking = entrants.ranking AND sure.own_data = entrants.own_data
          AND sure.high_us < entrants.sure_low_us
    ) ELSE rank() OVER (
        PARTITION BY problem, device, estimated_for, ranking, own_data
        ORDER BY CASE WHEN kind = 'confirmed' THEN 0 ELSE 1 END, score_us
    ) END AS rank,
    kind, study, number, id AS trial, outcome, template, problem, device,
    CASE WHEN kind = 'confirmed' THEN score_us ELSE median_us END AS median_us,
    CASE WHEN kind = 'confirmed' THEN sure_low_us ELSE low_us END AS low_us,
    CASE WHEN kind = 'confirmed' THEN sure_high_us ELSE high_us END AS high_us,
    CASE WHEN kind = 'confirmed' THEN sure_level ELSE level END AS level,
    CASE WHEN kind = 'confirmed' THEN sure_speedup ELSE speedup END AS speedup,
    CASE WHEN kind = 'confirmed' THEN sure_speedup_low ELSE speedup_low END AS speedup_low,
    CASE WHEN kind = 'confirmed' THEN sure_speedup_high ELSE speedup_high END AS speedup_high,
    estimate_us, estimate_gpu, registers, spill_bytes, smem_bytes, worst_error, point,
    static_smem_bytes, versus, verdict, cold_median_us AS cold_us, cold_low_us, cold_high_us, cold_speedup,
    median_us AS search_us, baselines, confirmation_id AS confirmation,
    cases_run, cases_planned, classes_missed, own_share, reads, ranking, timing_inputs, own_data,
    CASE WHEN kind = 'confirmed' THEN sure_times ELSE search_times END AS times
FROM entrants
"""
"""Rank, kind and times of each of some eligible trials.

A CONFIRMED row's rank is one more than there are rows that are surely faster, so that rows whose intervals
overlap that of a better one share its rank. What was measured in a search alone comes after all that is
CONFIRMED. Estimates are never ranked with measured times, nor times of different rankings, or on
different recorded calls, with each other."""

ORDER = """
    problem, CASE kind WHEN 'confirmed' THEN 0 WHEN 'measured' THEN 1 ELSE 2 END, device,
    CASE ranking WHEN 'worst' THEN 0 WHEN 'plain' THEN 2 ELSE 1 END, ranking, own_data,
    coalesce(median_us, estimate_us), trial
"""
"""The order of the leaderboard's rows."""

_FAILURES = """
SELECT
    studies.name AS study, trials.number, trials.id AS trial, trials.outcome, trials.reason, trials.detail,
    trials.location, trials.template, trials.problem, trials.point, trials.created
FROM trials JOIN studies ON studies.id = trials.study_id
WHERE trials.outcome NOT IN ('TIMED', 'GREEN')
"""

VIEWS = {
    "confirmed": _CONFIRMED,
    "refused": _REFUSED,
    "eligible": _ELIGIBLE,
    "leaderboard": LEADERBOARD.format(eligible="eligible"),
    "failures": _FAILURES,
}
"""The views by name, each behind those that it is made of."""
