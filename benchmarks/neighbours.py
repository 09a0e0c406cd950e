"""What a kernel's time depends on besides the kernel: other processes on the GPU, a rest before, and whether
the search measures it (FAST) or a contest (a round of CONFIRMED). Writes JSON.

    python benchmarks/neighbours.py --commit COMMIT --out neighbours.json      # on a GPU

One process takes the same candidates through gate and timing again and again, and now and then through a
round beside all baselines. Two others are not there (`lone`), rest (`alone`), gate and time random points in
between (`beside`), or rest while this one, too, waits before each timing (`rested`); phases in turns,
forwards and backwards; at last, with --patient, a round has the baselines that are compiled, too. After each
timing the GPU itself is looked at (benchmarks/probes.py), and graphs of few and of many launches, with and
without an untimed replay in front, tell what a launch costs and what a replay does. It also tells what an
evaluation leaves in memory.
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
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from probes import Probe

from evo.confirm.rounds import Contest
from evo.device.cuda import CudaDevice
from evo.device.gpu_lock import turns_of
from evo.evaluate import Evaluator, EvaluatorSpec, Precompiler, trial_seed
from evo.evaluate.pool import anonymous_bytes
from evo.gate import Green
from evo.rig import choose_device, limits_of
from evo.task import load_task
from evo.template import load_template
from evo.timing import TimingSession, TimingSettings, bootstrap_ratio
from evo.timing.inputs import InputSets
from evo.trial import Candidate

POINTS = 24
"""Random points that the neighbours turn over."""
REST_S = 0.03
"""As long as neighbours let one wait for its turn."""
WAYS = ("alone", "beside", "rested")
FEW, MANY = 40, 160
"""Launches in two graphs: the difference is what launches cost, the rest is the replay's own."""


def subject(options: argparse.Namespace) -> tuple[EvaluatorSpec, dict[str, Candidate], list[Candidate]]:
    """The evaluators, the candidates that are timed, and those of the neighbours."""
    task = load_task("attention")
    problem = task.problem(options.shape)
    device, gpu = choose_device("cuda", None, None)
    limits = limits_of(gpu, "", None)
    spec = EvaluatorSpec("attention", device, gpu, limits, options.cache)
    timed, others = {}, list[Candidate]()
    rng = np.random.default_rng(1)
    for name in options.template:
        template = load_template(task, name)
        feasible = template.space.feasible(limits, problem)
        timed[f"s/{name}"] = template.candidate(template.space.default, problem)
        others = others or [template.candidate(feasible.sample(rng), problem) for _ in range(POINTS)]
    return spec, timed, others


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


class Subject:
    """The process that is watched: what it times, and what came of it by way and measurement."""

    def __init__(self, spec: EvaluatorSpec, timed: dict[str, Candidate]) -> None:
        self.evaluator: Evaluator = spec.build()
        device = self.evaluator.device
        assert isinstance(device, CudaDevice)
        self.device, self.timed = device, timed
        problem = next(iter(timed.values())).problem
        self.turns = turns_of(device.uuid)
        self.probe = Probe(device, self.evaluator.compiler)
        settings = TimingSettings(refresh_s=0.0)  # baselines are timed again with each candidate
        self.session = TimingSession(device, self.evaluator.task, problem, seed=1, settings=settings)
        self.contest = Contest(device, self.evaluator.task, problem, patient=False)
        self.sets = InputSets(device, self.evaluator.task, problem, TimingSettings(), 5)
        self.found: dict[str, dict[str, list[float]]] = {}
        self.done = 0

    def phase(self, way: str, seconds: float) -> None:
        """Candidates in turn, a round at the end; the phase's medians are kept under `way`."""
        end, taken = time.monotonic() + seconds, dict[str, list[float]]()
        greens: dict[str, Green] = {}
        while time.monotonic() < end or len(greens) < len(self.timed):
            for name, candidate in self.timed.items():
                green = self.evaluator.gate(candidate, trial_seed(0, candidate), False)
                greens[name] = green
                if way == "rested":
                    time.sleep(REST_S)
                with self.turns.alone():
                    self.session.incumbent_us = None
                    timing = self.session.measure(green)
                    seen = self.probe.look()
                    seen |= self._dissect(green)
                    seen |= _trend(timing.samples_us)
                self.done += 1
                took = {f"fast {n}": us for n, us in timing.baselines_us.items()}
                took[f"fast {name}"] = timing.median_us
                took |= {f"{what} {name}": value for what, value in seen.items()}
                took[f"nvml_mhz {name}"] = timing.clocks.get("sm_mhz", 0.0)
                took[f"power_w {name}"] = timing.clocks.get("power_w", 0.0)
                for what, value in took.items():
                    taken.setdefault(what, []).append(value)
        round_ = self.contest.round("warm", self.done, greens)
        with self.turns.alone():
            after = self.probe.look()
        for name, samples in round_.samples_us.items():
            taken[f"round {name}"] = [statistics.median(samples)]
        taken |= {f"{what} round": [value] for what, value in after.items()}
        taken["power_w round"] = [round_.clocks.get("power_w", 0.0)]
        for what, values in taken.items():
            self.found.setdefault(way, {}).setdefault(what, []).append(statistics.median(values))
        print(way, {what: round(values[-1], 4) for what, values in self.found[way].items()}, flush=True)

    def _dissect(self, green: Green) -> dict[str, float]:
        """µs of a graph of FEW and of MANY launches, with a lead (an untimed replay in front) and without."""
        import torch

        watch, seen = self.session.watch, dict[str, float]()
        with torch.no_grad():
            calls = self.sets.of_kernel(green.kernel, green.launch)  # type: ignore[arg-type]
            for launches in (FEW, MANY):
                replay = watch.capture(calls, launches)
                watch.sample([replay], 1)
                for lead in (False, True):
                    (samples,) = watch.sample([replay], 8, lead=lead)
                    label = f"{launches}{'_lead' if lead else ''}"
                    seen[f"us_{label}"] = float(np.median(samples)) * launches
        return seen


