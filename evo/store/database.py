"""Every trial in SQLite (or PostgreSQL): the one truth. Leaderboard and resume are queries.

`Store` is the only door to SQLAlchemy and Alembic. Several processes may use one database at once.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError

from evo.errors import StoreError, UnknownName, UsageError
from evo.store.confirmations import Confirmations
from evo.store.damage import reading, require_types
from evo.store.engine import Database, insert_once
from evo.store.leaderboard import Filter, best_rows
from evo.store.offsets import Offsets
from evo.store.owner import STALE_S, Owner
from evo.store.records import (
    Failure,
    LeaderboardRow,
    TrialRow,
    interned,
    owner_columns,
    owner_of,
    study_columns,
    study_of,
    trial_columns,
    trial_of,
)
from evo.store.schema import environments, studies, trials
from evo.store.sources import Sources
from evo.store.times import times_of
from evo.study import Study
from evo.trial import InputTime, Outcome, Trial, digest_of

LONGEST_NAME = 200
"""Characters of a study's name."""
NAMES_TRIED = 200
"""Numbers that are tried for a new study, where other searches that begin now take them first."""
_GOOD = ("TIMED", "GREEN")

_REVISED = (
    *("outcome", "reason", "detail", "location", "errors", "worst_error", "evaluations"),
    *("median_us", "low_us", "high_us", "level", "protocol", "samples", "clocks"),
    *("baselines", "speedup", "speedup_low", "speedup_high", "counters"),
    *("cases_run", "cases_planned", "classes_missed", "own_share", "extent", "times", "timing_inputs"),
    "reads",
)
"""The columns of a trial that another evaluation may change."""

_WHOLE = (
    sa.select(
        *trials.c,
        *environments.c["device", "compiler", "versions"],
        studies.c.name.label("study"),
        studies.c.ranking,
        studies.c.problem_json.label("study_problem"),
    )
    .join(studies, studies.c.id == trials.c.study_id)
    .join(environments, environments.c.id == trials.c.environment_id)
)
_IDENTIFIED = _WHOLE.where(trials.c.id == sa.bindparam("at"))
_NUMBERED = _WHOLE.where((studies.c.name == sa.bindparam("of")) & (trials.c.number == sa.bindparam("at")))
"""Whole trials, as queries that SQLAlchemy prepares once: a search asks for them often."""


