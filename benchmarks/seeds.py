"""How many trials does a search need that knows nothing? Searches from empty databases. Writes JSON.

    python benchmarks/seeds.py --best-known 4.02 --commit COMMIT --out seeds.json      # on a GPU

Each seed is a search as `evo search` does it, on all cores and all templates, from an empty database, without
CONFIRMED. Counted are the trials, and the seconds from the start of the search, until one is within 1 % (and
5 %) of the best known: the best of all these searches, or `--best-known` (µs) where that is faster. Every
search compiles with an empty cache.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as `evo` does, before NumPy is there

import argparse
import json
import math
import platform
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from evo.errors import NothingFound
from evo.rig import choose_device, evaluator_of, limits_of, templates_of
from evo.search import Progress, search, survey
from evo.store import Row, Store, Study
from evo.task import load_task
from evo.workers import Pool

Step = tuple[float, Row]
"""A trial as it ended: the seconds that the search had taken, and what the trial gave."""


def searched(options: argparse.Namespace, seed: int, folder: Path) -> tuple[list[Step], dict[str, Any]]:
    """One search of `options.trials` trials, and where its time went."""
    task = load_task("attention")
    problem = task.problem(options.shape)
    device, gpu = choose_device(options.device, options.gpu, None)
    asked = Study(
        f"seed-{seed}", problem, device, gpu.name, tuple(options.template), options.budget, options.strategy,
        seed, workers=options.workers or os.cpu_count() or 1, settings={"templates": ""},
    )  # fmt: skip
    grounds = survey(templates_of(task, asked.templates, ()), limits_of(gpu, "", None), problem)
    steps: list[Step] = []
    usage: dict[str, Any] = {}

    def watch(progress: Progress) -> None:
        if progress.usage is not None:
            usage.update(asdict(progress.usage))
        if progress.latest is not None:
            steps.append((progress.spent_s, progress.latest))
            if len(steps) == options.trials:
                os.kill(os.getpid(), signal.SIGINT)  # as a person ends a search

    with Store(folder / "evo.db") as store:
        study = store.create(asked)
        workers = Pool(evaluator_of(study, folder / "cache", None), study.workers)
        with suppress(NothingFound):
            search(study, store, grounds, workers, watch)
        if steps:
            trial = store.trial(f"{study.name}/{steps[0][1].number}").trial
            usage |= {"versions": dict(trial.versions), "compiler": trial.compiler, "device": trial.device}
    return steps, usage


def within(steps: Sequence[Step], goal_us: float) -> tuple[int, float] | None:
    """Trials and seconds until one was at most `goal_us`; None where none was."""
    for count, (seconds, row) in enumerate(steps, 1):
        if row.score_us is not None and row.score_us <= goal_us:
            return count, round(seconds, 2)
    return None


def summary(seed: int, steps: Sequence[Step], usage: dict[str, Any], known_us: float) -> dict[str, Any]:
    """What one search found, and when."""
    better: list[dict[str, Any]] = []
    best = math.inf
    for count, (seconds, row) in enumerate(steps, 1):
        if row.score_us is not None and row.score_us < best:
            best = row.score_us
            better.append({
                "trials": count, "seconds": round(seconds, 2), "us": round(best, 4),
                "template": row.template, "point": dict(row.point),
            })  # fmt: skip
    return {
        "seed": seed,
        "trials": len(steps),
        "seconds": round(steps[-1][0], 1) if steps else 0.0,
        "within_5_percent": within(steps, 1.05 * known_us),
        "within_1_percent": within(steps, 1.01 * known_us),
        "outcomes": dict(Counter(str(row.outcome) for _, row in steps)),
        "templates": dict(Counter(row.template for _, row in steps)),
        "better": better,
        "usage": usage,
    }


def median(counts: Sequence[tuple[int, float] | None], which: int) -> float | None:
    """Of trials (0) or seconds (1); None where most never got there."""
    middle = statistics.median(math.inf if c is None else c[which] for c in counts)
    return middle if math.isfinite(middle) else None


def record(options: argparse.Namespace, runs: Sequence[tuple[int, list[Step], dict[str, Any]]]) -> None:
    """Writes what is known so far."""
    scores = [row.score_us for _, steps, _ in runs for _, row in steps if row.score_us is not None]
    known = min([*scores, options.best_known])
    each = [summary(seed, steps, usage, known) for seed, steps, usage in runs]
    found: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d"),
        "commit": options.commit,
        "command": "python benchmarks/seeds.py " + " ".join(sys.argv[1:]),
        "protocol": "searches from empty databases and caches, all cores, without CONFIRMED; warm L2, CUDA "
        "graph replays interleaved with the baselines",
        "problem": options.shape, "strategy": options.strategy, "cores": os.cpu_count(),
        "python": platform.python_version(), "best_known_us": known,
    }  # fmt: skip
    for name in ("within_5_percent", "within_1_percent"):
        counts = [one[name] for one in each]
        found[name] = {"median_trials": median(counts, 0), "median_seconds": median(counts, 1)}
    text = json.dumps(found | {"searches": each}, indent=1)
    options.out.write_text(text + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--shape", default="1,8,512,64")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--trials", type=int, default=250, help="of each search")
    parser.add_argument("--budget", type=float, default=120.0, help="seconds of each search at most")
    parser.add_argument("--template", action="append", default=[])
    parser.add_argument("--strategy", default="evo")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--gpu")
    parser.add_argument("--best-known", type=float, default=math.inf, help="µs, of other studies")
    parser.add_argument("--commit", default="")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    runs: list[tuple[int, list[Step], dict[str, Any]]] = []
    for seed in range(options.seeds):
        with tempfile.TemporaryDirectory() as folder:
            steps, usage = searched(options, seed, Path(folder))
        runs.append((seed, steps, usage))
        record(options, runs)
        best = min((row.score_us for _, row in steps if row.score_us is not None), default=math.inf)
        print(f"seed {seed}: {len(steps)} trials, {best:.3f} us", file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
