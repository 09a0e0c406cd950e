"""What each optimisation of a template's best trial is worth, as `evo ablate` measures it.

A short search finds the best trial of each template; `--task` and `--shape` say of what (default: attention).
`--show FILE` prints the tables of a result.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.command import evo
from evo.explain.ablation import Ablation
from evo.report.ablation import ablation_table
from evo.store import Store

PROTOCOL = "warm L2, replayed CUDA graphs; the original again between all variants"
GPU = True
STUDY = "s"


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--task", default="attention")
    parser.add_argument("--shape", help="of the task's problem (default: its example)")
    parser.add_argument("--template", action="append", help="may be repeated (default: two of attention)")
    parser.add_argument("--budget", default="14s", help="of the search")
    parser.add_argument("--show", type=Path, metavar="FILE", help="print the tables of this result instead")


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    if asked.show:
        result: dict[str, Any] = json.loads(asked.show.read_text(encoding="utf-8"))["results"]
        show(result["ablations"])
        sys.exit(0)
    names = asked.template or ["flash_wgmma_split", "flash_mma"]
    with tempfile.TemporaryDirectory() as folder:
        database = f"{folder}/evo.db"
        chosen = [word for name in names for word in ("--template", name)]
        chosen += ["--shape", asked.shape] if asked.shape else []
        evo(
            "search",
            asked.task,
            "--warm-start",
            "none",
            "--study",
            STUDY,
            "--budget",
            asked.budget,
            *chosen,
            "--database",
            database,
        )
        found = []
        for trial in best_trials(Path(database), names):
            evo("ablate", trial, "--out", folder, "--database", database)
            found.append(json.loads((Path(folder) / trial / "ablation.json").read_text(encoding="utf-8")))
    if any(Ablation.from_record(one).estimated for one in found):
        raise SystemExit("error: an ablation on the emulator is no measurement")
    yield {"ablations": found}


def best_trials(database: Path, templates: list[str]) -> list[str]:
    """The best trial of each template, as STUDY/NUMBER."""
    with Store(database, create=False) as store:
        ranked = store.leaderboard(study=STUDY, limit=10_000)
    best = {row.template: f"{row.study}/{row.number}" for row in reversed(ranked)}
    return [best[name] for name in templates if name in best]


def show(ablations: list[dict[str, Any]]) -> None:
    """Prints them as Markdown."""
    for entry in ablations:
        found = Ablation.from_record(entry)
        print(f"### {found.template}, {found.problem}, {found.original_us:.2f} µs\n")
        print(ablation_table(found).render("markdown", Console()))
