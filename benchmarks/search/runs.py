"""One run of a strategy over a recorded space: ours by asking it, Kernel Tuner's by its simulation."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.search.methodology import Floats, RandomBaseline, Trajectory
from benchmarks.search.recorded import Recorded, key_of, load
from evo.loop.proposals import UNINFORMED, most_under_way
from evo.strategy import Observation, Proposal, make_strategy
from evo.trial import Point

PLAIN = "tpe-plain"
THEIRS = "kernel tuner "
UNDER_WAY = "@"
"""`evo@8` is `evo` with eight points under way, all of one length."""
AT_LEAST = 200
"""A search lasts for so many evaluations, or longer where its score needs that."""
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

    def values(self, space: Recorded) -> Floats:
        """What each evaluation gave, as a multiple of the optimum; nan for a failure."""
        return space.time_ms[self.rows] / space.optimum_ms

    def trajectory(self, space: Recorded) -> Trajectory:
        own = self.seconds / max(1, len(self.rows)) * np.arange(1, len(self.rows) + 1)
        return Trajectory(np.cumsum(space.cost_s[self.rows]) + own, space.time_ms[self.rows])


class Ask:
    """What a replay asks of a strategy: the point that ends next, told what the earlier ones gave. As in a
    search few points are under way at first (`Proposals.may_propose`)."""

    def __init__(self, name: str, space: Recorded, seed: int, earlier: Sequence[Observation] = ()) -> None:
        name, _, under_way = name.partition(UNDER_WAY)
        self._strategy = make_strategy(name, {space.name: space.feasible}, seed, earlier)
        self._space = space
        self._told: list[Observation] = []
        self._hands = int(under_way or 1)
        self._under_way: deque[Proposal] = deque()

    @property
    def point(self) -> Point:
        """The point that ends next."""
        return self._under_way[0].point

    def next(self) -> tuple[Any, ...] | None:
        told, under_way = self._told, self._under_way
        while len(under_way) < self._hands:
            number = len(told) + len(under_way)
            if len(under_way) >= most_under_way(self._hands, len(told), 1) and number >= UNINFORMED:
                break
            proposal = self._strategy.ask(told, tuple(under_way), number)
            if proposal is None:
                break
            under_way.append(proposal)
        return key_of(under_way[0].point) if under_way else None

    def tell(self, row: int) -> None:
        ended = self._under_way.popleft()
        self._told.append(Observation(ended.template, ended.point, self._space.score_us(row)))


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


@lru_cache(maxsize=32)
def opened(path: str) -> tuple[Recorded, RandomBaseline, dict[tuple[Any, ...], int]]:
    space = load(Path(path))
    return space, RandomBaseline(space.time_ms, space.cost_s), space.rows()


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
    space, baseline, rows = opened(path)
    run, spent, seen = Run(), 0.0, set[int]()
    ask = AskPlainTpe(space, seed) if name == PLAIN else Ask(name, space, seed)
    while (spent < baseline.times_s[-1] or len(seen) < AT_LEAST) and len(seen) < len(space):
        if run.proposals > PROPOSALS * (baseline.evaluations + 50):
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
    space, baseline, rows = opened(path)
    names = {",".join(map(str, point)): row for point, row in rows.items()}
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "cache.json"
        cache.write_text(json.dumps(kernel_tuner_cache(space)))
        request = {
            "cache": str(cache),
            "strategies": [strategy.removeprefix(THEIRS)],
            "seeds": seeds,
            "evaluations": min(len(space), max(AT_LEAST, math.ceil(1.2 * baseline.evaluations))),
        }
        answer = subprocess.run(
            [python, str(Path(__file__).with_name("kernel_tuner_runs.py").resolve())],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            check=False,
            cwd=folder,
        )
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
        "device_name": space.device or "unknown",
        "kernel_name": space.name,
        "problem_size": [1],
        "tune_params_keys": list(space.values),
        "tune_params": {k: list(v) for k, v in space.values.items()},
        "objective": "time",
        "cache": cache,
    }
