"""One kernel against itself, by the rule of CONFIRMED: how often evo would call it faster or slower."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from benchmarks.timing.green import Bench
from benchmarks.timing.pairs import comparisons_of

PROTOCOL = "warm L2, graph replays; CONFIRMED's rounds; finalists and baseline are one kernel"
GPU = True


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--comparisons", type=int, default=300)


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    yield from comparisons_of(Bench(), count=asked.comparisons)
