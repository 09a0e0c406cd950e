"""How many gated and timed trials a GPU gets through in a minute, and where the time goes. Writes JSON.

    python benchmarks/throughput.py --budget 200 --commit COMMIT --out throughput.json      # on a GPU

It searches one template at one shape, watches the GPU with nvidia-smi, and reads the database
afterwards: trials recorded in each whole minute, seconds by stage. Then it searches a copy of the template
with one planted fault a variant, for what the gate costs a wrong candidate: all must be RED. NumPy has one
thread, as in `evo search`; a search that has converged goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is there

from evo.rig import choose_device, evaluator_of, folders_of, limits_of, task_of, templates_of

import evo
from evo.errors import NothingFound
from evo.evaluate.pool import Pool
from evo.search import Progress, search, search_spaces
from evo.store import Store, Study
from evo.task import load_task
from evo.trial import Trial, Value

FAULTS: Mapping[str, tuple[str, str]] = {
    "scale": ("scores, scale_log2);", "scores, scale_log2 * 1.02f);"),
    "lasttile": ("for (int i = 0; i < at.tiles; ++i) {", "for (int i = 0; i < at.tiles - 1; ++i) {"),
    "unmasked": ("if (key + kBN > length ||", "if (key + kBN > length + 1 ||"),
    "lastrow": ("if (at.first_query + row < length) {", "if (at.first_query + row + 1 < length) {"),
}
"""One change each to templates/attention/flash_mma.cu.jinja that shows in its numbers (a race may not)."""


def run_search(
    store: Store, name: str, budget_s: float, options: argparse.Namespace, templates: Sequence[str],
    folder: Path | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Searches as `evo search` does, on the first GPU and all cores, but for the time that CONFIRMED takes;
    where the time went, as the live view tells it."""
    task = load_task("attention")
    problem = task.problem(options.shape)
    device, gpu = choose_device("cuda", None, None)
    settings: dict[str, Value] = {"templates": str(folder) if folder else ""}
    asked = Study(
        name, problem, device, gpu.name, tuple(templates), budget_s, options.strategy,
        workers=os.cpu_count() or 1, settings=settings,
    )  # fmt: skip
    chosen = templates_of(task_of(asked), asked.templates, folders_of(asked))
    grounds = search_spaces(chosen, limits_of(gpu, "", None), problem)
    study = store.create(asked)
    last: list[Progress] = []
    first_us: dict[int, float] = {}
    starting: set[int] = set()
    starts = 0

    def watch(progress: Progress) -> None:
        nonlocal starts
        last[:] = [progress]
        if progress.latest and progress.latest.median_us:
            first_us[progress.latest.number] = progress.latest.median_us
        now = {i for i, doing in enumerate(progress.activity) if doing.startswith("evaluator: starting")}
        starts += len(now - starting)
        starting.clear()
        starting.update(now)

    spec = evaluator_of(study, options.cache, None)
    workers = Pool(spec, study.workers)
    began, worked = time.monotonic(), time.process_time()
    with suppress(NothingFound):
        search(study, store, grounds, workers, watch, patience=sys.maxsize)
    cores = (time.process_time() - worked) / (time.monotonic() - began)
    usage = last[0].usage
    return {
        **(asdict(usage) if usage else {}),
        "evaluator_processes": spec.evaluators(study.workers),
        "evaluator_starts": starts,
        "cores_of_the_search_process": round(cores, 2),
        "best_at_first_visit": leaders(store, name, first_us),
    }


def leaders(store: Store, study: str, first_us: Mapping[int, float], count: int = 5) -> list[dict[str, Any]]:
    """What became of those trials that were the best when they were timed first: what more visits said."""
    places = {row.trial: place for place, row in enumerate(store.leaderboard(study=study, limit=1000), 1)}
    found = []
    for number in sorted(first_us, key=lambda number: first_us[number])[:count]:
        stored = store.trial(f"{study}/{number}")
        timing = stored.timing
        found.append({
            "number": number, "outcome": str(stored.outcome), "first_us": first_us[number],
            "us": timing.median_us if timing else None, "visits": timing.visits if timing else None,
            "samples": len(timing.samples_us) if timing else None, "place": places.get(stored.id),
        })  # fmt: skip
    return found


def planted(folder: Path) -> list[str]:
    """The template with one fault a variant, in a folder of its own; the names of those that differ."""
    ours = next(p for p in (Path(evo.__file__).parents[1] / "templates", Path("templates")) if p.is_dir())
    where = folder / "attention"
    where.mkdir(parents=True)
    text = (ours / "attention" / "flash_mma.cu.jinja").read_text()
    model = (ours / "attention" / "flash_mma.py").read_text()
    names = []
    for name, (before, after) in FAULTS.items():
        if before in text:
            (where / f"flash_{name}.cu.jinja").write_text(text.replace(before, after))
            (where / f"flash_{name}.py").write_text(model)
            names.append(f"flash_{name}")
    return names


