"""`evo export --to`: kernels of champions, studies and trials as a folder that needs no evo."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from evo.api.parse import DATABASE, Paths, task_folders
from evo.api.study_set import StudySet, load_studies, records_of
from evo.cache import Cache, default_folder
from evo.compile import build_table_library, find_compiler
from evo.confirm.champions import Champion, champion_of, champions, kernels_folders
from evo.confirm.choice import SET, launch_by, template_of
from evo.confirm.portfolio import Portfolio, Row, Times, choose, leave_one_out, rows_of
from evo.errors import MachineError, NothingFound, UsageError
from evo.export import bundle_of, write
from evo.gpu import Limits, target
from evo.store import Store
from evo.study import Study, recorded_gpu
from evo.task import list_tasks, load_task
from evo.trial import Outcome, Problem

BEST_OF_A_STUDY = 32
"""Trials of each study that a portfolio is chosen from; their times in the other studies count, too."""
_log = logging.getLogger("evo.export")


@dataclass(frozen=True)
class Exported:
    """What was written: the decisions and, of a portfolio, the regret on each problem when it was chosen
    without that problem; None where no time says it."""

    folder: Path
    rows: tuple[Row, ...]
    left_out: Mapping[str, float | None]


def export(
    sources: Sequence[str],
    to: str | os.PathLike[str],
    form: str = "python",
    *,
    most: int | None = None,
    times: str | os.PathLike[str] | None = None,
    kernels: Path | None = None,
    templates: Paths | None = None,
    database: str | os.PathLike[str] = DATABASE,
    cache: str | os.PathLike[str] | None = None,
    nvcc: str | os.PathLike[str] | None = None,
) -> Exported:
    """Writes the kernels of `sources`, all of one task, into the folder `to`: names of tasks (their
    champions), folders of champions, names of champions, studies (their best trial) and trials; or one set of
    studies, whose portfolio is written.

    `most`: at most so many, chosen for the least regret. What the studies timed says how fast a kernel is
    on a problem, and `times`, a JSON file `{"KERNEL": {"PROBLEM": µs}}` by names of champions and trials
    and by problems' keys, as the benchmark leaving/times writes it.

    UsageError, UnknownName, NothingFound: what is wrong with a source; MachineError without a compiler."""
    folders = task_folders(templates)
    found = _Found(folders, kernels, os.fspath(database))
    several = _set_named(sources, os.fspath(database), most)
    if several is not None:
        chosen, rows, left_out = _of_set(several)
        folders = several.studies[0]._record().template_folders
    else:
        for source in sources:
            found.add(source)
        if most is not None:
            found.shared(sources)
        _task_of(found.champions)
        chosen, rows, left_out = _chosen(found, most, Path(times) if times else None)
    root = Path(cache) if cache else default_folder()
    compiler = find_compiler(Path(nvcc) if nvcc else None, Cache(root), parts=("cubin",))
    with compiler:
        bundle = bundle_of(load_task(_task_of(chosen), folders), chosen, rows, compiler, folders)
    write(bundle, Path(to), form, _library(root))
    return Exported(Path(to), tuple(rows), left_out)


def _library(cache: Path) -> Path | None:
    try:
        return build_table_library(cache)
    except MachineError as error:
        _log.warning("without the compiled table, a call costs the host at least 15 µs more: %s", error)
        return None


def _task_of(found: Sequence[Champion]) -> str:
    """The one task that all are of; UsageError where there are several, or none."""
    tasks = sorted({one.problem.task for one in found})
    if len(tasks) != 1:
        hint = "export them into a folder each" if tasks else "search, confirm, and `evo promote` the best"
        raise UsageError(f"there are kernels of {len(tasks)} tasks: {', '.join(tasks)}", hint)
    return tasks[0]


def _set_named(sources: Sequence[str], database: str, most: int | None) -> StudySet | None:
    """The set of studies that the only source names; None where it names something else."""
    name = sources[0]
    if len(sources) > 1 or not ("://" in database or Path(database).is_file()):
        return None
    with Store(database) as store:
        named = name in {study.name for study in store.studies()} or not records_of(store, name)
    return None if named else load_studies(name, portfolio=most, database=database)


def _of_set(several: StudySet) -> tuple[list[Champion], list[Row], dict[str, float | None]]:
    """As `_chosen`: each of the portfolio's kernels once for all problems that its code serves."""
    folders = several.studies[0]._record().template_folders
    chosen: list[Champion] = []
    rows, left_out = [], {}
    for one in several._champions():
        limits = Limits.of(target(one.arch))

        def serves(other: Champion, one: Champion = one, limits: Limits = limits) -> bool:
            same = all(other.record[name] == one.record[name] for name in ("template", "point", "arch"))
            template = template_of(other, limits, folders)
            return same and not isinstance(launch_by(template, other, one.problem, limits), str)

        kernel = next(filter(serves, chosen), one)
        if kernel is one:
            chosen.append(one)
        told, us = one.record[SET], one.record["trial"]["median_us"]
        rows.append(Row(one.problem, one.gpu, kernel, us, told["regret"], told["left_out_regret"]))
        left_out[one.problem.key] = told["left_out_regret"]
    return chosen, rows, left_out


