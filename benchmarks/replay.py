"""How soon does a strategy find a fast kernel? Replays searches over recorded spaces; no GPU needed.

    python benchmarks/replay.py SPACE.npz CACHE.json.gz … [--repeats 40] [--strategies evo,tpe] [--out x.json]
    python benchmarks/replay.py … --kernel-tuner VENV/bin/python    # its strategies in the same table
    python benchmarks/replay.py … --runs runs.jsonl                 # keep every run; go on where it stopped

Spaces: see recorded.py; public ones are at https://github.com/AutoTuningAssociation/benchmark_hub (download
`cachefiles/<kernel>/<GPU>.json.gz`), our own in benchmarks/spaces/. The score P is that of methodology.py:
0 random search, 1 the optimum at once; a trial costs its recorded seconds and the strategy's own time. A
search lasts until random search would have closed 95 % of the gap between the median and the optimum.

`tpe-plain` is Optuna's TPE as people use it: over the plain product, told PRUNED for what is not recorded.
Kernel Tuner's simulation refuses points that fail before they are tried: they cost it nothing.
"""

from __future__ import annotations

import os

for _library in ("OMP", "OPENBLAS", "MKL"):  # repeats run side by side: one thread each
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

import argparse
import itertools
import json
import math
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from methodology import Journey, Yardstick
from recorded import Recorded, key_of, load

from evo.strategy import STRATEGIES, Observation, make_strategy

KERNEL_TUNER = (
    "adaptive_tabu_greywolf", "basinhopping", "bayes_opt", "diff_evo", "dual_annealing", "firefly_algorithm",
    "genetic_algorithm", "greedy_ils", "greedy_mls", "hybrid_vndx", "mls", "nsga2", "ordered_greedy_mls",
    "pso", "random_sample", "simulated_annealing",
)  # fmt: skip
SLOW = ("hybrid_vndx", "nsga2", "bayes_opt", "tpe-plain")
"""Those that take longest, up to a minute a run: begun first."""
PLAIN = "tpe-plain"
THEIRS = "kernel tuner "
SEEDS_A_JOB = 10
"""Of Kernel Tuner's, of which each process builds the space anew; a fifth of that where they are slow."""
FEW = 10
"""With fewer than this part of the repeats, a strategy has no place in the table."""
TO_1_PERCENT = ("evaluations_to_1_percent", "expected_evaluations_to_1_percent")
PROPOSALS = 20
"""Proposals an evaluation after which a run that only wastes them is given up."""


Job = tuple[str, str, int]
"""A strategy, the path of a space, and a seed."""


@dataclass
class Run:
    """One search: `rows` of the evaluated points in order; proposals that were wasted; CPU seconds of the
    strategy alone."""

    rows: list[int] = field(default_factory=list)
    infeasible: int = 0
    repeated: int = 0
    seconds: float = 0.0

    @property
    def proposals(self) -> int:
        return len(self.rows) + self.infeasible + self.repeated

    def journey(self, space: Recorded) -> Journey:
        own = self.seconds / max(1, len(self.rows)) * np.arange(1, len(self.rows) + 1)
        return Journey(np.cumsum(space.cost_s[self.rows]) + own, space.time_ms[self.rows])


class Ask:
    """What a replay asks of a strategy: the next point, told what the earlier ones gave."""

    def __init__(self, name: str, space: Recorded, seed: int) -> None:
        self._strategy = make_strategy(name, {space.name: space.feasible}, seed)
        self._space = space
        self._told: list[Observation] = []

    def next(self) -> tuple[Any, ...] | None:
        proposal = self._strategy.ask(self._told, [], len(self._told))
        self._point = proposal.point if proposal else {}
        return key_of(self._point) if proposal else None

    def tell(self, row: int) -> None:
        self._told.append(Observation(self._space.name, self._point, self._space.score_us(row)))


class AskPlainTpe:
    """Optuna's TPE over the plain product of the categories."""

    def __init__(self, space: Recorded, seed: int) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._optuna, self._space = optuna, space
        self._study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed, multivariate=True))
        self._choices: dict[str, optuna.distributions.BaseDistribution] = {
            name: optuna.distributions.CategoricalDistribution(values)
            for name, values in space.values.items()
        }

    def next(self) -> tuple[Any, ...]:
        self._trial = self._study.ask(self._choices)
        return tuple(self._trial.params[name] for name in self._choices)

    def tell(self, row: int | None) -> None:
        """`row`: None where the point is not recorded."""
        score = None if row is None else self._space.score_us(row)
        if score is None:
            self._study.tell(self._trial, state=self._optuna.trial.TrialState.PRUNED)
        else:
            self._study.tell(self._trial, score)


