"""Confirmations in the database: written step by step, so that a killed one goes on where it stood."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from evo.errors import CandidateError, Red
from evo.store.damage import reading, require_types
from evo.store.engine import Database
from evo.store.packing import pack_samples, unpack_samples
from evo.store.records import DETAIL_LIMIT, case_errors, now
from evo.store.schema import confirmations, environments, finalists, rounds, studies, trials
from evo.store.times import ranked_columns, times_json, times_of
from evo.store.views import eligible, refused
from evo.study import Study
from evo.trial import CaseError, Outcome, Round, Standing

PROTOCOLS = {"warm": "", "cold": "cold_"}
"""Where a protocol's standing is in the columns of a finalist."""


@dataclass(frozen=True)
class Finalist:
    """A trial in a confirmation: what the thorough gate said, and what it stands at by protocol."""

    trial: int
    study: str
    number: int
    outcome: str
    reason: str = ""
    detail: str = ""
    where: str = ""
    sanitizer: str = ""
    standings: Mapping[str, Standing] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.study}/{self.number}"


@dataclass(frozen=True)
class Confirmation:
    """One CONFIRM of a study. `baselines`: standings by protocol and name; `skipped`: baselines that were not
    timed, and why; `kernels`: which kernels each baseline ran. `status`: running, finished, or given up.
    `gpu`: the id of the GPU that it was held on; "": not known."""

    id: int
    study: str
    problem: str
    status: str
    top: int
    seed: int
    device: str
    versions: Mapping[str, str]
    finalists: tuple[Finalist, ...]
    baselines: Mapping[str, Mapping[str, Standing]]
    skipped: Mapping[str, str]
    kernels: Mapping[str, Sequence[str]]
    created: str
    ended: str
    gpu: str = ""

    @property
    def green(self) -> tuple[Finalist, ...]:
        return tuple(f for f in self.finalists if f.outcome == "GREEN")


