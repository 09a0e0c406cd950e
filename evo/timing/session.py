"""FAST: how long a GREEN kernel takes on a GPU, beside the baselines, in one process.

A sample is one replay of a CUDA graph of chained launches between two events, divided by the launches: the
host's launch path is not in it. Launches rotate among several sets of inputs. Candidate and best baseline
take turns (A B, B A, …), so that a drift of the clock meets both. Sampling stops when the 95 % interval of
the kernel's median is within ±0.5 %, at a cap of GPU time, or early when the candidate is a clear loser
(racing).

A kernel is timed on one timing input after the other; one that has clearly lost on the first is not timed on
the others. By the ranking "worst" it has lost wherever it is clearly slower than the best so far. At the end
comes the first input again: a GPU that has rested may be slower for a while (an H100: by 3 % for 200 ms), and
what differs then is not the data.

What is never recorded: a time below the roofline's floor, a run whose output is wrong afterwards (both Red),
samples taken at a throttled clock (dropped and counted).

`warm` rotates among few sets of inputs, which stay in the L2 cache if they fit; `cold` among so many that
twice the L2 passes by before a set comes round again.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

import numpy as np

from evo.device import Device
from evo.gate import Green
from evo.task import Baseline, Task
from evo.timing.baselines import capture_baselines
from evo.timing.inputs import InputSets
from evo.timing.statistics import (
    Samples,
    bootstrap_median,
    bootstrap_ratio,
    clear_loser,
    drifted,
    settled,
)
from evo.timing.stopwatch import Call, Replay, Stopwatch, TimingSettings, launches_per_replay
from evo.trial import WORST, InputTime, Problem, Timing

PASSES = 3
"""How often a kernel goes through the timing inputs, at most, where its times drift meanwhile."""

Stage = Callable[[str], AbstractContextManager[object]]
"""Entered with the name of what is done inside it."""


@dataclass(frozen=True)
class Ready:
    """A kernel that can be timed at once: `calls` are its launches, one a set of inputs; after `replay` the
    outputs of the sets `due` are judged."""

    calls: Sequence[Call]
    replay: Replay
    due: frozenset[int]
    hopeless: bool
    """Whether it seemed so slow that few and short samples will do."""
    on: tuple[str, ...] | None = None
    """The timing inputs that it is timed on, even if it loses; None: all, as long as it does not."""


@dataclass(frozen=True)
class _Taken:
    """Samples of a kernel on one timing input, and of the `baseline` that took turns with it, if there is
    one; how many turns were dropped."""

    own: Samples
    beside: Samples | None
    baseline: str
    throttled: int


class TimingSession:
    """Inputs and baselines of one problem on one GPU, captured once, for many candidates.

    `ranking` says which of the times on the timing inputs counts. `incumbent_us` is the best such time so
    far: slower candidates are dropped early. `timed` counts candidates; `skipped_baselines` says which cannot
    be captured into a graph, and why. Where baselines are not captured `at_once`, `capture_next` captures one
    at a time; beside a time stand those that are there by then."""

    def __init__(
        self,
        device: Device,
        task: Task,
        problem: Problem,
        *,
        seed: int,
        ranking: str = WORST,
        settings: TimingSettings | None = None,
        at_once: bool = True,
    ) -> None:
        import torch

        self.device = device
        self._task = task
        self.problem = problem
        self.ranking = ranking
        self.settings = settings or TimingSettings()
        self.incumbent_us: float | None = None
        self.timed = 0
        self._rng = random.Random(seed)
        self.watch = Stopwatch(device, self.settings)
        with torch.no_grad(), device.beside():
            self._sets = InputSets(device, task, problem, self.settings, seed, ranking)
        self._left: list[tuple[str, Baseline]] | None = None
        """Baselines that are to be captured; None as long as the task was not asked for them."""
        self._baselines: dict[str, Replay] = {}
        self.skipped_baselines: dict[str, str] = {}
        self.baselines_us: dict[str, dict[str, float]] = {name: {} for name in self._sets.names}
        """By timing input and baseline."""
        self._refreshed = dict.fromkeys(self._sets.names, -math.inf)
        if at_once:
            self.capture_all()

    @property
    def inputs(self) -> tuple[str, ...]:
        """The timing inputs, in the order in which kernels are timed on them."""
        return self._sets.names

    @property
    def first(self) -> str:
        """The timing input that every kernel is timed on."""
        return self.inputs[0]

    def hear(self, best_us: float | None) -> None:
        """Another session's best time of this problem on this GPU, where it has one."""
        if best_us is not None and (self.incumbent_us is None or best_us < self.incumbent_us):
            self.incumbent_us = best_us

    def capture_next(self) -> bool:
        """Captures one more baseline, and times them all when it was the last; whether there is more to do.
        Not while this process has the GPU beside others: for the times it must have it alone."""
        import torch

        if self._left == []:
            return False
        with torch.no_grad(), self.device.beside():
            if self._left is None:
                self._left = list(self._task.baselines(self.problem, self.device.torch_device).items())
            else:
                name, run = self._left.pop(0)
                captured, skipped = capture_baselines(self.watch, self._sets, {name: run})
                self._baselines |= captured
                self.skipped_baselines |= skipped
            self.device.finish()
        if self._left == []:
            with torch.no_grad(), self.device.alone():
                self._sets.fill(self.first)
                self._refresh_baselines(self.first)
        return bool(self._left)

    def capture_all(self) -> None:
        """Captures every baseline that is left."""
        while self.capture_next():
            pass

    def _refresh_baselines(self, name: str) -> None:
        """Time all baselines, interleaved, on the timing input that the sets hold."""
        if not self._baselines or time.monotonic() - self._refreshed[name] < self.settings.refresh_s:
            return
        replays = list(self._baselines.values())
        self.watch.settle()
        self.watch.sample(replays, 1)
        taken = self.watch.sample(replays, 2 * self.settings.few, lead=True)
        for baseline, samples in zip(self._baselines, taken, strict=True):
            self.baselines_us[name][baseline] = float(np.median(samples))
        self._refreshed[name] = time.monotonic()

    def best_baseline(self, name: str) -> str:
        """The fastest baseline on a timing input; empty where none was timed."""
        known = self.baselines_us[name]
        return min(known, key=lambda baseline: known[baseline], default="")

    def measure(self, green: Green, stage: Stage = nullcontext, whole: bool = False) -> Timing:
        """The time of a GREEN kernel of this session's problem: `prepare` and `time` in one. `whole`: on all
        timing inputs, even if it loses."""
        with self.device.beside():
            ready = self.prepare(green, self.inputs if whole else None)
        return self.time(ready, stage)

    def prepare(self, green: Green, on: tuple[str, ...] | None = None) -> Ready:
        """Captures a GREEN kernel of this session's problem, to be timed `on` these of the timing inputs, or
        on all as long as it does not lose. Most of that is the host's work, so others may use the GPU
        meanwhile: what is estimated here decides how many launches a graph has, no more."""
        import torch

        if green.problem.key != self.problem.key:
            raise ValueError(f"this session times {self.problem.key}, not {green.problem.key}")
        kernel, sets = green.kernel, self._sets
        with torch.no_grad():
            sets.fill(self.first)
            calls = sets.of_kernel(kernel, green.launch)
            return self._captured(calls, self.watch.estimate(calls), on)

    def time(self, ready: Ready, stage: Stage = nullcontext) -> Timing:
        """The time of what was prepared last. Red if it is impossible, or an output of the timed runs is
        wrong. Waits until it has the GPU alone, and has it no longer than it needs; `stage` is entered with
        "turn" while it waits and with "timing" for the rest."""
        import torch

        wait = partial(stage, "turn")
        with self.device.alone(wait), stage("timing"), torch.no_grad():
            taken = self._on_each_input(ready)
        with self.device.beside(wait), stage("timing"), torch.no_grad():
            self._sets.judge()
            self.device.finish()
        with stage("timing"):
            times = {name: self._input_time(name, samples) for name, samples in taken.items()}
            for one in times.values():
                self._sets.refuse_impossible(one.median_us)
            throttled = sum(samples.throttled for samples in taken.values())
            timing = Timing.ranked(
                times,
                self.ranking,
                protocol=self.settings.protocol,
                inputs=len(self.inputs),
                clocks=self.watch.readings(throttled),
            )
        self.timed += 1
        if timing.complete:
            self.hear(timing.median_us)
        return timing

    def _captured(self, calls: Sequence[Call], estimate_us: float, on: tuple[str, ...] | None) -> Ready:
        hopeless = self._is_hopeless(estimate_us)
        launches = launches_per_replay(estimate_us, self.settings)
        if hopeless:
            launches = max(1, launches // 3)
        elif self.settings.protocol == "cold":
            launches = max(launches, len(self._sets))
        order, due = self._sets.turned(calls, launches)
        return Ready(calls, self.watch.capture(order, launches), due, hopeless, on)

    def _is_hopeless(self, estimate_us: float) -> bool:
        return self.incumbent_us is not None and estimate_us > self.settings.hopeless * self.incumbent_us

    # ---- sampling

    def _on_each_input(self, ready: Ready) -> dict[str, _Taken]:
        """Samples by timing input: of all, or of those up to the one on which the kernel has clearly lost.
        They are taken anew where the kernel is faster or slower by now on the first."""
        taken: dict[str, _Taken] = {}
        for _ in range(PASSES):
            ready, taken = self._in_turn(ready)
            if len(taken) < len(self.inputs) or not self._drifted(ready, taken):
                break
        return taken

    def _drifted(self, ready: Ready, taken: dict[str, _Taken]) -> bool:
        """Whether the first timing input takes another time than a while ago."""
        self._sets.fill(self.first)
        self.watch.settle()
        again, *_ = self.watch.sample([ready.replay, *self._beside(self.first)], self.settings.few)
        return drifted(taken[self.first].own, again, 2 * self.settings.half_width)

    def _in_turn(self, ready: Ready) -> tuple[Ready, dict[str, _Taken]]:
        """One way through the timing inputs; the kernel with the graph that it has by then."""
        taken: dict[str, _Taken] = {}
        for name in ready.on or self.inputs:
            self._sets.fill(name)
            self._refresh_baselines(name)
            ready = self._long_enough(ready, name)
            taken[name] = self._sample(ready, name)
            self._sets.keep(ready.calls, ready.due)
            if ready.on is None and clear_loser(taken[name].own, self._bar(name), self.settings.margin):
                break
        return ready, taken

    def _bar(self, name: str) -> float | None:
        """What a time on this timing input is compared with: the best so far, where one time can lose."""
        return self.incumbent_us if self.ranking == WORST or name == self.first else None

    def _beside(self, name: str) -> list[Replay]:
        """The best baseline, which takes turns with a kernel."""
        best = self.best_baseline(name)
        return [self._baselines[best]] if best else []

    def _long_enough(self, ready: Ready, name: str) -> Ready:
        """Warms up. The same kernel with a longer graph, where others' work had misled the estimate."""
        contestants = self._beside(name)
        self.watch.settle()
        # the first round warms up and is not kept; it shows what the others' work did to the estimate
        seen_us = float(self.watch.sample([ready.replay, *contestants], 1)[0][0])
        enough = launches_per_replay(seen_us, self.settings) // (4 if ready.hopeless else 2)
        if ready.replay.launches < enough:
            ready = self._captured(ready.calls, seen_us, ready.on)
            self.watch.settle()
            self.watch.sample([ready.replay, *contestants], 1)
        return ready

    def _sample(self, ready: Ready, name: str) -> _Taken:
        """Turns of the kernel and of the best baseline until enough is known of the kernel. What is known of
        the baseline by then is in the interval of the ratio: cuDNN's samples had two levels, 1.8 % apart, and
        to know their median as well took three times as many turns (H200)."""
        settings, bar = self.settings, self._bar(name)
        few = 3 if ready.hopeless else settings.few
        pair = [ready.replay, *self._beside(name)]
        kept: list[Samples] = [np.empty(0) for _ in pair]
        spent_ms, turns, dropped = 0.0, few, 0
        while True:
            fresh = self.watch.sample(pair, turns)
            spent_ms += sum(float(s.sum()) * r.launches for s, r in zip(fresh, pair, strict=True)) / 1e3
            if self.watch.throttled() and spent_ms < settings.cap_ms:
                dropped += turns
                continue
            kept = [np.concatenate(both) for both in zip(kept, fresh, strict=True)]
            lost = clear_loser(kept[0], bar, settings.margin)
            if lost or spent_ms >= settings.cap_ms or settled(kept[0], settings.half_width):
                beside = kept[1] if len(kept) > 1 else None
                return _Taken(kept[0], beside, self.best_baseline(name), dropped)
            turns = max(few, len(kept[0]) // 2)

    def _input_time(self, name: str, taken: _Taken) -> InputTime:
        speedup, interval = None, None
        baselines = dict(self.baselines_us[name])
        seed = self._rng.randrange(2**32)
        if taken.beside is not None:
            baselines[taken.baseline] = float(np.median(taken.beside))
            speedup, interval = bootstrap_ratio(taken.beside, taken.own, seed)
        return InputTime(
            float(np.median(taken.own)),
            bootstrap_median(taken.own, seed),
            speedup,
            interval,
            taken.baseline if taken.beside is not None else "",
            baselines,
            tuple(float(f"{s:.5g}") for s in taken.own),
        )
