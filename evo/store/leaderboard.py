"""The question for the best rows of the leaderboard.

What the leaderboard is, is said once, in SQL (views.py). Here the same SQL is asked over the few trials that
can be among the best rows, which an index finds: a database of 100,000 trials is not sorted whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from evo.store.damage import require_types
from evo.store.records import LeaderboardRow
from evo.store.schema import environments
from evo.store.times import times_of
from evo.store.views import LEADERBOARD, ORDER
from evo.trial import RankedTime


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
        return wanted in str(device).casefold() or wanted in estimate_gpu.casefold()


def best_rows(
    connection: Connection,
    asked: Filter,
    limit: int,
    reading: Callable[[Mapping[str, Any]], AbstractContextManager[None]],
) -> list[LeaderboardRow]:
    """The best rows of each problem and device: the CONFIRMED ones, then those that were measured in a search
    alone, then estimates; `limit` of each kind. A row is made within `reading` of it, which may leave
    it out."""
    few = _candidates(connection, asked, limit)
    if not few:
        return []
    taken: Counter[tuple[str, ...]] = Counter()
    rows = []
    for row in connection.execute(_BEST, {"few": few}).mappings():
        one = None
        with reading(dict(row)):
            made = _row(dict(row))
            require_types(made)
            one = made
        if one is None:
            continue
        gpu = one.estimate_gpu if one.kind == "estimate" else ""
        of_one_kind = (one.problem, one.device, one.kind, one.ranking, one.own_data, gpu)
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
    .columns(point=sa.JSON, baselines=sa.JSON, standings=sa.JSON, times=sa.JSON)
)


def _row(row: dict[str, Any]) -> LeaderboardRow:
    """Of a confirmed row, the baselines are those of its confirmation: of the same rounds as its time."""
    beside, standings = row.pop("baselines"), row.pop("standings")
    times = times_of(row.pop("times") or {})
    if row.pop("confirmation") is not None and standings:
        warm = standings.get("warm", {})
        beside = {name: standing["median_us"] for name, standing in warm.items()}
        for on, time in times.items():
            known = {n: s["times"][on]["median_us"] for n, s in warm.items() if on in s["times"]}
            times[on] = replace(time, baselines_us=known)
    if times:
        ranked = RankedTime.ranked(times, row["ranking"])
        row |= {"versus": ranked.versus or None, "on": ranked.on}
    return LeaderboardRow(**row, baselines_us=beside, times=times)


def _candidates(connection: Connection, asked: Filter, limit: int) -> list[int]:
    """The ids of the trials that can be among the rows: all that are confirmed, and the best of each problem,
    environment, GPU of estimates, ranking and set of recorded calls."""
    few: list[int] = []
    boards = list(_boards(connection, asked))
    known = {tuple(board.values()) for board in boards}
    confirmed = sa.text(_CONFIRMED_ONES.format(conditions=asked.conditions))
    for row in connection.execute(confirmed, asked.values):
        if tuple(row[1:]) in known:
            few.append(row[0])
    most = limit + len(few)
    best = sa.text(_BEST_OF_ONE.format(conditions=asked.conditions))
    kinds = connection.execute(_KINDS).all()
    for board, (ranking, own_data) in product(boards, kinds):
        these = {**asked.values, **board, "ranking": ranking, "own_data": own_data, "most": most}
        few += connection.execute(best, these).scalars()
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
          AND study_id + 0 IN (SELECT id FROM studies WHERE ranking = :ranking AND own_data = :own_data)
        ORDER BY median_us, id LIMIT :most
    ) AS measured
    UNION ALL
    SELECT id FROM (
        SELECT id FROM eligible
        WHERE problem = :of_problem AND environment_id = :environment AND estimate_gpu = :estimate_gpu
          AND median_us IS NULL AND {conditions}
          AND study_id + 0 IN (SELECT id FROM studies WHERE ranking = :ranking AND own_data = :own_data)
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
                if asked.fits(devices.get(environment, ""), gpu):
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


_KINDS = sa.text("SELECT DISTINCT ranking, own_data FROM studies")
_DEVICES = sa.select(environments.c.id, environments.c.device)
