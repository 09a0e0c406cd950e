"""`evo.Study`: a search that is in the database, what it found, and how it goes on."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evo.api.parse import DATABASE, located, parse_budget, parse_until
from evo.api.running import go_on, open_store
from evo.api.scheduler import Scheduler
from evo.api.trial import Trial, parameter_columns
from evo.cache import default_folder
from evo.device.open import choose_gpus, require_one_model
from evo.errors import UsageError
from evo.report import duration, several
from evo.report.leaderboard import leaderboard_records
from evo.report.screen import screen
from evo.study import Setup
from evo.study import Study as Record

if TYPE_CHECKING:
    from evo.child import Spare
    from evo.loop import SearchResult
    from evo.store import Store


class Study:
    """A search that is in the database, as `evo.search`, `evo.tune` and `evo.load_study` give it.

    It holds no trials: each question is asked of the database, where another process may be adding some."""

    def __init__(
        self,
        name: str,
        database: str,
        cache: Path | None = None,
        nvcc: Path | None = None,
        result: SearchResult | None = None,
    ) -> None:
        self.name = name
        """As every command of `evo` takes it."""
        self.database = database
        """The SQLite file or PostgreSQL URL that it is in."""
        self.result = result
        """What the last search of this object said at its end; None where there was none."""
        self._tools = cache or default_folder(), nvcc

    @property
    def problem(self) -> str:
        """What is computed: the task, its sizes and flags, the storage type."""
        return self._record().problem.key

    @property
    def _count(self) -> int:
        """How many trials it has."""
        with self._store() as store:
            return sum(store.count(store.study(self.name)).values())

    @property
    def status(self) -> str:
        """ "finished", "exhausted" (every point was tried), "converged", "interrupted", "failed" or
        "running"."""
        return self._record().status

    @property
    def best(self) -> Trial | None:
        """The best correct kernel so far; None where there is none yet. CONFIRMED times come before those of
        the search alone, and these before estimates."""
        with self._store() as store:
            rows = store.leaderboard(study=self.name, limit=1)
            return self._trial(store, rows[0].number) if rows else None

    def trial(self, number: int) -> Trial:
        """The trial of that number. UnknownName (an EvoError) if there is none."""
        with self._store() as store:
            return self._trial(store, number)

    def trials(self) -> Any:
        """All trials by number: a pandas DataFrame where pandas is installed, else a list of dicts. Columns:
        `number`, `status`, `reason`, `template`, `median_us` and `estimate_us` (µs, as those of a Trial),
        `speedup` over the best baseline, and `params_NAME` for each tunable."""
        with self._store() as store:
            rows = store.rows(store.study(self.name))
        kept = ("number", "status", "reason", "template", "median_us", "estimate_us", "speedup")
        every = [
            {name: str(row.outcome) if name == "status" else getattr(row, name) for name in kept}
            | parameter_columns(row.point)
            for row in rows
        ]
        return frame(every)

    def leaderboard(self, limit: int = 10) -> Any:
        """The best `limit` correct kernels of each kind (CONFIRMED, measured, estimated), best first, as
        `evo leaderboard --json` gives them: a DataFrame or a list of dicts as `trials` does."""
        with self._store() as store:
            rows = store.leaderboard(study=self.name, limit=limit)
            groups = {self.name: store.study(self.name).baseline_groups()}
        return frame(leaderboard_records(rows, groups).records)

    def resume(
        self,
        budget: str | float | None = None,
        *,
        until: str | int | None = None,
        rate: float | None = None,
        inputs: str | os.PathLike[str] | None = None,
        gpus: str | None = None,
        scheduler: str | None = None,
        progress: bool = True,
        spares: Sequence[Spare] = (),
    ) -> Study:
        """Goes on searching; gives itself. No finished trial is lost and none is repeated.

        `budget`: more time ("+2h"), or another total ("3h", or seconds); None: what is left of the budget.
        `until`: another end than before, as in `evo.search`.
        `inputs`: where the file of the study's own tensors is now, if it has moved. `gpus`: other GPUs than
        before, "all" or "0,1". `scheduler`: as in `evo.search`.
        `rate`, `progress`, `spares`, Ctrl-C and errors are as in `evo.search`. UsageError where the budget is
        spent, where it has all its trials, or where another process searches this study."""
        record = located(self._record(), inputs)
        rate = rate or record.rate
        if gpus is not None:
            record = record.on_gpus(choose_gpus(gpus, record.device))
            require_one_model(record.gpus)
        if budget is not None:
            added = isinstance(budget, str) and budget.startswith("+")
            seconds = parse_budget(budget.removeprefix("+") if isinstance(budget, str) else budget, rate)
            total_s = seconds + (max(record.budget_s, record.spent_s) if added else 0.0)
            record = replace(record, budget_s=total_s, rate=rate)  # stored when the search has the study
        if until is not None:
            record = replace(record, until=parse_until(until))  # likewise
        if self._count >= record.most_trials:
            more = f"evo resume {self.name} --until {2 * int(record.most_trials)}, or --until budget"
            raise UsageError(f"study {self.name} has its {record.until} trials", more)
        if not record.left_s:
            said, hint = f"study {self.name} has spent its budget of {record.budget_s:g} s", "give it more"
            if record.status == "exhausted":
                said += ", and every feasible point was tried"
                hint = "another template, or more values of a parameter, has more; to measure the best again"
            raise UsageError(said, f"{hint}: evo resume {self.name} --budget +10m")
        shown = screen(progress)
        if scheduler is None:
            self.result = go_on(Setup.of(record, *self._tools), self.database, shown, spares)
            return self
        with closing(Scheduler(scheduler, shown.notice)) as there:
            self.result = go_on(there.setup(record, *self._tools), self.database, shown, scheduler=there)
        return self

    def _trial(self, store: Store, number: int) -> Trial:
        def setup() -> Setup:
            """For running its kernel, also where the study's GPU is not at hand."""
            return replace(Setup.recorded(self._record()), cache=self._tools[0], nvcc=self._tools[1])

        return Trial(store.trial(f"{self.name}/{number}"), setup)

    def _store(self) -> Store:
        return open_store(self.database, screen(True))

    def _record(self) -> Record:
        with self._store() as store:
            return store.study(self.name)

    def __repr__(self) -> str:
        with self._store() as store:
            record = store.study(self.name)
            count = store.count(record)
        correct = count.get("TIMED", 0) + count.get("GREEN", 0)
        text = f"{several(sum(count.values()), 'trial')}, {correct} correct, in {duration(record.spent_s)}"
        return f"<Study {self.name} {record.status} · {record.problem.key} · {text} · best {self.best}>"


def load_study(
    name: str,
    *,
    database: str | os.PathLike[str] = DATABASE,
    cache: str | os.PathLike[str] | None = None,
    nvcc: str | os.PathLike[str] | None = None,
) -> Study:
    """The study of that name, whichever process made it. `database`: an SQLite file or a PostgreSQL URL;
    `cache` and `nvcc` as in `evo.search`, for what runs kernels. UnknownName where there is no such study,
    StoreError where the database cannot be read."""
    found = Study(name, os.fspath(database), Path(cache) if cache else None, Path(nvcc) if nvcc else None)
    found._record()
    return found


def frame(records: Sequence[Mapping[str, Any]]) -> Any:
    """The records as a DataFrame where pandas is installed."""
    plain = [dict(record) for record in records]
    return import_module("pandas").DataFrame(plain) if find_spec("pandas") else plain
