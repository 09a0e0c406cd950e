"""How well the emulator's estimate orders measured kernels: Spearman correlation and top-10 recall.

    python benchmarks/run.py emulator/estimate runs/evo.db --study NAME --pairs pairs.json
    python benchmarks/run.py emulator/estimate pairs.json

A database's TIMED trials of the study are compiled for the named GPU, run once on the emulator (checks off)
and estimated. `--pairs` keeps measured and estimated µs with counters, resources and launch; from such a file
the estimates are made anew, so that a changed model is judged without emulating again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from evo.cache import Cache, default_folder
from evo.compile import find_compiler
from evo.device import Region
from evo.device.emulator import EmulatorDevice
from evo.device.emulator.estimate import estimate
from evo.errors import CandidateError
from evo.gpu import KNOWN_GPUS, Gpu
from evo.store import Store
from evo.task import load_task
from evo.trial import Candidate, LaunchConfig, Outcome, Resources

PROTOCOL = """warm medians of a search against the estimate for its GPU; Spearman's rank correlation, and how
many of the 10 fastest are among the 10 with the lowest estimate"""
GPU = False
Floats = npt.NDArray[np.float64]


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", type=Path, help="a study database, or a JSON file of pairs")
    parser.add_argument("--study", help="the study's name, for a database")
    parser.add_argument("--gpu", default="H200", help="the GPU that was measured")
    parser.add_argument("--limit", type=int, default=10**9, help="at most so many trials")
    parser.add_argument("--pairs", type=Path, help="where to keep the pairs")


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    gpu = KNOWN_GPUS[asked.gpu]
    if asked.source.suffix == ".json":
        pairs = json.loads(asked.source.read_text())
    elif asked.study:
        pairs = pairs_of(asked.source, asked.study, gpu, asked.limit)
    else:
        raise SystemExit("error: a database needs --study")
    if len(pairs) < 3:
        raise SystemExit("error: fewer than three measured trials")
    if asked.pairs:
        asked.pairs.write_text(json.dumps(pairs))
    yield {"measured": {"gpu": gpu.name, "trials": len(pairs)}, "templates": judged(pairs, gpu)}


def ranks(values: Floats) -> Floats:
    """1-based ranks; ties share their mean."""
    order = np.argsort(values, kind="stable")
    out = np.empty(len(values))
    out[order] = np.arange(1, len(values) + 1)
    for value in np.unique(values):
        same = values == value
        out[same] = out[same].mean()
    return out


def spearman(x: Floats, y: Floats) -> float:
    """Rank correlation; NaN where all values of one side are equal."""
    a, b = ranks(x), ranks(y)
    if a.std() == 0 or b.std() == 0:
        return float("nan")
    return float(np.corrcoef(a, b)[0, 1])


def top_recall(measured: Floats, estimated: Floats, k: int = 10) -> float:
    """Share of the k fastest that are among the k with the lowest estimate."""
    k = min(k, len(measured))
    best, guessed = np.argsort(measured, kind="stable")[:k], np.argsort(estimated, kind="stable")[:k]
    return len(set(best.tolist()) & set(guessed.tolist())) / k


def judged(pairs: Sequence[dict[str, Any]], gpu: Gpu) -> dict[str, Any]:
    """The figures of all pairs, and of each template's."""
    groups: dict[str, list[dict[str, Any]]] = {"all": list(pairs)}
    for pair in pairs:
        groups.setdefault(f"{pair.get('template', '?')}", []).append(pair)
    result = {}
    for name, group in groups.items():
        measured = np.array([p["measured_us"] for p in group])
        estimated = np.array([_estimated(p, gpu) for p in group])
        best = int(np.argmin(measured))
        ratio = estimated / measured
        result[name] = {
            "trials": len(group),
            "spearman": round(spearman(measured, estimated), 4),
            "top10_recall": top_recall(measured, estimated),
            "fastest_us": float(measured.min()),
            "rank_of_fastest": int(ranks(estimated)[best]),
            "measured_of_lowest_estimate_us": float(measured[int(np.argmin(estimated))]),
            "median_ratio": round(float(np.median(ratio)), 3),
            "ratio_p10_p90": [round(float(np.percentile(ratio, q)), 3) for q in (10, 90)],
        }
    return result


def _estimated(pair: dict[str, Any], gpu: Gpu) -> float:
    if "counters" not in pair:
        return float(pair["estimate_us"])
    resources = Resources(**{**pair["resources"], "warnings": tuple(pair["resources"].get("warnings", ()))})
    launch = LaunchConfig.from_json(json.dumps(pair["launch"]))
    return estimate(pair["counters"], resources, launch, gpu, pair.get("nbytes", 0)).us


def emulated(candidate: Candidate, device: EmulatorDevice, compiler: Any) -> dict[str, Any]:
    """Counters and resources of one candidate on the emulator."""
    binary = compiler.compile(candidate.source, candidate.entry, device.gpu.arch)
    task = load_task(candidate.problem.task)
    inputs = task.inputs(candidate.problem, "normal", 0, "cpu")
    regions, keep = {}, []
    for spec in task.buffers(candidate.problem):
        tensor = inputs.get(spec.name)
        if tensor is None:
            import torch

            dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(spec.dtype, torch.float32)
            tensor = torch.empty(spec.shape, dtype=dtype)
        keep.append(tensor)
        nbytes = tensor.numel() * tensor.element_size()
        regions[spec.name] = Region(spec.name, tensor.data_ptr(), nbytes, spec.role == "out", True)
    for work in candidate.launch.workspaces:
        scratch = np.zeros(work.nbytes + 256, np.uint8)
        keep.append(scratch)
        start = scratch.ctypes.data + -scratch.ctypes.data % 256
        regions[work.name] = Region(work.name, start, work.nbytes, True, True)
    kernel = device.load(binary, candidate.launch)
    report = kernel.launch(candidate.launch, regions, "eager")
    return {
        "counters": dict(report.counters),
        "resources": asdict(binary.resources),
        "launch": json.loads(candidate.launch.to_json()),
        "nbytes": task.nbytes(candidate.problem),
    }


def pairs_of(database: Path, study_name: str, gpu: Gpu, limit: int) -> list[dict[str, Any]]:
    """Measured and estimated times of a study's TIMED trials, in the order they were made."""
    store = Store(database, create=False)
    study = store.study(study_name)
    rows = [r for r in store.rows(study) if r.outcome is Outcome.TIMED and r.same_as is None][:limit]
    device = EmulatorDevice(gpu, checks=0)
    compiler = find_compiler(None, Cache(default_folder()))
    pairs = []
    begin = time.perf_counter()
    for i, row in enumerate(rows, 1):
        trial = store.trial(f"{study_name}/{row.number}")
        try:
            found = emulated(trial.candidate, device, compiler)
        except CandidateError as error:
            print(f"trial {row.number}: {error}", file=sys.stderr)
            continue
        pairs.append(
            {
                "number": row.number,
                "template": row.template,
                "point": dict(row.point),
                "measured_us": row.median_us,
            }
            | found
        )
        if i % 20 == 0:
            print(f"{i}/{len(rows)} trials, {time.perf_counter() - begin:.0f} s", file=sys.stderr)
    return pairs
