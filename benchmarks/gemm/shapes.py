"""Products of matrices beside cuBLAS: points of a template, gated and timed in one process.

Each shape has the point that its template begins with, those listed here that its rules allow, and with
--search 40s the best ones of a search of so long. Every point passes the gate and is timed on all timing
inputs. Those that took least on their worst input then take turns with every baseline for --rounds rounds,
as the finalists of `evo confirm` do. About 12 s a shape on an H200, 5 s with --quick; `--compiled` adds
torch.compile and Triton, a minute a shape.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.command import evo
from evo.confirm.rounds import Rounds
from evo.device import Device
from evo.device.open import real_gpu
from evo.errors import CandidateError
from evo.evaluate import Evaluator, EvaluatorSpec, trial_seed
from evo.gate import Green
from evo.gpu import Limits
from evo.store import Store
from evo.task import Baseline, Task, load_task
from evo.template import Template, load_template
from evo.timing.statistics import standings
from evo.trial import Point, Problem, Timing

PROTOCOL = """the first point of the template, those listed here that its rules allow, and with --search the
best ten of a search from an empty store, gated, then timed in one process: warm L2, graph replays, medians,
on every timing input; then the three best on their worst inputs and all baselines in rounds of other buffers
and orders, medians of rounds' medians. `ratio` is how many times as long as ours a baseline takes on the
input where that is least; `speedup` is that over the fastest of each input; cublaslt is the fastest of up to
32 algorithms of its heuristics, by evo's own times"""
GPU = True
FINALISTS, FOUND = 3, 10
"""Points that take turns with the baselines in the end, and those that a search gives."""
SHAPES = (
    "4096,7168,16384,1", "4096,4096,7168,1", "4096,7168,2048,1", "8192,8192,8192,1",
    "512,512,512,1", "1024,1024,1024,1", "2048,2048,2048,1",
    "2048,2048,2048,1 epilogue=bias_gelu", "2048,2048,2048,1 layout=NN", "2048,2048,2048,1 layout=TN",
)  # fmt: skip
"""A shape text, and flags."""
LARGE, SMALL = 3e10, 5e9
"""FLOP from which on a product is large, and below which it is small."""
STAY: Point = {"consumers": 2, "producer": "warpgroup", "persistent": True, "panel": 8, "epilogue": "tma"}
TURNS: Point = {**STAY, "schedule": "pingpong", "bn": 128}
TALL: Point = {**STAY, "rows": 2, "bn": 128, "stages": 4}
BROAD: Point = {**STAY, "rows": 1, "bn": 256, "stages": 4}
PAIRS: Point = {**BROAD, "multicast": "b"}
OTHER_TURNS: Point = {**TURNS, "rows": 2, "bn": 176, "stages": 5}
POINTS_OF_LARGE: tuple[Point, ...] = (
    {**TALL, "multicast": "a"},
    BROAD,
    PAIRS,
    {**PAIRS, "panel": 4},
    {**TURNS, "rows": 2, "stages": 6},
    {**TURNS, "rows": 2, "bn": 192, "stages": 5},
    {**TURNS, "rows": 2, "bn": 192, "stages": 5, "multicast": "b"},
    OTHER_TURNS,
    {**OTHER_TURNS, "multicast": "a"},
    {**OTHER_TURNS, "multicast": "b"},
    {**OTHER_TURNS, "panel": 4},
    {**OTHER_TURNS, "raster": "n"},
    {**PAIRS, "bn": 192},
)
ONCE: Point = {"consumers": 2, "epilogue": "tma"}
HALVES: Point = {**STAY, "rows": 1, "bn": 128, "stages": 6, "panel": 4}
BY_FOURS: Point = {**TURNS, "rows": 2, "stages": 6, "panel": 4}
POINTS: tuple[Point, ...] = (
    {**ONCE, "rows": 1, "bn": 256, "stages": 4},
    {**ONCE, "rows": 1, "bn": 256, "stages": 4, "multicast": "b"},
    {**TURNS, "rows": 2, "stages": 6},
    {**TURNS, "rows": 2, "stages": 6, "multicast": "b"},
    BY_FOURS,
    {**BY_FOURS, "multicast": "a"},
    {**BY_FOURS, "raster": "n"},
    {**BY_FOURS, "epilogue": "direct"},
    {**BY_FOURS, "stages": 3, "bk": 128},
    HALVES,
    {**HALVES, "multicast": "a"},
    {**HALVES, "multicast": "b"},
)
ALONE: Point = {"consumers": 1, "epilogue": "tma", "rows": 1, "stages": 8}
POINTS_OF_SMALL: tuple[Point, ...] = (
    {**ONCE, "rows": 1, "bn": 64, "stages": 6},
    {**ONCE, "rows": 1, "bn": 64, "stages": 8},
    {**ALONE, "bn": 128},
    {**ALONE, "bn": 128, "bk": 128, "stages": 4},
    {**ALONE, "bn": 64},
    {**ALONE, "bn": 64, "bk": 128, "stages": 4},
    {**ALONE, "bn": 32, "epilogue": "direct"},
    {**ONCE, "rows": 1, "bn": 128, "stages": 5, "epilogue": "direct", "splits": 2},
    {**ALONE, "bn": 64, "stages": 4, "epilogue": "direct", "splits": 4, "join": "cluster"},
)
MMA: Point = {"bm": 128, "bn": 128, "bk": 32, "warps_m": 2, "warps_n": 2, "panel": 8}
POINTS_OF_MMA: tuple[Point, ...] = (
    {**MMA, "stages": 4},
    {**MMA, "stages": 5},
    {**MMA, "warps_n": 4, "stages": 4},
    {**MMA, "bk": 64, "stages": 3},
    {**MMA, "stages": 4, "store": "shared"},
    {**MMA, "bn": 256, "warps_n": 4, "stages": 4},
    {**MMA, "stages": 4, "work": "stream"},
    {**MMA, "bm": 64, "bn": 64, "bk": 64, "stages": 3},
    {**MMA, "bm": 64, "bn": 64, "bk": 64, "stages": 3, "work": "stream", "min_ctas": 3},
)
"""What each has that is not its template's default; those of gemm_mma need 99 KB of shared memory at most."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--template", default="gemm_wgmma", help="of the task gemm (default: gemm_wgmma)")
    parser.add_argument("--quick", action="store_true", help="the first point of each shape alone")
    parser.add_argument("--rounds", type=int, default=10, help="of the finalists (default: 10)")
    parser.add_argument("--search", metavar="TIME", help="of a search of each shape before (default: none)")
    parser.add_argument("--compiled", action="store_true", help="torch.compile and Triton, too")
    parser.add_argument(
        "--only", action="append", default=[], metavar="SHAPE", help=f"of: {'; '.join(SHAPES)}, or any other"
    )


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    gpu = real_gpu("cuda:0")
    with tempfile.TemporaryDirectory() as folder:
        evaluator = EvaluatorSpec("gemm", "cuda:0", gpu, Limits.of(gpu), Path(folder)).build()
        try:
            found: dict[str, Any] = {}
            for shape in asked.only or SHAPES:
                found[shape] = measured(shape, asked, evaluator)
                yield {"template": asked.template, "shapes": found}
        finally:
            evaluator.close()


def problem_of(task: Task, text: str) -> Problem:
    """The problem of a shape text, a storage type if one is named, and flags NAME=VALUE."""
    shape, *words = text.split()
    dtype = next((word for word in words if word in task.dtypes), None)
    flags: dict[str, Any] = dict(word.split("=") for word in words if "=" in word)
    return task.problem(shape, dtype, **flags)


def points_of(template: Template, problem: Problem, limits: Limits, quick: bool) -> list[Point]:
    """The point to begin with, and those for products of that size that the rules allow."""
    first = template.space.default_for(problem, limits)
    known = {parameter.name for parameter in template.space.parameters}
    flop = load_task("gemm").flop(problem)
    sized = POINTS_OF_LARGE if flop >= LARGE else POINTS if flop >= SMALL else POINTS_OF_SMALL
    whole: Point = {"splits": 1} if "splits" in known else {}
    others = [
        template.space.with_auto({**template.space.default, **whole, **point}, problem, limits.gpu)
        for point in (*sized, *POINTS_OF_MMA)
        if set(point) <= known and not quick
    ]
    allowed = [point for point in others if template.space.why_not(point, limits, problem) is None]
    return [first, *(point for point in allowed if point != first)]


def searched(problem: Problem, asked: argparse.Namespace) -> list[Point]:
    """The best points of a search of the template for this problem, from an empty store."""
    with tempfile.TemporaryDirectory() as folder:
        database = str(Path(folder) / "evo.db")
        flags = [f"--flag={name}={value}" for name, value in problem.flags.items()]
        words = ["--shape", problem.shape, "--dtype", problem.dtype, *flags, "--template", asked.template]
        evo("search", "gemm", *words, "--budget", asked.search, "--database", database)
        with Store(database) as store:
            return [store.trial(row.trial).candidate.point for row in store.leaderboard(limit=FOUND)][:FOUND]


class WithPatient:
    """A task whose baselines are also those that choose among algorithms, or are compiled, in their first
    call. Everything else is the task's."""

    def __init__(self, task: Task, left_out: tuple[str, ...]) -> None:
        self._task, self._left_out = task, left_out

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)

    def baselines(
        self,
        problem: Problem,
        torch_device: str = "cuda",
        patient: bool = True,  # noqa: ARG002
    ) -> Mapping[str, Baseline]:
        every = self._task.baselines(problem, torch_device, patient=True)
        return {name: run for name, run in every.items() if name not in self._left_out}


