"""Row kernels over shapes: the best of a short search from nothing, beside the baselines and a copy.

For each shape a search of its own database; then its best kernel and the baselines in turns in one process,
by `evo bench` (all that are installed; with --quick those that need no compilation); then both with a cold
L2; then `copy_` of so many bytes that it moves as many as the operator must. `default_us` is what the search
took of the point that the best one's template begins with.
"""

from __future__ import annotations

import argparse
import gc
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Literal

from benchmarks.command import evo_json
from benchmarks.record import ROOT
from evo.cache import default_folder
from evo.device.open import real_gpu
from evo.evaluate import EvaluatorSpec, trial_seed
from evo.gpu import Limits
from evo.store import LeaderboardRow, Store
from evo.task import load_module, load_task
from evo.template import load_template
from evo.timing.statistics import FEWEST_ROUNDS
from evo.trial import Problem

PROTOCOL = """evo search of each shape from an empty store; evo bench of its best kernel: warm L2, graph
replays, rounds in turns with every baseline on every timing input, medians; cold: a few such rounds with the
quick baselines, where twice the L2 passes by between two launches on the same inputs; copy: torch's copy_ of
as many bytes in graph replays, warm and cold, the median, right after"""
GPU = True
SHAPES = (
    "rmsnorm 2048,16384 bf16", "rmsnorm 32768,4096 bf16", "rmsnorm 32768,16384 bf16",
    "rmsnorm 16384,131072 bf16", "rmsnorm 1,16384 bf16", "rmsnorm 1,4096 bf16",
    "rmsnorm 2048,4096 bf16 residual", "layernorm 2048,4096 fp16", "softmax 8192,262144 bf16",
    "softmax 16384,131072 bf16", "softmax 32768,1024 bf16", "cross_entropy 32768,65536 bf16",
    "cross_entropy 8192,262144 bf16",
)  # fmt: skip
"""Task, rows and columns, storage type, flags."""
COLD_ROUNDS = 3
BEST = "best"
"""The name of the search's best kernel among baselines."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--budget", default="60s", help="of each search")
    parser.add_argument("--rounds", type=rounds, default=FEWEST_ROUNDS, help="of evo bench")
    parser.add_argument("--quick", action="store_true", help="without baselines that are compiled first")
    parser.add_argument(
        "--state", type=Path, metavar="DIR", help="keeps the studies; what it has is not measured again"
    )
    parser.add_argument(
        "--only", action="append", default=[], metavar="SHAPE", help=f"of: {'; '.join(SHAPES)}"
    )


def rounds(text: str) -> int:
    """As many rounds as `evo bench` takes: that is said before a search, not after it."""
    count = int(text)
    if count < FEWEST_ROUNDS:
        raise argparse.ArgumentTypeError(f"{count} rounds conclude nothing: {FEWEST_ROUNDS} at least")
    return count


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as name:
        state = asked.state or Path(name)
        state.mkdir(parents=True, exist_ok=True)
        for shape in asked.only or SHAPES:
            file, found = file_of(state, shape), {"shape": shape, "quick": asked.quick}
            if not known(state).get(shape, {}).get("whole"):
                database = file.with_suffix(".db")
                for left in state.glob(f"{database.name}*"):  # of a call that was cut off
                    left.unlink()
                for part in measured(shape, asked, database):
                    found |= part
                    file.write_text(json.dumps(found), encoding="utf-8")
                    yield {"shapes": known(state)}
                file.write_text(json.dumps(found | {"whole": True}), encoding="utf-8")
        yield {"shapes": known(state)}


def file_of(state: Path, shape: str) -> Path:
    """What is known of a shape."""
    return state / f"{shape.replace(' ', '-')}.json"


def study_of(database: Path) -> str:
    """The name of the one study of a shape's database: champions tell it."""
    return database.stem.replace(",", "-")


def known(state: Path) -> dict[str, Any]:
    """All that the folder has, by shape."""
    found = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(state.glob("*.json"))]
    return {one.pop("shape"): one for one in found}


def measured(shape: str, asked: argparse.Namespace, database: Path) -> Iterator[dict[str, Any]]:
    """One shape, part by part: the search, what its default took, its best kernel beside the baselines, both
    with a cold L2, the copy. A part that failed says why under `failed`; the others are there all the same.
    """
    task, sizes, dtype, *flags = shape.split()
    problem = load_task(task).problem(sizes, dtype, **dict.fromkeys(flags, True))
    words = ["--shape", sizes, "--dtype", dtype, *(w for flag in flags for w in ("--flag", flag))]
    words += ["--database", str(database)]
    nbytes = load_task(task).nbytes(problem)
    yield {"bytes": nbytes}
    failed: dict[str, str] = {}
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "search": lambda: searched(task, words, asked, database),
        "default": lambda: {"default_us": default_us(database, problem)},
        "bench": lambda: benched(task, words, asked, database),
        "cold": lambda: {"cold_us": cold_us(database, problem)},
        "copy": lambda: {"copy_us": copy_us(nbytes), "copy_cold_us": copy_us(nbytes, "cold")},
    }
    for name, part in parts.items():
        try:
            yield part()
        except (SystemExit, Exception) as error:  # noqa: BLE001 - a command's own words are on stderr
            failed[name] = f"{type(error).__name__}: {error}"
            yield {"failed": failed}


