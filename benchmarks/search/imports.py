"""Which files of other tools become tasks, and whether a short search of each finds correct kernels.

It takes copies of three repositories: the benchmark hub of AutoTuningAssociation (T1 files), Kernel Tuner's
examples for CUDA, and KernelBench's level 1. A file is imported; then its task is searched on the emulator
at a small shape. Where the file has no reference, the one that stands here is written into `compute`. Sizes
that are in a kernel's code are made small in a copy of the file and its source.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.command import evo
from evo.errors import EvoError
from evo.importers import Made, import_file
from evo.store import Store

PROTOCOL = """each file through evo import, then evo search on the emulator for some seconds at the shape that
is named; outcomes of its trials"""
GPU = False
BUDGET_S = 8.0


@dataclass(frozen=True)
class Wanted:
    """A file, and what is needed to try it small."""

    kind: str
    file: str
    shape: str | None = None
    right: str = ""
    """The body of `compute`, where the file has no reference."""
    changed: Mapping[str, str] = field(default_factory=dict)
    """Texts of the file and of its folder's .cu files, and what is put for them."""
    options: Mapping[str, Any] = field(default_factory=dict)
    why: str = ""


ONE_STEP = """
t, p = (x[name][:84 * 84].reshape(84, 84) for name in ("temp", "power"))
c, sides = t[10:74, 10:74], (t[11:75, 10:74] + t[9:73, 10:74], t[10:74, 11:75] + t[10:74, 9:73])
flow = sum((side - 2 * c) * 0.10000000149011612 for side in sides)
return c + 21.845333099365234 * (p[10:74, 10:74] + flow + (80 - c) * 3.0517578125)
"""
"""Hotspot for one step, 64 by 64 with a border of 10. 0.1 and 3.05… are the nearest numbers of fp32."""
FIVE_POINTS = """
old, found = x["x_old"].reshape(48, 64), x["x_new"].reshape(48, 64).clone()
around = old[1:-1, :-2] + old[1:-1, 2:] + old[:-2, 1:-1] + old[2:, 1:-1]
found[1:-1, 1:-1] = (old[1:-1, 1:-1] + around) / 5
return found
"""
SMALL_T1 = {"4096": "64", "25160256": "7056", "16777216": "4096"}
_SPACE = " " * 16
MENDED_T1 = {
    f'"temp",\n{_SPACE}"Type": "float",\n{_SPACE}"Size": 16777216': (
        f'"temp",\n{_SPACE}"Type": "float",\n{_SPACE}"Size": 7056'
    ),
    f'"temporal_tiling_factor",\n{_SPACE}"Type": "int",\n{_SPACE}"Values": "[i for i in range(1, 11)]"': (
        f'"temporal_tiling_factor",\n{_SPACE}"Type": "int",\n{_SPACE}"Values": "[1]"'
    ),
}
SUM = 'return x["a"] + x["b"]'
KERNEL_TUNER = (
    Wanted("kernel-tuner", "vector_add.py", "3000", SUM),
    Wanted("kernel-tuner", "vector_add_nvcuda.py", "3000"),
    Wanted("kernel-tuner", "vector_add_parallel.py", "3000", SUM),
    Wanted("kernel-tuner", "matmul.py", None, 'return x["A"] @ x["B"]', {"4096": "64"}),
    Wanted("kernel-tuner", "stencil.py", None, FIVE_POINTS, {"4096": "64", "2048": "48"}),
    Wanted("kernel-tuner", "convolution.py"),
    Wanted("kernel-tuner", "spmv.py"),
    Wanted("kernel-tuner", "texture.py"),
    Wanted("kernel-tuner", "vector_add_codegen.py"),
    Wanted("kernel-tuner", "accuracy.py"),
)
KERNELBENCH = (
    Wanted("kernelbench", "1_Square_matrix_multiplication_.py", "48"),
    Wanted("kernelbench", "5_Matrix_scalar_multiplication.py", "30,50"),
    Wanted("kernelbench", "19_ReLU.py", "30,50"),
    Wanted("kernelbench", "21_Sigmoid.py", "30,50"),
    Wanted("kernelbench", "22_Tanh.py", "30,50"),
    Wanted("kernelbench", "23_Softmax.py", "30,50"),
    Wanted("kernelbench", "25_Swish.py", "30,50"),
    Wanted("kernelbench", "26_GELU_.py", "30,50"),
    Wanted("kernelbench", "30_Softsign.py", "30,50"),
    Wanted("kernelbench", "32_HardTanh.py", "30,50"),
    Wanted("kernelbench", "36_RMSNorm_.py", "2,8,5,6"),
    Wanted("kernelbench", "47_Sum_reduction_over_a_dimension.py", "3,40,17"),
    Wanted("kernelbench", "95_CrossEntropyLoss.py", "30,50"),
)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hub", type=Path, help="a copy of AutoTuningAssociation/benchmark_hub")
    parser.add_argument("--kernel-tuner", type=Path, help="a folder with Kernel Tuner's examples for CUDA")
    parser.add_argument("--kernelbench", type=Path, help="a folder with KernelBench's level 1")
    parser.add_argument("--budget", type=float, default=BUDGET_S, help="seconds of a search")
    parser.add_argument("--only", nargs="*", help="files whose names have one of these words")


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    listed = [(asked.kernel_tuner, one) for one in KERNEL_TUNER] if asked.kernel_tuner else []
    listed += [(asked.kernelbench, one) for one in KERNELBENCH] if asked.kernelbench else []
    listed = [*((asked.hub, one) for one in (t1_files(asked.hub) if asked.hub else ())), *listed]
    for root, one in listed:
        if asked.only and not any(word in one.file for word in asked.only):
            continue
        with tempfile.TemporaryDirectory() as name:
            rows.append({"kind": one.kind, "file": one.file, **tried(root, one, Path(name), asked.budget)})
        print(json.dumps(rows[-1]), flush=True)
        yield {"files": rows, "summary": summary(rows)}


def t1_files(hub: Path) -> Iterator[Wanted]:
    """Every T1 file of the hub; where one is imported, small, as it is and with a length mended."""
    for path in sorted(hub.rglob("*.json")):
        if '"KernelSpecification"' not in path.read_text():
            continue
        file = path.relative_to(hub).as_posix()
        if path.stem == "hotspot_milo":
            why = "as it is: `temp` has fewer elements than the kernel reads, so `compute` fails"
            yield Wanted("T1", file, None, ONE_STEP, SMALL_T1, why=why)
            why = "with the length that the kernel reads, and one step: a tunable says how many there are"
            yield Wanted("T1", file, None, ONE_STEP, {**MENDED_T1, **SMALL_T1}, why=why)
        else:
            yield Wanted("T1", file)


def tried(root: Path, one: Wanted, folder: Path, budget_s: float) -> dict[str, Any]:
    """What became of one file."""
    file = root / one.file
    if one.changed:
        for path in (file, *file.parent.glob("*.cu")):
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
    found |= {"imported": True, "kernel": "to be written" if made.missing and not one.right else "its own"}
    if made.missing and one.right:
        written(made, one.right)
        found["reference"] = "written in the benchmark"
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
