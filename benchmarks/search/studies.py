"""Searches of the mission shape, also within an Ada GPU's limits: trials, how they ended, what was best.

Each study is a search by `evo search`, CONFIRMED at its end, into one database. Afterwards some trials of
each are compiled again into an empty cache, for what a trial takes there. Estimates and measurements have
different names.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.command import evo
from evo.cores import usable_cores
from evo.evaluate import EvaluatorSpec
from evo.gpu import Limits, known_gpu
from evo.store import Store
from evo.trial import Candidate

PROTOCOL = "warm L2, CUDA graph replays interleaved with the baselines"
GPU = True
STUDIES = {
    "mission": ("--budget", "5m"),
    "ada48": ("--budget", "60s", "--target", "sm_89", "--smem-limit", "48K"),
    "ada99": ("--budget", "60s", "--target", "sm_89", "--smem-limit", "99K"),
}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--study", action="append", choices=STUDIES, help="only this one; may be repeated")
    parser.add_argument("--database", help="of studies with these names that there are (default: search now)")
    parser.add_argument("--compile", type=int, default=70, metavar="N", help="trials of each study, again")


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    names = asked.study or list(STUDIES)
    with tempfile.TemporaryDirectory() as folder:
        database = asked.database or f"{folder}/evo.db"
        if not asked.database:
            for name in names:
                evo(
                    "search",
                    "attention",
                    "--study",
                    name,
                    *STUDIES[name],
                    "--warm-start=none",
                    "--database",
                    database,
                )
        with Store(database, create=False) as store:
            studies = [summary(store, name) for name in names]
            cached = [bytes_in_cache(store, name, asked.compile) for name in names if asked.compile]
        size = Path(database).stat().st_size
    trials = [study["trials"] for study in studies]
    disk = {"database": round(size / sum(trials))}
    if cached:
        mean = sum(n * each for n, each in zip(trials, cached, strict=True)) / sum(trials)
        disk |= {"cache": round(mean), "compiled_again": sum(min(n, asked.compile) for n in trials)}
    yield {"disk_bytes_a_trial": disk, "studies": studies}


def summary(store: Store, name: str) -> dict[str, Any]:
    """One study: its settings, its outcomes and its best trial."""
    study = store.study(name)
    rows = store.rows(study)
    trials = [store.trial(f"{name}/{row.number}") for row in rows]
    resources = [t.resources for t in trials if t.resources]
    smem = [t.candidate.launch.smem_bytes + t.resources.static_smem_bytes for t in trials if t.resources]
    stages: dict[str, list[float]] = {}
    for stored in trials:
        for stage, seconds in stored.seconds.items():
            stages.setdefault(stage, []).append(seconds)
    return {
        "study": name,
        "problem": study.problem.key,
        "device": study.device,
        "gpu": study.gpu,
        "target": study.target,
        "budget_s": study.budget_s,
        "spent_s": round(study.spent_s, 1),
        "trials": len(rows),
        "outcomes": dict(Counter(str(row.outcome) for row in rows)),
        "templates": dict(Counter(row.template for row in rows)),
        "compiled": len(resources),
        "largest_smem_bytes": max(smem, default=0),
        "median_seconds_by_stage": {s: round(sorted(v)[len(v) // 2], 5) for s, v in stages.items()},
        "best": best_of(store, name),
    }


def best_of(store: Store, name: str) -> dict[str, Any] | None:
    """The first of the leaderboard."""
    for best in store.leaderboard(study=name, limit=1):
        return {
            "trial": f"{best.study}/{best.number}",
            "template": best.template,
            "point": dict(best.point),
            "median_us": best.median_us,
            "low_us": best.low_us,
            "high_us": best.high_us,
            "baselines_us": dict(best.baselines_us),
            "speedup": best.speedup,
            "speedup_low": best.speedup_low,
            "speedup_high": best.speedup_high,
            "estimate_us": best.estimate_us,
        }
    return None


def bytes_in_cache(store: Store, name: str, count: int) -> float:
    """What a GPU's trial of a study takes in the cache, in whole blocks of the disk; the mean of `count`, or
    of all if there are fewer."""
    study = store.study(name)
    rows = store.rows(study)
    drawn = random.Random(0).sample(list(rows), min(count, len(rows)))
    candidates = [store.trial(f"{name}/{row.number}").candidate for row in drawn]
    gpu = known_gpu(study.gpu)
    if gpu is None:
        raise SystemExit(f"error: {study.gpu} is not in evo's table of GPUs")
    with tempfile.TemporaryDirectory() as folder:
        spec = EvaluatorSpec(study.problem.task, "cuda:0", gpu, Limits.of(gpu), Path(folder))
        with spec.compiler() as compiler, ThreadPoolExecutor(usable_cores()) as threads:
            before = _allocated(Path(folder))

            def compile_again(candidate: Candidate) -> None:
                compiler.compile(candidate.source, candidate.entry, gpu.arch)

            list(threads.map(compile_again, candidates))
            return (_allocated(Path(folder)) - before) / len(drawn)


def _allocated(folder: Path) -> int:
    """What the files of a folder take on the disk, in whole blocks; bytes."""
    return sum(f.stat().st_blocks * 512 for f in folder.rglob("*") if f.is_file())