def searched(task: str, words: Sequence[str], asked: argparse.Namespace, database: Path) -> dict[str, Any]:
    """The best of a search from nothing, as the search timed it."""
    search = ["--study", study_of(database), "--budget", asked.budget]
    best = evo_json("search", task, "--warm-start=none", *words, *search)[0]
    kept = ("template", "point", "kind", "median_us", "number", "baselines_us")
    return {
        "best": {key: best[key] for key in kept if key in best},
        "trials": count(database),
        "seconds": seconds(database),
    }


def benched(task: str, words: Sequence[str], asked: argparse.Namespace, database: Path) -> dict[str, Any]:
    """The best kernel beside the baselines, in one process."""
    name = f"{study_of(database)}/{first(database).number}"
    quick = ["--quick"] if asked.quick else []
    (sheet,) = evo_json("bench", task, *words, "--trial", name, "--rounds", str(asked.rounds), *quick)
    return {
        "us": {entrant: worst(standing) for entrant, standing in sheet["standings"].items()},
        "standing": sheet["standings"].get(name),
        "absent": sheet["absent"],
    }


def first(database: Path) -> LeaderboardRow:
    """The best trial of the search."""
    with Store(database) as store:
        return store.leaderboard(study=study_of(database), limit=1)[0]


def seconds(database: Path) -> dict[str, float]:
    """Where the time of a trial went: the median of each stage over all trials, s."""
    with Store(database) as store:
        study = store.study(study_of(database))
        trials = [store.trial(f"{study.name}/{row.number}").seconds for row in store.rows(study)]
    stages = dict.fromkeys(stage for one in trials for stage in one)
    return {name: round(median(one.get(name, 0.0) for one in trials), 4) for name in stages}


def worst(standing: Mapping[str, Any]) -> float:
    """The median on the slowest timing input, µs."""
    return float(max(time["median_us"] for time in standing["times"].values()))


def count(database: Path) -> int:
    with Store(database) as store:
        return sum(store.count(store.study(study_of(database))).values())


def default_us(database: Path, problem: Problem) -> float | None:
    """What the search took of the point that the best one's template begins with."""
    name = first(database).template
    template = load_template(load_task(problem.task), name)
    default = template.space.default_for(problem, Limits.of(real_gpu("cuda:0")))
    with Store(database) as store:
        rows = store.rows(store.study(study_of(database)))
    times = [row.median_us for row in rows if row.template == name and dict(row.point) == dict(default)]
    return next((time for time in times if time is not None), None)


def cold_us(database: Path, problem: Problem) -> dict[str, float]:
    """The best kernel, gated in this process, and the quick baselines with a cold L2: the median on the
    slowest timing input of a few rounds in turns."""
    from evo.confirm.rounds import Rounds

    gpu = real_gpu("cuda:0")
    with Store(database) as store:
        candidate = store.trial(f"{study_of(database)}/{first(database).number}").candidate
    evaluator = EvaluatorSpec(problem.task, "cuda:0", gpu, Limits.of(gpu), default_folder()).build()
    try:
        green = evaluator.gate(candidate, trial_seed(0, candidate), thorough=False)
        contest = Rounds(evaluator.device, load_task(problem.task), problem, patient=False)
        rounds = [contest.round("cold", seed, {BEST: green}) for seed in range(COLD_ROUNDS)]
    finally:
        evaluator.close()
    taken: dict[str, list[float]] = {}
    for one in rounds:
        for name, times in one.samples_us.items():
            taken.setdefault(name, []).append(max(median(samples) for samples in times.values()))
    return {name: round(median(worsts), 3) for name, worsts in taken.items()}


def copy_us(nbytes: int, protocol: Literal["warm", "cold"] = "warm") -> float:
    """Median of torch's copy of `nbytes` / 2 bytes, which moves `nbytes`. It rotates among as many buffers as
    a kernel does."""
    import numpy as np
    import torch

    from evo.device.cuda import CudaDevice
    from evo.timing.inputs import count_of_sets
    from evo.timing.stopwatch import Stopwatch, TimingSettings, launches_per_replay

    clone = load_module(ROOT / "templates" / "include" / "row" / "baselines.py").clone
    device, settings = CudaDevice(), TimingSettings(protocol)
    gc.collect()  # what a gate held
    torch.cuda.empty_cache()
    with torch.no_grad(), device.alone():
        watch = Stopwatch(device, settings)
        calls = [clone(nbytes) for _ in range(count_of_sets(device.gpu, nbytes, settings))]
        launches = launches_per_replay(watch.estimate(calls), settings)
        replay = watch.capture(calls, max(launches, len(calls)))
        watch.settle()
        watch.sample([replay], 5)
        (samples,) = watch.sample([replay], 20)
    del calls, replay
    torch.cuda.empty_cache()
    return float(np.median(samples))
