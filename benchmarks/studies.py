"""Summarise the studies of a database as JSON: trials, how they ended, what was best, within what limits.

    evo search attention --shape 1,8,512,64 --study mission --budget 5m      # on the GPU, for each study
    python benchmarks/studies.py runs/evo.db --commit C --command "…" --compile 70 --out studies.json

`C` is the commit that ran the searches. Estimates and measurements are named apart. `--compile N`: what a
trial leaves in the cache, by N of each study compiled again into an empty one, wherever that is done.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from evo.rig import limits_of

from evo.evaluate import EvaluatorSpec
from evo.gpu import KNOWN_GPUS
from evo.store import Store
from evo.trial import Candidate


def summary(store: Store, name: str) -> dict[str, Any]:
    """One study: its settings, its outcomes and its best trial."""
    study = store.study(name)
    rows = store.rows(study)
    best = next(iter(store.leaderboard(study=name, limit=1)), None)
    trials = [store.trial(f"{name}/{row.number}") for row in rows]
    resources = [t.resources for t in trials if t.resources]
    smem = [t.candidate.launch.smem_bytes + t.resources.static_smem_bytes for t in trials if t.resources]
    stages: dict[str, list[float]] = {}
    for stored in trials:
        for stage, seconds in stored.seconds.items():
            stages.setdefault(stage, []).append(seconds)
    found: dict[str, Any] = {
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
        "versions": dict(trials[0].versions) if trials else {},
        "compiler": trials[0].compiler if trials else "",
        "date": trials[0].created[:10] if trials else "",
    }
    if best is not None:
        found["best"] = {
            "trial": f"{best.study}/{best.number}", "template": best.template, "point": dict(best.point),
            "median_us": best.median_us, "low_us": best.low_us, "high_us": best.high_us,
            "baselines_us": dict(best.baselines_us), "speedup": best.speedup,
            "speedup_low": best.speedup_low, "speedup_high": best.speedup_high,
            "estimate_us": best.estimate_us,
        }  # fmt: skip
    return found


def bytes_in_cache(store: Store, name: str, count: int) -> float:
    """What a GPU's trial of a study takes in the cache, in whole blocks of the disk; the mean of `count`, or
    of all if there are fewer."""
    study = store.study(name)
    rows = store.rows(study)
    drawn = random.Random(0).sample(list(rows), min(count, len(rows)))
    candidates = [store.trial(f"{name}/{row.number}").candidate for row in drawn]
    gpu = KNOWN_GPUS[study.gpu]
    with tempfile.TemporaryDirectory() as folder:
        spec = EvaluatorSpec(study.problem.task, "cuda:0", gpu, limits_of(gpu, "", None), Path(folder))
        with spec.compiler() as compiler, ThreadPoolExecutor(os.cpu_count()) as threads:
            before = _allocated(Path(folder))

            def compile_again(candidate: Candidate) -> None:
                compiler.compile(candidate.source, candidate.entry, gpu.arch)

            list(threads.map(compile_again, candidates))
            return (_allocated(Path(folder)) - before) / len(drawn)


def _allocated(folder: Path) -> int:
    """What the files of a folder take on the disk, in whole blocks; bytes."""
    return sum(f.stat().st_blocks * 512 for f in folder.rglob("*") if f.is_file())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("database")
    parser.add_argument("--commit", required=True, help="the commit that ran the searches")
    parser.add_argument("--command", required=True, help="the commands that ran them")
    parser.add_argument("--protocol", default="warm L2, CUDA graph replays interleaved with the baselines")
    parser.add_argument("--compile", type=int, default=0, metavar="N", help="trials of each study")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with Store(options.database, create=False) as store:
        studies = [summary(store, study.name) for study in store.studies()]
        cached = [bytes_in_cache(store, s["study"], options.compile) for s in studies if options.compile]
    trials = [study["trials"] for study in studies]
    disk = {"database": round(Path(options.database).stat().st_size / sum(trials))}
    if cached:
        mean = sum(n * each for n, each in zip(trials, cached, strict=True)) / sum(trials)
        disk |= {"cache": round(mean), "compiled_again": sum(min(n, options.compile) for n in trials)}
    record = {
        "command": options.command, "commit": options.commit, "protocol": options.protocol,
        "disk_bytes_a_trial": disk,
    }  # fmt: skip
    text = json.dumps({**record, "studies": studies}, indent=1)
    if options.out:
        options.out.write_text(text + "\n")
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
