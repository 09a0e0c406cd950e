"""By what the GPUs of a study differ, in the database: each time that it was measured is a row."""

from __future__ import annotations

from dataclasses import asdict

import sqlalchemy as sa

from evo.store.damage import reading, require_types
from evo.store.engine import Database
from evo.store.records import now
from evo.store.schema import offsets, trials
from evo.study import Study
from evo.trial import Offset


class Offsets:
    """The door to the table offsets."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, study: Study, measured: Offset) -> None:
        values = asdict(measured) | {"study_id": study.id, "created": now()}
        self._database.write(lambda c: c.execute(sa.insert(offsets).values(**values)))

    def of(self, study: Study) -> list[Offset]:
        """All that were measured, in that order: of each GPU the last one counts."""
        wanted = [offsets.c[name] for name in Offset.__dataclass_fields__]
        query = sa.select(*wanted).where(offsets.c.study_id == study.id).order_by(offsets.c.id)
        found = []
        for row in self._database.read(lambda c: c.execute(query).mappings().all()):
            with reading(f"an offset of study {study.name}", self._database.name):
                found.append(Offset(**row))
                require_types(found[-1])
        return found

    def first_gpu(self, study: Study) -> str:
        """The id of the GPU that the times of `study` are those of; "" where none is known."""
        known = self.of(study)
        if known:
            return known[0].reference
        timed = trials.c.outcome.in_(("TIMED", "GREEN")) & (trials.c.gpu != "") & (trials.c.divisor == 1.0)
        mine = sa.select(trials.c.gpu).where(trials.c.study_id == study.id, timed)
        query = mine.order_by(trials.c.id).limit(1)
        return str(self._database.read(lambda c: c.execute(query).scalar()) or "")
