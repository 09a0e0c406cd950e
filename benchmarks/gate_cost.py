"""What the gate costs an honest and a wrong candidate on a GPU: time of the host and of the GPU. Writes JSON.

    python benchmarks/gate_cost.py --commit COMMIT --out benchmarks/results/gate-cost-h200.json

One evaluator, as a search has one, takes random points of flash_mma at the mission shape and of copies with
one planted fault each, in turns: first as a new process, which sets up its memory for each length; then with
other seeds, which draw other lengths, until it has met them as a study of some hundred trials has; then
settled. The milliseconds are those that a trial stores (`seconds`). Last the profiler counts the time in
which the GPU did anything at all for a candidate's gate. All is compiled before.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

import numpy as np
from evo.rig import choose_device
from throughput import planted

from evo.errors import CandidateError
from evo.evaluate import Evaluator, EvaluatorSpec, trial_seed
from evo.gpu import Limits
from evo.task import load_task
from evo.template import load_template
from evo.trial import Candidate, Outcome, Problem, Trial


def draw(spec: EvaluatorSpec, names: Sequence[str], problem: Problem, count: int) -> list[Candidate]:
    """`count` points at random for each template, the templates in turns."""
    task = load_task(spec.task, spec.folders)
    rng = np.random.default_rng(5)
    columns = []
    for name in names:
        template = load_template(task, name, spec.folders)
        feasible = template.space.feasible(spec.limits, problem)
        columns.append([template.candidate(feasible.sample(rng), problem) for _ in range(count)])
    return [candidate for row in zip(*columns, strict=True) for candidate in row]


def compile_all(spec: EvaluatorSpec, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Those that compile, with all that their gate needs in the cache."""
    precompiler = spec.precompiler(os.cpu_count() or 1)
    assert precompiler is not None
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        failures = list(pool.map(precompiler, candidates))
    precompiler.close()
    return [c for c, failure in zip(candidates, failures, strict=True) if failure is None]


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


def busy_ms(evaluator: Evaluator, candidate: Candidate) -> tuple[str, float, int]:
    """GREEN or RED; milliseconds in which the GPU did something for the gate; launches and copies."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.synchronize()
    outcome = Outcome.GREEN
    with profile(activities=[ProfilerActivity.CUDA]) as watched:
        try:
            evaluator.gate(candidate, trial_seed(evaluator.spec.seed, candidate), thorough=False)
        except CandidateError as error:
            outcome = Outcome(error.outcome)
        torch.cuda.synchronize()
    return outcome, *union_ms(device_spans(watched))


def device_spans(watched: Any) -> Iterator[tuple[int, int]]:
    """(begin, end), ns, of everything that ran on the GPU."""
    for event in watched.profiler.kineto_results.events():
        if "CUDA" in str(event.device_type()) and event.duration_ns() > 0:
            yield event.start_ns(), event.start_ns() + event.duration_ns()


def union_ms(spans: Iterator[tuple[int, int]]) -> tuple[float, int]:
    """Milliseconds that the spans cover together, and how many there are."""
    covered, until, count = 0, 0, 0
    for begin, end in sorted(spans):
        covered += max(0, end - max(begin, until))
        until = max(until, end)
        count += 1
    return covered / 1e6, count


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--points", type=int, default=40, help="of each template")
    parser.add_argument("--passes", type=int, default=6, help="gates of each, with other seeds, between")
    parser.add_argument("--profiled", type=int, default=6, help="candidates of each, for the GPU's own time")
    parser.add_argument("--cache", type=Path, default=Path("/tmp/evo-gate-cost"), help="of binaries")
    parser.add_argument("--commit", required=True)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    problem = load_task("attention").problem("1,8,512,64")
    device, gpu = choose_device("cuda", None, None)
    with tempfile.TemporaryDirectory() as folder:
        names = ["flash_mma", *planted(Path(folder))]
        spec = EvaluatorSpec(
            "attention", device, gpu, Limits.of(gpu), asked.cache, folders=(Path(folder),), problem=problem
        )
        spec.prepare()
        began = time.perf_counter()
        ready = compile_all(spec, draw(spec, names, problem, asked.points))
        compiled_s = time.perf_counter() - began
        evaluator = spec.build()
        new = [evaluator.evaluate(candidate) for candidate in ready]
        settle(evaluator, ready, asked.passes)
        settled = [evaluator.evaluate(candidate) for candidate in ready]
        profiled: dict[str, list[tuple[float, int]]] = {}
        busy_ms(evaluator, ready[0])  # the profiler sets itself up
        for candidate in ready[: asked.profiled * len(names)]:
            outcome, ms, count = busy_ms(evaluator, candidate)
            profiled.setdefault("RED" if outcome == Outcome.RED else "GREEN", []).append((ms, count))
        evaluator.close()
    record = {
        "command": f"python benchmarks/gate_cost.py --points {asked.points} --passes {asked.passes} "
        f"--profiled {asked.profiled}",
        "commit": asked.commit,
        "date": time.strftime("%Y-%m-%d"),
        "device": new[0].device,
        "cores": os.cpu_count(),
        "versions": dict(new[0].versions) | {"compiler": new[0].compiler},
        "protocol": "random points (seed 5) of flash_mma and of copies with one fault each, in turns, "
        "through one evaluator; seconds['gate'] of the trials; `new`: in a new process, `settled`: once more "
        f"after {asked.passes} gates of each with other seeds; "
        "gpu_time: the union of all kernels and copies of a settled evaluator's gate, by the profiler",
        "compiled_s": round(compiled_s, 1),
        "new": costs(new),
        "settled": costs(settled),
        "ends": ends(new),
        "gpu_time": {
            outcome: spread([ms for ms, _ in seen])
            | {"launches_and_copies": statistics.median(count for _, count in seen)}
            for outcome, seen in profiled.items()
        },
    }
    asked.out.write_text(json.dumps(record, indent=1) + "\n")
    for part in ("new", "settled", "gpu_time", "ends"):
        print(part, json.dumps(record[part]))


def ends(trials: Sequence[Trial]) -> dict[str, int]:
    """How the candidates ended, by template, reason and how many cases had been judged."""
    said = (
        f"{t.candidate.template}: {t.reason or t.outcome}"
        + (f" at judgement {len(t.errors)}" if t.reason else "")
        for t in trials
    )
    return dict(Counter(said).most_common())


if __name__ == "__main__":
    main()
