"""The ladder: one change after the other from a scalar kernel to the fastest, each gated and timed, beside
what was expected of it.

    python benchmarks/ladder.py --out ladder.json                              a GPU
    python benchmarks/ladder.py --show benchmarks/results/ladder-h200.json     as Markdown tables

The rungs are in ladder_rungs.json: the point of the rung before and one change, or the first rung of another
template. A rung's factor is the time of the rung before over its own. Expectations are factors, or times, of
the notes that the project began with (an L4 in 2025, prototypes on an H200), of our own, and of what has been
published; `source` says which.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from attention_rows import Bench, Found, Row

from evo.cache import Cache
from evo.compile.nvcc import find_compiler
from evo.device.cuda import CudaDevice
from evo.errors import CandidateError
from evo.task import load_task
from evo.template import load_template
from evo.timing import TimingSession
from evo.trial import Point, body_of


@dataclass(frozen=True)
class Rung:
    """A change to the point of the rung before or, if `fresh`, to the template's default."""

    what: str
    template: str
    changes: dict[str, Any]
    expected: str = ""
    source: str = ""
    fresh: bool = False


def climbed(bench: Bench, rungs: list[Rung]) -> dict[str, Any]:
    """Each rung, and the baselines beside them."""
    templates = {rung.template: load_template(bench.task, rung.template) for rung in rungs}
    points: list[Point] = []
    point: Point = {}
    for rung in rungs:
        point = {**(templates[rung.template].space.default if rung.fresh else point), **rung.changes}
        if why := templates[rung.template].space.why_not(point, bench.limits, bench.problem):
            raise SystemExit(f"{rung.what}: {why}")
        points.append(point)
    candidates = [
        templates[r.template].candidate(p, bench.problem) for r, p in zip(rungs, points, strict=True)
    ]
    requests = [(body_of(c.source), c.entry, bench.arch) for c in candidates]
    binaries = bench.compiler.compile_many(requests, bench.jobs)
    session = TimingSession(bench.device, bench.task, bench.problem, seed=11)
    found: list[dict[str, Any]] = []
    for rung, point, binary in zip(rungs, points, binaries, strict=True):
        if isinstance(binary, CandidateError):
            raise binary
        session.incumbent_us = None  # no rung is dropped for being slow
        timed = bench.judged(
            session, Found(rung.what, templates[rung.template], point, 0.0, binary.resources, "")
        )
        factor = found[-1]["median_us"] / timed["median_us"] if found else None
        found.append({**timed, **asdict(rung), "factor": factor})
        print(f"{rung.what:55} {timed['median_us']:9.2f} us  {factor or 0:.2f}x", flush=True)
    return {"baselines_us": dict(session.baselines_us), "rungs": found}


def markdown(found: dict[str, Any]) -> str:
    lines = []
    for ladder in found["ladders"]:
        beside = ", ".join(f"{n} {us:.2f}" for n, us in ladder["baselines_us"].items() if n != "math")
        lines += [f"{ladder['shape']} (baselines, µs: {beside})", ""]
        lines += ["| rung | µs | of the best backend | factor | expected | by |", "|---|---|---|---|---|---|"]
        for r in ladder["rungs"]:
            factor = f"{r['factor']:.2f}x" if r["factor"] else ""
            us = f"{r['median_us']:.2f} [{r['low_us']:.2f}, {r['high_us']:.2f}]"
            lines.append(
                f"| {r['what']} | {us} | {r['ratio']:.2f}x | {factor} | {r['expected']} | {r['source']} |"
            )
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "evo")
    parser.add_argument("--commit", default="")
    parser.add_argument("--show", type=Path)
    parser.add_argument("--out", type=Path, default=Path("ladder.json"))
    args = parser.parse_args()
    if args.show:
        print(markdown(json.loads(args.show.read_text())))
        return
    compiler = find_compiler(None, Cache(args.cache))
    device, task = CudaDevice(0, compiler), load_task("attention")
    smi = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    gpu, driver = (
        subprocess.run(smi, capture_output=True, text=True, check=True).stdout.strip().split(", ")[:2]
    )
    found: dict[str, Any] = {
        "command": "python benchmarks/ladder.py", "commit": args.commit,
        "date": datetime.now(UTC).date().isoformat(), "gpu": gpu,
        "versions": {"driver": driver, "compiler": compiler.version, "torch": torch.__version__,
                     "cudnn": str(torch.backends.cudnn.version())},
        "protocol": "each gated, then timed: warm L2, CUDA graph replays, interleaved with the best backend",
        "ladders": [],
    }  # fmt: skip
    asked = json.loads(Path(__file__).with_name("ladder_rungs.json").read_text())
    for shape, rungs in asked.items():
        bench = Bench(device, compiler, task, Row(shape, False, 1.0), os.cpu_count() or 1)
        found["ladders"].append({"shape": shape, **climbed(bench, [Rung(**rung) for rung in rungs])})
        args.out.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
