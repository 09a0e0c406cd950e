"""What the rest of a long budget buys: one long search against three short ones with other seeds.

    python benchmarks/run.py search/long_budget --out benchmarks/results/long-budget-h200.json

As by default it takes 20 minutes and three times 3, and some minutes for confirming; with `--long 6m --short
90s` about 12 minutes in all. The long search starts again elsewhere whenever it has converged, and the result
says what each of its starts found. With --state DIR a call may end after --seconds, and the same command goes
on where it ended; --only makes some of the searches alone.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.command import evo_for, evo_json
from evo.loop.starts import starts_of
from evo.store import Store

PROTOCOL = """searches of one problem by evo search: a long one, and three short ones with other seeds that
end when they have converged; all cold, with the medians of the search and, where it was CONFIRMED, of that"""
GPU = True
START_S = 15.0
"""What a search needs to begin."""
SEARCHES = ("long", "short-1", "short-2", "short-3")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--task", default="attention")
    parser.add_argument("--shape", default="1,8,512,64")
    parser.add_argument("--long", default="20m")
    parser.add_argument("--short", default="3m")
    parser.add_argument("--only", action="append", choices=SEARCHES, help="may be repeated (default: all)")
    parser.add_argument("--state", type=Path, metavar="DIR", help="a database for each search")
    parser.add_argument("--seconds", type=float, default=1e6, help="of this call")


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    end = time.monotonic() + asked.seconds
    with tempfile.TemporaryDirectory() as name:
        folder = asked.state or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        for search in asked.only or SEARCHES:
            if end - time.monotonic() > START_S and not is_done(folder, search):
                evo_for(end - time.monotonic(), *words_of(asked, search, folder))
            yield {each: found_by(folder, each) for each in SEARCHES if database(folder, each).exists()}


def words_of(asked: argparse.Namespace, search: str, folder: Path) -> tuple[str, ...]:
    """The command line of a search, or of going on with one."""
    if database(folder, search).exists():
        return ("resume", search, "--database", str(database(folder, search)))
    how: tuple[str, ...] = ("--budget", asked.long, "--seed", "0")
    if search != "long":
        how = ("--budget", asked.short, "--seed", search[-1], "--until", "converged")
    common = ("search", asked.task, "--shape", asked.shape, "--warm-start", "none", "--study", search)
    return (*common, *how, "--database", str(database(folder, search)))


def database(folder: Path, search: str) -> Path:
    return folder / f"{search}.db"


def is_done(folder: Path, search: str) -> bool:
    """Whether a search has come to its end."""
    if not database(folder, search).exists():
        return False
    with Store(database(folder, search), create=False) as store:
        return store.study(search).status not in ("running", "interrupted")


def found_by(folder: Path, name: str) -> dict[str, Any]:
    """What a search found: of each start, and what was CONFIRMED."""
    with Store(database(folder, name), create=False) as store:
        study = store.study(name)
        rows = {row.number: row for row in store.rows(study)}
    best = evo_json("leaderboard", "--study", name, "--database", str(database(folder, name)))[:1]
    starts = [
        {"first": s.first, "trials": s.trials, "best_us": s.best and s.best.score_us}
        for s in starts_of(rows, study.starts)
    ]
    return {"status": study.status, "spent_s": round(study.spent_s, 1), "starts": starts, "best": best}
