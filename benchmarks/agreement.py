"""Do the emulator and a GPU say the same of the same kernels? Outputs and verdicts over all templates.

    python benchmarks/agreement.py run --device cuda:0 --gpu H200 --out h200.npz       # on the GPU
    python benchmarks/agreement.py run --device emulator --gpu H200 --out emulator.npz # anywhere
    python benchmarks/agreement.py compare h200.npz emulator.npz --out agreement.json

Each template is run at a pairwise-covering sample of its feasible points, each in fp16 and bf16, causal
and not, at ragged lengths and head dimensions in rotation, on inputs that are the same on both sides. A
case is GREEN if it ran without a report and its worst-row relative error against the fp64 reference is
below the line of its type. `compare` prints, by template, how many verdicts agree, how many outputs agree
bit for bit, and the largest difference of the others in units of the last place of the storage type.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from evo.cache import Cache
from evo.device import Device, Region
from evo.errors import CandidateError
from evo.gpu import KNOWN_GPUS, Gpu, Limits
from evo.nvcc import Compiler, find_compiler
from evo.task import Task, load_task
from evo.template import Template, list_templates, load_template
from evo.trial import Binary, Candidate, Problem, digest_of

LENGTHS = (1, 63, 65, 129, 200, 257)
HEAD_DIMS = (64, 128, 32, 96)
KEPT = 2048
"""Words kept of each output, evenly spread; of the whole there is a hash."""
LINE = {"fp16": 8e-4, "bf16": 6e-3}
"""Worst-row relative error that an honest kernel stays below (it measures 4e-4 and 3.5e-3)."""


@dataclass(frozen=True)
class Case:
    """One candidate to run, named so that both sides find each other's."""

    name: str
    candidate: Candidate


