"""Several searches at the same time, each on its own GPUs and in its own process: of one problem on GPUs of
several models, or of parts of many problems (evo/api/shapes.py).

Times of different models say nothing of each other, but a kernel that is good on one is often good on
another: each study tries the best kernels of the others as these find them (evo/loop/exchange.py).
"""

from __future__ import annotations

import ctypes
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from evo.api.running import open_store
from evo.cores import usable_cores
from evo.device.open import choose_device, choose_gpus, gpu_named, is_emulator, is_gpu, real_gpu
from evo.report.screen import screen
from evo.report.terminal import for_terminal

DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of prctl(2)."""


@dataclass(frozen=True)
class Part:
    """One of the searches: what its GPU or GPUs are called ("H200", "cuda:1"), the name of its study, or what
    the names of its studies begin with, and the options that say where it runs."""

    gpu: str
    study: str
    where: Mapping[str, Any]


def models(
    device: str, gpu: str | None, gpus: str | None, target: str | None, scheduler: str | None
) -> dict[str, dict[str, Any]]:
    """The options of a search for each model of the GPUs that are asked for, by model; none where all are of
    one model. The emulator stands for several where `gpu` names them: "H200,L4"."""
    if scheduler is not None:
        return _of_cluster(device, scheduler) if gpus == "all" else {}
    if gpu is not None and "," in gpu:
        names = [gpu_named(name).name for name in gpu.split(",")]
        return {name: {"device": "emulator", "gpu": name, "gpus": None} for name in names}
    if gpus is None:
        return {}
    chosen, _ = choose_device(device, gpu, target)
    groups: dict[str, list[str]] = {}
    for one in choose_gpus(gpus, chosen) if is_gpu(chosen) else ():
        groups.setdefault(real_gpu(one).name, []).append(one.removeprefix("cuda:"))
    if len(groups) < 2:
        return {}
    return {
        name: {"device": "auto", "gpu": None, "gpus": ",".join(numbers)} for name, numbers in groups.items()
    }


def _of_cluster(device: str, scheduler: str) -> dict[str, dict[str, Any]]:
    """A search for each model that workers have now."""
    from evo.api.scheduler import Scheduler

    with closing(Scheduler(scheduler, screen(True).notice)) as there:
        names = there.models(emulated=is_emulator(device))
    return {name: {"device": device, "gpu": name, "gpus": None} for name in names}


def parts_of(
    found: Mapping[str, Mapping[str, Any]], study: str | None, task: str, workers: int | None, database: str
) -> list[Part]:
    """The studies, whose names end with their models; the cores are shared among them."""
    with open_store(database, screen(True), create=True) as store:
        taken = {one.name for one in store.studies()}
    base, number = study or "", 1
    while not base:
        stem = f"{Path(task).name}-{number}"
        base = "" if any(name == stem or name.startswith(f"{stem}-") for name in taken) else stem
        number += 1
    each = max(1, (workers or usable_cores()) // len(found))
    names = {model: f"{base}-{_slug(model)}" for model in found}
    parts = []
    for model, name in names.items():
        others = [other for other in names.values() if other != name]
        parts.append(Part(model, name, {**found[model], "workers": each, "exchange": others}))
    return parts


def _slug(model: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", model.lower().removeprefix("nvidia ")).strip("-")


def search_parts(parts: Sequence[Part], task: str, told: Mapping[str, Any]) -> list[int]:
    """Runs all searches at the same time; how each command ended. `told`: the options of `evo search` by
    name that they share. Ctrl-C and SIGTERM reach each of them once."""
    children = []
    for part in parts:
        options = {**told, **part.where, "study": part.study}
        command = [sys.executable, "-m", "evo", "search", task, *words_of(options), "--json"]
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,  # a terminal's Ctrl-C comes from here, once
            preexec_fn=_end_with_parent,  # noqa: PLW1509 - no thread runs yet
        )
        children.append(child)
    readers = [
        threading.Thread(target=_repeat, args=(child.stderr, part.gpu), daemon=True)
        for child, part in zip(children, parts, strict=True)
        if child.stderr is not None
    ]
    with _forwarded(children):
        for reader in readers:
            reader.start()
        codes = [child.wait() for child in children]
    for reader in readers:
        reader.join(5.0)
    return codes


def words_of(options: Mapping[str, Any]) -> list[str]:
    """The options as the command line has them."""
    found: list[str] = []
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            found.append(option)
        elif value is not None and value is not False:
            several = value if isinstance(value, (list, tuple)) else [value]
            found += [word for one in several for word in (option, str(one))]
    return found


def _end_with_parent() -> None:
    """In the child: a parent that is killed interrupts it, so that it ends as by Ctrl-C."""
    ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGINT)


def _repeat(lines: IO[bytes], model: str) -> None:
    """Shows what a search says, and of which model."""
    with lines:
        for line in lines:
            text = line.decode(errors="replace").rstrip()
            print(for_terminal(f"{model}: {text}"), file=sys.stderr, flush=True)


@contextmanager
def _forwarded(children: Sequence[subprocess.Popen[bytes]]) -> Iterator[None]:
    """Meanwhile SIGINT and SIGTERM go to the children."""

    def forward(number: int, _frame: object) -> None:
        for child in children:
            child.send_signal(number)

    before = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, action in before.items():
            signal.signal(number, action)
