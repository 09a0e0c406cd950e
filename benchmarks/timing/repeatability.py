"""The winner of a study confirmed five times in new processes: whether the medians agree."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from typing import Any

from benchmarks.command import evo, evo_json

PROTOCOL = "evo confirm --top 1 in new processes; warm L2, graph replays, CONFIRMED's rounds"
GPU = True


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--study", help="whose winner is confirmed (default: a search of 30 s)")
    parser.add_argument("--database", default="runs/evo.db", help="where that study is")
    parser.add_argument("--times", type=int, default=5)


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        study, database = asked.study or "again", asked.database
        if asked.study is None:
            database = f"{folder}/evo.db"
            evo("search", "--warm-start=none", "--budget", "30s", "--study", study, "--database", database)
        found: list[dict[str, Any]] = []
        for _ in range(asked.times):
            found.append(summary(evo_json("confirm", study, "--top", "1", "--database", database)))
            low, high = found[0]["low_us"] * 0.995, found[0]["high_us"] * 1.005
            inside = sum(low <= one["median_us"] <= high for one in found)
            yield {"study": study, "confirmations": found, "inside": inside}


def summary(result: dict[str, Any]) -> dict[str, Any]:
    """What one confirmation said."""
    finalist = result["finalists"][0]
    warm, cold = finalist["standings"]["warm"], finalist["standings"]["cold"]
    return {
        "trial": finalist["number"],
        "median_us": warm["median_us"],
        "low_us": warm["interval"]["low"],
        "high_us": warm["interval"]["high"],
        "cold_us": cold["median_us"],
        "times_us": {on: time["median_us"] for on, time in warm["times"].items()},
        "versus": warm["versus"],
        "speedup": warm["speedup"],
        "baselines_us": {n: s["median_us"] for n, s in result["baselines"]["warm"].items()},
        "kernels": result["kernels"],
        "skipped": result["skipped"],
    }
