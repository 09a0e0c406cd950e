"""What each optimisation of some trials is worth, as `evo ablate` measured it: kept with what it depends on.

    evo ablate STUDY/NUMBER                        # on the GPU; writes runs/STUDY/NUMBER/ablation.json
    python benchmarks/ablations.py runs/STUDY/*/ablation.json --commit C --command "..." \
        --out benchmarks/results/ablations-h200.json
    python benchmarks/ablations.py --show benchmarks/results/ablations-h200.json     # as Markdown tables
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from rich.console import Console

from evo.explain.ablation import Ablation
from evo.report.ablation import ablation_table


def record(paths: list[Path], commit: str, command: str) -> dict[str, Any]:
    """All ablations of one GPU and one set of versions, with the fields that every result has."""
    ablations = [Ablation.from_record(json.loads(path.read_text())) for path in paths]
    if any(a.estimated for a in ablations):
        raise SystemExit("an ablation on the emulator is no measurement")
    devices = {(a.device, tuple(sorted(a.versions.items()))) for a in ablations}
    if len(devices) != 1:
        raise SystemExit(f"ablations of different devices or versions: {devices}")
    first = ablations[0]
    return {
        "command": command,
        "commit": commit,
        "date": max(a.created for a in ablations),
        "gpu": first.device,
        "versions": dict(first.versions),
        "protocol": "warm L2, replayed CUDA graphs; the original again between all variants",
        "ablations": [a.to_record() for a in ablations],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--show", type=Path)
    parser.add_argument("--commit", default="")
    parser.add_argument("--command", default="")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    if asked.show:
        for entry in json.loads(asked.show.read_text())["ablations"]:
            found = Ablation.from_record(entry)
            print(f"### {found.template}, {found.problem}, {found.original_us:.2f} µs\n")
            print(ablation_table(found).render("markdown", Console()))
        return
    result = record(asked.paths, asked.commit, asked.command)
    asked.out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
