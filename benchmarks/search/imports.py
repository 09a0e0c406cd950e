"""Which files of other tools become tasks, and whether a short search of each finds correct kernels.

It takes copies of repositories: those that have T1 files (AutoTuningAssociation/benchmark_hub, the suite
NTNU-HPC-Lab/BAT, HiPerCoRe/KTT), Kernel Tuner's examples for CUDA, and KernelBench's level 1. A file is
imported; then its task is searched on the emulator at a small shape. Where the file has no reference, that of
imported_kernels.py is written into `compute`. Sizes that are in a kernel's code are made small in a copy of
the file and its source.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.command import evo
from benchmarks.search.imported_kernels import KERNEL_TUNER, KERNELBENCH, Wanted, t1_tries
from evo.errors import EvoError
from evo.importers import Made, import_file
from evo.store import Store

PROTOCOL = """each file through evo import, then evo search on the emulator for some seconds at the shape that
is named; outcomes of its trials"""
GPU = False
BUDGET_S = 8.0


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--t1", type=Path, nargs="*", default=[], help="copies of repositories with T1 files")
    parser.add_argument("--kernel-tuner", type=Path, help="a folder with Kernel Tuner's examples for CUDA")
    parser.add_argument("--kernelbench", type=Path, help="a folder with KernelBench's level 1")
    parser.add_argument("--budget", type=float, default=BUDGET_S, help="seconds of a search")
    parser.add_argument("--only", nargs="*", help="files whose names have one of these words")


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    listed = [(asked.kernel_tuner, one) for one in KERNEL_TUNER] if asked.kernel_tuner else []
    listed += [(asked.kernelbench, one) for one in KERNELBENCH] if asked.kernelbench else []
    listed = [*((root.parent, one) for root in asked.t1 for one in t1_files(root)), *listed]
    for root, one in listed:
        if asked.only and not any(word in one.file for word in asked.only):
            continue
        with tempfile.TemporaryDirectory() as name:
            rows.append({"kind": one.kind, "file": one.file, **tried(root, one, Path(name), asked.budget)})
        print(json.dumps(rows[-1]), flush=True)
        yield {"files": rows, "summary": summary(rows)}


def t1_files(root: Path) -> Iterator[Wanted]:
    """Every T1 file of a repository, as it is tried."""
    for path in sorted(root.rglob("*.json")):
        if '"KernelSpecification"' in path.read_text(errors="replace"):
            yield from t1_tries(path.name, path.relative_to(root.parent).as_posix())


def tried(root: Path, one: Wanted, folder: Path, budget_s: float) -> dict[str, Any]:
    """What became of one file."""
    file = root / one.file
    if one.changed:
        for path in (file, *file.parent.glob("*.[ch]*")):
            (folder / path.name).write_text(replaced(path.read_text(errors="replace"), one.changed))
        file = folder / file.name
    tasks = folder / "tasks"
    found: dict[str, Any] = {"copy": one.why or "made small"} if one.changed else {}
    try:
        kind = "kernelbench" if one.kind == "kernelbench" else "kernel-tuner"
        made = import_file(kind, file, tasks, **one.options)
    except EvoError as error:
        said = error.message.replace(f"{root.resolve()}/", "").replace(f"{root}/", "")
        return {**found, "imported": False, "why": said}
    stub = kind == "kernelbench" and made.missing
    found |= {"imported": True, "kernel": "to be written" if stub else "its own"}
    if made.missing and one.right:
        written(made, one.right)
        found["reference"] = "written in the benchmark"
    elif made.missing and not stub:
        return {**found, "reference": "to be written", "why": "not searched: nothing says what is right"}
    return {**found, **searched(made, one, folder, budget_s)}


def replaced(text: str, changed: Mapping[str, str]) -> str:
    """The text with each of `changed`, longer ones first."""
    found = "|".join(re.escape(before) for before in sorted(changed, key=len, reverse=True))
    return re.sub(found, lambda match: changed[match[0]], text)


def written(made: Made, right: str) -> None:
    """Writes down what is right, in place of the line that says that it is missing."""
    task = next(path for path in made.files if path.name == "task.py")
    body = textwrap.indent(right.strip(), " " * 8)
    text = re.sub(r"^ *raise NotImplementedError.*$", lambda _: body, task.read_text(), flags=re.MULTILINE)
    task.write_text(text)


def searched(made: Made, one: Wanted, folder: Path, budget_s: float) -> dict[str, Any]:
    """The outcomes of a short search."""
    database = folder / "runs.db"
    words = ["search", made.name, "--templates", str(folder / "tasks"), "--device", "emulator"]
    words += ["--shape", one.shape] if one.shape else []
    words += ["--budget", f"{budget_s:g}s", "--study", "one", "--database", str(database), "--workers", "1"]
    evo(*words, accepted=(0, 2, 4))
    if not database.is_file():
        return {"outcomes": {}, "why": "the search does not begin"}
    with Store(str(database)) as store:
        study = store.study("one")
        failures = sorted({failure.reason for failure in store.failures(study)})[:2]
        return {"shape": study.problem.shape, "outcomes": dict(store.count(study)), "failures": failures}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How many of each kind."""
    found: dict[str, Any] = {}
    for kind in dict.fromkeys(row["kind"] for row in rows):
        own = [row for row in rows if row["kind"] == kind]
        green = [row for row in own if row.get("outcomes", {}).get("GREEN")]
        found[kind] = {
            "files": len({row["file"] for row in own}),
            "imported": len({row["file"] for row in own if row["imported"]}),
            "GREEN": len({row["file"] for row in green}),
        }
    return found
