"""Records a space whole: every feasible point of a template compiled, gated and timed, in an open format.

    python benchmarks/record_space.py record --template flash_mma --fix swizzle=xor … --database space.db
    python benchmarks/record_space.py export space.db --out benchmarks/spaces/NAME.t4.json.xz

`--fix NAME=VALUE[,VALUE]` keeps only these values of a parameter. Recording goes on where it stopped. The
export is a T4 file (the format of https://github.com/AutoTuningAssociation/benchmark_hub), compressed; times
are in milliseconds, `compilation`, `validation` (the gate) and `framework` (timing) what each stage took.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as `evo` does, before NumPy is there

import argparse
import json
import lzma
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from evo.rig import choose_device, evaluator_of, folders_of, gpu_of, limits_of, task_of, templates_of

from evo import __version__
from evo.cache import Cache
from evo.evaluate.pool import Pool
from evo.search import Progress, SearchSpace, search, search_spaces
from evo.space import FeasibleSet
from evo.store import Store, Study
from evo.task import load_task
from evo.trial import Outcome, Trial

INVALIDITY = {
    Outcome.UNCOMPILABLE: "compile", Outcome.UNLAUNCHABLE: "runtime", Outcome.RED: "correctness",
    Outcome.HUNG: "timeout", Outcome.CRASHED: "runtime",
}  # fmt: skip
"""T4's word for what went wrong."""


def narrowed(feasible: FeasibleSet, fixed: Mapping[str, Sequence[str]]) -> FeasibleSet:
    """The feasible points whose parameters have one of the values that `fixed` names."""
    keep = np.ones(len(feasible.indices), bool)
    for i, parameter in enumerate(feasible.space.parameters):
        if parameter.name in fixed:
            wanted = [parameter.values.index(parameter.parse(text)) for text in fixed[parameter.name]]
            keep &= np.isin(feasible.indices[:, i], wanted)
    return replace(feasible, indices=feasible.indices[keep])


def grounds_of(study: Study) -> dict[str, SearchSpace]:
    limits = limits_of(gpu_of(study), study.target, study.smem_limit)
    templates = templates_of(task_of(study), study.templates, folders_of(study))
    fixed = json.loads(str(study.settings["fixed"]))
    whole = search_spaces(templates, limits, study.problem)
    return {n: SearchSpace(g.template, narrowed(g.feasible, fixed)) for n, g in whole.items()}


def record(args: argparse.Namespace) -> None:
    device, gpu = choose_device("auto", None, None)
    fixed = {name: values.split(",") for name, values in (f.split("=") for f in args.fix)}
    wanted = Study(
        name="space", problem=load_task("attention").example, device=device, gpu=gpu.name,
        templates=(args.template,), budget_s=args.budget, strategy="random",
        workers=args.workers or os.cpu_count() or 1,
        settings={"templates": "", "fixed": json.dumps(fixed), "command": " ".join(["python", *sys.argv])},
        versions={"evo": __version__},
    )  # fmt: skip
    cache = Cache(args.cache)
    with Store(args.database) as store:
        known = [s for s in store.studies() if s.name == wanted.name]
        study = known[0] if known else store.create(wanted)
        grounds = grounds_of(study)
        print({name: len(g.feasible.indices) for name, g in grounds.items()}, file=sys.stderr)
        result = search(
            study, store, grounds, Pool(evaluator_of(study, cache.root, None), study.workers), show
        )
        print(result.stopped, dict(result.progress.outcomes), f"{result.progress.spent_s:.1f} s")


def show(progress: Progress) -> None:
    if progress.latest and progress.latest.number % 200 == 0:
        print(progress.trials, f"{progress.per_minute:.0f} a minute", file=sys.stderr)


def export(args: argparse.Namespace) -> None:
    with Store(args.database, create=False) as store:
        study = store.study("space")
        ground = grounds_of(study)[study.templates[0]]
        inside = {tuple(row) for row in ground.feasible.indices.tolist()}
        space = ground.feasible.space
        numbers = [
            row.number for row in store.rows(study) if tuple(space.indices_of(row.point).tolist()) in inside
        ]
        stored = [store.trial(f"{study.name}/{number}") for number in numbers]
        results = [entry(one) | {"timestamp": one.created} for one in stored]
        trial = stored[0]
        content = {
            "schema_version": "1.0.0",
            "metadata": {
                "timeunit": "milliseconds", "device": study.gpu, "task": study.problem.key,
                "template": study.templates[0], "fixed": json.loads(str(study.settings["fixed"])),
                "feasible": len(inside), "recorded": len(results), "compiler": trial.compiler,
                "versions": dict(trial.versions), "evo": __version__, "commit": args.commit,
                "protocol": "every point gated; median of launches in a CUDA graph, L2 warm",
                "date": stored[0].created[:10], "command": study.settings["command"],
            },
            "results": results,
        }  # fmt: skip
    text = json.dumps(content, separators=(",", ":")).encode()
    args.out.write_bytes(lzma.compress(text, preset=9))
    print(f"{len(results)} of {len(inside)} points, {args.out.stat().st_size} bytes")


def entry(trial: Trial) -> dict[str, Any]:
    """A trial as T4 has it."""
    score_us, stages = trial.score_us, trial.seconds
    good = score_us is not None
    value = INVALIDITY[trial.outcome] if score_us is None else score_us / 1e3
    samples = trial.timing.samples_us if trial.timing else ()
    return {
        "configuration": dict(trial.candidate.point),
        "times": {
            "compilation": round(1e3 * (stages.get("ahead", 0.0) + stages.get("compile", 0.0)), 2),
            "validation": round(1e3 * stages.get("gate", 0.0), 2),
            "framework": round(1e3 * stages.get("timing", 0.0), 2),
            "search_algorithm": 0,
            "runtimes": [float(f"{us / 1e3:.5g}") for us in samples],
        },
        "invalidity": "correct" if good else INVALIDITY[trial.outcome],
        "correctness": int(good),
        "measurements": [{"name": "time", "value": value, "unit": "ms" if good else ""}],
        "objectives": ["time"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("record")
    one.add_argument("--template", required=True)
    one.add_argument("--fix", action="append", default=[], metavar="NAME=VALUE[,VALUE]")
    one.add_argument("--database", default="space.db")
    one.add_argument("--budget", type=float, default=480.0, help="seconds")
    one.add_argument("--workers", type=int)
    one.add_argument("--cache", type=Path, default=Path("build/space-cache"))
    one.set_defaults(call=record)
    two = commands.add_parser("export")
    two.add_argument("database")
    two.add_argument("--out", type=Path, required=True)
    two.add_argument("--commit", default="")
    two.set_defaults(call=export)
    args = parser.parse_args()
    args.call(args)


if __name__ == "__main__":
    main()
