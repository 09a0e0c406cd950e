"""Whether a minute is enough to believe: short searches of several problems, each to end CONFIRMED.

The searches go one after the other into the database of the folder `--state`, each with its own study, from
nothing unless --warm is said. A search that the folder has is not made again: a run that was ended goes on.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.command import evo, type_and_flags
from evo.api.parse import parse_problems
from evo.store import LeaderboardRow, Store
from evo.task import load_task
from evo.trial import Problem

PROTOCOL = """evo search of each problem with all templates, without warm starts or, with --warm, after what
those before it found; seconds: of the whole command; warm L2, CUDA graph replays interleaved with the quick
baselines; a time is the worst of the timing inputs"""
GPU = True


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--task", default="attention")
    parser.add_argument("--shapes", action="append", help="as evo search takes them (default: seeds)")
    parser.add_argument("--dtype", help="the storage type (default: each shape's)")
    parser.add_argument("--flag", action="append", default=[], help="as evo search takes it")
    parser.add_argument("--warm", action="store_true", help="a search learns from those before it")
    parser.add_argument("--budget", default="60s", help="of each search")
    parser.add_argument("--state", type=Path, required=True, help="the folder of the database")
    parser.add_argument("--limit", type=float, default=1e9, help="seconds after which no search begins")


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    begin = time.monotonic()
    asked.state.mkdir(parents=True, exist_ok=True)
    database, file = asked.state / "evo.db", asked.state / "seconds.json"
    seconds: dict[str, float] = json.loads(file.read_text()) if file.exists() else {}
    searches: dict[str, Any] = {}
    for problem in parse_problems(load_task(asked.task), asked.shapes or ["seeds"], asked.dtype, asked.flag):
        name = study_name(problem)
        if name not in seconds:
            if time.monotonic() - begin > asked.limit:
                break
            seconds[name] = searched(asked.budget, problem, database, asked.warm)
            file.write_text(json.dumps(seconds))
        with Store(database, create=False) as store:
            searches[problem.key] = {"seconds": seconds[name], **outcome(store, name)}
        confirmed = sum(found["confirmed"] for found in searches.values())
        yield {"budget": asked.budget, "confirmed": confirmed, "searches": searches}


def study_name(problem: Problem) -> str:
    """A study's name: that of the problem, of letters that a name may have."""
    return problem.key.replace(" ", "-").replace("=", "").lower()


def searched(budget: str, problem: Problem, database: Path, warm: bool) -> float:
    """The seconds of a search, from the command to its end."""
    words = [*type_and_flags(problem), "--budget", budget]
    words += [] if warm else ["--warm-start", "none"]
    place = ("--study", study_name(problem), "--database", str(database))
    begin = time.monotonic()
    evo("search", problem.task, "--shape", problem.shape, *words, *place)
    return round(time.monotonic() - begin, 1)


def outcome(store: Store, name: str) -> dict[str, Any]:
    """What a search came to: its trials, its best, and whether that is CONFIRMED."""
    rows = store.rows(store.study(name))
    best = next(iter(store.leaderboard(study=name, limit=1)), None)
    return {
        "trials": len(rows),
        "outcomes": dict(Counter(str(row.outcome) for row in rows)),
        "confirmed": best is not None and best.kind == "confirmed",
        "best": best and standing(best),
    }


def standing(best: LeaderboardRow) -> dict[str, Any]:
    """The best trial with its time on each of the timing inputs."""
    return {
        "trial": f"{best.study}/{best.number}",
        "template": best.template,
        "point": dict(best.point),
        "kind": best.kind,
        "median_us": best.median_us,
        "interval": [best.low_us, best.high_us],
        "search_us": best.search_us,
        "times_us": {on: each.median_us for on, each in best.times.items()},
        "versus": best.versus,
        "on": best.on,
        "speedup": best.speedup,
        "speedup_interval": [best.speedup_low, best.speedup_high],
    }
