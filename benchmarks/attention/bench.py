"""Champions and baselines side by side over the seeds' shapes: `evo bench`, kept with what it depends on.

The README's picture is drawn from the result (`python benchmarks/readme.py write`).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from benchmarks.command import evo_json, type_and_flags
from evo.api.parse import parse_problems
from evo.task import load_task

PROTOCOL = "warm L2, graph replays, rounds and intervals of CONFIRMED; thorough gate before"
GPU = True


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shapes", action="append", help="as evo bench takes them (default: seeds)")
    parser.add_argument("--flag", action="append", default=[], help="as evo bench takes it")
    parser.add_argument("--trial", action="append", default=[], metavar="STUDY/N", help="time it, too")
    parser.add_argument("--database", default="runs/evo.db", help="where the trials are")


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    trials = [word for trial in asked.trial for word in ("--trial", trial)]
    database = ["--database", asked.database] if trials else []
    sheets: list[Any] = []
    for problem in parse_problems(load_task("attention"), asked.shapes or ["seeds"], None, asked.flag):
        sheets += evo_json("bench", "--shapes", problem.shape, *type_and_flags(problem), *trials, *database)
        yield {"sheets": sheets}
