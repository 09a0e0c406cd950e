"""Seconds from the command to the first timed trial, of a new search and of a resumed one.

Each search begins with an empty database and is killed when it has its first trial; then it is resumed, and
killed again. Compiled kernels stay in the cache from one run to the next, as on anybody's machine.
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
from statistics import median
from typing import Any

from benchmarks.command import EVO, environment

PROTOCOL = (
    "`evo search` from an empty database, killed at its first timed trial, then `evo resume`, likewise: "
    "seconds from the start of the command until that trial is in the database; `began` is when its "
    "evaluation began, by the seconds that the trial itself counts"
)
GPU = True
LIMIT_S = 60.0
STAGES = ("compile", "load", "gate", "timing", "turn")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--shape", default="1,8,512,64")


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    fresh: list[dict[str, float]] = []
    resumed: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(asked.runs):
            database = Path(folder) / f"{number}.db"
            cold = ("--warm-start", "none", "--shape", asked.shape)
            search = ("search", "--budget", "5m", "--study", "first", *cold)
            fresh.append(first_trial(database, search))
            resumed.append(first_trial(database, ("resume", "first")))
            yield {
                "fresh": {"runs": fresh, **medians(fresh)},
                "resumed": {"runs": resumed, **medians(resumed)},
            }


def first_trial(database: Path, words: tuple[str, ...]) -> dict[str, float]:
    """Starts a command and kills it when it has one timed trial more than there were."""
    before = len(timed(database))
    begin = time.perf_counter()
    command = [*EVO, *words, "--database", str(database)]
    nothing = subprocess.DEVNULL
    process = subprocess.Popen(command, env=environment(), stdout=nothing, stderr=nothing)
    try:
        while len(found := timed(database)) <= before:
            if process.poll() is not None or time.perf_counter() - begin > LIMIT_S:
                raise SystemExit(f"error: evo {' '.join(words)} had no timed trial")
            time.sleep(0.01)
        seconds = time.perf_counter() - begin
    finally:
        process.kill()
        process.wait()
        time.sleep(2)  # its processes see that it is gone, and give the GPU back
    own = json.loads(found[before])
    return {"timed_s": seconds, "began_s": seconds - sum(own.get(stage, 0.0) for stage in STAGES)}


def timed(database: Path) -> list[str]:
    """The seconds of the timed trials so far, as the database has them."""
    if not database.exists():
        return []
    try:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=5)) as db:
            rows = db.execute("SELECT seconds FROM trials WHERE median_us IS NOT NULL ORDER BY id").fetchall()
    except sqlite3.Error:
        return []  # it is being made
    return [seconds for (seconds,) in rows]


def medians(runs: list[dict[str, float]]) -> dict[str, float]:
    """The median, the least and the most of each figure."""
    found: dict[str, float] = {}
    for name in runs[0]:
        figures = sorted(one[name] for one in runs)
        found |= {f"median_{name}": median(figures), f"least_{name}": figures[0], f"most_{name}": figures[-1]}
    return found
