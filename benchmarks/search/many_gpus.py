"""One study on one GPU and on two: trials a minute, seconds to within 1 % of the best, what the GPUs differ
by, what a kill costs, and what Dask costs a trial.

It runs `evo` as a person does, in processes of its own, and reads the databases afterwards. On a machine with
two GPUs and 32 cores it takes about (3 × seeds + 12) × (budget + 15 s): 25 minutes as it is by default.
`--part` asks one of the questions alone. With `--device emulator` it shows on any machine that all of it
runs; its times are estimates then.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import psutil

from benchmarks.command import environment
from benchmarks.searches import a_minute
from evo.cores import usable_cores
from evo.device.emulator import built_interpreter
from evo.store import Store

PROTOCOL = """evo search in a process of its own, each run with a database of its own and a cache in which
no candidate is compiled for it; one GPU with half of the cores, one with all, and two, in turns; trials a
minute from the first trial to the last; within 1 % of the best time of all runs, by the wall clock from the
command on; the same points, drawn at random, likewise: trials a minute of the later half of each search, and
the mean ms of a trial's stages (ahead: a compiler; idle: its evaluator waited for it);
the killed search lost an evaluator, then itself, by SIGKILL, and went on with one GPU fewer;
the cluster: a Dask scheduler and two workers as processes of their own, each with a GPU and half of the
cores, in turns with the local pool, both with the same points drawn at random: trials a minute of the later
half of each search"""
GPU = True
WARM = "warm"
PARTS = ("rates", "same_points", "killed", "cluster")


WAYS: Mapping[str, tuple[str, int]] = {
    "gpus 0, half of the cores": ("0", 2),
    "gpus 0": ("0", 1),
    "gpus 0,1": ("0,1", 1),
}
"""The GPUs of a search, and the part of the cores that it may use: one half, or all."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=5, help="searches on one GPU, and as many on two")
    parser.add_argument("--budget", type=float, default=40.0, help="seconds of each search")
    parser.add_argument("--template", action="append", help="only this template (default: flash_mma)")
    parser.add_argument("--shape", help="of attention (default: the task's example)")
    parser.add_argument("--device", default="auto", help="auto or emulator")
    parser.add_argument("--workers", type=int, help="of each search (default: one a core)")
    parser.add_argument("--part", action="append", choices=PARTS, help="may be repeated (default: all)")
    parser.add_argument(
        "--way", action="append", choices=WAYS, help="of rates, may be repeated (default: all)"
    )
    parser.add_argument("--folder", type=Path, help="keeps what is done: the same command goes on there")


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    parts = asked.part or PARTS
    with tempfile.TemporaryDirectory() as name:
        folder = asked.folder or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        found: dict[str, Any] = {}
        fill_cache(asked, folder)
        if "rates" in parts:
            for found in rates(asked, folder):
                yield found
        if "same_points" in parts:
            found = found | {"same_points": same_points(asked, folder)}
            yield found
        if "killed" in parts:
            found = found | {"killed": killed(asked, folder)}
            yield found
        if "cluster" in parts:
            yield found | {"cluster": on_cluster(asked, folder)}


def rates(asked: argparse.Namespace, folder: Path) -> Iterator[dict[str, Any]]:
    """The same searches on one GPU, with half of the cores and with all, and on two."""
    ways = [(number, way) for number, way in enumerate(WAYS) if way in (asked.way or WAYS)]
    runs: dict[str, list[dict[str, Any]]] = {way: [] for _, way in ways}
    for seed in range(asked.seeds):
        # the first has a colder machine: in turns
        for number, way in ways[:: 1 if seed % 2 == 0 else -1]:
            gpus, part = WAYS[way]
            with part_of_the_cores(part):
                done = searched(asked, folder, f"{number}-{seed}", seed, ["--gpus", gpus])
            runs[way].append(done)
            if all(runs.values()):
                yield compared(runs)


