"""Many contestants in turns: finalists of a search, and all that they must beat, in one process.

They meet in rounds. Each round has inputs, buffers and graphs of its own, at other addresses than the
round before, and another order of contestants and of timing inputs: what is luck of one round is not luck of
all. In a round all take turns on one timing input after the other.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from evo.device import Device
from evo.errors import CandidateError, EvoError
from evo.gate import Green
from evo.task import Task, Tunable
from evo.timing import capture_baselines
from evo.timing.inputs import InputSets
from evo.timing.stopwatch import Call, Replay, Stopwatch, TimingSettings, launches_per_replay
from evo.trial import WORST, Problem, Round

SAMPLES = 4
"""Kept samples of a contestant on a timing input in a round; one before them warms up."""
RETAKES = 3
"""How often a round at a throttled clock is taken again, before it is taken as it is (and says so)."""
PROFILED_CALLS = 2
IMPATIENT = "setting it up takes longer than this budget has left; `evo confirm` takes the time"
"""Why a patient baseline is not timed where there is no patience."""
SLOW, SLOW_US = 4.0, 2000.0
"""A baseline that takes so many times as long as the fastest one, and at least so long, takes no part where
time is short. In searches of attention `hybrid` took 4 to 23 times as long at 16,384 keys, `math` 24 to 29
times at 1,024 to 8,192 (lab/throughput.md)."""


class Fallen(EvoError):
    """A finalist turned out wrong while it was timed."""

    def __init__(self, name: str, error: CandidateError) -> None:
        super().__init__(f"{name}: {error}")
        self.name = name
        self.error = error

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.name, self.error)


class Rounds:
    """One problem on one GPU, and what the patient baselines need to run: they are set up once. `ranking`:
    the first timing input is the one that it names. `hurried`: without baselines that are SLOW."""

    def __init__(
        self,
        device: Device,
        task: Task,
        problem: Problem,
        patient: bool,
        ranking: str = WORST,
        hurried: bool = False,
    ) -> None:
        self.device, self.task, self.problem, self.ranking = device, task, problem, ranking
        self.skipped: dict[str, str] = {}
        """Baselines that could not be timed in some round, and why: what misses one takes part in none."""
        self.baselines = task.baselines(problem, device.torch_device, patient)
        self._looks_for_slow = hurried
        """Whether no round has looked yet which baselines are too slow."""
        if not patient:
            every = task.baselines(problem, device.torch_device, True)
            self.skipped = dict.fromkeys(every.keys() - self.baselines.keys(), IMPATIENT)

    def round(self, protocol: Literal["warm", "cold"], seed: int, finalists: Mapping[str, Green]) -> Round:
        """All finalists and baselines, timed in turns. Raises Fallen where a finalist is not correct."""
        import torch

        with torch.no_grad(), self.device.alone():
            torch.cuda.empty_cache()
            rng = random.Random(seed)
            # what lies in front moves all buffers of this round
            spacer = torch.empty(
                rng.randrange(1, 64) << 20, dtype=torch.uint8, device=self.device.torch_device
            )
            try:
                return self._round(protocol, seed, finalists, rng)
            finally:
                del spacer

    def _round(
        self, protocol: Literal["warm", "cold"], seed: int, finalists: Mapping[str, Green], rng: random.Random
    ) -> Round:
        settings = TimingSettings(protocol)
        watch = Stopwatch(self.device, settings)
        sets = InputSets(self.device, self.task, self.problem, settings, seed, self.ranking, judged=1)
        contestants = {name: run for name, run in self.baselines.items() if name not in self.skipped}
        replays, skipped = capture_baselines(watch, sets, contestants)
        self.skipped |= skipped
        if self._looks_for_slow:
            self._looks_for_slow = False
            self.skipped |= slow(baselines_us(replays, watch))
            replays = {name: replay for name, replay in replays.items() if name not in self.skipped}
        entered: dict[str, _Entered] = {}  # launches hold the buffers that graphs write to
        for name, green in finalists.items():
            with _blame(name):
                entered[name] = _enter(green, watch, sets)
                replays[name] = entered[name].replay
        order = list(replays)
        rng.shuffle(order)
        # no input is always the first: a GPU that has rested may be slower for a while
        inputs = rng.sample(sets.names, len(sets.names))
        taken: dict[str, dict[str, tuple[float, ...]]]
        taken = {name: dict.fromkeys(sets.names, ()) for name in replays}
        throttled = 0
        for on in inputs:
            sets.fill(on)
            for name, one in entered.items():
                with _blame(name):
                    one.judge(watch, sets)
            samples, again = _sample([replays[name] for name in order], watch)
            throttled += again
            for name, own in zip(order, samples, strict=True):
                taken[name][on] = tuple(float(f"{us:.5g}") for us in own)
            for name in finalists:
                with _blame(name):
                    sets.refuse_impossible(float(np.median(taken[name][on])))
        finalists_us = {name: taken.pop(name) for name in finalists}
        return Round(protocol, seed, finalists_us, taken, watch.readings(0), throttled)

    def kernels(self) -> dict[str, list[str]]:
        """The names of the kernels that each baseline really runs, as torch's profiler sees them, and behind
        the last one which variant of a Tunable ran. Only after the last round: a profiler that
        was on once may slow what runs after it."""
        import torch
        from torch.profiler import ProfilerActivity, profile

        settings = replace(TimingSettings(), sets=1)
        sets = InputSets(self.device, self.task, self.problem, settings, 0, self.ranking)
        found: dict[str, list[str]] = {}
        with torch.no_grad():
            for name, run in self.baselines.items():
                if name in self.skipped:
                    continue
                call = sets.of_baseline(run)[0]
                call()
                self.device.finish()
                with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
                    for _ in range(PROFILED_CALLS):
                        call()
                    self.device.finish()
                names = [event.name for event in profiler.events() if event.device_type.name == "CUDA"]
                found[name] = list(dict.fromkeys(names))
                if found[name] and isinstance(run, Tunable) and run.chosen:
                    found[name][-1] += f" [{run.chosen}]"
        return found


@dataclass(frozen=True)
class _Entered:
    """A finalist that takes part in a round: its launches by set, its graph, and the sets whose outputs are
    judged after it."""

    calls: Sequence[Call]
    replay: Replay
    due: frozenset[int]

    def judge(self, watch: Stopwatch, sets: InputSets) -> None:
        """Red unless the outputs of its graph, replayed once by itself, are right."""
        sets.clear()
        watch.sample([self.replay], 1)
        sets.keep(self.calls, self.due)
        sets.judge()


def _enter(green: Green, watch: Stopwatch, sets: InputSets) -> _Entered:
    calls = sets.of_kernel(green.kernel, green.launch)
    launches = launches_per_replay(watch.estimate(calls), watch.settings)
    if watch.settings.protocol == "cold":
        launches = max(launches, len(sets))
    order, due = sets.turned(calls, launches)
    return _Entered(calls, watch.capture(order, launches), due)


def baselines_us(replays: Mapping[str, Replay], watch: Stopwatch) -> dict[str, float]:
    """What each takes, by the shorter of two samples."""
    samples = watch.sample(list(replays.values()), 2)
    return {name: float(min(own)) for name, own in zip(replays, samples, strict=True)}


def slow(taken_us: Mapping[str, float]) -> dict[str, str]:
    """Baselines that are too slow to take part where time is short, and why."""
    fastest = min(taken_us.values(), default=0.0)
    return {
        name: f"takes {us / fastest:.0f} times as long as the fastest; `evo confirm` takes the time"
        for name, us in taken_us.items()
        if fastest and us > max(SLOW * fastest, SLOW_US)
    }


def _sample(replays: Sequence[Replay], watch: Stopwatch) -> tuple[list[list[float]], int]:
    """Samples of each, µs a launch; and how often they were taken again for a throttled clock."""
    throttled = 0
    while True:
        watch.settle()
        watch.sample(replays, 1)
        samples = watch.sample(replays, SAMPLES, lead=True)
        if throttled == RETAKES or not watch.throttled():
            return [list(map(float, own)) for own in samples], throttled
        throttled += 1


@contextmanager
def _blame(name: str) -> Iterator[None]:
    """Says whose fault a CandidateError is."""
    try:
        yield
    except CandidateError as error:
        raise Fallen(name, error) from error