def measured(text: str, asked: argparse.Namespace, evaluator: Evaluator) -> dict[str, Any]:
    """One shape: what each point took, by timing input, and the best of them in turns with the baselines."""
    from evo.timing.session import TimingSession

    task, limits = load_task("gemm"), evaluator.spec.limits
    problem = problem_of(task, text)
    template = load_template(task, asked.template, gpu=evaluator.spec.gpu)
    left_out = () if asked.compiled else ("compiled", "triton")
    baselines: Any = WithPatient(task, left_out)
    session = TimingSession(evaluator.device, baselines, problem, seed=0)
    tried: list[dict[str, Any]] = []
    screened: list[tuple[float, int, Green]] = []
    points = points_of(template, problem, limits, asked.quick) + (
        searched(problem, asked) if asked.search else []
    )
    for point in {str(sorted(point.items())): point for point in points}.values():
        candidate = template.candidate(point, problem)
        entry: dict[str, Any] = {"point": {k: v for k, v in point.items() if v != template.space.default[k]}}
        tried.append(entry)
        try:
            green = evaluator.gate(candidate, trial_seed(0, candidate), thorough=False)
            timing = session.measure(green, whole=True)
        except CandidateError as failed:
            entry["failed"] = f"{failed.outcome} {failed.reason}: {failed.detail} {failed.where}"
            continue
        one = summary(task, problem, timing)
        entry |= {"us": one["us"], "ratio": one["ratio"]}
        screened.append((min(one["ratio"].values(), default=0.0), len(tried) - 1, green))
    found = {"points": tried, "absent": session.skipped_baselines}
    del session  # its memory
    if screened:
        # by ratios: they were taken in turns, and a clock that changes between two points is in both
        screened.sort(key=lambda one: -one[0])
        best = {f"point/{at}": green for _, at, green in screened[:FINALISTS]}
        found |= in_turns(evaluator.device, baselines, problem, best, asked.rounds)
    return found


