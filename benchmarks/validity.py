"""How many random points of each space compile, and how many of them are GREEN on a GPU.

    python benchmarks/validity.py --points 300 --out validity.json      a GPU; --device emulator without one
    python benchmarks/validity.py --template flash_mma --out validity.json      one alone, into what there is
    python benchmarks/validity.py --show benchmarks/results/validity-h200.json

For each template `--points` feasible points, evenly over the problems below, are drawn, compiled on all cores
and gated, as a search does it. A point that ptxas compiles with a warning (serialised wgmmas, an ignored
setmaxnreg) or that spills counts as compiled, and is counted beside.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import Counter
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from evo.cache import Cache
from evo.compile.nvcc import Compiler, find_compiler
from evo.errors import CandidateError
from evo.gate import check
from evo.gpu import Limits, target
from evo.task import load_task
from evo.template import Template, load_template
from evo.trial import LaunchConfig, Point, Problem, body_of

TASK = load_task("attention")
TEMPLATES = ("flash_mma", "flash_wgmma", "flash_wgmma_split")
PROBLEMS = (
    TASK.problem("1,8,512,64"),
    TASK.problem("1,8,512,64", causal=True),
    TASK.problem("1,8,256,64", "bf16", causal=True),
    TASK.problem("1,8,512,128", "bf16"),
)


def open_device(kind: str, compiler: Compiler) -> Any:
    if kind == "emulator":
        from evo.device.emulator import EmulatorDevice

        return EmulatorDevice(target("sm_90a"))
    from evo.device.cuda import CudaDevice

    return CudaDevice(0, compiler)


def loaded(
    compiler: Compiler, device: Any, template: Template, point: Point, problem: Problem
) -> tuple[Any, LaunchConfig]:
    candidate = template.candidate(point, problem)
    binary = compiler.compile(body_of(candidate.source), candidate.entry, device.gpu.arch)
    return device.load(binary, candidate.launch), candidate.launch


def drawn_points(template: Template, limits: Limits, count: int, seed: int) -> list[tuple[Problem, Point]]:
    rng = np.random.default_rng(seed)
    drawn: list[tuple[Problem, Point]] = []
    for i, problem in enumerate(PROBLEMS):
        feasible = template.space.feasible(limits, problem)
        share = count * (i + 1) // len(PROBLEMS) - count * i // len(PROBLEMS)
        drawn += [(problem, feasible.sample(rng)) for _ in range(share)]
    return drawn


def built(compiler: Compiler, template: Template, drawn: list[tuple[Problem, Point]], jobs: int) -> list[Any]:
    """Binaries, or why not; what the gate runs on its own problems is built, too."""
    arch, requests = "sm_90a", []
    for problem, point in drawn:
        for sized in (problem, problem.replace(B=1, H=2, L=1)):
            candidate = template.candidate(point, sized)
            requests.append((body_of(candidate.source), candidate.entry, arch))
    return list(compiler.compile_many(requests, jobs))[::2]


def judged(compiler: Compiler, device: Any, name: str, count: int, seed: int) -> dict[str, Any]:
    template, begin = load_template(TASK, name), time.perf_counter()
    drawn = drawn_points(template, Limits.of(target("sm_90a")), count, seed)
    binaries = built(compiler, template, drawn, os.cpu_count() or 1)
    compile_s = time.perf_counter() - begin
    outcomes: Counter[str] = Counter()
    failed: list[dict[str, Any]] = []
    warned = spilled = 0
    for (problem, point), binary in zip(drawn, binaries, strict=True):
        try:
            if isinstance(binary, CandidateError):
                raise binary
            warned += bool(binary.resources.warnings)
            spilled += binary.resources.spill_bytes > 0
            check(
                partial(loaded, compiler, device, template, point), device, TASK, problem,
                template.tiles(point, problem), seed=seed, deterministic=template.deterministic,
            )  # fmt: skip
            outcomes["GREEN"] += 1
        except CandidateError as error:
            outcomes[f"{error.outcome} {error.reason}"] += 1
            failed.append(
                {
                    "problem": problem.key,
                    "point": dict(point),
                    "why": str(error),
                    "detail": error.detail[:300],
                }
            )
    compiled = sum(not isinstance(b, CandidateError) for b in binaries)
    return {
        "template": name, "points": len(drawn), "compiled": compiled, "green": outcomes["GREEN"],
        "compiled_share": compiled / len(drawn), "green_share": outcomes["GREEN"] / len(drawn),
        "with_warnings": warned, "with_spills": spilled, "outcomes": dict(outcomes), "failed": failed,
        "compile_s": round(compile_s, 1), "seconds": round(time.perf_counter() - begin, 1),
    }  # fmt: skip


def markdown(found: dict[str, Any]) -> str:
    lines = [
        "| template | points | compiled | GREEN | with warnings | spilled |",
        "|---|---|---|---|---|---|",
    ]
    for t in found["templates"]:
        lines.append(
            f"| `{t['template']}` | {t['points']} | {t['compiled_share']:.1%} | {t['green_share']:.1%} "
            f"| {t['with_warnings']} | {t['with_spills']} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--points", type=int, default=300, help="a template")
    parser.add_argument("--template", action="append", choices=TEMPLATES, default=[])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda", choices=("cuda", "emulator"))
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "evo")
    parser.add_argument("--commit", default="")
    parser.add_argument("--build", type=int, default=0, help="only compile into the cache, so many at once")
    parser.add_argument("--show", type=Path)
    parser.add_argument("--out", type=Path, default=Path("validity.json"))
    args = parser.parse_args()
    if args.show:
        print(markdown(json.loads(args.show.read_text())))
        return
    compiler = find_compiler(None, Cache(args.cache))
    if args.build:
        for name in TEMPLATES:
            template = load_template(TASK, name)
            drawn = drawn_points(template, Limits.of(target("sm_90a")), args.points, args.seed)
            built(compiler, template, drawn, args.build)
        return
    device = open_device(args.device, compiler)
    found: dict[str, Any] = {
        "command": f"python benchmarks/validity.py --points {args.points} --seed {args.seed}",
        "date": datetime.now(UTC).date().isoformat(), "gpu": device.name,
        "versions": {"compiler": compiler.version, "torch": torch.__version__},
        "protocol": "random feasible points, evenly over the problems; the whole gate of a search",
        "problems": [problem.key for problem in PROBLEMS],
        "templates": [],
    }  # fmt: skip
    if args.template and args.out.is_file():
        kept = json.loads(args.out.read_text())["templates"]
        found["templates"] = [t for t in kept if t["template"] not in args.template]
    for name in args.template or TEMPLATES:
        one = {**judged(compiler, device, name, args.points, args.seed), "commit": args.commit}
        found["templates"].append(one)
        args.out.write_text(json.dumps(found, indent=1) + "\n")
        print(json.dumps({k: v for k, v in one.items() if k != "failed"}), flush=True)
    print(markdown(found))


if __name__ == "__main__":
    main()