def _trend(samples: Sequence[float]) -> dict[str, float]:
    """The first and the last samples of a timing."""
    return {"first_us": statistics.median(samples[:4]), "last_us": statistics.median(samples[-4:])}


def measure(options: argparse.Namespace, folder: Path) -> dict[str, object]:
    """Medians by way, and what became of the neighbours."""
    spec, timed, others = subject(options)
    compile_ahead = Precompiler(spec)
    with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
        list(threads.map(compile_ahead, [*timed.values(), *others]))
    compile_ahead.close()
    watched = Subject(spec, timed)
    watched.phase("warm-up", 2 * options.phase)
    for _ in range(options.rounds // 2):
        watched.phase("lone", options.phase)
    command = [sys.executable, __file__, *sys.argv[1:], "--folder", str(folder), "--parent", str(os.getpid())]
    children = [
        subprocess.Popen([*command, "--neighbour", str(i)], env={**os.environ, "OMP_NUM_THREADS": "1"})
        for i in range(options.neighbours)
    ]
    while len(list(folder.glob("ready*"))) < options.neighbours:
        if any(child.poll() is not None for child in children):
            raise SystemExit("a neighbour has died")
        time.sleep(0.02)
    before, done = anonymous_bytes(), watched.done
    for phase in range(len(WAYS) * options.rounds):
        way = (*WAYS, *reversed(WAYS))[phase % (2 * len(WAYS))]
        (folder / "go").touch() if way == "beside" else (folder / "go").unlink(missing_ok=True)
        time.sleep(0.2)  # what neighbours have begun they finish
        watched.phase(way, options.phase)
    after = anonymous_bytes()
    (folder / "end").touch()
    for child in children:
        child.wait(30)
    for _ in range(options.rounds // 2):
        watched.phase("lone", options.phase)
    if options.patient:
        watched.contest = Contest(watched.device, watched.evaluator.task, others[0].problem, patient=True)
        watched.phase("warm-up", options.phase)
        for _ in range(options.rounds // 2):
            watched.phase("patient", options.phase)
    found = {way: by for way, by in watched.found.items() if way != "warm-up"}

    def against(what: str, way: str, base: str) -> list[float]:
        ratio, interval = bootstrap_ratio(np.array(found[way][what]), np.array(found[base][what]), 1)
        return [round(number, 5) for number in (ratio, interval.low, interval.high)]

    times = [what for what in found["lone"] if what.startswith(("fast ", "round "))]
    evaluations = watched.done - done
    return {
        "gpu": watched.device.name,
        "versions": dict(watched.evaluator.versions),
        "median": {
            way: {what: float(f"{statistics.median(values):.5g}") for what, values in by.items()}
            for way, by in found.items()
        },
        "over_alone": {
            way: {what: against(what, way, "alone") for what in times} for way in found if way != "alone"
        },
        "by_phase": {
            way: {what: [float(f"{x:.5g}") for x in by[what]] for what in times if "s/" in what}
            for way, by in found.items()
        },
        "evaluations": watched.done,
        "evaluations_of_neighbours": [int((folder / f"count{i}").read_text()) for i in range(len(children))],
        "memory_mb_a_hundred_evaluations": round((after - before) / 1e4 / evaluations, 2),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--shape", default="1,8,512,64")
    parser.add_argument("--template", action="append", help="its default point; may be repeated")
    parser.add_argument("--neighbours", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=6, help="phases of each kind")
    parser.add_argument("--phase", type=float, default=0.5, help="seconds of a phase")
    parser.add_argument("--patient", action="store_true", help="at last with the baselines that are compiled")
    parser.add_argument("--cache", type=Path, default=Path("/tmp/evo-neighbours-cache"), help="of binaries")
    parser.add_argument("--commit", required=True, help="the commit that is measured")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--neighbour", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--parent", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.template = options.template or ["flash_mma", "flash_wgmma_split"]
    if options.neighbour is not None:
        neighbour(options)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        found = measure(options, Path(folder))
    record = {
        "date": time.strftime("%Y-%m-%d"),
        "commit": options.commit,
        "command": "python benchmarks/neighbours.py " + " ".join(sys.argv[1:]),
        "protocol": __doc__.split("\n\n")[2].replace("\n", " "),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "neighbours": options.neighbours,
        **found,
    }
    options.out.write_text(json.dumps(record, indent=1) + "\n")
    for way, by in record["median"].items():
        print(way, json.dumps(by))
    return 0


if __name__ == "__main__":
    sys.exit(main())
