"""What the README shows of the results: the leaderboard, other operators, the picture of the seeds' shapes.

    python benchmarks/readme.py record runs/evo.db   # best trial of each problem -> results/leaderboard.json
    python benchmarks/readme.py write                # results -> README.md and docs/images/seeds-*.svg
    python benchmarks/readme.py                      # prints the tables that would be written

`record` takes the best trial of every problem, a CONFIRMED one where there is one, and never an estimate.
Tests compare what is written with the results.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import record as records
from benchmarks.picture import GROUPS, THEMES, picture
from evo.report import (
    counted_text,
    group_record,
    interval_text,
    microseconds,
    point_text,
    ratio_text,
    spread_text,
)
from evo.store import Store

RESULTS = ROOT / "benchmarks" / "results"
LEADERBOARD = RESULTS / "leaderboard.json"
SHAPES = RESULTS / "bench-h200.json"
PRODUCTS = RESULTS / "gemm-shapes-h200.json"
MANY_PRODUCTS = RESULTS / "many-shapes-h200.json"
IMAGES = ROOT / "docs" / "images"
BEGIN = "<!-- {name}: written by benchmarks/readme.py, do not edit by hand -->"
END = "<!-- end of {name} -->"
LEADERS, OPERATORS = "leaderboard", "products"
"""The two tables."""
SDPA = GROUPS["PyTorch SDPA"]
PROTOCOL = (
    "CONFIRMED where a row says so: warm L2, medians of replayed CUDA graphs, interleaved with the baselines"
)


def recorded(database: str) -> dict[str, Any]:
    """The best measured trial of every problem in a database, with what its time depends on."""
    with Store(database, create=False) as store:
        problems = dict.fromkeys(study.problem.key for study in store.studies())
        ranked = [row for key in problems for row in store.leaderboard(problem=key, limit=1) if row.median_us]
        best = list({(row.problem, row.device): row for row in reversed(ranked)}.values())[::-1]
        if not best:
            sys.exit(f"error: {database} has no measured trial\nhint: evo search on a machine with a GPU")
        trials = [store.trial(f"{row.study}/{row.number}") for row in best]
    rows = [
        {
            "problem": row.problem,
            "gpu": row.device,
            "template": row.template,
            "point": dict(row.point),
            "kind": row.kind,
            "level": row.level,
            "cold_us": row.cold_us,
            "versus": row.versus,
            "median_us": row.median_us,
            "low_us": row.low_us,
            "high_us": row.high_us,
            "protocol": stored.timing.protocol if stored.timing else "",
            "baselines_us": dict(row.baselines_us),
            "speedup": row.speedup,
            "speedup_low": row.speedup_low,
            "speedup_high": row.speedup_high,
            "ranking": row.ranking,
            "times_us": {on: time.median_us for on, time in row.times.items()},
            "versus_us": row.times[row.on].baselines_us.get(row.versus or "") if row.on else None,
            **group_record({"SDPA": tuple(SDPA)}, row.times, row.ranking),
            "versions": {**stored.versions, "compiler": stored.compiler},
            "date": stored.created[:10],
        }
        for row, stored in zip(best, trials, strict=True)
    ]
    command = f"python benchmarks/readme.py record {database}"
    return records.record({"rows": rows}, PROTOCOL, command, on_gpu=True)


def block(record: dict[str, Any]) -> str:
    """The leaderboard, with its marks."""
    rows = record["results"]["rows"]
    first = rows[0]
    confirmed = all(row.get("kind") == "confirmed" for row in rows)
    level = f"{100 * (first.get('level') or 0.95):.0f} %" if confirmed else "95 %"
    columns = f"evo [{level} CI] | fastest baseline | speedup [{level} CI] | fastest SDPA"
    lines = [
        f"| problem | GPU | {columns} | template |",
        "|---|---|--:|--:|--:|--:|---|",
    ]
    lines += [table_row(row) for row in rows]
    lines += ["", sentence(first, confirmed), "", *fold(rows, record["commit"])]
    return marked(LEADERS, lines)


def sentence(row: dict[str, Any], confirmed: bool) -> str:
    """What a time of the table is."""
    done = "CONFIRMED" if confirmed else "Measured"
    text = f"{done} {row['date']}, {row['protocol']} L2."
    if row.get("times_us"):
        counted = counted_text(row["ranking"], list(row["times_us"]))
        text += f" A time is the {counted}; a ratio is the smallest of theirs."
    return text


def fold(rows: Sequence[dict[str, Any]], commit: str) -> list[str]:
    """What only some readers ask for, folded: each kernel's parameters, and how it was measured."""
    versions = ", ".join(f"{name} {version}" for name, version in rows[0]["versions"].items())
    points = [f"- {row['template']}: `{point_text(row['point'])}`" for row in rows]
    return [
        "<details><summary>The parameters of each kernel, and how it was measured</summary>",
        "",
        *dict.fromkeys(points),
        "- Times are medians of replayed CUDA graphs. Kernels and baselines take turns in one process.",
        f"- {versions}; commit {commit[:10]}",
        "",
        "</details>",
    ]