@contextmanager
def part_of_the_cores(part: int) -> Iterator[None]:
    """What is started within may use one of so many parts of the cores of this process."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[: max(1, len(cores) // part)])
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def fill_cache(asked: argparse.Namespace, folder: Path) -> None:
    """A cache with all that a search builds before its first trial and for its confirmation, and with
    candidates of another seed."""
    built_interpreter(cache_of(folder, WARM))
    searched(asked, folder, WARM, 1000, ["--gpus", "0"], budget_s=15.0)


def words(folder: Path, name: str, command: str) -> list[str]:
    """An `evo` command with its database and cache."""
    started = [sys.executable, "-m", "evo", command]
    return [*started, "--database", str(folder / f"{name}.db"), "--cache", str(cache_of(folder, name))]


def cache_of(folder: Path, name: str) -> Path:
    """The cache of a search: that of the first one, or a copy of it as the first one left it."""
    cache = folder / f"cache-{name}"
    if not cache.exists() and name != WARM:
        shutil.copytree(cache_of(folder, WARM), cache)
    return cache


def search_words(
    asked: argparse.Namespace, folder: Path, name: str, seed: int, budget_s: float | None = None
) -> list[str]:
    chosen = [word for one in asked.template or ["flash_mma"] for word in ("--template", one)]
    shape = ["--shape", asked.shape] if asked.shape else []
    workers = ["--workers", str(asked.workers)] if asked.workers else []
    how = [
        "--device",
        asked.device,
        "--budget",
        f"{budget_s or asked.budget:g}s",
        "--seed",
        str(seed),
        "--study",
        name,
    ]
    return [*words(folder, name, "search"), *chosen, *shape, *workers, *how]


def searched(
    asked: argparse.Namespace,
    folder: Path,
    name: str,
    seed: int,
    where: Sequence[str],
    budget_s: float | None = None,
) -> dict[str, Any]:
    """One search, and what its database says of it; what was kept of it if it was done before."""
    kept = folder / f"{name}.json"
    if kept.exists():
        found: dict[str, Any] = json.loads(kept.read_text())
        return found
    forget(folder, name)
    command = [*search_words(asked, folder, name, seed, budget_s), *where]  # copies a cache: before the clock
    began = time.time()
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"error: {name}: {done.stderr[-3000:]}")
    found = summary(folder, name, began)
    kept.write_text(json.dumps(found))
    return found


def forget(folder: Path, name: str) -> None:
    """What there is of a search that was interrupted."""
    for begun in folder.glob(f"{name}.db*"):
        begun.unlink()
    if name != WARM:
        shutil.rmtree(folder / f"cache-{name}", ignore_errors=True)


def summary(folder: Path, name: str, began: float) -> dict[str, Any]:
    """Trials and their times, by seconds since the command began; what the GPUs differ by."""
    with Store(folder / f"{name}.db") as store:
        study = store.study(name)
        rows = [row for row in store.rows(study) if row.same_as is None]
        ends = {number: end.timestamp() - began for number, (_, end) in store.spans(study).items()}
        by_gpu: dict[str, int] = {}
        stages: dict[str, list[float]] = {}
        for row in rows:
            trial = store.trial(f"{name}/{row.number}")
            by_gpu[trial.gpu] = by_gpu.get(trial.gpu, 0) + 1
            for stage, spent_s in trial.seconds.items():
                stages.setdefault(stage, []).append(1e3 * spent_s)
        offsets = [vars(offset) for offset in store.offsets.of(study)]
    times = sorted(ends[row.number] for row in rows)
    later = [end for end in times if end >= (times[0] + times[-1]) / 2]
    return {
        "trials": len(rows),
        "trials_a_minute": a_minute(times),
        "later_trials_a_minute": a_minute(later),
        "first_trial_s": round(times[0], 2),
        "best_us": min((row.score_us for row in rows if row.score_us is not None), default=None),
        "by_gpu": by_gpu,
        "stages_ms": {stage: round(mean(spent), 2) for stage, spent in sorted(stages.items())},
        "offsets": offsets,
        "scores": [(ends[r.number], r.score_us) for r in rows if r.score_us is not None],
    }


def compared(runs: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """The runs side by side; seconds to within 1 % of the best of all of them, None where it was not met."""
    best = min(us for done in runs.values() for one in done for _, us in one["scores"])
    found: dict[str, Any] = {"best_us": best}
    for way, done in runs.items():
        near = [min((at for at, us in one["scores"] if us <= 1.01 * best), default=None) for one in done]
        found[way] = {
            "seconds_to_1_percent": [None if at is None else round(at, 2) for at in near],
            "trials_to_1_percent": [
                None if at is None else sum(end <= at for end, _ in one["scores"])
                for at, one in zip(near, done, strict=True)
            ],
            "runs": [{k: v for k, v in one.items() if k != "scores"} for one in done],
        }
    return found


def killed(asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """A search on two GPUs of which an evaluator is killed, then all; it goes on with one GPU."""
    name = "killed"
    forget(folder, name)
    command = [*search_words(asked, folder, name, 0), "--gpus", "0,1"]
    search = subprocess.Popen(
        command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    counts: list[int] = []
    for least in (3, 6):  # so many more trials, then a sixth of the budget
        while count(folder, name) < least + sum(counts) and search.poll() is None:
            time.sleep(0.5)
        time.sleep(asked.budget / 6)
        counts.append(count(folder, name))
        if search.poll() is not None:
            raise SystemExit("error: the search ended before it was killed\nhint: a longer --budget")
        if len(counts) == 1:
            children = psutil.Process(search.pid).children()
            max(children, key=lambda child: child.memory_info().rss).kill()
    for child in psutil.Process(search.pid).children():
        child.kill()
    search.kill()
    search.wait()
    before = numbers(folder, name)
    began = time.time()
    again = [*words(folder, name, "resume"), name, "--gpus", "1", "--budget", f"+{asked.budget / 2:g}s"]
    done = subprocess.run(again, env=environment(), capture_output=True, text=True, check=False)
    after = numbers(folder, name)
    return {
        "trials_when_an_evaluator_was_killed": counts[0],
        "trials_when_the_search_was_killed": len(before),
        "lost": len(set(before) - set(after)),
        "twice": len(after) - len(set(after)),
        "resume": "done" if done.returncode == 0 else done.stderr[-500:],
        "trials_of_the_resumed_search": len(after) - len(before),
        "resumed": {k: v for k, v in summary(folder, name, began).items() if k in ("by_gpu", "offsets")},
    }


def numbers(folder: Path, name: str) -> list[int]:
    with Store(folder / f"{name}.db") as store:
        return [row.number for row in store.rows(store.study(name))]


def count(folder: Path, name: str) -> int:
    return len(numbers(folder, name)) if (folder / f"{name}.db").exists() else 0


DRAWN = ("--strategy", "random")
"""Where results decide on points, one search does twice as many trials a minute as another."""


def same_points(asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The same points, drawn at random, on one GPU with half of the cores and with all, and on two."""
    stages: dict[str, list[dict[str, float]]] = {}

    def rate(name: str, seed: int, gpus: str, part: int = 1) -> float:
        with part_of_the_cores(part):
            done = searched(asked, folder, name, seed, ["--gpus", gpus, *DRAWN])
        stages.setdefault(name.partition("-")[0], []).append(done["stages_ms"])
        return float(done["later_trials_a_minute"])

    ways = {
        "half": partial(rate, gpus="0", part=2),
        "one": partial(rate, gpus="0"),
        "two": partial(rate, gpus="0,1"),
    }
    half, one, two = in_turns(ways)
    return {
        "one_gpu_half_of_the_cores_trials_a_minute": half,
        "one_gpu_trials_a_minute": one,
        "two_gpus_trials_a_minute": two,
        "times_as_many_as_with_half_of_the_cores": mean(two) / mean(half),
        "times_as_many": mean(two) / mean(one),
        "stages_ms": stages,
    }


