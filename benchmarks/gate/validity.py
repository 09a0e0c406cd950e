"""How many random points of each space compile, and how many of them are GREEN.

For each template `--points` feasible points, evenly over the problems below, are drawn, compiled on all cores
and evaluated as a search does it. A point that ptxas compiles with a warning (serialised wgmmas, an ignored
setmaxnreg) or that spills counts as compiled, and is counted beside.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.searches import add_search_options, evaluated, setup_of
from evo.study import Setup
from evo.template import Template
from evo.trial import Candidate, Outcome, Trial, Value

PROTOCOL = "random feasible points, evenly over the problems; the whole gate of a search"
GPU = True
PROBLEMS: tuple[Mapping[str, Value], ...] = (
    {},
    {"causal": True},
    {"L": 256, "causal": True, "dtype": "bf16"},
    {"D": 128, "dtype": "bf16"},
)
"""What each problem changes of the one that `--shape` names."""


def options(parser: argparse.ArgumentParser) -> None:
    add_search_options(parser)
    parser.set_defaults(device="cuda")
    parser.add_argument("--points", type=int, default=300, help="a template")
    parser.add_argument("--seed", type=int, default=0)


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    asked.template = asked.template or ["flash_mma", "flash_wgmma", "flash_wgmma_split"]
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as cache:
        setup = setup_of(asked, Path(cache), "validity", 0.0, asked.seed)
        problems = [setup.study.problem.replace(**changes) for changes in PROBLEMS]
        for template in setup.templates:
            found.append(counted(setup, template, asked.points, asked.seed))
            yield {"problems": [problem.key for problem in problems], "templates": found}


def counted(setup: Setup, template: Template, count: int, seed: int) -> dict[str, Any]:
    """What became of `count` points of a template, a problem after the other."""
    begin = time.perf_counter()
    rng = np.random.default_rng(seed)
    trials: list[Trial] = []
    for i, changes in enumerate(PROBLEMS):
        problem = setup.study.problem.replace(**changes)
        feasible = template.space.feasible(setup.limits, problem)
        share = count * (i + 1) // len(PROBLEMS) - count * i // len(PROBLEMS)
        drawn = [template.candidate(feasible.sample(rng), problem) for _ in range(share)]
        trials += evaluated(replace(setup, study=replace(setup.study, problem=problem)), drawn)
    compiled = [t for t in trials if t.outcome is not Outcome.UNCOMPILABLE]
    green = [t for t in trials if t.outcome.correct]
    return {
        "template": template.name,
        "points": len(trials),
        "compiled": len(compiled),
        "green": len(green),
        "compiled_share": len(compiled) / len(trials),
        "green_share": len(green) / len(trials),
        "with_warnings": sum(bool(t.resources and t.resources.warnings) for t in trials),
        "with_spills": sum(bool(t.resources and t.resources.spill_bytes) for t in trials),
        "outcomes": dict(Counter(f"{t.outcome} {t.reason}".strip() for t in trials)),
        "failed": [failure(t) for t in trials if not t.outcome.correct],
        "seconds": round(time.perf_counter() - begin, 1),
    }


def failure(trial: Trial) -> dict[str, Any]:
    """A trial that was not correct."""
    candidate: Candidate = trial.candidate
    return {
        "problem": candidate.problem.key,
        "point": dict(candidate.point),
        "why": f"{trial.outcome} {trial.reason}",
        "detail": trial.detail[:300],
    }
