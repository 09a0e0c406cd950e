"""A confirmation that is killed goes on where it stood: kill -9 amid its rounds, and the same command again.

Works on a copy of the database. Ends with 1 where the second run did not keep what the first one had stored.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks.command import EVO, environment, evo_json
from evo.store import Store

PROTOCOL = "evo confirm --top 1, kill -9 by the rounds that are stored, and the same command again"
GPU = True
KILLED_AFTER = 3
"""Rounds."""
NEW_ROUNDS = "SELECT count(*) FROM rounds WHERE confirmation_id > ?"


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("study")
    parser.add_argument("--database", type=Path, default=Path("runs/evo.db"))


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "evo.db"
        with sqlite3.connect(asked.database) as source, sqlite3.connect(copy) as target:
            source.backup(target)
        words = ("confirm", asked.study, "--top", "1", "--database", str(copy))
        before, killed = kill_amid_rounds(copy, words)
        number, kept = rounds_of(copy, asked.study)
        begin = time.perf_counter()
        told = evo_json(*words)
        again, taken = rounds_of(copy, asked.study)
    rounds_kept = taken[: len(kept)] == kept
    yield {
        "killed": {**killed, "rounds": len(kept)},
        "went_on": {"s": time.perf_counter() - begin, "rounds": len(taken), "status": told["status"]},
        "same_confirmation": number == again,
        "rounds_kept": rounds_kept,
        "finalist": told["finalists"][0],
    }
    if killed["status"] != -9 or not number == again != before or not rounds_kept:
        raise SystemExit(1)


def kill_amid_rounds(database: Path, words: tuple[str, ...]) -> tuple[int, dict[str, Any]]:
    """Kills `evo WORDS` when it has stored some rounds. The newest confirmation before, and how it ended."""
    begin = time.perf_counter()
    with closing(sqlite3.connect(database, timeout=60)) as watched:
        before = watched.execute("SELECT coalesce(max(id), 0) FROM confirmations").fetchone()[0]
        process = subprocess.Popen([*EVO, *words], env=environment(), stdout=subprocess.DEVNULL)
        while watched.execute(NEW_ROUNDS, (before,)).fetchone()[0] < KILLED_AFTER:
            if process.poll() is not None:
                break
            time.sleep(0.005)
        process.kill()
    after_s = time.perf_counter() - begin
    return before, {"status": process.wait(), "after_s": after_s}


def rounds_of(database: Path, study: str) -> tuple[int, list[tuple[int, str]]]:
    """The newest confirmation's id, and seed and contestants' times of each of its warm rounds."""
    with Store(database) as store:
        found = store.confirmations.newest(store.study(study))
        if found is None:
            return 0, []
        taken = store.confirmations.rounds(found, "warm")
        return found.id, [(r.seed, json.dumps(dict(r.samples_us), sort_keys=True)) for r in taken]