class Confirmations:
    """The door to the tables confirmations, finalists and rounds."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def contenders(self, study: Study, limit: int) -> list[int]:
        """Numbers of the best timed trials of `study`: distinct programs that no gate has refused since."""
        query = (
            sa.select(eligible.c.number, eligible.c.machine_code, eligible.c.launch_digest)
            .where(eligible.c.study_id == study.id, eligible.c.outcome == "TIMED")
            .where(eligible.c.median_us.isnot(None))
            .order_by(eligible.c.median_us, eligible.c.id)
            .limit(4 * limit)  # points that differ in a dead parameter are one program
        )
        rows = self._database.read(lambda c: c.execute(query).all())
        distinct: dict[tuple[str, str], int] = {}
        for number, machine_code, launch in rows:
            distinct.setdefault((machine_code or str(number), launch), number)
        return list(distinct.values())[:limit]

    def refused(self, study: Study) -> dict[int, tuple[str, str]]:
        """Trials of `study` that a gate of CONFIRMED has refused for good: number -> outcome and reason."""
        query = (
            sa.select(trials.c.number, refused.c.outcome, refused.c.reason)
            .join(refused, refused.c.trial_id == trials.c.id)
            .where(trials.c.study_id == study.id)
        )
        return {row[0]: (row[1], row[2]) for row in self._database.read(lambda c: c.execute(query).all())}

    def newest(self, study: Study) -> Confirmation | None:
        """The confirmation of `study` that was begun last."""
        query = sa.select(sa.func.max(confirmations.c.id)).where(confirmations.c.study_id == study.id)
        number = self._database.read(lambda c: c.execute(query).scalar())
        return None if number is None else self.get(number)

    def get(self, number: int) -> Confirmation:
        """The confirmation of that id."""
        query = (
            sa.select(
                *confirmations.c,
                *environments.c["device", "versions"],
                studies.c.name.label("study"),
                studies.c.ranking,
            )
            .join(environments, environments.c.id == confirmations.c.environment_id)
            .join(studies, studies.c.id == confirmations.c.study_id)
            .where(confirmations.c.id == number)
        )
        row = dict(self._database.read(lambda c: c.execute(query).mappings().one()))
        finalists = self._finalists(number)
        with reading(f"confirmation {number} of {row['study']}", self._database.name):
            found = {k: row[k] for k in Confirmation.__dataclass_fields__ if k in row}
            baselines = {
                protocol: {name: _standing(values, "", row["ranking"]) for name, values in named.items()}
                for protocol, named in row["baselines"].items()
            }
            confirmation = Confirmation(**found | {"baselines": baselines, "finalists": finalists})
            require_types(confirmation)
            if not all(isinstance(ran, list) for ran in confirmation.kernels.values()):
                raise TypeError("kernels is of another type")
        return confirmation

    def verdict(self, trial: int) -> tuple[Confirmation, Finalist] | None:
        """The newest confirmation that has a verdict on a trial, by its id, and what it says of it."""
        known = finalists.c.median_us.isnot(None) | (finalists.c.outcome != "GREEN")
        query = sa.select(finalists.c.confirmation_id).where(finalists.c.trial_id == trial, known)
        newest = query.order_by(finalists.c.id.desc()).limit(1)
        number = self._database.read(lambda c: c.execute(newest).scalar())
        if number is None:
            return None
        found = self.get(number)
        return found, next(f for f in found.finalists if f.trial == trial)

    def about(self, study: Study, trial: int) -> Confirmation | None:
        """The newest confirmation that has a verdict on a trial of `study`, by its id; else the newest."""
        verdict = self.verdict(trial)
        return verdict[0] if verdict else self.newest(study)

    def begin(self, study: Study, top: int, seed: int, environment_id: int, gpu: str = "") -> Confirmation:
        """A confirmation of `study`; one of it that is unfinished is given up."""
        values = {
            **{"study_id": study.id, "problem": study.problem.key, "environment_id": environment_id},
            "gpu": gpu,
            **{"status": "running", "top": top, "seed": seed, "created": now(), "ended": ""},
            **{"baselines": {}, "skipped": {}, "kernels": {}},
        }

        def change(connection: Connection) -> int:
            older = (confirmations.c.study_id == study.id) & (confirmations.c.status == "running")
            connection.execute(sa.update(confirmations).where(older).values(status="given up", ended=now()))
            made = connection.execute(sa.insert(confirmations).values(**values).returning(confirmations.c.id))
            return int(made.scalar_one())

        running = confirmations.c.study_id, confirmations.c.seed, confirmations.c.created
        same = sa.and_(*(column == values[column.name] for column in running))
        begun = sa.select(confirmations.c.id).where(same)
        return self.get(self._database.write(change, written=lambda c: c.execute(begun).scalar()))

    def add_finalist(
        self, of: Confirmation, number: int, verdict: CandidateError | Sequence[CaseError]
    ) -> Confirmation:
        """What the thorough gate says of trial `number`: the cases it passed, or why it did not."""
        mine = sa.select(trials.c.id).join(studies, studies.c.id == trials.c.study_id)
        mine = mine.where(studies.c.name == of.study, trials.c.number == number)
        if isinstance(verdict, CandidateError):
            values = _failure(verdict)
        else:
            green = {"outcome": "GREEN", "reason": "", "detail": "", "location": ""}
            values = green | {"errors": case_errors(verdict)}
        values |= {"confirmation_id": of.id, "trial_id": mine.scalar_subquery(), "sanitizer": ""}
        same = (finalists.c.confirmation_id == of.id) & (finalists.c.trial_id == mine.scalar_subquery())
        self._insert_once(finalists, values, same)
        return self.get(of.id)

    def sanitized(self, of: Confirmation, finalist: Finalist, said: str) -> Confirmation:
        """What compute-sanitizer said of a finalist that is clean."""
        self._database.write(lambda c: c.execute(_update(of, finalist).values(sanitizer=said)))
        return self.get(of.id)

    def fell(self, of: Confirmation, finalist: Finalist, error: CandidateError) -> Confirmation:
        """A finalist that was GREEN turned out wrong while it was timed."""
        self._database.write(lambda c: c.execute(_update(of, finalist).values(**_failure(error))))
        return self.get(of.id)

    def add_round(self, of: Confirmation, number: int, taken: Round) -> None:
        """Records a round; `number` is its place among those of its protocol."""
        values = {
            "confirmation_id": of.id,
            "protocol": taken.protocol,
            "number": number,
            "seed": taken.seed,
            **_round_columns(taken),
            "clocks": dict(taken.clocks),
            "throttled": taken.throttled,
            "created": now(),
        }
        same = (rounds.c.confirmation_id == of.id) & (rounds.c.protocol == taken.protocol)
        self._insert_once(rounds, values, same & (rounds.c.number == number))

    def _insert_once(self, table: sa.Table, values: Mapping[str, Any], same: sa.ColumnElement[bool]) -> None:
        """Inserts a row; `same` finds it where a lost connection left unsure whether it is there."""

        def insert(connection: Connection) -> bool:
            connection.execute(sa.insert(table).values(**values))
            return True

        there = sa.select(table.c.id).where(same)
        self._database.write(insert, written=lambda c: c.execute(there).first() and True)

    def rounds(self, of: Confirmation, protocol: str) -> list[Round]:
        """The rounds of one protocol, in their order."""
        mine = (rounds.c.confirmation_id == of.id) & (rounds.c.protocol == protocol)
        query = sa.select(rounds).where(mine).order_by(rounds.c.number)
        rows = self._database.read(lambda c: c.execute(query).mappings().all())
        found: list[Round] = []
        for row in rows:
            with reading(f"round {row['number']} of confirmation {of.id} of {of.study}", self._database.name):
                found.append(_round(dict(row)))
        return found

    def conclude(
        self,
        of: Confirmation,
        standings: Mapping[str, Mapping[str, Standing]],
        skipped: Mapping[str, str],
        kernels: Mapping[str, Sequence[str]],
    ) -> Confirmation:
        """The end of a confirmation: `standings` by protocol and name, of finalists and baselines."""
        mine = {finalist.name: finalist for finalist in of.finalists}
        baselines = {
            protocol: {name: _columns(s, "") for name, s in named.items() if name not in mine}
            for protocol, named in standings.items()
        }
        ended = {"status": "finished", "ended": now(), "baselines": baselines, "skipped": dict(skipped)}
        ended["kernels"] = {name: list(ran) for name, ran in kernels.items()}

        def change(connection: Connection) -> None:
            connection.execute(sa.update(confirmations).where(confirmations.c.id == of.id).values(**ended))
            for protocol, named in standings.items():
                for name in named.keys() & mine.keys():
                    values = _columns(named[name], PROTOCOLS[protocol])
                    connection.execute(_update(of, mine[name]).values(**values))

        self._database.write(change)
        return self.get(of.id)

    def _finalists(self, number: int) -> tuple[Finalist, ...]:
        query = (
            sa.select(*finalists.c, trials.c.number, studies.c.name.label("study"), studies.c.ranking)
            .join(trials, trials.c.id == finalists.c.trial_id)
            .join(studies, studies.c.id == trials.c.study_id)
            .where(finalists.c.confirmation_id == number)
            .order_by(finalists.c.id)
        )
        rows = self._database.read(lambda c: c.execute(query).mappings().all())
        found: list[Finalist] = []
        for row in rows:
            what = f"finalist {row['study']}/{row['number']} of confirmation {number}"
            with reading(what, self._database.name):
                found.append(_finalist(dict(row)))
                require_types(found[-1])
        return tuple(found)


def _update(of: Confirmation, finalist: Finalist) -> sa.Update:
    mine = (finalists.c.confirmation_id == of.id) & (finalists.c.trial_id == finalist.trial)
    return sa.update(finalists).where(mine)


def _failure(error: CandidateError) -> dict[str, Any]:
    errors = case_errors(error.errors) if isinstance(error, Red) else []
    said = {"outcome": error.outcome, "reason": error.reason, "detail": error.detail[:DETAIL_LIMIT]}
    return said | {"location": error.where, "errors": errors}


def _columns(standing: Standing, prefix: str) -> dict[str, Any]:
    own = ranked_columns(standing) | {
        "versus": standing.versus,
        "verdict": standing.verdict,
        "times": times_json(standing.times),
    }
    level = {} if prefix else {"level": standing.interval.level}  # of the cold ones `times` has it
    return {f"{prefix}{name}": value for name, value in own.items()} | level


def _finalist(row: Mapping[str, Any]) -> Finalist:
    """The finalist of a row of finalists, joined with its trial (`number`) and study (`study`, `ranking`)."""
    return Finalist(
        row["trial_id"],
        row["study"],
        row["number"],
        str(Outcome(row["outcome"])),
        row["reason"],
        row["detail"],
        row["location"],
        row["sanitizer"],
        {
            protocol: _standing(row, at, row["ranking"])
            for protocol, at in PROTOCOLS.items()
            if row[f"{at}median_us"] is not None
        },
    )


def _standing(row: Mapping[str, Any], prefix: str, ranking: str) -> Standing:
    times = times_of(row[f"{prefix}times"])
    for time in times.values():
        require_types(time)
        require_types(time.interval)
    return Standing.ranked(times, ranking, verdict=row[f"{prefix}verdict"] or "")


def _round_columns(taken: Round) -> dict[str, Any]:
    """Samples are those of the baselines, then those of the finalists; of each on one timing input after the
    other, as many on each."""
    inputs = taken.inputs
    samples = tuple(us for own in taken.samples_us.values() for on in inputs for us in own[on])
    return {
        "inputs": list(inputs),
        "baselines": [[name, len(own[inputs[0]])] for name, own in taken.baselines_us.items()],
        "finalists": [[name, len(own[inputs[0]])] for name, own in taken.finalists_us.items()],
        "samples": pack_samples(samples),
    }


def _round(row: Mapping[str, Any]) -> Round:
    known = unpack_samples(row["samples"])
    counts = [count for column in ("baselines", "finalists") for _, count in row[column]]
    if len(known) != len(row["inputs"]) * sum(counts):
        raise ValueError(f"{len(known)} samples, not those that it names")
    samples = iter(known)
    baselines_us, finalists_us = (
        {name: {on: tuple(islice(samples, count)) for on in row["inputs"]} for name, count in row[column]}
        for column in ("baselines", "finalists")
    )
    taken = Round(row["protocol"], row["seed"], finalists_us, baselines_us, row["clocks"], row["throttled"])
    require_types(taken)
    return taken
