"""Evaluators for a pool that do what a candidate's source says, and what their tests have in common."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
from times import timing_on

from evo.errors import CandidateError, Crashed, MachineError, Red, Uncompilable
from evo.evaluate import evaluating, failed
from evo.evaluate.pool import Pool
from evo.fork_server import server_pid
from evo.trial import Candidate, LaunchConfig, Outcome, Problem, Trial

PROBLEM = Problem("demo", {"N": 1}, "fp32")


def candidate(source: str) -> Candidate:
    """For these tests a source is a word of command."""
    return Candidate(PROBLEM, "demo", {}, source, "k", LaunchConfig((1, 1, 1), (1, 1, 1), 0, ()))


RAISED: dict[str, Exception] = {
    "bug": ZeroDivisionError("a bug of ours"),
    "machine": MachineError("the disk is full", "free some space"),
    "large": MemoryError(),
}


class Obedient:
    """Does what a candidate's source says."""

    def __init__(self, stuck: bool = False) -> None:
        self.usable = True
        self.stuck = stuck
        self.leak: list[bytes] = []

    def evaluate(
        self,
        candidate: Candidate,
        watch: Callable[[str], None],
        earlier: int,
        best_us: float | None,
        compares: bool,
    ) -> Trial:
        watch("gate")
        began = time.monotonic()
        word, _, value = candidate.source.partition(" ")
        if word in ("sleep", "turn"):
            watch(word)
            time.sleep(float(value))
            watch("timing")
        elif word == "hang":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(1e6)
        elif word == "exit":
            print("last words", flush=True)
            os._exit(int(value))
        elif word == "signal":
            os.kill(os.getpid(), int(value))
        elif word in RAISED:
            raise RAISED[word]
        elif word == "leak":
            self.leak.append(os.urandom(1 << 20) * int(value))
        elif word == "print":
            for _ in range(int(value)):
                print("x" * 1_000_000)
        try:
            if word == "red":
                raise Red("race", "two threads", "k.cu:3")
            if word == "crash":
                self.usable = False
                raise Crashed("illegal address")
        except CandidateError as error:
            return failed(candidate, error, seconds={})
        counters = {"pid": float(os.getpid()), "earlier": float(earlier), "compares": float(compares)}
        counters["best_us"] = best_us or math.nan
        if word in ("takes", "loses"):  # one that loses is timed on one of two inputs
            timing = timing_on({"normal": float(value)}, {}, inputs=2 if word == "loses" else 1)
            return Trial(candidate, Outcome.TIMED, timing=timing, counters=counters)
        seconds = {"gate": time.monotonic() - began}
        return Trial(candidate, Outcome.GREEN, estimate_us=1.0, counters=counters, seconds=seconds)

    def meanwhile(self) -> bool:
        if self.stuck:
            time.sleep(1e6)
        return False


@dataclass
class Compiling:
    """Compiles ahead by waiting; some candidates end there."""

    seconds: float

    def __call__(self, candidate: Candidate) -> Trial | None:
        time.sleep(self.seconds)
        if candidate.source == "uncompilable":
            return failed(candidate, Uncompilable("register limit"), seconds={})
        if candidate.source == "bug ahead":
            raise ZeroDivisionError("a bug of ours")
        return None

    def close(self) -> None: ...


@dataclass(frozen=True)
class ObedientSpec:
    most: int = 99
    compile_s: float | None = None
    build_s: float = 0.0
    broken: str = ""
    small: bool = False
    """Replaced at 512 MB above what it starts with, however little that is."""
    forks: bool = False

    def prepare(self) -> None: ...

    def evaluators(self, workers: int) -> int:
        return min(self.most, workers)

    def precompiler(self, workers: int) -> Compiling | None:
        assert workers > 0
        return None if self.compile_s is None else Compiling(self.compile_s)

    def build(self) -> Obedient:
        time.sleep(self.build_s)
        if self.small:
            evaluating.RECYCLE_BYTES = 0
        if self.broken == "dies":
            print("libfoo.so not found", flush=True)
            os._exit(3)
        if self.broken == "refuses":
            raise MachineError("no NVIDIA driver", "use the emulator")
        return Obedient(stuck=self.broken == "stuck")


def prepare(word: str) -> None:
    """What a process does before it is known what it will evaluate."""
    (Path(word) / str(os.getpid())).touch()


def run(pool: Pool, sources: list[str], limit_s: float = 120.0) -> list[tuple[int, Trial]]:
    """Submit as the pool has room; everything that came out, in that order."""
    waiting = list(enumerate(sources))
    finished: list[tuple[int, Trial]] = []
    end = time.monotonic() + limit_s
    submitted = 0
    while len(finished) < len(sources):
        assert time.monotonic() < end, f"still under way: {pool.activity()}"
        while waiting and submitted - len(finished) < pool.capacity:
            number, source = waiting.pop(0)
            pool.submit(number, candidate(source))
            submitted += 1
        finished += pool.wait(1.0)
    return finished


def rest(pool: Pool, count: int) -> list[tuple[int, Trial]]:
    """The next `count` trials that come out."""
    finished: list[tuple[int, Trial]] = []
    while len(finished) < count:
        finished += pool.wait(1.0)
    return finished


def children() -> set[int]:
    """Processes of this one, forked ones too, but not the server that forks. Zombies too: they were not
    waited for."""
    return {child.pid for child in psutil.Process().children(recursive=True)} - {server_pid()}


def all_end(before: set[int]) -> bool:
    """Whether no process is left but those `before`, soon: one that was being forked when it was given up
    finds that out by itself."""
    end = time.monotonic() + 10
    while not children() <= before and time.monotonic() < end:
        time.sleep(0.01)
    return children() <= before


def awaited(pool: Pool, idle: int) -> None:
    """Until so many evaluators have nothing to do."""
    end = time.monotonic() + 120
    while pool.idle != idle:
        assert time.monotonic() < end, pool.activity()
        assert pool.wait(0.05) == []
