"""Records a space whole, in an open format: every feasible point of a template compiled, gated and timed.

    python benchmarks/run.py search/space --template flash_mma --fix swizzle=xor --database space.db \\
        --space benchmarks/spaces/NAME.t4.json.xz

`--fix NAME=VALUE[,VALUE]` keeps only these values of a parameter. Recording goes on where it stopped. The
space is a T4 file (the format of https://github.com/AutoTuningAssociation/benchmark_hub), compressed; times
are in milliseconds, `compilation`, `validation` (the gate) and `framework` (timing) what each stage took.
"""

from __future__ import annotations

import argparse
import json
import lzma
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import record
from benchmarks.searches import add_search_options, searched, setup_of, spaces_of
from evo.loop import Progress, SearchSpace
from evo.space import FeasibleSet
from evo.store import Store
from evo.trial import Outcome, Trial
from evo.version import __version__

PROTOCOL = "every point gated; median of launches in a CUDA graph, L2 warm"
GPU = True
NAME = "space"
"""The study's."""

INVALIDITY = {
    Outcome.UNCOMPILABLE: "compile",
    Outcome.UNLAUNCHABLE: "runtime",
    Outcome.RED: "correctness",
    Outcome.HUNG: "timeout",
    Outcome.CRASHED: "runtime",
}
"""T4's word for what went wrong."""


def narrowed(feasible: FeasibleSet, fixed: Mapping[str, Sequence[str]]) -> FeasibleSet:
    """The feasible points whose parameters have one of the values that `fixed` names."""
    keep = np.ones(len(feasible.indices), bool)
    for i, parameter in enumerate(feasible.space.parameters):
        if parameter.name in fixed:
            wanted = [parameter.values.index(parameter.parse(text)) for text in fixed[parameter.name]]
            keep &= np.isin(feasible.indices[:, i], wanted)
    return replace(feasible, indices=feasible.indices[keep])


def options(parser: argparse.ArgumentParser) -> None:
    add_search_options(parser)
    parser.set_defaults(strategy="random")
    parser.add_argument("--fix", action="append", default=[], metavar="NAME=VALUE[,VALUE]")
    parser.add_argument("--database", default="space.db", help="what has been recorded; it goes on there")
    parser.add_argument("--budget", type=float, default=480.0, help="seconds")
    parser.add_argument("--cache", type=Path, default=Path("build/space-cache"))
    parser.add_argument("--space", type=Path, required=True, metavar="FILE.t4.json.xz", help="to be written")


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    if len(asked.template) != 1:
        raise SystemExit("error: a space is one template's; name it with --template")
    setup = setup_of(asked, asked.cache, NAME, asked.budget)
    fixed = {name: values.split(",") for name, values in (f.split("=") for f in asked.fix)}
    (whole,) = spaces_of(setup).values()
    ground = SearchSpace(whole.template, narrowed(whole.feasible, fixed))
    with Store(asked.database) as store:
        stopped = searched(setup, store, show, sys.maxsize, {whole.template.name: ground})
        entries = recorded(store, ground)
    about = {
        "task": setup.study.problem.key,
        "template": ground.template.name,
        "fixed": fixed,
        "feasible": len(ground.feasible.indices),
        "recorded": len(entries),
    }
    commit, clean = record.commit_and_clean(record.ROOT)
    content = {
        "schema_version": "1.0.0",
        "metadata": {
            "timeunit": "milliseconds",
            "device": setup.gpu.name,
            **about,
            "versions": record.versions(),
            "evo": __version__,
            "commit": commit,
            "clean": clean,
            "protocol": PROTOCOL,
            "date": entries[0]["timestamp"][:10] if entries else "",
        },
        "results": entries,
    }
    text = json.dumps(content, separators=(",", ":")).encode()
    asked.space.write_bytes(lzma.compress(text, preset=9))
    yield {**about, "stopped": stopped, "file": str(asked.space), "bytes": asked.space.stat().st_size}


def recorded(store: Store, ground: SearchSpace) -> list[dict[str, Any]]:
    """The trials of the points, as T4 has them."""
    space, study = ground.feasible.space, store.study(NAME)
    inside = {tuple(row) for row in ground.feasible.indices.tolist()}
    rows = [row for row in store.rows(study) if tuple(space.indices_of(row.point).tolist()) in inside]
    stored = [store.trial(f"{study.name}/{row.number}") for row in rows]
    return [entry(one) | {"timestamp": one.created} for one in stored]


def show(progress: Progress) -> None:
    if progress.latest and progress.latest.number % 200 == 0:
        print(progress.trials, f"{progress.per_minute:.0f} a minute", file=sys.stderr)


def entry(trial: Trial) -> dict[str, Any]:
    """A trial as T4 has it."""
    score_us, stages = trial.score_us, trial.seconds
    good = score_us is not None
    value = INVALIDITY[trial.outcome] if score_us is None else score_us / 1e3
    timed = max(trial.timing.times.values(), key=lambda one: one.median_us) if trial.timing else None
    return {
        "configuration": dict(trial.candidate.point),
        "times": {
            "compilation": round(1e3 * (stages.get("ahead", 0.0) + stages.get("compile", 0.0)), 2),
            "validation": round(1e3 * stages.get("gate", 0.0), 2),
            "framework": round(1e3 * stages.get("timing", 0.0), 2),
            "search_algorithm": 0,
            "runtimes": [float(f"{us / 1e3:.5g}") for us in (timed.samples_us if timed else ())],
        },
        "invalidity": "correct" if good else INVALIDITY[trial.outcome],
        "correctness": int(good),
        "measurements": [{"name": "time", "value": value, "unit": "ms" if good else ""}],
        "objectives": ["time"],
    }