class Store:
    """A database of studies and trials. `url`: a path to an SQLite file, or a URL (sqlite, postgresql).

    With `create`, a missing SQLite file is made; without, it is a StoreError. `notice` hears of a schema
    that was upgraded. Every method raises StoreError where the database cannot be opened, read or written.
    """

    def __init__(
        self, url: str | Path, create: bool = True, notice: Callable[[str], None] = lambda _: None
    ) -> None:
        self._database = Database(str(url), create, notice)
        self._notice = notice
        self.confirmations = Confirmations(self._database)
        self.offsets = Offsets(self._database)
        self._sources = Sources()
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
        name = study.name
        odd = name.strip() != name or name.isdecimal() or len(name) > LONGEST_NAME or not name.isprintable()
        if not name or "/" in name or odd:
            raise UsageError(f"unusable study name: {study.name!r}", "a word, such as night-1, without /")
        columns = study_columns(study)
        mine = sa.select(studies.c.id).where(studies.c.name == name, studies.c.created == columns["created"])

        def insert(connection: Connection) -> int:
            made = connection.execute(sa.insert(studies).values(**columns).returning(studies.c.id))
            return int(made.scalar_one())

        try:
            self._database.write(insert, written=lambda c: c.execute(mine).scalar())
        except StoreError as error:
            if not isinstance(error.__cause__, IntegrityError):
                raise
            raise UsageError(
                f"there is a study {study.name} already", f"evo resume {study.name}, or another --study"
            ) from None
        return self.study(study.name)

    def create_numbered(self, study: Study) -> Study:
        """The new study, by its name and the first number that is free: others may be made meanwhile."""
        for attempt in range(NAMES_TRIED):
            try:
                return self.create(replace(study, name=self.unused_name(study.name)))
            except UsageError:
                if attempt == NAMES_TRIED - 1:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def study(self, name: str) -> Study:
        """The study of that name, or UnknownName."""
        query = sa.select(studies).where(studies.c.name == name)
        row = self._database.read(lambda c: c.execute(query).mappings().first())
        if row is None:
            raise UnknownName.among("study", name, [s.name for s in self.studies()])
        with reading(f"study {name}", self.name):
            return study_of(dict(row))

    def studies(self) -> list[Study]:
        """All studies, oldest first; without damaged ones, which the notice hears of."""
        rows = self._database.read(
            lambda c: c.execute(sa.select(studies).order_by(studies.c.id)).mappings().all()
        )
        found = []
        for row in rows:
            with reading(f"study {row['name']}", self.name, self._notice):
                found.append(study_of(dict(row)))
        return found

    def unused_name(self, stem: str) -> str:
        """`stem-1`, or the first such name that no study has."""
        taken = {study.name for study in self.studies()}
        return next(name for n in range(1, len(taken) + 2) if (name := f"{stem}-{n}") not in taken)

    def claim(
        self, study: Study, lookahead: int, budget_s: float | None = None, rate: float | None = None
    ) -> Study:
        """Marks `study` as running in this process, on its device and GPUs, and gives it back as it stands
        now; with the study's end, with `lookahead` where it has none yet, and with another budget and rate
        where they are given.

        UsageError if another live process runs it: two searches may share a database, not a study.
        """

        def take(connection: Connection) -> Mapping[str, Any]:
            row = connection.execute(sa.select(studies).where(studies.c.id == study.id)).mappings().one()
            owner, me = owner_of(dict(row)), Owner.current()
            if owner is not None and owner != me and owner.alive(row["heartbeat"]):
                raise UsageError(
                    f"study {study.name} is being searched or confirmed by {owner}",
                    "wait for it, stop it, or start another study in the same database "
                    f"(from another machine or container it is free {STALE_S:.0f} s after it died)",
                )
            mine = owner_columns(me) | {"heartbeat": time.time(), "status": "running"}
            mine |= {"device": study.device, "gpus": list(study.gpus), "until": study.until}
            mine["lookahead"] = row["lookahead"] or lookahead
            mine |= {} if budget_s is None else {"budget_s": budget_s}
            mine |= {} if rate is None else {"rate": rate}
            connection.execute(sa.update(studies).where(studies.c.id == study.id).values(**mine))
            return {**row, **mine}

        return study_of(self._database.write(take))

    def release(self, study: Study, status: str, spent_s: float) -> None:
        """The search in this process is over; `status` says how: finished, exhausted, interrupted, failed."""
        self._update(study, **owner_columns(None), status=status, spent_s=spent_s)

    def heartbeat(self, study: Study, spent_s: float) -> None:
        """Keeps `study` claimed and its spent budget true."""
        self._update(study, heartbeat=time.time(), spent_s=spent_s)

    def set_baselines(self, study: Study, baselines_us: Mapping[str, float]) -> None:
        """The medians of the baselines, as last measured beside a candidate."""
        self._update(study, baselines=dict(baselines_us))

    def start_again(self, study: Study, first: int) -> Study:
        """The study, which starts again elsewhere with trial `first`."""
        starts = (*study.starts, first)
        self._update(study, starts=list(starts))
        return replace(study, starts=starts)

    def keep(self, study: Study) -> None:
        """Keeps where the study's task and templates are from now on, and the portfolio of its set."""
        self._update(study, folders=list(study.folders), portfolio=study.portfolio)

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

        def record(connection: Connection) -> bool:
            columns["environment_id"] = self._environment(
                connection, trial.device, trial.compiler, trial.versions
            )
            source = trial.candidate.source
            columns["source_id"] = self._sources.add(connection, trial.candidate.template, source)
            connection.execute(_ADD_TRIAL, columns)
            if spent_s is not None:
                alive = {"study": study.id, "spent": spent_s, "now": time.time()}
                connection.execute(_IS_ALIVE, alive)
            return True

        mine = sa.select(trials.c.id).where(trials.c.study_id == study.id, trials.c.number == number)
        self._database.write(record, self._forget, lambda c: c.execute(mine).first() and True)

    def revise(self, study: Study, numbers: Sequence[int], trial: Trial, spent_s: float) -> None:
        """Records what is known after another evaluation, in one transaction with the study's spent
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
        self._sources.forget()
        self._environments.clear()

    def rows(self, study: Study) -> list[TrialRow]:
        """All finished trials of `study` by number, light (about a kilobyte each)."""
        wanted = [trials.c[name] for name in TrialRow.__dataclass_fields__ if name in trials.c]
        query = sa.select(*wanted).where(trials.c.study_id == study.id).order_by(trials.c.number)
        found = self._database.read(lambda c: c.execute(query).all())
        return [self._row(study, row) for row in found]

    def _row(self, study: Study, row: Sequence[Any]) -> TrialRow:
        with reading(f"trial {study.name}/{row[0]}", self.name):
            one = interned(TrialRow(row[0], Outcome(row[1]), *row[2:]))
            require_types(one)
            return one

    def spans(self, study: Study) -> dict[int, tuple[datetime, datetime]]:
        """When each trial began and when it was recorded, by number, in UTC. Begun: as long ago as its
        evaluation took, without what was done ahead or in waiting."""
        query = sa.select(trials.c.number, trials.c.created, trials.c.seconds)
        found = self._database.read(lambda c: c.execute(query.where(trials.c.study_id == study.id)).all())
        spans = {}
        for number, created, seconds in found:
            with reading(f"trial {study.name}/{number}", self.name):
                ended = datetime.fromisoformat(created)
                took = sum(spent for stage, spent in seconds.items() if stage not in ("ahead", "idle"))
                spans[number] = ended - timedelta(seconds=took), ended
        return spans

    def times(self, study: Study) -> dict[int, dict[str, InputTime]]:
        """The times by timing input of each timed trial, by number; without samples."""
        query = sa.select(trials.c.number, trials.c.times)
        query = query.where(trials.c.study_id == study.id, trials.c.median_us.isnot(None))
        times = {}
        for number, found in self._database.read(lambda c: c.execute(query).all()):
            with reading(f"trial {study.name}/{number}", self.name):
                times[number] = times_of(found)
        return times

    def count(self, study: Study) -> dict[str, int]:
        """Trials by outcome."""
        mine = trials.c.study_id == study.id
        query = sa.select(trials.c.outcome, sa.func.count()).where(mine).group_by(trials.c.outcome)
        return {row[0]: row[1] for row in self._database.read(lambda c: c.execute(query).all())}

    def trial(self, reference: str | int) -> Trial:
        """A trial whole, by `STUDY/NUMBER` or by its id over all studies. UnknownName if there is none."""
        text = str(reference)
        name, _, number = text.rpartition("/")
        if not re.fullmatch(r"[0-9]{1,10}", number) or int(number) >= 1 << 31:
            hint = f"STUDY/NUMBER, such as {text.partition('/')[0]}/0: `evo leaderboard` lists trials"
            raise UsageError(f"malformed trial: {text}", hint)
        query, asked = (
            (_NUMBERED, {"of": name, "at": int(number)}) if name else (_IDENTIFIED, {"at": int(number)})
        )
        with reading(f"trial {text}", self.name):
            row = self._database.read(lambda c: c.execute(query, asked).mappings().first())
        if row is None:
            if name:
                self.study(name)  # the study may be what is unknown
            raise UnknownName(f"unknown trial: {text}", "`evo leaderboard` lists trials")
        full = dict(row) | {"problem_json": row["problem_json"] or row["study_problem"]}
        with reading(f"trial {text}", self.name):
            return trial_of(full, self._database.read(lambda c: self._sources.text(c, row["source_id"])))

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
        """The best rows of each problem and device: CONFIRMED ones, then those that were measured in a search
        alone (by median), then those that have only an estimate (by that); `limit` of each kind. The ranks
        are those among the trials that are asked for. `problem`: a Problem's key; `gpu`: a part of a
        device's name. UnknownName if there is no such study."""
        of_study = None if study is None else self.study(study).id
        asked = Filter(of_study, task, problem, gpu, template)
        return self._database.read(lambda c: best_rows(c, asked, limit, self._reading_row))

    def _reading_row(self, row: Mapping[str, Any]) -> AbstractContextManager[None]:
        return reading(f"trial {row['study']}/{row['number']}", self.name, self._notice)

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
            self._environments[digest] = insert_once(connection, environments, digest, values)
        return self._environments[digest]


# made once: to make a statement costs as much as to execute it
_ADD_TRIAL = sa.insert(trials)
_REVISE_TRIAL = sa.update(trials).where(
    trials.c.study_id == sa.bindparam("of_study"), trials.c.number == sa.bindparam("of_number")
)
_IS_ALIVE = (
    sa.update(studies)
    .where(studies.c.id == sa.bindparam("study"))
    .values(spent_s=sa.bindparam("spent"), heartbeat=sa.bindparam("now"))
)
