"""Whether the rules of the spaces are true: the compiler and the driver asked about random points.

The same as `evo audit --json`, with what it depends on.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from benchmarks.command import evo_json

PROTOCOL = """half of the points feasible by the rules, half refused by a rule about the hardware; the
driver's limits, function attributes and occupancy asked of each that compiles"""
GPU = True


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--points", type=int, default=120)
    parser.add_argument("--device", default="cuda:0", help="cuda:0 or emulator")


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    yield evo_json("audit", "--device", asked.device, "--points", str(asked.points))