def on_cluster(asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The same points, drawn at random, by the pool of this machine and by workers of a cluster on it."""

    def local(name: str, seed: int) -> float:
        return float(searched(asked, folder, name, seed, ["--gpus", "0,1", *DRAWN])["later_trials_a_minute"])

    def cluster(name: str, seed: int) -> float:
        with scheduler_and_workers(asked, folder) as address:
            done = searched(asked, folder, name, seed, ["--scheduler", address, *DRAWN])
        return float(done["later_trials_a_minute"])

    ours, theirs = in_turns({"local": local, "cluster": cluster})
    return {
        "local_trials_a_minute": ours,
        "cluster_trials_a_minute": theirs,
        "overhead_a_trial_percent": round(100 * (mean(ours) / mean(theirs) - 1), 1),
        "ended": datetime.now().astimezone().isoformat(timespec="seconds"),
    }


def in_turns(ways: Mapping[str, Callable[[str, int], float]], seeds: int = 2) -> list[list[float]]:
    """What each way gives for each seed, in the order of `ways`; every second seed begins with the last."""
    found: dict[str, list[float]] = {way: [] for way in ways}
    for seed in range(seeds):
        for way in list(ways)[:: 1 if seed % 2 == 0 else -1]:
            found[way].append(ways[way](f"{way}-{seed}", seed))
    return list(found.values())


@contextmanager
def scheduler_and_workers(asked: argparse.Namespace, folder: Path) -> Iterator[str]:
    """The address of a scheduler that has two workers: each with a GPU and with half of the cores."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    address = f"tcp://127.0.0.1:{port}"
    scheduler = ["-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", port]
    commands = [[*scheduler, "--no-dashboard"]]
    for gpu in ("0", "1"):
        device = ["--device", "emulator"] if asked.device == "emulator" else ["--gpus", gpu]
        cores = ["--workers", str(max(1, (asked.workers or usable_cores()) // 2))]
        cache = ["--cache", str(cache_of(folder, f"worker-{gpu}"))]
        commands.append(["-m", "evo", "worker", "--scheduler", address, *device, *cores, *cache])
    with (folder / "cluster.log").open("a") as log:
        started = [
            subprocess.Popen([sys.executable, *one], env=environment(), stdout=log, stderr=log)
            for one in commands
        ]
        try:
            yield address
        finally:
            for process in reversed(started):
                for child in psutil.Process(process.pid).children(recursive=True):
                    child.kill()
                process.kill()
                process.wait()
            for gpu in ("0", "1"):
                shutil.rmtree(cache_of(folder, f"worker-{gpu}"))
