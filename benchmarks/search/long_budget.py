"""What the rest of a long budget buys: one long search against three short ones with other seeds.

    python benchmarks/run.py search/long_budget --out benchmarks/results/long-budget-h200.json

As by default it takes 20 minutes and three times 3, and some minutes for confirming; with `--long 6m --short
90s` about 12 minutes in all. The long search starts again elsewhere whenever it has converged, and the result
says what each of its starts found.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.command import evo, evo_json
from evo.loop.starts import starts_of
from evo.store import Store

PROTOCOL = """searches of one problem by evo search: a long one, and three short ones with other seeds that
end when they have converged; all cold, with the medians of the search and, where it was CONFIRMED, of that"""
GPU = True
SEEDS = (1, 2, 3)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--task", default="attention")
    parser.add_argument("--shape", default="1,8,512,64")
    parser.add_argument("--long", default="20m")
    parser.add_argument("--short", default="3m")


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    common = ("search", asked.task, "--shape", asked.shape, "--warm-start", "none")
    searches = {"long": ("--budget", asked.long, "--seed", "0")} | {
        f"short-{seed}": ("--budget", asked.short, "--seed", str(seed), "--until", "converged")
        for seed in SEEDS
    }
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, words in searches.items():
            database = Path(folder) / "evo.db"
            evo(*common, *words, "--study", name, "--database", str(database))
            results[name] = found_by(database, name)
            yield results


def found_by(database: Path, name: str) -> dict[str, Any]:
    """What a study found: of each start, and what was CONFIRMED."""
    with Store(database) as store:
        study = store.study(name)
        rows = {row.number: row for row in store.rows(study)}
    best = evo_json("leaderboard", "--study", name, "--database", str(database))[:1]
    starts = [
        {"first": s.first, "trials": s.trials, "best_us": s.best and s.best.score_us}
        for s in starts_of(rows, study.starts)
    ]
    return {"status": study.status, "spent_s": round(study.spent_s, 1), "starts": starts, "best": best}
