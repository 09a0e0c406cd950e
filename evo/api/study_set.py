"""`evo.StudySet`: studies of many problems, searched for one budget, and the few kernels for all of them."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evo.api.parse import DATABASE
from evo.api.running import open_store
from evo.api.study import Study, frame
from evo.cache import default_folder
from evo.confirm.champions import Champion, unkept
from evo.confirm.choice import SET
from evo.errors import NothingFound, UnknownName
from evo.report.screen import screen
from evo.study import Study as Record
from evo.study import recorded_gpu

if TYPE_CHECKING:
    from evo.loop.member import Member
    from evo.loop.turns import Found
    from evo.store import Store

MOST = 8
"""Kernels of a portfolio, unless it is said otherwise."""


class StudySet:
    """Studies of many problems, as `evo.search_shapes` and `evo.load_studies` give them: NAME-1, NAME-2, …

    It holds no trials: each question is asked of the database. `evo.kernel` takes it, and serves each problem
    by the portfolio's kernel for it, others by that of the nearest whose code serves them."""

    def __init__(
        self,
        name: str,
        database: str,
        most: int | None = None,
        cache: Path | None = None,
        nvcc: Path | None = None,
        result: Found | None = None,
    ) -> None:
        self.name = name
        """What the names of its studies begin with."""
        self.database = database
        """The SQLite file or PostgreSQL URL that they are in."""
        self._most = most
        self.result = result
        """What the last search of this object said at its end; None where there was none."""
        self._tools = cache or default_folder(), nvcc

    @property
    def most(self) -> int:
        """Kernels of the portfolio at most: those that were asked for here, else by the last search."""
        with self._store() as store:
            return self._most_of(store)

    @property
    def studies(self) -> list[Study]:
        """One for each problem that was begun, in the order of the problems."""
        with self._store() as store:
            return [Study(one.name, self.database, *self._tools) for one in records_of(store, self.name)]

    def kernels(self) -> Any:
        """The portfolio: a DataFrame where pandas is installed, else a list of dicts. Columns: `kernel` (its
        number), `problems` (how many it serves), `template`, `point`. Empty where so few kernels do not serve
        all problems."""
        return frame(self._tables()["kernels"])

    def problems(self) -> Any:
        """Each problem, as `kernels` gives them. Columns: `problem`, `study`, `median_us` and `estimate_us`
        (of its best kernel), `kernel` (the number of the one that serves it), `regret` (its time there as a
        multiple of the best) and `left_out_regret` (that of the portfolio chosen without this problem)."""
        return frame(self._tables()["problems"])

    def _found(self) -> Found:
        """What is in the database, as the search says it at its end."""
        from evo.loop.turns import found_of

        with self._store() as store:
            return found_of(self._members(store), self._most_of(store))

    def _champions(self) -> list[Champion]:
        """For each problem the portfolio's kernel, with its regrets, as a champion that no folder has; the
        best one where no portfolio serves all problems."""
        from evo.loop.turns import found_of

        with self._store() as store:
            found = found_of(self._members(store), self._most_of(store))
            left_out = found.left_out
            served = [member for member in found.members if member.times]
            return [_champion(store, member, found, left_out) for member in served]

    def _most_of(self, store: Store) -> int:
        return self._most or portfolio_of(records_of(store, self.name))

    def _members(self, store: Store) -> list[Member]:
        from evo.loop.member import Member

        members = [Member(one.problem, _closed, one) for one in records_of(store, self.name)]
        for member in members:
            member.look(store)
        return members

    def _tables(self) -> dict[str, Any]:
        from evo.report.portfolio import portfolio_record

        return dict(portfolio_record(self._found()))

    def _store(self) -> Store:
        return open_store(self.database, screen(True))

    def __repr__(self) -> str:
        return f"<StudySet {self.name} · {len(self.studies)} problems · {len(self._found().kernels)} kernels>"


def records_of(store: Store, name: str) -> list[Record]:
    """The studies NAME-1, NAME-2, …, as far as they are there, by their numbers."""
    found = {}
    for one in store.studies():
        stem, _, number = one.name.rpartition("-")
        if stem == name and number.isdigit():
            found[int(number)] = one
    return [found[number] for number in sorted(found)]


def portfolio_of(records: Sequence[Record]) -> int:
    """How many kernels are to serve all problems of a set, as its last search was told; MOST where studies
    are of none."""
    return next((one.portfolio for one in records if one.portfolio), MOST)


def load_studies(
    name: str,
    *,
    portfolio: int | None = None,
    database: str | os.PathLike[str] = DATABASE,
    cache: str | os.PathLike[str] | None = None,
    nvcc: str | os.PathLike[str] | None = None,
) -> StudySet:
    """The set of studies NAME-1, NAME-2, … with a portfolio of at most so many kernels (default: as its last
    search was told); the others are as in `evo.load_study`. UnknownName where there are none, StoreError
    where the database cannot be read."""
    tools = Path(cache) if cache else None, Path(nvcc) if nvcc else None
    found = StudySet(name, os.fspath(database), portfolio, *tools)
    if not found.studies:
        raise UnknownName(f"there are no studies {name}-1, {name}-2, …", "evo studies")
    return found


def _closed(_without: Collection[str], _points: bool) -> Any:
    raise NothingFound("this problem is not being searched", "evo.search_shapes")


def _champion(store: Store, member: Member, found: Found, left_out: Mapping[str, float | None]) -> Champion:
    from evo.loop.first_points import key_of
    from evo.strategy import Proposal

    assert member.study is not None
    portfolio = found.portfolio
    wanted = (
        portfolio.serves[member.name] if portfolio else str(min(member.times, key=member.times.__getitem__))
    )
    rows = [
        row
        for row in store.rows(member.study)
        if row.score_us is not None and str(key_of(Proposal(row.template, row.point))) == wanted
    ]
    best = min(rows, key=lambda row: row.score_us or 0.0)
    trial = store.trial(f"{member.study.name}/{best.number}")
    champion = unkept(trial, member.study, member.study.target or recorded_gpu(member.study).arch)
    regret = portfolio.regrets[member.name] if portfolio else 1.0
    told = {"regret": regret, "left_out_regret": left_out.get(member.name), "us": best.score_us}
    return replace(champion, record={**champion.record, SET: told})
