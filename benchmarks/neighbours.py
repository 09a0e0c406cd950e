"""Does the time of a kernel change when other candidates are gated on the same GPU meanwhile? Writes JSON.

    python benchmarks/neighbours.py --commit COMMIT --out neighbours.json      # on a GPU

One evaluator takes the same candidate through gate and timing again and again. Beside it others take random
points through theirs, or rest; or all rest, this one too for a while before each timing. Phases in turns,
forwards and backwards. It also tells what an evaluation leaves in memory.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from evo.evaluate import EvaluatorSpec, Precompiler
from evo.rig import choose_device, limits_of
from evo.task import load_task
from evo.template import load_template
from evo.timing import bootstrap_ratio
from evo.trial import Candidate
from evo.workers import anonymous_bytes

POINTS = 60
"""Random points that the neighbours turn over."""
REST_S = 0.03
"""As long as neighbours let one wait for its turn."""
WAYS = ("alone", "beside", "rested")


def subject(options: argparse.Namespace) -> tuple[EvaluatorSpec, Candidate, list[Candidate]]:
    """The evaluators, the candidate that is timed, and those of the neighbours."""
    task = load_task("attention")
    problem = task.problem(options.shape)
    device, gpu = choose_device("cuda", None, None)
    limits = limits_of(gpu, "", None)
    spec = EvaluatorSpec("attention", device, gpu, limits, options.cache, problem=problem)
    template = load_template(task, options.template)
    feasible = template.space.feasible(limits, problem)
    rng = np.random.default_rng(1)
    others = [template.candidate(feasible.sample(rng), problem) for _ in range(POINTS)]
    return spec, template.candidate(template.space.default, problem), others


def neighbour(options: argparse.Namespace) -> None:
    """Evaluates while there is a file `go`, until there is a file `end`."""
    spec, _, others = subject(options)
    evaluator, folder, count = spec.build(), options.folder, 0
    for candidate in others[options.neighbour :: options.neighbours][:8]:
        evaluator.evaluate(candidate)
    (folder / f"ready{options.neighbour}").touch()
    while not (folder / "end").exists() and os.getppid() == options.parent:
        if (folder / "go").exists():
            evaluator.evaluate(others[(options.neighbour + count * options.neighbours) % POINTS])
            count += 1
        else:
            time.sleep(0.005)
    (folder / f"count{options.neighbour}").write_text(str(count))


def measure(options: argparse.Namespace, folder: Path) -> dict[str, object]:
    """Median times by phase, and what became of the neighbours."""
    spec, candidate, others = subject(options)
    compile_ahead = Precompiler(spec)
    with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
        list(threads.map(compile_ahead, [candidate, *others]))
    compile_ahead.close()
    command = [sys.executable, __file__, *sys.argv[1:], "--folder", str(folder), "--parent", str(os.getpid())]
    children = [
        subprocess.Popen([*command, "--neighbour", str(i)], env={**os.environ, "OMP_NUM_THREADS": "1"})
        for i in range(options.neighbours)
    ]
    evaluator = spec.build()
    for _ in range(12):
        evaluator.evaluate(candidate)
    while len(list(folder.glob("ready*"))) < options.neighbours:
        if any(child.poll() is not None for child in children):
            raise SystemExit("a neighbour has died")
        time.sleep(0.02)
    before, done, versions = anonymous_bytes(), 0, evaluator.versions
    medians: dict[str, list[float]] = {how: [] for how in WAYS}
    speedups: dict[str, list[float]] = {how: [] for how in WAYS}
    clocks: dict[str, list[float]] = {how: [] for how in WAYS}
    seconds: dict[str, dict[str, list[float]]] = {how: {} for how in WAYS}
    for phase in range(len(WAYS) * options.rounds):
        how = (*WAYS, *reversed(WAYS))[phase % (2 * len(WAYS))]
        (folder / "go").touch() if how == "beside" else (folder / "go").unlink(missing_ok=True)
        time.sleep(0.2)  # what neighbours have begun they finish
        end, found, ratios = time.monotonic() + options.phase, list[float](), list[float]()

        def rest(stage: str, how: str = how) -> None:
            if stage == "timing" and how == "rested":
                time.sleep(REST_S)

        while time.monotonic() < end:
            trial = evaluator.evaluate(candidate, rest)
            if trial.timing is None:
                raise SystemExit(f"{trial.outcome}: {trial.reason} {trial.detail} {trial.where}")
            found.append(trial.timing.median_us)
            ratios.append(trial.timing.speedup or 0.0)
            clocks[how].append(trial.timing.clocks.get("sm_mhz", 0.0))
            done += 1
            for stage, spent in trial.seconds.items():
                seconds[how].setdefault(stage, []).append(spent * 1e3)
        medians[how].append(statistics.median(found))
        speedups[how].append(statistics.median(ratios))
    after = anonymous_bytes()
    (folder / "end").touch()
    for child in children:
        child.wait(30)

    def against_alone(by_phase: dict[str, list[float]], how: str) -> list[float]:
        ratio, interval = bootstrap_ratio(np.array(by_phase[how]), np.array(by_phase["alone"]), 1)
        return [round(number, 5) for number in (ratio, interval.low, interval.high)]

    return {
        "gpu": evaluator.device.name,
        "versions": dict(versions),
        "median_us": {how: round(statistics.median(found), 4) for how, found in medians.items()},
        "median_us_by_phase": {how: [round(us, 4) for us in found] for how, found in medians.items()},
        "speedup_by_phase": {how: [round(x, 4) for x in found] for how, found in speedups.items()},
        "sm_mhz": {how: statistics.median(found) for how, found in clocks.items()},
        "time_over_alone": {how: against_alone(medians, how) for how in WAYS[1:]},
        "speedup_over_alone": {how: against_alone(speedups, how) for how in WAYS[1:]},
        "evaluations": done,
        "evaluations_of_neighbours": [int((folder / f"count{i}").read_text()) for i in range(len(children))],
        "stage_median_ms": {
            how: {stage: round(statistics.median(ms), 2) for stage, ms in stages.items()}
            for how, stages in seconds.items()
        },
        "memory_mb_a_hundred_evaluations": round((after - before) / 1e4 / done, 2),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--shape", default="1,8,512,64")
    parser.add_argument("--template", default="flash_mma")
    parser.add_argument("--neighbours", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=8, help="phases of each kind")
    parser.add_argument("--phase", type=float, default=0.8, help="seconds of a phase")
    parser.add_argument("--cache", type=Path, default=Path("/tmp/evo-neighbours-cache"), help="of binaries")
    parser.add_argument("--commit", required=True, help="the commit that is measured")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--neighbour", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--parent", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.neighbour is not None:
        neighbour(options)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        found = measure(options, Path(folder))
    record = {
        "date": time.strftime("%Y-%m-%d"),
        "commit": options.commit,
        "command": "python benchmarks/neighbours.py " + " ".join(sys.argv[1:]),
        "protocol": "the template's default through gate and timing again and again in one process; in a "
        "third of the phases so many neighbours gate and time random points meanwhile, in a third it rests "
        "30 ms before each timing; median of each phase's medians, and a bootstrap (95 %) of ratios over "
        "phases",
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "neighbours": options.neighbours,
        **found,
    }
    options.out.write_text(json.dumps(record, indent=1) + "\n")
    print({k: record[k] for k in ("median_us", "time_over_alone", "speedup_over_alone", "stage_median_ms")})
    print(record["memory_mb_a_hundred_evaluations"], "MB a hundred evaluations")
    return 0


if __name__ == "__main__":
    sys.exit(main())
