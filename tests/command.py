"""What tests of the command line share: the command in a process of its own, and databases."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from times import timing

from evo.store import Store
from evo.study import Study
from evo.trial import (
    BufferArg,
    Candidate,
    Interval,
    LaunchConfig,
    Outcome,
    Problem,
    Resources,
    Trial,
)

ROOT = Path(__file__).parents[1]
EVO = [sys.executable, "-m", "evo"]
"""The installed command, without needing it on PATH."""
SMALL = ["--shape", "1,1,16,32", "--device", "emulator"]
"""A problem of which the emulator does several a second."""


@dataclass(frozen=True)
class Said:
    """What a command answered."""

    code: int
    out: str
    err: str


Evo = Callable[..., Said]
"""The fixture `evo`: runs a command in this process."""


def run_evo(folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*EVO, *words], cwd=folder, env={**os.environ, **env}, capture_output=True, text=True, timeout=300,
        check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip


@contextlib.contextmanager
def evo_running(folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A command in a process group of its own, as a shell starts it; whatever is left of it is killed."""
    process = subprocess.Popen(
        [*EVO, *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        stdin=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    with process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def group_is_empty(group: int) -> bool:
    """Whether every process of a search is gone, or goes within a moment."""
    for _ in range(300):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


def trials(folder: Path, database: str = "runs/evo.db") -> list[tuple[int, str]]:
    with contextlib.closing(sqlite3.connect(folder / database)) as connection:
        return connection.execute("SELECT number, outcome FROM trials ORDER BY number").fetchall()


def wait_for_trials(folder: Path, count: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(sqlite3.Error):
            if len(trials(folder)) >= count:
                return
        time.sleep(0.1)
    said = process.stderr.read() if process.stderr and process.poll() is not None else ""
    pytest.fail(f"{count} trials never came: {said}")


def rows(folder: Path, query: str) -> list[tuple[Any, ...]]:
    with contextlib.closing(sqlite3.connect(folder / "runs/evo.db")) as connection, connection:
        return connection.execute(query).fetchall()


def template_words(folder: Path) -> list[str]:
    return ["--templates", str(folder), "--template", "row_warp"]


def altered(row_warp: Path, folder: Path, file: str, old: str, new: str) -> list[str]:
    """The examples' template of attention, with one thing changed."""
    made = folder / "templates"
    shutil.copytree(row_warp / "attention", made / "attention")
    path = made / "attention" / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    return template_words(made)


PROBLEM = Problem("attention", {"B": 1, "H": 8, "L": 512, "D": 64}, "fp16", {"causal": False})


def trial(number: int, problem: Problem = PROBLEM, **fields: object) -> Trial:
    launch = LaunchConfig((8, 8, 1), (128, 1, 1), 16384 + number, (BufferArg("q"),))
    source = f"// evo point {number}\n"
    candidate = Candidate(problem, "flash_mma", {"bm": 64, "at": number}, source, "attention", launch)
    return Trial(candidate, **fields)  # type: ignore[arg-type]


def two_studies(path: Path) -> None:
    """A database of two studies: one measured on a GPU, one on the emulator, with failures."""
    with Store(path) as store:
        measured = store.create(Study("mission-1", PROBLEM, "cuda:0", "H200", ("flash_mma",), 300.0))
        for number, median_us in enumerate((9.0, 8.0, 8.5)):
            timed = timing(
                (median_us,) * 3,
                median_us,
                Interval(median_us - 0.1, median_us + 0.1),
                {"flash": 10.27, "cudnn": 9.1},
                9.1 / median_us,
                Interval(1.0, 1.2),
            )
            resources = Resources(128, 0, 0, 0)
            store.add(
                measured,
                number,
                trial(number, outcome=Outcome.TIMED, timing=timed, resources=resources, device="NVIDIA H200"),
            )
        causal = PROBLEM.replace(L=1024, causal=True)
        emulated = store.create(Study("laptop-1", causal, "emulator", "L4", ("flash_mma",), 120.0))
        green = {
            "outcome": Outcome.GREEN,
            "estimate_us": 31.0,
            "estimate_gpu": "L4",
            "device": "emulator (L4)",
        }
        store.add(emulated, 0, trial(10, causal, **green))
        store.add(
            emulated,
            1,
            trial(11, causal, outcome=Outcome.RED, reason="race", detail="smem 0x40", where="a.cu:7"),
        )