class _Found:
    """Champions by what a person named, and the times of their kernels."""

    def __init__(self, folders: Sequence[Path], kernels: Path | None, database: str) -> None:
        self._folders, self._kernels, self._database = folders, kernels, database
        self.champions: list[Champion] = []
        self.us: dict[str, dict[str, float]] = {}

    def add(self, source: str) -> None:
        """All that the source names, each once."""
        known = {one.name for one in self.champions}
        self.champions += [one for one in self._named(source) if one.name not in known]

    def _named(self, source: str) -> list[Champion]:
        path = Path(source)
        if path.is_dir():
            found = champions(path) or [one for one in champions(path.parent) if path in one.path.parents]
            return found or champions(path.parent.parent)
        kept = champions(*kernels_folders(self._kernels))
        if source in list_tasks(self._folders):
            found = [one for one in kept if one.problem.task == source]
            if not found:
                raise NothingFound(f"{source} has no champion", "search, confirm, and `evo promote` the best")
            return found
        named = [one for one in kept if source in (one.name, *map(str, _files(one)))]
        if named:
            return named[:1]
        if not Path(self._database).is_file() and "://" not in self._database:
            hint = f"tasks: {', '.join(list_tasks(self._folders))}; `evo champion --all`; no {self._database}"
            raise UsageError(f"there is no task, folder, champion or study {source}", hint)
        with Store(self._database) as store:
            return [self._trial(store, source)] if "/" in source else self._study(store, source)

    def _trial(self, store: Store, name: str) -> Champion:
        trial = store.trial(name)
        study = store.study(trial.study)
        if not trial.outcome.correct:
            raise UsageError(f"{name} is {trial.outcome}", "only a correct kernel is exported")
        arch = study.target or recorded_gpu(study).arch
        champion = champion_of(trial, study, store.confirmations.about(study, trial.id), arch)
        if trial.timing is not None:
            self.us.setdefault(champion.name, {})[study.problem.key] = trial.timing.median_us
        return champion

    def _study(self, store: Store, name: str) -> list[Champion]:
        """Its best trial."""
        best = store.leaderboard(study=name, limit=1)
        if not best:
            raise NothingFound(f"study {name} has no correct kernel", f"evo resume {name}")
        return [self._trial(store, f"{name}/{best[0].number}")]

    def shared(self, sources: Sequence[str]) -> None:
        """Adds the best trials of each study that was named whose very code was timed in another one, too."""
        if not Path(self._database).is_file():
            return
        with Store(self._database) as store:
            named = [name for name in sources if name in {study.name for study in store.studies()}]
            studies = [store.study(name) for name in named]
            timed = {study.name: _timed(store, study) for study in studies}
            for study in studies:
                for code, (number, us) in list(timed[study.name].items())[:BEST_OF_A_STUDY]:
                    others = {
                        other.problem.key: timed[other.name][code][1]
                        for other in studies
                        if code in timed[other.name]
                    }
                    if len(others) > 1:
                        champion = self._trial(store, f"{study.name}/{number}")
                        self.us[champion.name] = {study.problem.key: us, **others}
                        if champion.name not in {one.name for one in self.champions}:
                            self.champions.append(champion)


def _timed(store: Store, study: Study) -> dict[tuple[str, str], tuple[int, float]]:
    """By template and machine code, best first: the number and the time of the best trial."""
    rows = [row for row in store.rows(study) if row.outcome == Outcome.TIMED and row.median_us is not None]
    found: dict[tuple[str, str], tuple[int, float]] = {}
    for row in sorted(rows, key=lambda row: row.median_us or 0.0):
        found.setdefault((row.template, row.machine_code), (row.number, row.median_us or 0.0))
    return found


def _chosen(
    found: _Found, most: int | None, file: Path | None
) -> tuple[list[Champion], list[Row], dict[str, float | None]]:
    """The kernels, the decisions, and the regrets on problems that were left out."""
    if most is None:
        return found.champions, rows_of(found.champions), {}
    named = {one.name: one for one in found.champions}
    for one in found.champions:
        if one.median_us is not None:
            found.us.setdefault(one.name, {}).setdefault(one.problem.key, one.median_us)
    if file is not None:
        for name, row in _read_times(file).items():
            if name in named:
                found.us.setdefault(name, {}).update(row)
    problems = _problems(found)
    times = Times({name: {p: us for p, us in row.items() if p in problems} for name, row in found.us.items()})
    portfolio: Portfolio = choose(times, most)
    chosen = [named[name] for name in portfolio.kernels]
    left_out = leave_one_out(times, problems, most)
    rows = [
        replace(
            rows_of([named[kernel]])[0],
            problem=problems[key],
            median_us=times.us[kernel][key],
            regret=portfolio.regrets[key],
            left_out=left_out[key],
        )
        for key, kernel in portfolio.serves.items()
    ]
    return chosen, rows, left_out


def _files(champion: Champion) -> tuple[Path, Path]:
    return champion.path, champion.path.with_suffix(".json")


def _read_times(file: Path) -> dict[str, dict[str, float]]:
    try:
        said = json.loads(file.read_text(encoding="utf-8"))
        said = said.get("results", said)
        return {name: {key: float(us) for key, us in row.items()} for name, row in said["times"].items()}
    except OSError as error:
        hint = "python benchmarks/run.py leaving/times"
        raise UsageError(f"cannot read {file}: {error.strerror}", hint) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        hint = '{"times": {"KERNEL": {"PROBLEM": 3.4}}}'
        raise UsageError(f"{file} has no times: {error!r}", hint) from error


def _problems(found: _Found) -> dict[str, Problem]:
    """The problems that the champions were made for, by their keys: those that a portfolio is for."""
    return {one.problem.key: one.problem for one in found.champions}
