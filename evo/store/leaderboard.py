"""The question for the best rows of the leaderboard.

What the leaderboard is, is said once, in SQL (views.py). Here the same SQL is asked over the few trials that
can be among the best rows, which an index finds: a database of 100,000 trials is not sorted whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from evo.store.records import LeaderboardRow
from evo.store.schema import environments
from evo.store.views import LEADERBOARD, ORDER


@dataclass(frozen=True)
class Filter:
    """Which trials a leaderboard is of; None: of all. `problem`: a Problem's key; `gpu`: a part of a device's
    name, or of the name of the GPU that an estimate is for."""

    study_id: int | None = None
    task: str | None = None
    problem: str | None = None
    gpu: str | None = None
    template: str | None = None

    @property
    def conditions(self) -> str:
        """What SQL can say of a trial; `+ 0`: by the index of times, not by that of studies."""
        words = {
            "study_id": "study_id + 0 = :study_id",
            "task": "study_id + 0 IN (SELECT id FROM studies WHERE task = :task)",
            "problem": "problem = :problem",
            "template": "template = :template",
        }
        asked = [words[name] for name in words if getattr(self, name) is not None]
        return " AND ".join(["1 = 1", *asked])

    @property
    def values(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value is not None and name != "gpu"}

    def fits(self, device: str, estimate_gpu: str) -> bool:
        wanted = (self.gpu or "").casefold()
        return wanted in device.casefold() or wanted in estimate_gpu.casefold()


def best_rows(connection: Connection, asked: Filter, limit: int) -> list[LeaderboardRow]:
    """The best rows of each problem and device: the CONFIRMED ones, then those that were measured in a search
    alone, then estimates; `limit` of each kind."""
    few = _candidates(connection, asked, limit)
    if not few:
        return []
    taken: Counter[tuple[str, ...]] = Counter()
    rows = []
    for row in connection.execute(_BEST, {"few": few}).mappings():
        one = _row(dict(row))
        of_one_kind = (one.problem, one.device, one.kind, one.estimate_gpu if one.kind == "estimate" else "")
        taken[of_one_kind] += 1
        if taken[of_one_kind] <= limit:
            rows.append(one)
    return rows


_RANKED = LEADERBOARD.format(eligible="(SELECT * FROM eligible WHERE id IN :few)")
_BEST = (
    sa.text(f"""
        SELECT board.*, confirmations.baselines AS standings
        FROM ({_RANKED}) AS board
        LEFT JOIN confirmations ON confirmations.id = board.confirmation
        ORDER BY {ORDER}
    """)
    .bindparams(sa.bindparam("few", type_=sa.Integer, expanding=True, literal_execute=True))
    .columns(point=sa.JSON, baselines=sa.JSON, standings=sa.JSON)
)


def _row(row: dict[str, Any]) -> LeaderboardRow:
    """Of a confirmed row, the baselines are those of its confirmation: of the same rounds as its time."""
    beside, standings = row.pop("baselines"), row.pop("standings")
    if row.pop("confirmation") is not None and standings:
        beside = {name: standing["median_us"] for name, standing in standings.get("warm", {}).items()}
    return LeaderboardRow(**row, baselines_us=beside)


def _candidates(connection: Connection, asked: Filter, limit: int) -> list[int]:
    """The ids of the trials that can be among the rows: all that are confirmed, and the best of each problem,
    environment and GPU of estimates."""
    few: list[int] = []
    boards = list(_boards(connection, asked))
    known = {tuple(board.values()) for board in boards}
    confirmed = sa.text(_CONFIRMED_ONES.format(conditions=asked.conditions))
    for row in connection.execute(confirmed, asked.values):
        if tuple(row[1:]) in known:
            few.append(row[0])
    most = limit + len(few)
    best = sa.text(_BEST_OF_ONE.format(conditions=asked.conditions))
    for board in boards:
        few += connection.execute(best, {**asked.values, **board, "most": most}).scalars()
    return sorted(set(few))


_CONFIRMED_ONES = """
    SELECT id, problem, environment_id, estimate_gpu FROM eligible
    WHERE id IN (SELECT trial_id FROM confirmed) AND {conditions}
"""
_BEST_OF_ONE = """
    SELECT id FROM (
        SELECT id FROM eligible
        WHERE problem = :of_problem AND environment_id = :environment AND estimate_gpu = :estimate_gpu
          AND median_us IS NOT NULL AND {conditions}
        ORDER BY median_us, id LIMIT :most
    ) AS measured
    UNION ALL
    SELECT id FROM (
        SELECT id FROM eligible
        WHERE problem = :of_problem AND environment_id = :environment AND estimate_gpu = :estimate_gpu
          AND median_us IS NULL AND {conditions}
        ORDER BY estimate_us, id LIMIT :most
    ) AS estimated
"""


def _boards(connection: Connection, asked: Filter) -> Iterator[Mapping[str, Any]]:
    """Each problem, environment and GPU of estimates that trials have; each is found by a look or two into an
    index."""
    devices = {row.id: row.device for row in connection.execute(_DEVICES)}
    problems = _each(connection, "problem", {}) if asked.problem is None else [asked.problem]
    for problem in problems:
        of_problem = {"problem": problem}
        for environment in _each(connection, "environment_id", of_problem):
            here = of_problem | {"environment_id": environment}
            for gpu in _each(connection, "estimate_gpu", here):
                if asked.fits(devices[environment], gpu):
                    yield {"of_problem": problem, "environment": environment, "estimate_gpu": gpu}


def _each(connection: Connection, column: str, among: Mapping[str, Any]) -> Iterator[Any]:
    """The distinct values of a column in the order of their index, `among` the trials with these values."""
    same = [f"{name} = :{name}" for name in among]
    value = connection.execute(_next(column, same), among).scalar()
    while value is not None:
        yield value
        value = connection.execute(
            _next(column, [*same, f"{column} > :last"]), {**among, "last": value}
        ).scalar()


def _next(column: str, conditions: Sequence[str]) -> sa.TextClause:
    return sa.text(f"SELECT min({column}) FROM trials WHERE {' AND '.join(['1 = 1', *conditions])}")


_DEVICES = sa.select(environments.c.id, environments.c.device)
