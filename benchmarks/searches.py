"""Searches and evaluations as the benchmarks need them: by evo's own search and its own evaluators."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from evo.cores import usable_cores
from evo.device.open import choose_device
from evo.errors import NothingFound
from evo.evaluate import EvaluatorSpec
from evo.evaluate.pool import Pool
from evo.loop import Progress, SearchSpace, search, search_spaces
from evo.loop.stopping import STOPPING_PATIENCE
from evo.store import Store
from evo.study import Setup, Study
from evo.task import load_task
from evo.trial import Candidate, Trial


def add_search_options(parser: argparse.ArgumentParser) -> None:
    """What every benchmark that searches may be told."""
    parser.add_argument("--task", default="attention")
    parser.add_argument("--shape", default="1,8,512,64", help="of the task's problem")
    parser.add_argument("--dtype", help="its storage type (default: the task's)")
    parser.add_argument("--template", action="append", default=[], help="only this one; may be repeated")
    parser.add_argument("--strategy", default="evo")
    parser.add_argument("--workers", type=int, help="candidates at work at once (default: one a core)")
    parser.add_argument("--device", default="auto", help="auto, cuda:0 or emulator")
    parser.add_argument("--gpu", help="the GPU that the emulator stands for")


def setup_of(
    asked: argparse.Namespace,
    cache: Path,
    name: str,
    budget_s: float,
    seed: int = 0,
    folder: Path | None = None,
) -> Setup:
    """The setup of a study that no store has yet. `folder`: of more templates; `cache`: of built things."""
    folders = (folder,) if folder else ()
    device, gpu = choose_device(asked.device, asked.gpu, None)
    study = Study(
        name,
        load_task(asked.task, folders).problem(asked.shape, asked.dtype),
        device,
        gpu.name,
        tuple(asked.template),
        budget_s,
        asked.strategy,
        seed,
        workers=asked.workers or usable_cores(),
        folders=tuple(map(str, folders)),
    )
    return Setup.of(study, cache)


def spaces_of(setup: Setup) -> dict[str, SearchSpace]:
    return search_spaces(setup.templates, setup.limits, setup.study.problem)


def searched(
    setup: Setup,
    store: Store,
    watch: Callable[[Progress], None],
    patience: int = STOPPING_PATIENCE,
    spaces: Mapping[str, SearchSpace] | None = None,
) -> str:
    """Searches as `evo search` does, without CONFIRMED. Why it stopped; "nothing found" where no kernel was
    right. A study that the store has already goes on."""
    known = [one for one in store.studies() if one.name == setup.study.name]
    study = known[0] if known else store.create(setup.study)
    pool = Pool(EvaluatorSpec.of(replace(setup, study=study)), study.workers)
    with suppress(NothingFound):
        return search(study, store, spaces or spaces_of(setup), pool, watch, patience=patience).stopped
    return "nothing found"


def evaluated(setup: Setup, candidates: Iterable[Candidate]) -> list[Trial]:
    """What becomes of each candidate: compiled on all cores, checked by the gate and timed, as a search does
    it. In the order of `candidates`."""
    done: dict[int, Trial] = {}
    with Pool(EvaluatorSpec.of(setup), setup.study.workers) as pool:
        count = 0
        for number, candidate in enumerate(candidates):
            while number - len(done) >= pool.capacity:
                done |= pool.wait(1.0)
            pool.submit(number, candidate)
            count = number + 1
        while len(done) < count:
            done |= pool.wait(1.0)
    return [done[number] for number in sorted(done)]


def a_minute(ends: Sequence[float]) -> float:
    """Trials a minute from the first to the last of those that ended at `ends`, seconds, ascending."""
    return round(60 * (len(ends) - 1) / max(1e-9, ends[-1] - ends[0]), 1)
