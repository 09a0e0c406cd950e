"""A study's trials for other programs."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from evo.errors import UsageError
from evo.store import Store
from evo.strategy.export import ExportedTrial, export
from evo.study import Study
from evo.trial import Value


def export_study(store: Store, study: Study, url: str, name: str) -> int:
    """Copies `study` into the Optuna storage at `url` as study `name`. Returns how many trials went there.
    UsageError where the storage has a study of that name or is a database of evo, StoreError where it cannot
    be written."""
    _refuse_own(url)
    times, trials = store.times(study), []
    rows, spans = store.rows(study), store.spans(study)
    for row in rows:
        begun, ended = (time.replace(tzinfo=None) for time in spans[row.number])  # Optuna has no zones
        attributes: dict[str, Value | None] = {
            "outcome": str(row.outcome),
            "reason": row.reason,
            "speedup": row.speedup,
            "same_as": row.same_as,
            **{f"us_on_{on}": time.median_us for on, time in times.get(row.number, {}).items()},
        }
        one = ExportedTrial(row.number, row.template, row.point, row.score_us, begun, ended, attributes)
        trials.append(one)
    estimated = all(row.median_us is None for row in rows)
    value = f"µs, estimated by the emulator for {study.gpu}" if estimated else "µs, median by FAST"
    about = {
        "problem": study.problem.key,
        "device": study.device,
        "gpu": study.gpu,
        "value": value,
        "ranking": study.ranking,
        "baselines_us": dict(study.baselines_us),
        "strategy": study.strategy,
        "seed": study.seed,
    }
    return export(url, name, trials, about, "~µs" if estimated else "µs")


def _refuse_own(url: str) -> None:
    """Optuna would make its tables among ours: they have the same names."""
    path = Path(url.removeprefix("sqlite:///"))
    if not url.startswith("sqlite:///") or not path.is_file():
        return
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection, suppress(sqlite3.Error):
        ours = "SELECT 1 FROM sqlite_master WHERE name = 'evo_schema'"
        if connection.execute(ours).fetchone():
            raise UsageError(f"{path} is a database of evo, not an Optuna storage", "name another file")
