"""Finals without a GPU: a worker whose times are those of the landscape, with the noise of a real GPU.

Run as a program (DATABASE STUDY SECONDS), it confirms a study and prints each step. With `evo SECONDS` in
front of an evo command, it runs that command, whose search has the landscape in place of a GPU, and this
worker.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
from landscape import LandscapeWorkers, evaluate

from evo.confirm import Step, confirm
from evo.confirm.on_emulator import GateRequest
from evo.confirm.rounds import Fallen
from evo.confirm.worker import Surroundings
from evo.errors import Crashed, Red
from evo.gpu import target
from evo.store import Store
from evo.trial import Candidate, CaseError, Round

BASELINES = {"cudnn": 7.5, "flash": 8.2, "math": 65.0}


@dataclass
class SimulatedWorker:
    """`red`: names that the thorough gate refuses; `falls`: a name and the round it falls in; `dies`: rounds
    that take the process with them."""

    seconds: float = 0.0
    red: Sequence[str] = ()
    falls: tuple[str, int] = ("", -1)
    dirty: Sequence[str] = ()
    dies: list[int] = field(default_factory=list)
    noise: float = 0.002
    alike: float | None = None
    """The time of every finalist, where they are to be alike."""
    inputs: Sequence[str] = ("normal", "sharp")
    """The timing inputs of its rounds."""
    slower: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """By what factor a finalist is slower on a timing input than on others."""
    versions: Mapping[str, str] = field(default_factory=lambda: {"x": "1"})
    finalists: dict[str, Candidate] = field(default_factory=dict)
    expected: list[str] = field(default_factory=list)
    seeds: dict[str, list[int]] = field(default_factory=dict)
    """Of the thorough gates that it was told of, and then asked for, by finalist."""
    asked: list[str] = field(default_factory=list)
    held: int = 0

    @property
    def loaded(self) -> Sequence[str]:
        return tuple(self.finalists)

    def surroundings(self) -> Surroundings:
        return Surroundings("none", "none 1", self.versions)

    def gate_s(self, name: str, seed: int) -> float:  # noqa: ARG002
        return self.seconds

    def expect(self, coming: Sequence[GateRequest], asked_at: float) -> None:  # noqa: ARG002
        self.expected += [name for name, _, _ in coming]
        for name, _, seed in coming:
            self.seeds.setdefault(name, []).append(seed)

    def gate(self, name: str, candidate: Candidate, seed: int, thorough: bool) -> tuple[CaseError, ...]:
        time.sleep(self.seconds)
        self.asked.append(f"gate {name} {'thoroughly' if thorough else 'quickly'}")
        if thorough:
            self.seeds.setdefault(name, []).append(seed)
        if name in self.red:
            raise Red("row error", "wrong at L = 7", "o[3, 1]")
        self.finalists[name] = candidate
        return (CaseError(candidate.problem.key, "normal", seed, 1e-4, 1e-3),)

    def sanitize(self, name: str) -> str:
        if name in self.dirty:
            raise Red("memcheck: Invalid __global__ read", "1 errors")
        return "clean: memcheck"

    def round(self, protocol: str, seed: int, names: Sequence[str]) -> Round:
        time.sleep(self.seconds)
        self.held += 1
        if self.held in self.dies:
            self.finalists.clear()
            raise Crashed("killed by SIGKILL")
        if self.falls[1] == self.held and self.falls[0] in names:
            raise Fallen(self.falls[0], Red("row error", "", "after timing"))
        rng = np.random.default_rng(seed)
        times = {name: _time(self.finalists[name]) if self.alike is None else self.alike for name in names}
        drift = rng.normal(0, 0.003) + (0.3 if protocol == "cold" else 0)

        def samples(name: str, us: float) -> dict[str, tuple[float, ...]]:
            factors = {on: self.slower.get((name, on), 1.0) for on in self.inputs}
            return {
                on: tuple(us * factor * np.exp(drift + rng.normal(0, self.noise, 6)))
                for on, factor in factors.items()
            }

        baselines_us, finalists_us = (
            {name: samples(name, us) for name, us in own.items()} for own in (BASELINES, times)
        )
        return Round(protocol, seed, finalists_us, baselines_us, {"sm_mhz": 1980.0}, 0)

    def skipped(self) -> Mapping[str, str]:
        return {"flex": "does not compile"}

    def kernels(self) -> Mapping[str, Sequence[str]]:
        return {"cudnn": ["cudnn_sdpa_kernel"]}

    def close(self) -> None:
        self.finalists.clear()


def _time(candidate: Candidate) -> float:
    timing = evaluate(candidate).timing
    assert timing is not None
    return timing.median_us


@dataclass(frozen=True)
class WildSpec:
    """What a WorkerProcess builds in its tests: one that does as it is told by a protocol's name."""

    def build(self) -> WildWorker:
        return WildWorker()


class WildWorker(SimulatedWorker):
    def round(self, protocol: str, seed: int, names: Sequence[str]) -> Round:
        if protocol == "hang":
            time.sleep(600)
        if protocol == "die":
            print("last words", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        if protocol == "bug":
            raise ZeroDivisionError
        if protocol == "fall":
            raise Fallen(names[0], Red("row error", "in a round"))
        return super().round(protocol, seed, names)


@dataclass(frozen=True)
class SimulatedSpec:
    """What a WorkerProcess builds where a whole command is simulated."""

    seconds: float

    def build(self) -> SimulatedWorker:
        return SimulatedWorker(self.seconds)


class OneGpu(LandscapeWorkers):
    gpus = ("a landscape",)


def command(seconds: float, words: list[str]) -> int:
    """An evo command on a study of the landscape; its confirm worker is a process of its own, as always."""
    import evo.cli
    import evo.confirm.worker
    import evo.device.open
    import evo.evaluate
    import evo.evaluate.pool
    import evo.study

    evo.study._gpu_at_hand = lambda study: target("sm_89")  # noqa: ARG005
    evo.device.open.is_gpu = lambda device: True  # noqa: ARG005
    spec = SimpleNamespace(groups=lambda _: ())  # of which the pool below asks nothing
    evo.evaluate.EvaluatorSpec.of = lambda *_: spec  # type: ignore[assignment,method-assign]
    evo.confirm.worker.WorkerSpec.of = lambda *_, **__: SimulatedSpec(seconds)  # type: ignore[assignment,method-assign]
    evo.evaluate.pool.Pool = lambda _, count, **__: OneGpu(count)  # type: ignore[assignment,misc]
    return evo.cli.main(words)


def main(words: list[str]) -> int:
    if words[0] == "evo":
        return command(float(words[1]), words[2:])
    database, study, seconds = words

    def watch(step: Step) -> None:
        print(step.text, flush=True)

    with Store(database) as store:
        found = confirm(store.study(study), store, SimulatedWorker(float(seconds)), top=3, watch=watch)
    print(found.status if found else "nothing", flush=True)
    return 0


if __name__ == "__main__":
    from finals import main as imported  # so that a confirm worker's process finds what it is sent

    sys.exit(imported(sys.argv[1:]))