def seconds_by_stage(trials: Sequence[Trial]) -> dict[str, dict[str, float]]:
    """Milliseconds a trial: median, and the 90th percentile."""
    found: dict[str, list[float]] = {}
    for trial in trials:
        for stage, seconds in trial.seconds.items():
            found.setdefault(stage, []).append(seconds * 1e3)
    return {
        stage: {
            "median_ms": round(statistics.median(ms), 2),
            "p90_ms": round(sorted(ms)[len(ms) * 9 // 10], 2),
            "sum_s": round(sum(ms) / 1e3, 2),
        }
        for stage, ms in found.items()
    }


def summary(store: Store, study: str) -> dict[str, Any]:
    """What the database says of one study."""
    rows = store.rows(store.study(study))
    stored = [store.trial(f"{study}/{row.number}") for row in rows if row.same_as is None]
    ends = sorted(datetime.fromisoformat(trial.created).timestamp() for trial in stored)
    minutes = Counter(int((end - ends[0]) // 60) for end in ends)
    whole = [minutes[m] for m in range(int((ends[-1] - ends[0]) // 60))]
    by_outcome: dict[str, list[Trial]] = {}
    for one in stored:
        by_outcome.setdefault(str(one.outcome), []).append(one)
    timed = [t for t in by_outcome.get("TIMED", []) if t.timing]
    best = min((t.timing.median_us for t in timed if t.timing), default=0.0)
    losers = [t for t in timed if t.timing and t.timing.median_us > 1.05 * best]
    contenders = [t for t in timed if t.timing and t.timing.median_us <= 1.05 * best]
    return {
        "trials": len(stored),
        "same_as_another": len(rows) - len(stored),
        "outcomes": {outcome: len(trials) for outcome, trials in by_outcome.items()},
        "outcomes_by_template": dict(Counter(f"{t.candidate.template} {t.outcome}" for t in stored)),
        "reasons": dict(Counter(t.reason for t in by_outcome.get("RED", []))),
        "from_first_to_last_trial_s": round(ends[-1] - ends[0], 1),
        "trials_a_minute": round(60 * (len(ends) - 1) / max(1e-9, ends[-1] - ends[0]), 1),
        "trials_in_each_whole_minute": whole,
        "seconds_by_outcome_and_stage": {o: seconds_by_stage(trials) for o, trials in by_outcome.items()},
        "timing_of_losers": seconds_by_stage(losers).get("timing"),
        "timing_of_contenders": seconds_by_stage(contenders).get("timing"),
        "best_us": best,
        "versions": dict(stored[0].versions),
        "compiler": stored[0].compiler,
        "device": stored[0].device,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--budget", type=float, default=200.0, help="seconds of the search")
    parser.add_argument(
        "--faulty", type=float, default=15.0, help="seconds of the search among faults; 0: none"
    )
    parser.add_argument("--shape", default="1,8,512,64")
    parser.add_argument("--template", default="flash_mma")
    parser.add_argument("--strategy", default="evo")
    parser.add_argument("--cache", type=Path, default=Path("/tmp/evo-throughput-cache"), help="of binaries")
    parser.add_argument("--commit", required=True, help="the commit that is measured")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    ask = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Store(folder / "throughput.db") as store:
            with (
                (folder / "busy").open("w") as log,
                subprocess.Popen([*ask, "-lms", "500"], stdout=log) as watch,
            ):
                began = time.monotonic()
                usage = run_search(store, "honest", options.budget, options, [options.template])
                lasted = time.monotonic() - began
                watch.terminate()
            busy = [int(n) for n in re.findall(r"^\d+$", (folder / "busy").read_text(), re.M)]
            studies = ["honest"]
            if options.faulty:
                faults = planted(folder / "templates")
                run_search(store, "faulty", options.faulty, options, faults, folder / "templates")
                studies.append("faulty")
            found = {study: summary(store, study) for study in studies}
            disk = sum(f.stat().st_blocks * 512 for f in folder.glob("throughput.db*"))
            disk += sum(f.stat().st_blocks * 512 for f in options.cache.glob("??/*") if f.is_file())
    steady = busy[len(busy) // 5 : -max(1, len(busy) // 10)]
    record = {
        "date": time.strftime("%Y-%m-%d"),
        "commit": options.commit,
        "command": "python benchmarks/throughput.py " + " ".join(sys.argv[1:]),
        "protocol": "a search as evo search does it, without CONFIRMED and without an end at convergence; "
        "stages from the database; GPU busy as nvidia-smi samples it twice a second, without the first fifth "
        "and the last tenth of the run",
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "wall_clock_s": round(lasted, 1),
        "gpu_busy_percent": {
            "mean": round(statistics.fmean(steady), 1),
            "median": statistics.median(steady),
            "samples": len(steady),
        },
        "usage": usage,
        "disk_bytes_a_trial": round(disk / sum(study["trials"] for study in found.values())),
        **found,
    }
    options.out.write_text(json.dumps(record, indent=1) + "\n")
    honest = found["honest"]
    stages = honest["seconds_by_outcome_and_stage"].get("TIMED", {})
    print({k: honest[k] for k in ("outcomes", "trials_a_minute", "trials_in_each_whole_minute", "best_us")})
    print({stage: numbers["median_ms"] for stage, numbers in stages.items()}, record["gpu_busy_percent"])
    print(usage, record["disk_bytes_a_trial"], "bytes of disk a trial")
    if "faulty" in found:
        red = found["faulty"]["seconds_by_outcome_and_stage"].get("RED", {})
        print(found["faulty"]["outcomes"], red.get("gate"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