def marked(name: str, lines: Sequence[str]) -> str:
    """A table between its marks."""
    return "\n".join([BEGIN.format(name=name), *lines, END.format(name=name)])


def products(record: dict[str, Any], many: dict[str, Any]) -> str:
    """Products of matrices beside the fastest baseline of each, with their marks. `many`: of one search for
    many."""
    lines = ["| M, N, K, batch | evo | fastest baseline | speedup |", "|---|--:|--:|--:|"]
    for shape, one in record["results"]["shapes"].items():
        on = max(one["us"], key=one["us"].__getitem__)
        name, theirs = min(one["baselines_us"][on].items(), key=lambda item: float(item[1]))
        cells = (shape, microseconds(one["us"][on]), f"{microseconds(theirs)} {name}")
        lines.append(f"| {' | '.join(cells)} | {ratio_text(one['speedup'], *one['speedup_interval'])} |")
    about = f"{record['gpu']}, {record['date'][:10]}, bf16, warm L2, commit {record['commit'][:10]}."
    lines += ["", f"{about} Times are of the worst timing input; a speedup is the smallest of all inputs'."]
    return marked(OPERATORS, [*lines, "", many_sentence(many)])


def many_sentence(record: dict[str, Any]) -> str:
    """What one search for many products found."""
    found = record["results"]
    search, loss = found["search"], 100 * (found["portfolio"]["loss"] - 1)
    small, large = (
        f"{of['mean']:.2f}x {where} 1e10 FLOP (least {of['least']:.2f}x)"
        for of, where in ((found["below_1e10"]["best"], "below"), (found["above_1e10"]["best"], "above"))
    )
    return (
        f"One search for {search['shapes']} others, sizes from 64 to 16,384, took "
        f"{search['spent_s'] / 60:.0f} minutes of GPU time (commit {record['commit'][:10]}). Beside the "
        f"fastest algorithm of cuBLASLt the best kernels are at {small} and {large}, geometric means; "
        f"{search['kernels']} kernels for all of them take {loss:.2f} % longer."
    )


def table_row(row: dict[str, Any]) -> str:
    """A problem as a row of Markdown."""
    name, baseline_us = min(row["baselines_us"].items(), key=lambda item: float(item[1]))
    if row.get("versus"):
        name, baseline_us = row["versus"], row.get("versus_us") or row["baselines_us"][row["versus"]]
    sdpa_us, sdpa = min((us, n) for n, us in row["baselines_us"].items() if n in SDPA)
    ratio = sdpa_us / row["median_us"]
    if row.get("sdpa_speedup"):
        sdpa_us, sdpa, ratio = row["fastest_sdpa_us"], row["fastest_sdpa"], row["sdpa_speedup"]
    mark = spread_text({on: {"median_us": us} for on, us in row.get("times_us", {}).items()})
    cells = (
        row["problem"],
        row["gpu"],
        f"{microseconds(row['median_us'])} {interval_text(row['low_us'], row['high_us'])}"
        + (f" ({mark})" if mark else ""),
        f"{microseconds(baseline_us)} {name}",
        ratio_text(row["speedup"], row["speedup_low"], row["speedup_high"]),
        f"{microseconds(sdpa_us)} {sdpa} ({ratio:.2f}x)",
        row["template"],
    )
    return "| " + " | ".join(cells) + " |"


def read(path: Path = LEADERBOARD) -> dict[str, Any]:
    """A committed result."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def with_block(readme: str, name: str, text: str) -> str:
    """`readme` with the table of that name replaced."""
    between = f"{re.escape(BEGIN.format(name=name))}.*?{re.escape(END.format(name=name))}"
    return re.sub(between, lambda _: text, readme, flags=re.DOTALL)


def blocks() -> dict[str, str]:
    """The tables by name."""
    return {LEADERS: block(read()), OPERATORS: products(read(PRODUCTS), read(MANY_PRODUCTS))}


def images() -> dict[Path, str]:
    """The pictures by the file that they belong in."""
    return {IMAGES / f"seeds-{theme}.svg": picture(read(SHAPES), theme) for theme in THEMES}


def main() -> None:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("action", nargs="?", choices=("record", "write"))
    parser.add_argument("database", nargs="?", default="runs/evo.db")
    asked = parser.parse_args()
    if asked.action == "record":
        records.write(LEADERBOARD, recorded(asked.database))
    elif asked.action == "write":
        path = ROOT / "README.md"
        readme = path.read_text(encoding="utf-8")
        for name, text in blocks().items():
            readme = with_block(readme, name, text)
        path.write_text(readme, encoding="utf-8")
        for path, text in images().items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    else:
        print("\n\n".join(blocks().values()))


if __name__ == "__main__":
    main()
