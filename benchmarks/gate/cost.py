"""What the gate costs a correct and a wrong candidate on a GPU: time of the host and of the GPU.

One evaluator, as a search has one, takes random points of flash_mma at the mission shape and of copies with
one planted fault each, in turns: first as a new process, which sets up its memory for each length; then with
other seeds, which draw other lengths, until it has met them as a study of some hundred trials has; then
settled. The milliseconds are those that a trial stores (`seconds`). Last the profiler counts the time in
which the GPU did anything at all for a candidate's gate. All is compiled before.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.faults import planted
from benchmarks.gpu_time import busy_ms
from benchmarks.searches import add_search_options, setup_of
from evo.errors import CandidateError
from evo.evaluate import Evaluator, EvaluatorSpec, trial_seed
from evo.study import Setup
from evo.trial import Candidate, Outcome, Trial

PROTOCOL = """random points (seed 5) of flash_mma and of copies with one fault each, in turns, through one
evaluator; seconds['gate'] of the trials; new: in a new process, settled: once more after some gates of each
with other seeds; gpu_time: the union of all kernels and copies of a settled evaluator's gate, by the
profiler"""
GPU = True


def options(parser: argparse.ArgumentParser) -> None:
    add_search_options(parser)
    parser.set_defaults(device="cuda")
    parser.add_argument("--points", type=int, default=40, help="of each template")
    parser.add_argument("--passes", type=int, default=6, help="gates of each, with other seeds, between")
    parser.add_argument("--profiled", type=int, default=6, help="candidates of each, for the GPU's own time")


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        asked.template = ["flash_mma", *planted(folder / "templates")]
        setup = setup_of(asked, folder / "cache", "cost", 0.0, folder=folder / "templates")
        spec = EvaluatorSpec.of(setup)
        spec.prepare()
        began = time.perf_counter()
        ready = compile_all(spec, draw(setup, asked.points), setup.study.workers)
        compiled_s = time.perf_counter() - began
        evaluator = spec.build()
        new = [evaluator.evaluate(candidate) for candidate in ready]
        settle(evaluator, ready, asked.passes)
        settled = [evaluator.evaluate(candidate) for candidate in ready]
        gpu_time = profiled(evaluator, ready[: asked.profiled * len(asked.template)])
        evaluator.close()
    yield {
        "compiled_s": round(compiled_s, 1),
        "new": costs(new),
        "settled": costs(settled),
        "ends": ends(new),
        "gpu_time": gpu_time,
    }


def draw(setup: Setup, count: int) -> list[Candidate]:
    """`count` points at random for each template, the templates in turns."""
    rng, problem = np.random.default_rng(5), setup.study.problem
    columns = []
    for template in setup.templates:
        feasible = template.space.feasible(setup.limits, problem)
        columns.append([template.candidate(feasible.sample(rng), problem) for _ in range(count)])
    return [candidate for row in zip(*columns, strict=True) for candidate in row]


def compile_all(spec: EvaluatorSpec, candidates: Sequence[Candidate], workers: int) -> list[Candidate]:
    """Those that compile, with all that their gate needs in the cache."""
    precompiler = spec.precompiler(workers)
    if precompiler is None:  # on the emulator
        return list(candidates)
    with ThreadPoolExecutor(workers) as pool:
        failures = list(pool.map(precompiler, candidates))
    precompiler.close()
    return [c for c, failure in zip(candidates, failures, strict=True) if failure is None]


def profiled(evaluator: Evaluator, candidates: Sequence[Candidate]) -> dict[str, Any]:
    """What the GPU itself does for the gate of each; by outcome. Empty on the emulator."""
    if not evaluator.spec.on_gpu:
        return {}
    found: dict[str, list[tuple[float, int]]] = {}
    gpu_work(evaluator, candidates[0])  # the profiler sets itself up
    for candidate in candidates:
        outcome, ms, count = gpu_work(evaluator, candidate)
        found.setdefault("RED" if outcome == Outcome.RED else "GREEN", []).append((ms, count))
    return {
        outcome: spread([ms for ms, _ in seen])
        | {"launches_and_copies": statistics.median(count for _, count in seen)}
        for outcome, seen in found.items()
    }


def gpu_work(evaluator: Evaluator, candidate: Candidate) -> tuple[Outcome, float, int]:
    """GREEN or RED; milliseconds in which the GPU did something for the gate; launches and copies."""
    outcome = Outcome.GREEN

    def gate() -> None:
        nonlocal outcome
        try:
            evaluator.gate(candidate, trial_seed(evaluator.spec.seed, candidate), thorough=False)
        except CandidateError as error:
            outcome = Outcome(error.outcome)

    ms, count = busy_ms(gate)
    return outcome, ms, count


def costs(trials: Sequence[Trial]) -> dict[str, Any]:
    """Milliseconds of the gate by outcome and template."""
    found: dict[str, list[float]] = {}
    for trial in trials:
        ms = 1e3 * trial.seconds["gate"]
        red = trial.outcome == Outcome.RED
        for name in ("RED" if red else "GREEN", f"{trial.candidate.template} {'RED' if red else 'GREEN'}"):
            found.setdefault(name, []).append(ms)
    return {name: spread(ms) for name, ms in sorted(found.items())}


def spread(ms: Sequence[float]) -> dict[str, float]:
    return {
        "candidates": len(ms),
        "median_ms": round(statistics.median(ms), 2),
        "p90_ms": round(sorted(ms)[len(ms) * 9 // 10], 2),
    }


def settle(evaluator: Evaluator, candidates: Sequence[Candidate], passes: int) -> None:
    """All candidates through the gate, each time with another seed."""
    for number in range(1, passes + 1):
        for candidate in candidates:
            with suppress(CandidateError):
                evaluator.gate(candidate, trial_seed(number, candidate), thorough=False)


def ends(trials: Sequence[Trial]) -> dict[str, int]:
    """How the candidates ended, by template, reason and how many cases had been judged."""
    said = (
        f"{t.candidate.template}: {t.reason or t.outcome}"
        + (f" at judgement {len(t.errors)}" if t.reason else "")
        for t in trials
    )
    return dict(Counter(said).most_common())
