"""How soon a search of a problem that is new comes within 2 % of the best, with and without earlier studies.

    python benchmarks/run.py search/with_database --out benchmarks/results/with-database-h200.json

The first shapes are searched one after the other into one database. Then each of the new shapes is searched
with that database and without, three seeds each. As by default that is 2 searches of 90 s and 12 of 40 s:
about 13 minutes. With --state DIR the databases stay, and the same command goes on where it ended.
"""

from __future__ import annotations

import argparse
import math
import shutil
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.command import evo
from benchmarks.search.budgets import BUDGETS, best_after
from evo.store import Store

PROTOCOL = """searches by evo search of shapes that are new, with a database of other shapes and without;
trials until one is within 2 % of the best time that any of the searches of the shape found; what each search
had found after so many trials, as multiples of that time"""
GPU = True
NEAR = 1.02

Scores = list[float | None]
"""The time of each trial of a search, in the order of their numbers; None where it is not correct."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--task", default="attention")
    parser.add_argument("--first", default="1,8,512,64 2,16,1024,64", help="shapes of the database")
    parser.add_argument("--later", default="1,8,768,64 2,12,512,64", help="shapes that are new")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--budget", default="40s")
    parser.add_argument("--first-budget", default="90s", help="of the searches of the first shapes")
    parser.add_argument("--device", default="auto", help="auto or emulator")
    parser.add_argument("--state", type=Path, metavar="DIR", help="where the databases are kept")


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = asked.state or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        known = folder / "known.db"
        for shape in asked.first.split():
            scores_of(asked, known, shape, 0, "none", asked.first_budget)
        for shape in asked.later.split():
            scores: dict[str, list[Scores]] = {"none": [], "auto": []}
            for seed in range(asked.seeds):
                for start, each in scores.items():
                    database = folder / f"{shape}-{seed}-{start}.db"
                    if start == "auto" and not database.exists():
                        shutil.copy(known, database)
                    each.append(scores_of(asked, database, shape, seed, start, asked.budget))
            results[shape] = compared(scores)
            yield results


def compared(scores: dict[str, list[Scores]]) -> dict[str, Any]:
    """The searches of a shape by how they began: when they were near the best of all of them, and how far
    from it they were after so many trials."""
    best_us = min(us for each in scores.values() for run in each for us in run if us is not None)
    found: dict[str, Any] = {"best_us": best_us}
    for start, each in scores.items():
        near = median_to([first_within(run, NEAR * best_us) for run in each])
        times = [np.array([math.nan if us is None else us / best_us for us in run]) for run in each]
        after = np.round(best_after(times), 4).T.tolist()
        found[start] = near | {"times_the_best": dict(zip(map(str, BUDGETS), after, strict=True))}
    return found


def scores_of(
    asked: argparse.Namespace, database: Path, shape: str, seed: int, start: str, budget: str
) -> Scores:
    """The search of that name, which is made or gone on with where it must be."""
    name = f"s{shape.replace(',', '-')}-{seed}"
    where = ("--database", str(database))
    status = status_of(database, name)
    if status is None:
        words = ("--budget", budget, "--seed", str(seed), "--warm-start", start, "--study", name)
        evo("search", asked.task, "--shape", shape, *words, "--device", asked.device, *where)
    elif status in ("running", "interrupted"):
        evo("resume", name, *where)
    with Store(database) as store:
        rows = sorted(store.rows(store.study(name)), key=lambda row: row.number)
    return [row.score_us for row in rows]


def status_of(database: Path, name: str) -> str | None:
    """How the search ended; None where the database has none."""
    if not database.exists():
        return None
    with Store(database) as store:
        return {study.name: study.status for study in store.studies()}.get(name)


def first_within(scores: Scores, goal: float) -> int | None:
    """The number of the first trial that is as fast as `goal`, from 1; None where none is."""
    return next((n for n, us in enumerate(scores, 1) if us is not None and us <= goal), None)


def median_to(trials: list[int | None]) -> dict[str, Any]:
    """All, and their median; None where half of the searches never got there."""
    median = statistics.median([float("inf") if n is None else n for n in trials])
    return {"trials": trials, "median": None if median == float("inf") else median}
