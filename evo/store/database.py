"""Every trial in SQLite (or PostgreSQL): the one truth. Leaderboard and resume are queries.

`Store` is the only door to SQLAlchemy and Alembic. Several processes may use one database at once.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError

from evo.errors import StoreError, UnknownName, UsageError
from evo.store.confirmations import LASTING, Confirmation, Confirmations, Finalist
from evo.store.engine import Database
from evo.store.packing import pack_source, unpack_source
from evo.store.records import (
    Failure,
    LeaderboardRow,
    TrialRow,
    ranked,
    study_columns,
    study_of,
    trial_columns,
    trial_of,
)
from evo.store.schema import confirmations, confirmed, environments, finalists, sources, studies, trials
from evo.study import Study
from evo.trial import Outcome, Trial, digest_of

__all__ = [
    "Confirmation",
    "Failure",
    "Finalist",
    "LeaderboardRow",
    "Store",
    "Study",
    "TrialRow",
]

STALE_S = 60.0
"""A study whose search has not been heard of for so long is free to be resumed from another machine."""

WORTHWHILE = 10
"""A source that is not compressed at least so many times against its base becomes a base itself
(by itself, CUDA source is compressed about four times)."""

_GOOD = ("TIMED", "GREEN")

_REVISED = (
    "outcome", "reason", "detail", "location", "errors", "worst_error", "median_us", "low_us", "high_us",
    "level", "protocol", "samples", "baselines", "speedup", "speedup_low", "speedup_high", "counters",
    "clocks",
)  # fmt: skip
"""The columns of a trial that another visit may change."""


class Store:
    """A database of studies and trials. `url`: a path to an SQLite file, or a URL (sqlite, postgresql).

    With `create`, a missing SQLite file is made; without, it is a StoreError. `notice` hears of a schema
    that was upgraded. Every method raises StoreError where the database cannot be opened, read or written.
    """

    def __init__(
        self, url: str | Path, create: bool = True, notice: Callable[[str], None] = lambda _: None
    ) -> None:
        self._database = Database(str(url), create, notice)
        self.confirmations = Confirmations(self._database)
        self._bases: dict[str, tuple[int, str] | None] = {}
        self._environments: dict[str, int] = {}

    @property
    def name(self) -> str:
        """The file, or the URL without its password."""
        return self._database.name

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- studies

    def create(self, study: Study) -> Study:
        """The new study, with its id. UsageError if there is one of that name."""
        if not study.name or "/" in study.name or study.name.strip() != study.name or study.name.isdecimal():
            raise UsageError(f"unusable study name: {study.name!r}", "a word, such as mission-1, without /")
        insert = sa.insert(studies).values(**study_columns(study))
        try:
            self._database.write(lambda c: c.execute(insert))
        except StoreError as error:
            if not isinstance(error.__cause__, IntegrityError):
                raise
            raise UsageError(
                f"there is a study {study.name} already", f"evo resume {study.name}, or another --study"
            ) from None
        return self.study(study.name)

    def study(self, name: str) -> Study:
        """The study of that name, or UnknownName."""
        query = sa.select(studies).where(studies.c.name == name)
        row = self._database.read(lambda c: c.execute(query).mappings().first())
        if row is None:
            raise UnknownName.among("study", name, [s.name for s in self.studies()])
        return study_of(dict(row))

    def studies(self) -> list[Study]:
        """All studies, oldest first."""
        rows = self._database.read(
            lambda c: c.execute(sa.select(studies).order_by(studies.c.id)).mappings().all()
        )
        return [study_of(dict(row)) for row in rows]

    def unused_name(self, stem: str) -> str:
        """`stem-1`, or the first such name that no study has."""
        taken = {study.name for study in self.studies()}
        return next(name for n in range(1, len(taken) + 2) if (name := f"{stem}-{n}") not in taken)

    def claim(self, study: Study, lookahead: int) -> Study:
        """Marks `study` as running in this process, and gives it back as it stands now; with `lookahead`
        where it has none yet.

        UsageError if another live process runs it: two searches may share a database, not a study.
        """

        def take(connection: Connection) -> Mapping[str, Any]:
            row = connection.execute(sa.select(studies).where(studies.c.id == study.id)).mappings().one()
            if row["owner"] and row["owner"] != _self() and _alive(row["owner"], row["heartbeat"]):
                raise UsageError(
                    f"study {study.name} is being searched or confirmed by {row['owner']}",
                    "wait for it, stop it, or start another study in the same database",
                )
            mine = {"owner": _self(), "heartbeat": time.time(), "status": "running"}
            mine["lookahead"] = row["lookahead"] or lookahead
            connection.execute(sa.update(studies).where(studies.c.id == study.id).values(**mine))
            return {**row, **mine}

        return study_of(self._database.write(take))

    def release(self, study: Study, status: str, spent_s: float) -> None:
        """The search in this process is over; `status` says how: finished, exhausted, interrupted, failed."""
        self._update(study, owner="", status=status, spent_s=spent_s)

    def heartbeat(self, study: Study, spent_s: float) -> None:
        """Keeps `study` claimed and its spent budget true."""
        self._update(study, heartbeat=time.time(), spent_s=spent_s)

    def set_budget(self, study: Study, budget_s: float, rate: float | None = None) -> Study:
        """The study with another budget (and rate)."""
        self._update(study, budget_s=budget_s, **({} if rate is None else {"rate": rate}))
        return self.study(study.name)

    def set_baselines(self, study: Study, baselines_us: Mapping[str, float]) -> None:
        """The medians of the baselines, as last measured beside a candidate."""
        self._update(study, baselines=dict(baselines_us))

    def _update(self, study: Study, **columns: Any) -> None:
        change = sa.update(studies).where(studies.c.id == study.id).values(**columns)
        self._database.write(lambda c: c.execute(change))

    # ---- trials

    def add(
        self,
        study: Study,
        number: int,
        trial: Trial,
        same_as: int | None = None,
        spent_s: float | None = None,
    ) -> None:
        """Records a finished trial, in one transaction; with it the study's spent budget.

        `same_as`: it was not run, its result is that of this number (same machine code, same launch).
        """
        columns = trial_columns(trial, study.problem) | {
            "study_id": study.id,
            "number": number,
            "same_as": same_as,
        }

        def record(connection: Connection) -> None:
            columns["environment_id"] = self._environment(
                connection, trial.device, trial.compiler, trial.versions
            )
            columns["source_id"] = self._source(connection, trial)
            connection.execute(_ADD_TRIAL, columns)
            if spent_s is not None:
                alive = {"study": study.id, "spent": spent_s, "now": time.time()}
                connection.execute(_IS_ALIVE, alive)

        self._database.write(record, undo=self._forget)

    def revise(self, study: Study, numbers: Sequence[int], trial: Trial, spent_s: float) -> None:
        """Records what is known of a trial after another visit, in one transaction with the study's spent
        budget: its outcome, errors and timing; the rest stays as it is. `numbers`: its own and those of the
        trials that are `same_as` it (the caller knows them: the table has no index of them)."""
        columns = trial_columns(trial, study.problem)
        found = {name: columns[name] for name in _REVISED}
        rows = [found | {"of_study": study.id, "of_number": number} for number in numbers]

        def record(connection: Connection) -> None:
            connection.execute(_REVISE_TRIAL, rows)
            connection.execute(_IS_ALIVE, {"study": study.id, "spent": spent_s, "now": time.time()})

        self._database.write(record)

    def _forget(self) -> None:
        """A transaction failed: the shared rows that it inserted, and that were remembered, are gone."""
        self._bases.clear()
        self._environments.clear()

    def rows(self, study: Study) -> list[TrialRow]:
        """All finished trials of `study` by number, light (about a kilobyte each)."""
        wanted = [trials.c[name] for name in TrialRow.__dataclass_fields__ if name in trials.c]
        query = sa.select(*wanted).where(trials.c.study_id == study.id).order_by(trials.c.number)
        return self._database.read(
            lambda c: [_interned(TrialRow(row[0], Outcome(row[1]), *row[2:])) for row in c.execute(query)]
        )

    def created(self, study: Study) -> dict[int, str]:
        """When each trial was recorded, by number: UTC, ISO 8601."""
        query = sa.select(trials.c.number, trials.c.created).where(trials.c.study_id == study.id)
        return {row[0]: row[1] for row in self._database.read(lambda c: c.execute(query).all())}

    def count(self, study: Study) -> dict[str, int]:
        """Trials by outcome."""
        mine = trials.c.study_id == study.id
        query = sa.select(trials.c.outcome, sa.func.count()).where(mine).group_by(trials.c.outcome)
        return {row[0]: row[1] for row in self._database.read(lambda c: c.execute(query).all())}

    def trial(self, reference: str | int) -> Trial:
        """A trial whole, by `STUDY/NUMBER` or by its id over all studies. UnknownName if there is none."""
        text = str(reference)
        name, _, number = text.rpartition("/")
        if not number.isdecimal() or int(number) >= 1 << 31:
            raise UsageError(f"malformed trial: {text}", "STUDY/NUMBER as in mission-1/12, or a trial's id")
        which = trials.c.id == int(number)
        if name:
            which = (studies.c.name == name) & (trials.c.number == int(number))
        query = (
            sa.select(
                *trials.c,
                *environments.c["device", "compiler", "versions"],
                studies.c.name.label("study"),
                studies.c.problem_json.label("study_problem"),
            )
            .join(studies, studies.c.id == trials.c.study_id)
            .join(environments, environments.c.id == trials.c.environment_id)
            .where(which)
        )
        row = self._database.read(lambda c: c.execute(query).mappings().first())
        if row is None:
            if name:
                self.study(name)  # the study may be what is unknown
            raise UnknownName(f"unknown trial: {text}", "`evo leaderboard` lists trials")
        full = dict(row) | {"problem_json": row["problem_json"] or row["study_problem"]}
        return trial_of(full, self._database.read(lambda c: self._source_text(c, row["source_id"])))

    # ---- questions

    def leaderboard(
        self,
        *,
        study: str | None = None,
        task: str | None = None,
        problem: str | None = None,
        gpu: str | None = None,
        template: str | None = None,
        limit: int = 20,
    ) -> list[LeaderboardRow]:
        """The best correct trials: by problem and device, the CONFIRMED ones first, then those that were
        measured in a search alone (by median), then those that have only an estimate (by that); `limit` of
        each kind. `problem`: a Problem's key; `gpu`: a part of a device's name."""
        columns = _ranked_columns()
        kind = [trials.c.problem, columns["kind"], environments.c.device, _estimated_for()]
        score = sa.func.coalesce(confirmed.c.median_us, trials.c.median_us, trials.c.estimate_us)
        place = sa.func.row_number().over(partition_by=kind, order_by=[score, trials.c.id]).label("place")
        refused = (finalists.c.trial_id == trials.c.id) & finalists.c.outcome.notin_(LASTING)
        query = (
            sa.select(*(column.label(name) for name, column in columns.items()), place)
            .join(studies, studies.c.id == trials.c.study_id)
            .join(environments, environments.c.id == trials.c.environment_id)
            .outerjoin(confirmed, confirmed.c.trial_id == trials.c.id)
            .outerjoin(confirmations, confirmations.c.id == confirmed.c.confirmation_id)
            .where(trials.c.outcome.in_(_GOOD), trials.c.same_as.is_(None))
            .where(trials.c.median_us.isnot(None) | trials.c.estimate_us.isnot(None))
            .where(~sa.exists().where(refused))
        )
        among = sa.select(studies.c.id)
        if study is not None:
            among = among.where(studies.c.id == self.study(study).id)
        if task is not None:
            among = among.where(studies.c.task == task)
        # + 0: not by the index of studies, but by that of medians
        asked: list[sa.ColumnElement[bool]] = []
        if study is not None or task is not None:
            asked.append((trials.c.study_id + 0).in_(among))
        if template is not None:
            asked.append(trials.c.template == template)
        if gpu is not None:
            named = environments.c.device.icontains(gpu, autoescape=True)
            query = query.where(named | trials.c.estimate_gpu.icontains(gpu, autoescape=True))
        if problem is not None:
            query = query.where(trials.c.problem == problem)
        query = query.where(*asked)
        asked += [trials.c.outcome.in_(_GOOD), trials.c.same_as.is_(None), ~sa.exists().where(refused)]
        few = self._database.read(lambda c: _in_the_running(c, asked, problem, limit))
        placed = query.where(trials.c.id.in_(few)).subquery()
        order = sa.case({"confirmed": 0, "measured": 1}, value=placed.c.kind, else_=2)
        best = (
            sa.select(*(placed.c[name] for name in columns))
            .where(placed.c.place <= limit)
            .order_by(placed.c.problem, order, placed.c.device, placed.c.place)
        )
        rows = self._database.read(lambda c: c.execute(best).mappings().all())
        return ranked([_ranked_row(dict(row)) for row in rows])

    def failures(self, study: Study) -> list[Failure]:
        """Why trials of `study` died: reasons with their counts, the most frequent first."""
        count = sa.func.count()
        query = (
            sa.select(trials.c.outcome, trials.c.reason, count, sa.func.min(trials.c.number))
            .where(trials.c.study_id == study.id, trials.c.outcome.notin_(_GOOD))
            .group_by(trials.c.outcome, trials.c.reason)
            .order_by(count.desc(), trials.c.outcome, trials.c.reason)
        )
        return [Failure(*row) for row in self._database.read(lambda c: c.execute(query).all())]

    # ---- shared rows

    def environment(self, device: str, compiler: str, versions: Mapping[str, str]) -> int:
        """The id of a device, a compiler and the versions of everything."""
        return self._database.write(
            lambda c: self._environment(c, device, compiler, versions), undo=self._forget
        )

    def _environment(
        self, connection: Connection, device: str, compiler: str, versions: Mapping[str, str]
    ) -> int:
        digest = digest_of(device, compiler, dict(versions))
        if digest not in self._environments:
            values = {"device": device, "compiler": compiler, "versions": dict(versions)}
            self._environments[digest] = _insert_once(connection, environments, digest, values)
        return self._environments[digest]

    def _source(self, connection: Connection, trial: Trial) -> int:
        text, template = trial.candidate.source, trial.candidate.template
        digest = digest_of(text.encode())  # as text it would be escaped first, at the price of a commit
        base = self._base(connection, template)
        if base is not None:
            packed = pack_source(text, base[1])
            if WORTHWHILE * len(packed) < len(text):
                values = {"template": template, "base": base[0], "packed": packed}
                return _insert_once(connection, sources, digest, values)
        known = connection.execute(_SOURCE_OF, {"digest": digest}).scalar()
        if known is not None:
            return int(known)
        values = {"template": template, "base": None, "packed": pack_source(text, None)}
        number = _insert_once(connection, sources, digest, values)
        self._bases[template] = (number, text)
        return number

    def _base(self, connection: Connection, template: str) -> tuple[int, str] | None:
        """The newest source of `template` that is stored whole."""
        if template not in self._bases:
            whole = (sources.c.template == template) & sources.c.base.is_(None)
            query = sa.select(sources.c.id).where(whole).order_by(sources.c.id.desc()).limit(1)
            number = connection.execute(query).scalar()
            self._bases[template] = (
                None if number is None else (number, self._source_text(connection, number))
            )
        return self._bases[template]

    def _source_text(self, connection: Connection, number: int) -> str:
        row = connection.execute(
            sa.select(sources.c.base, sources.c.packed).where(sources.c.id == number)
        ).one()
        base = None if row.base is None else self._source_text(connection, row.base)
        return unpack_source(row.packed, base)


def _interned(row: TrialRow) -> TrialRow:
    """The row with names that it shares with all others: a third less memory for 100,000."""
    return replace(row, point={sys.intern(name): value for name, value in row.point.items()})


def _insert_once(connection: Connection, table: sa.Table, digest: str, values: Mapping[str, Any]) -> int:
    """The id of the row of `digest`, made where it is absent: another process may be making it right now."""
    once = _once(table, connection.dialect.name)
    made = connection.execute(once, {"digest": digest, **values}).scalar()
    if made is None:
        made = connection.execute(sa.select(table.c.id).where(table.c.digest == digest)).scalar_one()
    return int(made)


@cache
def _once(table: sa.Table, dialect: str) -> sa.Executable:
    """Inserts a row unless there is one of its digest; gives the id of what it inserted."""
    insert = postgresql.insert if dialect == "postgresql" else sqlite.insert
    return insert(table).on_conflict_do_nothing(index_elements=["digest"]).returning(table.c.id)


# made once: to make a statement costs as much as to execute it
_ADD_TRIAL = sa.insert(trials)
_REVISE_TRIAL = sa.update(trials).where(
    trials.c.study_id == sa.bindparam("of_study"), trials.c.number == sa.bindparam("of_number")
)
_SOURCE_OF = sa.select(sources.c.id).where(sources.c.digest == sa.bindparam("digest"))
_IS_ALIVE = (
    sa.update(studies)
    .where(studies.c.id == sa.bindparam("study"))
    .values(spent_s=sa.bindparam("spent"), heartbeat=sa.bindparam("now"))
)


def _ranked_row(row: dict[str, Any]) -> LeaderboardRow:
    """Of a confirmed row, the baselines are those of its confirmation: of the same rounds as its time."""
    beside = row.pop("confirmed_baselines")
    if row["kind"] == "confirmed" and beside:
        row["baselines_us"] = {name: s["median_us"] for name, s in beside.get("warm", {}).items()}
    return LeaderboardRow(**row)


def _ranked_columns() -> dict[str, sa.ColumnElement[Any]]:
    """What a LeaderboardRow is made of, by name; all but its rank."""
    sure = confirmed.c.trial_id.isnot(None)
    columns: dict[str, sa.ColumnElement[Any]] = {
        "trial": trials.c.id,
        "study": studies.c.name,
        "device": environments.c.device,
        "baselines_us": trials.c.baselines,
        "confirmed_baselines": confirmations.c.baselines,
        "kind": sa.case((sure, "confirmed"), (trials.c.median_us.is_(None), "estimate"), else_="measured"),
        "level": sa.case((sure, confirmed.c.level), else_=trials.c.level),
        "versus": confirmed.c.versus,
        "verdict": confirmed.c.verdict,
        "cold_us": confirmed.c.cold_median_us,
        "search_us": trials.c.median_us,
    }
    for name in ("cold_low_us", "cold_high_us", "cold_speedup"):
        columns[name] = confirmed.c[name]
    for name in ("median_us", "low_us", "high_us", "speedup", "speedup_low", "speedup_high"):
        columns[name] = sa.case((sure, confirmed.c[name]), else_=trials.c[name])
    others = [name for name in LeaderboardRow.__dataclass_fields__ if name not in columns and name != "rank"]
    return columns | {name: trials.c[name] for name in others}


def _estimated_for() -> sa.ColumnElement[Any]:
    return sa.case((trials.c.median_us.is_(None), trials.c.estimate_gpu), else_="")


def _in_the_running(
    connection: Connection, asked: Sequence[sa.ColumnElement[bool]], problem: str | None, limit: int
) -> list[int]:
    """The ids of trials among which a leaderboard's rows are: of each problem and environment the `limit`
    best, by the index of medians, so that a study of 100,000 is not sorted whole; all confirmed ones and
    estimates."""
    problems = [problem] if problem is not None else connection.execute(_PROBLEMS).scalars().all()
    machines = connection.execute(sa.select(environments.c.id)).scalars().all()
    found = set(connection.execute(sa.select(confirmed.c.trial_id)).scalars())
    limit += len(found)
    for one in problems:
        here = sa.select(trials.c.id).where(trials.c.problem == one, *asked)
        estimated = here.where(trials.c.median_us.is_(None), trials.c.estimate_us.isnot(None))
        found.update(connection.execute(estimated).scalars())
        measured = here.where(trials.c.median_us.isnot(None)).order_by(trials.c.median_us, trials.c.id)
        for machine in machines:
            best = measured.where(trials.c.environment_id == machine).limit(limit)
            found.update(connection.execute(best).scalars())
    return sorted(found)


_PROBLEMS = sa.text("""
    WITH RECURSIVE each(problem) AS (
        SELECT min(problem) FROM trials
        UNION ALL
        SELECT (SELECT min(problem) FROM trials WHERE problem > each.problem) FROM each
        WHERE each.problem IS NOT NULL
    )
    SELECT problem FROM each WHERE problem IS NOT NULL
""")
"""The problems of all trials, each found by one look into an index."""


def _self() -> str:
    """This process, for as long as the machine is up: a process id alone is used again."""
    return f"{socket.gethostname()} process {os.getpid()}{_started(os.getpid())}"


def _alive(owner: str, heartbeat: float | None) -> bool:
    host, _, process = owner.rpartition(" process ")
    if host == socket.gethostname():
        pid = int(process.split(".")[0])
        return f"{pid}{_started(pid)}" == process and _exists(pid)
    return heartbeat is not None and time.time() - heartbeat < STALE_S


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _started(pid: int) -> str:
    """`.<start time>` where the operating system says it (Linux), else nothing."""
    try:
        return "." + Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