def in_turns(
    device: Device, task: Any, problem: Problem, finalists: Mapping[str, Green], count: int
) -> dict[str, Any]:
    """The best finalist beside all baselines, by rounds."""
    contest = Rounds(device, task, problem, patient=True)
    rounds = [contest.round("warm", seed, finalists) for seed in range(count)]
    baselines = [name for name in contest.baselines if name not in contest.skipped]
    found = standings(rounds, list(finalists), baselines)
    best = min(finalists, key=lambda name: found[name].median_us)
    own = found[best]
    us = {on: {name: round(found[name].times[on].median_us, 3) for name in baselines} for on in own.times}
    return {
        "best": int(best.split("/")[1]),
        "us": {on: round(time.median_us, 3) for on, time in own.times.items()},
        "baselines_us": us,
        "ratio": {
            name: round(min(us[on][name] / time.median_us for on, time in own.times.items()), 4)
            for name in baselines
        },
        "speedup": own.speedup and round(own.speedup, 4),
        "speedup_interval": (around := own.speedup_interval)
        and [round(around.low, 4), round(around.high, 4)],
        "tflops": {on: round(task.flop(problem) / time.median_us / 1e6, 1) for on, time in own.times.items()},
    }


def summary(task: Task, problem: Problem, timing: Timing) -> dict[str, Any]:
    """The best point's times and the baselines' by timing input, and what follows."""
    times = timing.times
    names = sorted({name for time in times.values() for name in time.baselines_us})
    ratio = {
        name: round(min(time.baselines_us[name] / time.median_us for time in times.values()), 4)
        for name in names
        if all(name in time.baselines_us for time in times.values())
    }
    return {
        "us": {name: round(time.median_us, 3) for name, time in times.items()},
        "baselines_us": {
            name: {k: round(v, 3) for k, v in time.baselines_us.items()} for name, time in times.items()
        },
        "ratio": ratio,
        "tflops": {n: round(task.flop(problem) / time.median_us / 1e6, 1) for n, time in times.items()},
    }
