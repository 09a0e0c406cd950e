"""The README's leaderboard: recorded from a database once measured, and written into the README from there.

    python benchmarks/readme_leaderboard.py record runs/evo.db        # -> results/leaderboard.json
    python benchmarks/readme_leaderboard.py write                     # results/leaderboard.json -> README.md
    python benchmarks/readme_leaderboard.py                           # prints what would be written

`record` takes, for every problem, the best trial (a CONFIRMED one where there is one) and what stands beside
it in the database: GPU, driver, versions, date. Estimates are never recorded. A test holds README and JSON
together.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from evo.report import SDPA, interval_text, microseconds, point_text, ratio_text
from evo.store import Store

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "benchmarks" / "results" / "leaderboard.json"
BEGIN = "<!-- leaderboard: written by benchmarks/readme_leaderboard.py, do not edit by hand -->"
END = "<!-- end of leaderboard -->"


def recorded(database: str) -> dict[str, Any]:
    """The best measured trial of every problem in a database, with what its time depends on."""
    with Store(database, create=False) as store:
        problems = dict.fromkeys(study.problem.key for study in store.studies())
        ranked = [row for key in problems for row in store.leaderboard(problem=key, limit=1) if row.median_us]
        best = list({(row.problem, row.device): row for row in reversed(ranked)}.values())[::-1]
        if not best:
            sys.exit(f"error: {database} has no measured trial\nhint: evo search on a machine with a GPU")
        trials = [store.trial(f"{row.study}/{row.number}") for row in best]
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return {
        "command": f"python benchmarks/readme_leaderboard.py record {database}",
        "commit": commit.stdout.strip(),
        "rows": [
            {
                "problem": row.problem, "gpu": row.device, "template": row.template, "point": dict(row.point),
                "kind": row.kind, "level": row.level, "cold_us": row.cold_us, "versus": row.versus,
                "median_us": row.median_us, "low_us": row.low_us, "high_us": row.high_us,
                "protocol": stored.trial.timing.protocol if stored.trial.timing else "",
                "baselines_us": dict(row.baselines_us), "speedup": row.speedup,
                "speedup_low": row.speedup_low, "speedup_high": row.speedup_high,
                "versions": {**stored.trial.versions, "compiler": stored.trial.compiler},
                "date": stored.created[:10],
            }
            for row, stored in zip(best, trials, strict=True)
        ],
    }  # fmt: skip


def block(record: dict[str, Any] | None) -> str:
    """What stands between the README's two marks."""
    if record is None:
        return f"{BEGIN}\n{END}"
    first = record["rows"][0]
    confirmed = all(row.get("kind") == "confirmed" for row in record["rows"])
    level = f"{100 * (first.get('level') or 0.95):.0f} %" if confirmed else "95 %"
    lines = [
        f"| problem | GPU | evo | {level} CI | fastest baseline | speedup | fastest SDPA | kernel |",
        "|---|---|--:|---|--:|---|--:|---|",
    ]
    for row in record["rows"]:
        name, baseline_us = min(row["baselines_us"].items(), key=lambda item: float(item[1]))
        if row.get("versus"):
            name, baseline_us = row["versus"], row["baselines_us"][row["versus"]]
        sdpa_us, sdpa = min((us, n) for n, us in row["baselines_us"].items() if n in SDPA)
        cells = (
            row["problem"], row["gpu"], microseconds(row["median_us"]),
            interval_text(row["low_us"], row["high_us"]), f"{microseconds(baseline_us)} {name}",
            ratio_text(row["speedup"], row["speedup_low"], row["speedup_high"]),
            f"{microseconds(sdpa_us)} {sdpa} ({sdpa_us / row['median_us']:.2f}x)",
            f"{row['template']} `{point_text(row['point'])}`",
        )  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    done = "CONFIRMED" if confirmed else "Measured"
    versions = ", ".join(f"{name} {version}" for name, version in first["versions"].items())
    lines += [
        "",
        f"{done} {first['date']}, {first['protocol']} L2: medians of replayed CUDA graphs, interleaved",
        f"with the baselines in one process ({versions}; commit {record['commit'][:10]}).",
    ]
    return "\n".join([BEGIN, *lines, END])


def read() -> dict[str, Any] | None:
    """The committed record, if there is one."""
    found: dict[str, Any] | None = json.loads(RECORD.read_text()) if RECORD.is_file() else None
    return found


def with_block(readme: str, text: str) -> str:
    """`readme` with the text between its two marks replaced."""
    return re.sub(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: text, readme, flags=re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", nargs="?", choices=("record", "write"))
    parser.add_argument("database", nargs="?", default="runs/evo.db")
    options = parser.parse_args()
    if options.action == "record":
        RECORD.parent.mkdir(parents=True, exist_ok=True)
        RECORD.write_text(json.dumps(recorded(options.database), indent=1, ensure_ascii=False) + "\n")
    elif options.action == "write":
        readme = ROOT / "README.md"
        readme.write_text(with_block(readme.read_text(), block(read())))
    else:
        print(block(read()))


if __name__ == "__main__":
    main()
