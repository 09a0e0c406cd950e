"""One search for 200 products of matrices: each shape's best kernel and the portfolio's beside cuBLASLt.

`evo search gemm --shapes benchmarks/gemm/shapes-200.txt --budget 30m --portfolio 12`, then for each shape its
best kernel, the portfolio's kernel for it and cublaslt in one process, on every timing input. A call
ends after --seconds; the same command goes on where it ended, until `done` is true: the search takes its
budget, and the comparison a second a shape. With `--gpus 0,1` each GPU has half of the shapes and of the
budget.
--state DIR takes what a call needs to a fresh machine: it is read from there where the folder is empty, and
written there at the end, in files of 15 MB.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
import random
import sqlite3
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, suppress
from multiprocessing import get_context
from pathlib import Path
from queue import Empty
from typing import Any

from benchmarks.command import evo_for
from benchmarks.gemm.shapes import WithPatient, summary
from evo.api.shapes import texts_of
from evo.cache import default_folder
from evo.device.open import is_gpu, real_gpu
from evo.errors import CandidateError
from evo.evaluate import Evaluator, EvaluatorSpec, trial_seed
from evo.gpu import Limits
from evo.store import Store
from evo.task import Task, load_task
from evo.template import load_template
from evo.trial import Candidate, Problem

PROTOCOL = """one evo search of all shapes for one budget, in seconds of one GPU; then for each shape its best
kernel and the kernel of the portfolio that serves it, each in turns with cublaslt: both rendered anew, warm
L2, graph replays, medians, on every timing input. `ratio` is how many times as long as ours cublaslt takes
(the fastest of up to 32 algorithms, by evo's own times) on the input where that is least; `loss` how many
times as long as the shape's best kernel the portfolio's takes, by the worst input. Means are geometric"""
GPU = True
SHAPES = Path(__file__).with_name("shapes-200.txt")
STUDY = "many"
SPLIT_FLOP = 1e10
"""Products of less work are one class, those of more another."""
PART_BYTES = 15 << 20
START_S = 15.0
"""What a search needs to begin."""
NEARLY = 0.98
"""A budget of which this part is spent is spent: what is left is not enough for a turn of a shape."""
AFTER_S = 25.0
"""Kept of a call's seconds for the end of the search, and for packing the state twice as much."""


def drawn(count: int, seed: int) -> list[str]:
    """Shape texts M,N,K,1: sizes from 64 to 16384, even in doublings, in whole 64s."""
    rng = random.Random(seed)
    return [",".join(str(64 * round(2 ** rng.uniform(0, 8))) for _ in "MNK") + ",1" for _ in range(count)]


def shapes_of(asked: argparse.Namespace) -> list[str]:
    return texts_of(load_task("gemm"), [str(asked.shapes)])


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--folder", type=Path, default=Path("build/many-shapes"), help="of what calls share")
    parser.add_argument("--state", type=Path, metavar="DIR", help="see above")
    parser.add_argument("--seconds", type=float, default=500.0, help="of this call (default: 500)")
    parser.add_argument("--shapes", type=Path, default=SHAPES, metavar="FILE", help=f"default: {SHAPES.name}")
    parser.add_argument("--budget", type=float, default=1800.0, help="GPU seconds (default: 1800)")
    parser.add_argument("--gpus", default="0", metavar="0,1", help="of this machine (default: 0)")
    parser.add_argument("--portfolio", type=int, default=12, help="kernels at most (default: 12)")
    parser.add_argument("--device", default="cuda", help="emulator: the search alone")
    parser.add_argument("--dtype", default="bf16")


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    end = time.monotonic() + asked.seconds - (2 * AFTER_S if asked.state else 0.0)
    asked.folder.mkdir(parents=True, exist_ok=True)
    if asked.state and not (asked.folder / "evo.db").exists():
        unpack(asked.state, asked.folder)
    if not is_over(asked) or not (asked.folder / "search.json").exists():
        search(asked, end - AFTER_S)
    found = read(asked.folder / "compared.json")
    yield figures(asked, found)
    if is_gpu(asked.device) and is_over(asked):
        for text, entry in compared(asked, found, end):
            found[text] = entry
            (asked.folder / "compared.json").write_text(json.dumps(found))
            yield figures(asked, found)
    if asked.state:
        pack(asked.folder, asked.state)
        yield figures(asked, found)


# ---- the search


def search(asked: argparse.Namespace, end: float) -> None:
    """Goes on with the search until its budget is spent, or until `end` by an interrupt, as a person would;
    not where it would hardly begin."""
    if end - time.monotonic() < START_S:
        return
    words = ["search", "gemm", "--shapes", str(asked.shapes), "--dtype", asked.dtype, "--study", STUDY]
    words += ["--budget", f"{asked.budget / len(numbers(asked)):g}s", "--portfolio", str(asked.portfolio)]
    words += ["--device", asked.device, "--gpus", asked.gpus]
    words += ["--database", str(asked.folder / "evo.db"), "--json"]
    with (asked.folder / "search.json.part").open("wb") as out:
        evo_for(end - time.monotonic(), *words, out=out)
    part = asked.folder / "search.json.part"
    if part.stat().st_size:  # else it had hardly begun
        part.replace(asked.folder / "search.json")


def numbers(asked: argparse.Namespace) -> list[str]:
    """The numbers of the GPUs."""
    return str(asked.gpus).split(",")


def is_over(asked: argparse.Namespace) -> bool:
    """Whether the search has spent its budget."""
    return spent(asked.folder)["spent_s"] >= NEARLY * float(asked.budget)


def spent(folder: Path) -> dict[str, float]:
    """What the search has spent so far, and its trials."""
    if not (folder / "evo.db").exists():
        return {"spent_s": 0.0, "trials": 0}
    with Store(str(folder / "evo.db")) as store:
        studies = store.studies()
        trials = sum(sum(store.count(study).values()) for study in studies)
        return {"spent_s": round(math.fsum(study.spent_s for study in studies), 1), "trials": trials}


# ---- beside the baselines


def compared(
    asked: argparse.Namespace, known: dict[str, Any], end: float
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The shapes that are not `known`, on each GPU one after the other until `end`."""
    rows = zip(shapes_of(asked), read(asked.folder / "search.json")["problems"], strict=True)
    left = [(text, row) for text, row in rows if text not in known]
    if not left:
        return
    spawned, gpus = get_context("spawn"), numbers(asked)
    with ProcessPoolExecutor(len(gpus), spawned) as processes:
        parts = [left[at :: len(gpus)] for at in range(len(gpus))]
        told: Any = spawned.Manager().Queue()
        ends = [
            processes.submit(compare, told, asked, f"cuda:{gpu}", part, end - time.monotonic())
            for gpu, part in zip(gpus, parts, strict=True)
        ]
        while not all(one.done() for one in ends) or not told.empty():
            with suppress(Empty):
                yield told.get(timeout=1.0)
        for one in ends:
            one.result()  # raises what went wrong


def compare(
    told: Any, asked: argparse.Namespace, device: str, part: Sequence[tuple[str, Any]], seconds: float
) -> None:
    """Puts each shape of a part, and what was measured, into the queue `told`."""
    end = time.monotonic() + seconds
    said, task, gpu = read(asked.folder / "search.json"), load_task("gemm"), real_gpu(device)
    spec = EvaluatorSpec("gemm", device, gpu, Limits.of(gpu), default_folder())
    with Store(str(asked.folder / "evo.db")) as store, closing(spec.build()) as evaluator:
        for text, row in part:
            began = time.monotonic()
            if began > end:
                return
            problem = task.problem(text, asked.dtype)
            best = store.leaderboard(study=row["study"], limit=1) if row["study"] else []
            if not best:
                told.put((text, {"failed": "no correct kernel"}))
                continue
            found = store.trial(best[0].trial).candidate
            kernels = {"best": load_template(task, found.template, gpu=gpu).candidate(found.point, problem)}
            if row["kernel"]:
                chosen = said["kernels"][row["kernel"] - 1]
                template = load_template(task, chosen["template"], gpu=gpu)
                kernels["portfolio"] = template.candidate(template.space.parse(chosen["point"]), problem)
            entry = beside(task, problem, kernels, evaluator)
            told.put((text, entry | {"s": round(time.monotonic() - began, 1)}))


def beside(
    task: Task, problem: Problem, kernels: dict[str, Candidate], evaluator: Evaluator
) -> dict[str, Any]:
    """The kernels of one shape, and cublaslt in turns with each."""
    from evo.timing.session import TimingSession

    # no other baseline: the fastest one alone takes turns with a kernel, and a GPU at its power limit changes
    # its clock meanwhile
    baselines: Any = WithPatient(task, ("compiled", "triton", "matmul"))
    session = TimingSession(evaluator.device, baselines, problem, seed=0)
    found: dict[str, Any] = {"flop": task.flop(problem), "absent": session.skipped_baselines}
    for name, candidate in kernels.items():
        if name == "portfolio" and candidate.program == kernels["best"].program:
            found[name] = found["best"]
            continue
        try:
            green = evaluator.gate(candidate, trial_seed(0, candidate), thorough=False)
            timing = session.measure(green, whole=True)
        except CandidateError as failed:
            return found | {"failed": f"{name}: {failed.outcome} {failed.reason}"}
        about = {"template": candidate.template, "worst_us": round(timing.median_us, 3)}
        found[name] = about | summary(task, problem, timing)
    return found


# ---- figures


def figures(asked: argparse.Namespace, found: dict[str, Any]) -> dict[str, Any]:
    """All that is known so far."""
    said, count = read(asked.folder / "search.json"), len(shapes_of(asked))
    problems = said.get("problems", [])
    timed = {text: one for text, one in found.items() if "failed" not in one}
    small = {text: one for text, one in timed.items() if one["flop"] < SPLIT_FLOP}
    large = {text: one for text, one in timed.items() if text not in small}
    losses = [
        one["portfolio"]["worst_us"] / one["best"]["worst_us"] for one in timed.values() if "portfolio" in one
    ]
    so_far = spent(asked.folder)
    return {
        "done": is_over(asked) and (len(found) == count or not is_gpu(asked.device)),
        "search": {
            **so_far,
            "budget_s": asked.budget,
            "shapes": count,
            "served": sum(bool(row["median_us"] or row["estimate_us"]) for row in problems),
            "kernels": len(said.get("kernels", [])),
            "regret": mean([row["regret"] for row in problems if row["regret"]]),
            "left_out_regret": mean([row["left_out_regret"] for row in problems if row["left_out_regret"]]),
        },
        "below_1e10": ratios(small),
        "above_1e10": ratios(large),
        "portfolio": {"shapes": len(losses), "loss": mean(losses), "worst_loss": max(losses, default=None)},
        "failed": {text: one["failed"] for text, one in found.items() if "failed" in one},
        "shapes": found,
    }


def ratios(found: dict[str, Any]) -> dict[str, Any]:
    """Of the best kernels and the portfolio's, to the fastest that cuBLASLt has."""
    entry: dict[str, Any] = {"shapes": len(found)}
    for kind in ("best", "portfolio"):
        every = {text: one[kind]["ratio"].get("cublaslt") for text, one in found.items() if kind in one}
        known = {text: ratio for text, ratio in every.items() if ratio}
        least = min(known, key=known.__getitem__, default=None)
        entry[kind] = {
            "mean": mean(list(known.values())),
            "least": known.get(least) if least else None,
            "least_of": least,
            "below_0.85": sum(ratio < 0.85 for ratio in known.values()),
            "of_cublaslt": len(known),
        }
    return entry


def mean(values: Sequence[float]) -> float | None:
    """Geometric."""
    return round(math.exp(math.fsum(map(math.log, values)) / len(values)), 4) if values else None


# ---- what calls share


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def pack(folder: Path, state: Path) -> None:
    """The database in parts that can be sent, and the two files beside it."""
    state.mkdir(parents=True, exist_ok=True)
    whole = folder / "packed.db"
    whole.unlink(missing_ok=True)
    with closing(sqlite3.connect(folder / "evo.db")) as connection:
        connection.execute("VACUUM INTO ?", (str(whole),))
    packed = lzma.compress(whole.read_bytes(), preset=1)
    whole.unlink()
    for old in state.glob("evo.db.xz.*"):
        old.unlink()
    for number, begin in enumerate(range(0, len(packed), PART_BYTES)):
        (state / f"evo.db.xz.{number}").write_bytes(packed[begin : begin + PART_BYTES])
    for name in ("search.json", "compared.json"):
        if (folder / name).exists():
            (state / name).write_bytes((folder / name).read_bytes())


def unpack(state: Path, folder: Path) -> None:
    parts = sorted(state.glob("evo.db.xz.*"), key=lambda part: int(part.suffix[1:]))
    if parts:
        (folder / "evo.db").write_bytes(lzma.decompress(b"".join(part.read_bytes() for part in parts)))
    for name in ("search.json", "compared.json"):
        if (state / name).exists():
            (folder / name).write_bytes((state / name).read_bytes())
