"""A confirmation on each of several GPUs, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from evo.confirm.confirmation import Step, confirm
from evo.confirm.worker import ConfirmWorker, WorkerProcess, WorkerSpec
from evo.device.open import choose_gpus, require_one_model
from evo.store import Confirmation, Store
from evo.study import Setup, Study

MakesWorker = Callable[[Study], ConfirmWorker]
"""Makes the worker for a study, on the study's device."""


def worker_on(cache: Path, nvcc: Path | None) -> MakesWorker:
    """Makes workers that are processes of this machine."""

    def make(study: Study) -> ConfirmWorker:
        spec = WorkerSpec.of(Setup.of(study, cache, nvcc))
        spec.evaluator.prepare()
        return WorkerProcess(spec)

    return make


def confirm_on_each(
    study: Study,
    store: Store,
    make: MakesWorker,
    asked: str | None,
    top: int,
    watch: Callable[[Step], None],
) -> dict[str, Confirmation]:
    """What each of the GPUs that are `asked` for ("all", "0,1"; None: the study's own) says of the `top`
    trials of `study`, by device. The study's own GPU is the last if it is one of them: the leaderboard shows
    what was said last. UsageError where a GPU is of another model, or another process has the study."""
    devices = choose_gpus(asked, study.device) or (study.device,)
    if asked is not None:
        require_one_model(devices)
    found: dict[str, Confirmation] = {}
    store.claim(study, study.lookahead)  # no other process searches or confirms it meanwhile
    try:
        for device in sorted(devices, key=lambda device: device == study.device):
            with closing(make(study.on_gpus((device,)))) as worker:
                result = confirm(study, store, worker, top=top, afresh=True, watch=watch)
            if result is not None:
                found[device] = result
    finally:
        store.release(study, study.status, study.spent_s)
    return found
