"""Mutation testing of the gate over every template: what it refuses of the mutants of honest kernels.

    python benchmarks/mutation.py --mutants 520 --jobs 16 --out benchmarks/results/mutation.json

Each template's default kernel at the mission's shape, causal and not, on the emulator; it stands for an L4,
or for an H200 where the template needs one. All mutants of executed statements are tried, or a sample of
`--mutants` that has every kind. Written: the scores, and each survivor with its line and its class:

    bit-identical     no bit of any output differs on any input of the strictest gate, that for finalists
    within the line   bits differ there, no more than the roundings of honest kernels do
    only finalists    GREEN for a candidate, refused for a finalist
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evo.cache import Cache
from evo.gate.mutants import Subject, record, try_mutants
from evo.nvcc import find_compiler
from evo.rig import gpu_that_runs
from evo.task import load_task
from evo.template import list_templates, load_template
from evo.trial import Outcome

KEPT = ("kind", "line", "before", "after", "place", "text", "thorough", "differs", "compared")
"""What is kept of a survivor."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mutants", type=int, help="of each kernel (default: all)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--template", action="append", help="only this one; may be repeated")
    parser.add_argument("--commit", default="", help="where there is no git")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    task, cache = load_task("attention"), Path.home() / ".cache" / "evo"
    with find_compiler(None, Cache(cache)) as compiler:
        version = compiler.version
    run = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    results: list[dict[str, Any]] = []
    for name in asked.template or list_templates(task.name):
        gpu = gpu_that_runs(load_template(task, name))
        for causal in (False, True):
            begin = time.perf_counter()
            subject = Subject(name, task.problem("1,8,512,64", causal=causal), gpu, cache)
            found = dict(record(subject, try_mutants(subject, asked.mutants, asked.jobs)))
            found["survivors"] = [
                {"class": class_of(s), **{k: s[k] for k in KEPT}} for s in found["survivors"]
            ]
            found["seconds"] = round(time.perf_counter() - begin)
            results.append(found)
            print(f"{name} {found['problem']}: {found['refused']} of {found['executed']} refused, "
                  f"{found['alike']} alike, {found['seconds']} s", flush=True)  # fmt: skip
            asked.out.write_text(json.dumps(document(asked, results, version, run.stdout.strip()), indent=1))
    print(table(results))


def table(results: Sequence[Mapping[str, Any]]) -> str:
    """The scores as Markdown: of the candidates' gate and of the finalists', of all mutants that ran and
    differ as programs, and of those that are not bit-identical."""
    head = "| template | executed | refused | finalists | bit-identical | refused of others | finalists |"
    lines = [head, "|---" * 7 + "|"]
    for r in results:
        others = max(1, r["executed"] - r["alike"])
        finalists = r["refused"] + r["only_finalists"]
        name = r["template"] + (", causal" if "causal=1" in r["problem"] else "")
        cells = [name, r["executed"], f"{r['refused'] / r['executed']:.1%}"]
        cells += [f"{finalists / r['executed']:.1%}", r["alike"]]
        cells += [f"{r['refused'] / others:.1%}", f"{finalists / others:.1%}"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def class_of(survivor: Mapping[str, Any]) -> str:
    """What kind of survivor this is; see above."""
    if survivor["thorough"] != Outcome.GREEN:
        return "only finalists"
    return "within the line" if survivor["differs"] else "bit-identical"


def document(
    asked: argparse.Namespace, results: list[dict[str, Any]], version: str, commit: str
) -> dict[str, Any]:
    """The result with what it depends on."""
    return {
        "command": f"python benchmarks/mutation.py --mutants {asked.mutants} --jobs {asked.jobs}",
        "commit": asked.commit or commit,
        "date": datetime.now(UTC).date().isoformat(),
        "gpu": "none: the emulator, standing for the GPU named in each result",
        "versions": {"compiler": version},
        "protocol": "PTX mutants of each template's default kernel through the gate, seed 0",
        "results": results,
    }


if __name__ == "__main__":
    main()