class Diary:
    """Every run, by its job; kept in a file, where there is one, as it comes. A space that was recorded anew
    is another."""

    def __init__(self, file: Path | None, made_at: str) -> None:
        self._file, self._commit = file, made_at
        self._runs: dict[tuple[str, str, int], tuple[Run, dict[str, str]]] = {}
        self.kernel_tuner = ""
        if file and file.exists():
            for line in file.read_text().splitlines():
                said = json.loads(line)
                self._note((said["strategy"], said["space"], said["seed"]), Run(**said["run"]), said["by"])

    def has(self, job: Job) -> bool:
        return self._key(job) in self._runs

    def run(self, job: Job) -> Run:
        return self._runs[self._key(job)][0]

    def made_by(self, jobs: Sequence[Job]) -> list[dict[str, Any]]:
        """Commits and machines, and what ran there."""
        found: dict[str, set[str]] = {}
        for job in filter(self.has, jobs):
            found.setdefault(json.dumps(self._runs[self._key(job)][1]), set()).add(job[0])
        return [json.loads(by) | {"strategies": sorted(names)} for by, names in found.items()]

    def fill(self, jobs: Sequence[Job], python: str | None, processes: int) -> None:
        """Runs `jobs` side by side, the longest first."""
        here = {
            "commit": self._commit,
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, python {platform.python_version()}",
        }
        batches: dict[tuple[str, str, int], list[int]] = {}
        slow = {name for name, *_ in jobs if name.removeprefix(THEIRS) in SLOW}
        for name, path, seed in jobs:
            if name.startswith(THEIRS):
                size = SEEDS_A_JOB // 5 if name in slow else SEEDS_A_JOB
                batches.setdefault((name, path, seed // size), []).append(seed)
        works: list[tuple[str, str, Job | Batch]] = [
            (name, path, (python or "", (name, path), few)) for (name, path, _), few in batches.items()
        ]
        works += [(job[0], job[1], job) for job in jobs if not job[0].startswith(THEIRS)]
        works.sort(key=lambda work: (work[0] not in slow, -len(opened(work[1])[0])))
        with get_context("spawn").Pool(processes) as pool:
            for done in pool.imap_unordered(perform, [work for _, _, work in works]):
                for job, run, kernel_tuner in done:
                    self._keep(job, run, here | ({"kernel-tuner": kernel_tuner} if kernel_tuner else {}))

    def _keep(self, job: Job, run: Run, by: dict[str, str]) -> None:
        name, space, seed = self._key(job)
        self._note((name, space, seed), run, by)
        if self._file:
            line = {"strategy": name, "space": space, "seed": seed, "by": by, "run": asdict(run)}
            with self._file.open("a") as file:
                file.write(json.dumps(line) + "\n")

    def _note(self, key: tuple[str, str, int], run: Run, by: dict[str, str]) -> None:
        self._runs[key] = run, by
        self.kernel_tuner = by.get("kernel-tuner", self.kernel_tuner)

    @staticmethod
    def _key(job: Job) -> tuple[str, str, int]:
        name, path, seed = job
        return name, opened(path)[0].fingerprint, seed


@lru_cache(maxsize=32)
def opened(path: str) -> tuple[Recorded, Yardstick, dict[tuple[Any, ...], int]]:
    space = load(Path(path))
    return space, Yardstick(space.time_ms, space.cost_s), space.rows()


Batch = tuple[str, tuple[str, str], list[int]]
"""An interpreter that has Kernel Tuner; a strategy and a path; seeds."""


def perform(work: Job | Batch) -> list[tuple[Job, Run, str]]:
    """The runs of a job, or of a batch of Kernel Tuner's, with its version."""
    if isinstance(work[1], tuple):
        return kernel_tuner_runs(work)
    return replay(work)


def replay(job: Job) -> list[tuple[Job, Run, str]]:
    """One run of our strategies."""
    name, path, seed = job
    space, yardstick, rows = opened(path)
    run, spent, seen = Run(), 0.0, set[int]()
    ask = AskPlainTpe(space, seed) if name == PLAIN else Ask(name, space, seed)
    while spent < yardstick.times_s[-1] and len(seen) < len(space):
        if run.proposals > PROPOSALS * (yardstick.evaluations + 50):
            break
        began = time.process_time()
        point = ask.next()
        run.seconds += time.process_time() - began
        if point is None:
            break
        row = rows.get(point)
        if row is None:
            run.infeasible += 1
            assert isinstance(ask, AskPlainTpe), f"{name} proposed {point}, which is infeasible"
            ask.tell(None)
            continue
        run.repeated += row in seen
        if row not in seen:
            run.rows.append(row)
            spent += float(space.cost_s[row])
        seen.add(row)
        began = time.process_time()
        ask.tell(row)
        run.seconds += time.process_time() - began
    return [(job, run, "")]


def kernel_tuner_runs(batch: Batch) -> list[tuple[Job, Run, str]]:
    """The runs of one of Kernel Tuner's strategies, each with its version."""
    python, (strategy, path), seeds = batch
    space, yardstick, rows = opened(path)
    names = {",".join(map(str, point)): row for point, row in rows.items()}
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "cache.json"
        cache.write_text(json.dumps(kernel_tuner_cache(space)))
        request = {
            "cache": str(cache), "strategies": [strategy.removeprefix(THEIRS)], "seeds": seeds,
            "evaluations": min(len(space), math.ceil(1.2 * yardstick.evaluations)),
        }  # fmt: skip
        answer = subprocess.run(
            [python, str(Path(__file__).with_name("kernel_tuner_runs.py").resolve())],
            input=json.dumps(request), capture_output=True, text=True, check=False, cwd=folder,
        )  # fmt: skip
    if answer.returncode:
        print(f"{strategy}: {answer.stderr.strip()[-300:]}", file=sys.stderr)
        return []
    said = json.loads(answer.stdout)
    done = []
    for run in said["runs"]:
        if run["error"]:
            print(f"{strategy} seed {run['seed']}: {run['error']}", file=sys.stderr)
        one = Run([names[key] for key in run["points"]], run["infeasible"], run["repeated"], run["seconds"])
        done.append(((strategy, path, run["seed"]), one, said["version"]))
    return done


def kernel_tuner_cache(space: Recorded) -> dict[str, Any]:
    """A recorded space in the format of Kernel Tuner's cache files."""
    cache = {}
    for point, row in space.rows().items():
        time_ms, cost_ms = float(space.time_ms[row]), 1e3 * float(space.cost_s[row])
        entry: dict[str, Any] = dict(zip(space.values, point, strict=True))
        failed = math.isnan(time_ms)
        entry |= {"time": "RuntimeFailedConfig" if failed else time_ms, "times": [] if failed else [time_ms]}
        entry |= {"compile_time": cost_ms, "verification_time": 0, "benchmark_time": 0}
        entry |= {"strategy_time": 0, "framework_time": 0, "timestamp": "2000-01-01 00:00:00+00:00"}
        cache[",".join(map(str, point))] = entry
    return {
        "device_name": space.device or "unknown", "kernel_name": space.name, "problem_size": [1],
        "tune_params_keys": list(space.values), "tune_params": {k: list(v) for k, v in space.values.items()},
        "objective": "time", "cache": cache,
    }  # fmt: skip


def summary(path: str, runs: Sequence[Run]) -> dict[str, Any]:
    """What one strategy did in one space, over its repeats."""
    space, yardstick, _ = opened(path)
    journeys = [run.journey(space) for run in runs]
    performance = yardstick.performance(journeys)
    proposals = sum(run.proposals for run in runs) or 1
    return {
        "repeats": len(runs),
        "P": round(float(performance.mean()), 4),
        "P_over_time": [round(float(p), 3) for p in performance[49::50]],
        "evaluations_to_5_percent": reached(journeys, 1.05 * space.optimum_ms),
        "evaluations_to_1_percent": reached(journeys, 1.01 * space.optimum_ms),
        "expected_evaluations_to_1_percent": expected(journeys, 1.01 * space.optimum_ms),
        "best_over_optimum": round(float(np.mean([j.best[-1] for j in journeys])) / space.optimum_ms, 4),
        "evaluations": round(float(np.mean([len(run.rows) for run in runs])), 1),
        "infeasible": round(float(np.mean([run.infeasible for run in runs])), 1),
        "repeated": round(float(np.mean([run.repeated for run in runs])), 1),
        "ms_a_proposal": round(1e3 * sum(run.seconds for run in runs) / proposals, 2),
    }


def reached(journeys: Sequence[Journey], goal: float) -> float | None:
    """The median number of evaluations to a time of at most `goal`; None where most runs never get there."""
    median = float(np.median([first or math.inf for first in firsts(journeys, goal)]))
    return median if math.isfinite(median) else None


def expected(journeys: Sequence[Journey], goal: float) -> float | None:
    """The expected number of evaluations to a time of at most `goal`, were a run that has ended without it
    followed by another: all evaluations before the goal by the runs that got there (Hansen et al., COCO,
    2021, "expected runtime"). None where no run did."""
    found = firsts(journeys, goal)
    spent = sum(first or len(j.best) for first, j in zip(found, journeys, strict=True))
    hits = len(found) - found.count(None)
    return round(spent / hits, 1) if hits else None


def firsts(journeys: Sequence[Journey], goal: float) -> list[int | None]:
    """Of each run the number of its first evaluation with a time of at most `goal`, from 1."""
    found = [np.flatnonzero(j.best <= goal) for j in journeys]
    return [int(f[0]) + 1 if len(f) else None for f in found]


def means(results: dict[str, dict[str, dict[str, Any]]], spaces: Sequence[str]) -> dict[str, Any]:
    """Mean P of the strategies that were run in all spaces, and what they took to 1 % of the optimum, in the
    median and by expectation, as a share of what TPE took, constrained and told PRUNED: the median over
    spaces where both have such a number."""
    found: dict[str, Any] = {}
    for name, each in results.items():
        if not all(space in each for space in spaces):
            continue
        found[name] = {"P": round(float(np.mean([each[space]["P"] for space in spaces])), 4)}
        for what, rival in itertools.product(TO_1_PERCENT, ("tpe", PLAIN)):
            pairs = [(each[space][what], its[what]) for space, its in results.get(rival, {}).items()]
            shares = [mine / its for mine, its in pairs if mine is not None and its is not None]
            key = f"{what}_over_{rival.replace('-', '_')}"
            found[name][key] = round(float(np.median(shares)), 3) if shares else None
    return dict(sorted(found.items(), key=lambda item: -item[1]["P"]))


def table(results: dict[str, dict[str, dict[str, Any]]], spaces: Sequence[str]) -> str:
    """The strategies, best first: P in each space, means over spaces. Those that were not run in all spaces
    come last."""
    lines = [
        "| strategy | " + " | ".join(spaces) + " | mean P | to 5 % | to 1 % | expected to 1 % |"
        " best / optimum | wasted | ms |",
        "|---" * (len(spaces) + 8) + "|",
    ]
    whole = {name for name, each in results.items() if all(space in each for space in spaces)}
    order = sorted(
        results, key=lambda name: (name not in whole, -np.mean([r["P"] for r in results[name].values()]))
    )
    for name in order:
        each = results[name]
        cells = [f"{each[s]['P']:.3f}" if s in each else "" for s in spaces]
        means = [
            f"{np.mean([r['P'] for r in each.values()]):.3f}" if name in whole else "",
            *(
                " / ".join("—" if r[key] is None else f"{r[key]:.0f}" for r in each.values())
                for key in ("evaluations_to_5_percent", *TO_1_PERCENT)
            ),
            f"{np.mean([r['best_over_optimum'] for r in each.values()]):.3f}",
            f"{np.mean([r['infeasible'] + r['repeated'] for r in each.values()]):.0f}",
            f"{np.mean([r['ms_a_proposal'] for r in each.values()]):.1f}",
        ]
        lines.append("| " + " | ".join([name, *cells, *means]) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("spaces", nargs="+", type=Path)
    parser.add_argument("--strategies", default=",".join([*STRATEGIES, PLAIN]))
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--kernel-tuner", metavar="PYTHON", help="an interpreter that has kernel-tuner")
    parser.add_argument("--kernel-tuner-strategies", default=",".join(KERNEL_TUNER))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--runs", type=Path, help="where to keep every run, a line each")
    parser.add_argument("--only-kept", action="store_true", help="the table of the runs that there are")
    parser.add_argument("--commit", default=commit(), help="where there is no git")
    args = parser.parse_args()
    paths, seeds = [str(p) for p in args.spaces], list(range(args.repeats))
    theirs = args.kernel_tuner_strategies.split(",") if args.kernel_tuner else []
    names = [name for name in args.strategies.split(",") if name] + [THEIRS + name for name in theirs if name]
    wanted = [(name, path, seed) for path in paths for name in names for seed in seeds]
    diary = Diary(args.runs, args.commit)
    if not args.only_kept:
        diary.fill([job for job in wanted if not diary.has(job)], args.kernel_tuner, args.processes)
    runs: dict[str, dict[str, list[Run]]] = {}
    for job in filter(diary.has, wanted):
        runs.setdefault(job[0], {}).setdefault(job[1], []).append(diary.run(job))
    results = {
        name: {
            opened(p)[0].name: summary(p, some) for p, some in each.items() if FEW * len(some) >= len(seeds)
        }
        for name, each in runs.items()
    }
    spaces = {opened(p)[0].name: {"device": opened(p)[0].device, "points": len(opened(p)[0])} for p in paths}
    print(table(results, list(spaces)))
    if args.out:
        described = {
            "what": "searches replayed over recorded spaces",
            "protocol": "score P of Willemsen et al., FGCS 159 (2024); see benchmarks/replay.py",
            "command": " ".join(["python", *sys.argv]),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "commit": args.commit,
            "made_by": diary.made_by(wanted),
            "versions": {
                "optuna": version("optuna"),
                "numpy": version("numpy"),
                "kernel-tuner": diary.kernel_tuner,
            },
            "seeds": seeds,
            "spaces": spaces,
            "means": means(results, list(spaces)),
            "results": results,
        }
        args.out.write_text(json.dumps(described, indent=1) + "\n")


def commit() -> str:
    said = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False,
        cwd=Path(__file__).parent,
    )  # fmt: skip
    return said.stdout.strip()


if __name__ == "__main__":
    main()