def cases(task: Task, template: Template, limits: Limits, least: int) -> Iterator[Case]:
    """A covering sample at each head dimension that the template serves, over dtypes, masks, lengths."""
    rng = np.random.default_rng(7)
    number = 0
    dims = [d for d in HEAD_DIMS if template.supports(task.example.replace(D=d), limits) is None]
    for d in dims:
        for dtype in ("fp16", "bf16"):
            for causal in (False, True):
                example = task.example.replace(D=d, dtype=dtype, causal=causal)
                feasible = template.space.feasible(limits, example)
                wanted = feasible.covering(rng, least)
                share = -(-max(least, len(wanted)) // len(dims))
                for point in [wanted[i] for i in rng.permutation(len(wanted))[:share]]:
                    problem = fitting(template, point, limits, example, number)
                    number += 1
                    yield Case(f"{template.name} {number} {problem.key}", template.candidate(point, problem))


def fitting(template: Template, point: Any, limits: Limits, example: Problem, number: int) -> Problem:
    """`example` with two heads and the next ragged length that the rules allow, else its own length."""
    for step in range(len(LENGTHS)):
        length = LENGTHS[(number + step) % len(LENGTHS)]
        problem = example.replace(B=1, H=2, L=length)
        if template.space.why_not(point, limits, problem) is None:
            return problem
    return example.replace(B=1, H=2)


def run_case(
    case: Case, binary: Binary, task: Task, device: Device
) -> tuple[dict[str, Any], np.ndarray[Any, Any]]:
    """The verdict on one case, and words of 16 bits out of its output."""
    import torch

    problem, launch = case.candidate.problem, case.candidate.launch
    inputs = task.inputs(problem, "normal", 1, "cpu")
    expected = task.reference(problem, inputs)["o"]
    held = {name: t.to(device.torch_device) for name, t in inputs.items()}
    held["o"] = torch.full(expected.shape, float("nan"), dtype=inputs["q"].dtype, device=device.torch_device)
    for space in launch.workspaces:
        held[space.name] = torch.zeros(space.nbytes, dtype=torch.uint8, device=device.torch_device)
    regions = {
        name: Region(name, t.data_ptr(), t.numel() * t.element_size(), name not in "qkv", name != "o")
        for name, t in held.items()
    }
    verdict: dict[str, Any] = {"outcome": "GREEN", "point": dict(case.candidate.point)}
    begin = time.perf_counter()
    try:
        kernel = device.load(binary, launch)
        for schedule in device.schedules:
            kernel.launch(launch, regions, schedule)
    except CandidateError as error:
        verdict |= {"outcome": error.outcome, "why": str(error), "where": error.where}
    verdict["seconds"] = time.perf_counter() - begin
    out = held["o"].cpu()
    if verdict["outcome"] == "GREEN":
        wide = out.double()
        error_by_row = (wide - expected).norm(dim=-1) / expected.norm(dim=-1)
        worst = float(error_by_row.max())
        verdict["row_error"] = worst
        if not worst < LINE[problem.dtype]:
            verdict["outcome"] = "RED"
    words = out.view(torch.int16).numpy().ravel()
    verdict["bits"] = digest_of(words.tobytes())
    return verdict, words[:: max(1, len(words) // KEPT)]


def open_device(name: str, gpu: Gpu, compiler: Compiler) -> Device:
    if name == "emulator":
        from evo.device.emulator import EmulatorDevice

        return EmulatorDevice(gpu)
    from evo.device.cuda import CudaDevice

    return CudaDevice(int(name.removeprefix("cuda:")), compiler)


def run(options: argparse.Namespace) -> int:
    task, gpu = load_task("attention"), KNOWN_GPUS[options.gpu]
    limits, verdicts, outputs = Limits.of(gpu), {}, {}
    with find_compiler(None, Cache(options.cache)) as compiler, ThreadPoolExecutor(options.jobs) as pool:
        device = open_device(options.device, gpu, compiler)

        def compiled(case: Case) -> Binary | CandidateError:
            try:
                return compiler.compile(case.candidate.source, case.candidate.entry, gpu.arch)
            except CandidateError as error:
                return error

        for name in options.template or list_templates("attention"):
            template = load_template(task, name)
            if not limits.allows(template.needs):
                continue
            begin, wrong = time.perf_counter(), 0
            todo = list(cases(task, template, limits, options.points))
            for case, binary in zip(todo, pool.map(compiled, todo), strict=True):
                if isinstance(binary, CandidateError):
                    verdicts[case.name] = {"outcome": binary.outcome, "why": str(binary)[:300]}
                else:
                    verdicts[case.name], outputs[case.name] = run_case(case, binary, task, device)
                if verdicts[case.name]["outcome"] != "GREEN":
                    wrong += 1
                    print(f"{case.name}: {json.dumps(verdicts[case.name])[:600]}", file=sys.stderr)
            took = time.perf_counter() - begin
            print(f"{name}: {len(todo)} cases, {len(todo) - wrong} GREEN, {took:.1f} s", flush=True)
    arrays: dict[str, Any] = {**outputs, "verdicts": np.array(json.dumps(verdicts))}
    np.savez_compressed(options.out, **arrays)
    return 0


def ordered(words: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """16-bit floats as integers whose differences count units in the last place."""
    wide = words.astype(np.int32)
    return np.where(wide < 0, -(wide & 0x7FFF), wide)


def compare(options: argparse.Namespace) -> int:
    left, right = np.load(options.left), np.load(options.right)
    a, b = json.loads(str(left["verdicts"])), json.loads(str(right["verdicts"]))
    table: dict[str, dict[str, Any]] = {}
    for name in sorted(a.keys() & b.keys()):
        row = table.setdefault(name.split()[0], {"cases": 0, "same_verdict": 0, "green": 0, "same_bits": 0,
                                                 "largest_ulp": 0, "disagreements": []})  # fmt: skip
        row["cases"] += 1
        same = a[name]["outcome"] == b[name]["outcome"]
        row["same_verdict"] += same
        row["green"] += same and a[name]["outcome"] == "GREEN"
        if not same:
            row["disagreements"].append({"case": name, "left": a[name], "right": b[name]})
        if name in left and name in right and same:
            difference = np.abs(ordered(left[name]) - ordered(right[name]))
            row["same_bits"] += a[name]["bits"] == b[name]["bits"]
            hundredth = 0x2000 if name.endswith("fp16") else 0x3C00  # 2^-7: below it cancellation rules
            near_zero = np.abs(ordered(left[name])) < hundredth
            row["largest_ulp"] = max(row["largest_ulp"], int(np.where(near_zero, 0, difference).max()))
    lone = sorted(a.keys() ^ b.keys())
    for name, row in table.items():
        counts = ", ".join(f"{k} {v}" for k, v in row.items() if k != "disagreements")
        print(f"{name}: {counts}, disagreements {len(row['disagreements'])}")
    print(f"cases of one side only: {len(lone)}")
    if options.out:
        options.out.write_text(json.dumps({"templates": table, "one_side_only": lone}, indent=1) + "\n")
    return 1 if lone or any(row["disagreements"] for row in table.values()) else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run", help="run all cases on one device")
    runs.add_argument("--device", default="emulator")
    runs.add_argument("--gpu", default="H200", choices=list(KNOWN_GPUS), help="whose limits and code")
    runs.add_argument("--points", type=int, default=60, help="at least so many points a type and mask")
    runs.add_argument("--template", action="append", help="only these")
    runs.add_argument("--jobs", type=int, default=2, help="compilations at once")
    runs.add_argument("--cache", type=Path, default=Path("runs/cache"))
    runs.add_argument("--out", type=Path, required=True)
    compares = commands.add_parser("compare", help="compare two runs; exit 1 where verdicts disagree")
    compares.add_argument("left", type=Path)
    compares.add_argument("right", type=Path)
    compares.add_argument("--out", type=Path)
    options = parser.parse_args()
    return run(options) if options.command == "run" else compare(options)


if __name__ == "__main__":
    sys.exit(main())
