"""FAST: how long a GREEN kernel takes on a GPU, beside the baselines, in one process.

A sample is one replay of a CUDA graph of chained launches between two events, divided by the launches: the
host's launch path is not in it. Launches rotate among several sets of inputs. Candidate and best baseline
take turns (A B, B A, …), so that a drift of the clock meets both. Sampling stops when the 95 % interval of
the median is within ±0.5 %, at a cap of GPU time, or early when the candidate is a clear loser (racing).

What is never recorded: a time below the roofline's floor, a run whose output is wrong afterwards (both Red),
samples taken at a throttled clock (dropped and counted).

`warm` rotates among few sets of inputs, which stay in the L2 cache if they fit; `cold` among so many that
twice the L2 passes by before a set comes round again.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

import numpy as np

from evo.device import Device
from evo.gate import Green
from evo.task import Baseline, Task, Tunable
from evo.timing.inputs import InputSets
from evo.timing.statistics import (
    Samples,
    bootstrap_median,
    bootstrap_ratio,
    clear_loser,
    settled,
)
from evo.timing.stopwatch import Call, Replay, Stopwatch, TimingSettings, launches_per_replay
from evo.trial import Problem, Timing

Stage = Callable[[str], AbstractContextManager[object]]
"""Entered with the name of what is done inside it."""


@dataclass(frozen=True)
class Ready:
    """A kernel that can be timed at once: `calls` are its launches, one a set of inputs."""

    calls: Sequence[Call]
    replay: Replay
    hopeless: bool
    """Whether it seemed so slow that few and short samples will do."""


class TimingSession:
    """Inputs and baselines of one problem on one GPU, captured once, for many candidates.

    `incumbent_us` is the best time so far: slower candidates are dropped early. `timed` counts candidates;
    `skipped_baselines` says which cannot be captured into a graph, and why. Where baselines are not captured
    `at_once`, `capture_next` captures one at a time; beside a time stand those that are there by then."""

    def __init__(
        self,
        device: Device,
        task: Task,
        problem: Problem,
        *,
        seed: int,
        settings: TimingSettings | None = None,
        at_once: bool = True,
    ) -> None:
        import torch

        self.device = device
        self._task = task
        self.problem = problem
        self.settings = settings or TimingSettings()
        self.incumbent_us: float | None = None
        self.timed = 0
        self._rng = random.Random(seed)
        self.watch = Stopwatch(device, self.settings)
        with torch.no_grad(), device.beside():
            self._sets = InputSets(device, task, problem, self.settings, seed)
        self._left: list[tuple[str, Baseline]] | None = None
        """Baselines that are to be captured; None as long as the task was not asked for them."""
        self._baselines: dict[str, Replay] = {}
        self.skipped_baselines: dict[str, str] = {}
        self.baselines_us: dict[str, float] = {}
        self._refreshed = -math.inf
        if at_once:
            self.capture_all()

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
            with self.device.alone():
                self._refresh_baselines()
        return bool(self._left)

    def capture_all(self) -> None:
        """Captures every baseline that is left."""
        while self.capture_next():
            pass

    def _refresh_baselines(self) -> None:
        """Time all baselines, interleaved."""
        if not self._baselines or time.monotonic() - self._refreshed < self.settings.refresh_s:
            return
        names = list(self._baselines)
        replays = [self._baselines[name] for name in names]
        self.watch.settle()
        self.watch.sample(replays, 1)
        taken = self.watch.sample(replays, 2 * self.settings.few, lead=True)
        for name, samples in zip(names, taken, strict=True):
            self.baselines_us[name] = float(np.median(samples))
        self._refreshed = time.monotonic()

    @property
    def best_baseline(self) -> str | None:
        """The name of the fastest baseline."""
        return min(self.baselines_us, key=lambda name: self.baselines_us[name], default=None)

    def measure(self, green: Green, stage: Stage = nullcontext) -> Timing:
        """The time of a GREEN kernel of this session's problem: `prepare` and `time` in one."""
        with self.device.beside():
            ready = self.prepare(green)
        return self.time(ready, stage)

    def prepare(self, green: Green) -> Ready:
        """Captures a GREEN kernel of this session's problem. Most of that is the host's work, so others may
        use the GPU meanwhile: what is estimated here decides how many launches a graph has, no more."""
        import torch

        if green.problem.key != self.problem.key:
            raise ValueError(f"this session times {self.problem.key}, not {green.problem.key}")
        kernel, sets = green.kernel, self._sets
        with torch.no_grad():
            calls = sets.of_kernel(kernel, green.launch)
            sets.clear()
            return self._captured(calls, self.watch.estimate(calls))

    def time(self, ready: Ready, stage: Stage = nullcontext) -> Timing:
        """The time of what was prepared last. Red if it is impossible, or an output of the timed runs is
        wrong. Waits until it has the GPU alone, and has it no longer than it needs; `stage` is entered with
        "turn" while it waits and with "timing" for the rest."""
        import torch

        wait = partial(stage, "turn")
        with self.device.alone(wait), stage("timing"), torch.no_grad():
            self._refresh_baselines()
            sampled = self._sample(ready)
        with self.device.beside(wait), stage("timing"), torch.no_grad():
            self._sets.judge()
            self.device.finish()
        with stage("timing"):
            self._sets.refuse_impossible(float(np.median(sampled[0][0])))
            timing = self._timing(*sampled)
        self.timed += 1
        if self.incumbent_us is None or timing.median_us < self.incumbent_us:
            self.incumbent_us = timing.median_us
        return timing

    def _captured(self, calls: Sequence[Call], estimate_us: float) -> Ready:
        hopeless = self._is_hopeless(estimate_us)
        launches = launches_per_replay(estimate_us, self.settings)
        if hopeless:
            launches = max(1, launches // 3)
        elif self.settings.protocol == "cold":
            launches = max(launches, len(self._sets))
        return Ready(calls, self.watch.capture(self._sets.turned(calls, launches), launches), hopeless)

    def _is_hopeless(self, estimate_us: float) -> bool:
        return self.incumbent_us is not None and estimate_us > self.settings.hopeless * self.incumbent_us

    def _sample(self, ready: Ready) -> tuple[list[Samples], str | None, int]:
        """Samples of the kernel and of the best baseline; that one's name; rounds that were dropped."""
        baseline = self.best_baseline
        others = [] if baseline is None else [self._baselines[baseline]]
        self.watch.settle()
        # the first round warms up and is not kept; it shows what the others' work did to the estimate
        seen_us = float(self.watch.sample([ready.replay, *others], 1)[0][0])
        enough = launches_per_replay(seen_us, self.settings) // (4 if ready.hopeless else 2)
        if ready.replay.launches < enough:
            ready = self._captured(ready.calls, seen_us)
            self.watch.settle()
            self.watch.sample([ready.replay, *others], 1)
        few = 3 if ready.hopeless else self.settings.few
        samples, throttled = self._sample_until_known([ready.replay, *others], few)
        return samples, baseline, throttled

    def _sample_until_known(self, pair: Sequence[Replay], few: int) -> tuple[list[Samples], int]:
        """Rounds of samples until enough is known, and how many were dropped for a throttled clock."""
        settings, bar = self.settings, self.incumbent_us
        kept: list[Samples] = [np.empty(0) for _ in pair]
        spent_ms, rounds, dropped = 0.0, few, 0
        while True:
            fresh = self.watch.sample(pair, rounds)
            spent_ms += sum(float(s.sum()) * r.launches for s, r in zip(fresh, pair, strict=True)) / 1e3
            if self.watch.throttled() and spent_ms < settings.cap_ms:
                dropped += rounds
                continue
            kept = [np.concatenate(both) for both in zip(kept, fresh, strict=True)]
            if clear_loser(kept[0], bar, settings.margin) or spent_ms >= settings.cap_ms:
                return kept, dropped
            if all(settled(samples, settings.half_width) for samples in kept):
                return kept, dropped
            rounds = max(few, len(kept[0]) // 2)

    def _timing(self, samples: Sequence[Samples], baseline: str | None, throttled: int) -> Timing:
        own = samples[0]
        speedup, interval = None, None
        baselines = dict(self.baselines_us)
        seed = self._rng.randrange(2**32)
        if baseline is not None:
            baselines[baseline] = float(np.median(samples[1]))
            speedup, interval = bootstrap_ratio(samples[1], own, seed)
        return Timing(
            samples_us=tuple(float(f"{s:.5g}") for s in own),
            median_us=float(np.median(own)),
            interval=bootstrap_median(own, seed),
            protocol=self.settings.protocol,
            baselines_us=baselines,
            speedup=speedup,
            speedup_interval=interval,
            clocks=self.watch.readings(throttled),
        )


def capture_baselines(
    watch: Stopwatch, sets: InputSets, baselines: Mapping[str, Baseline]
) -> tuple[dict[str, Replay], dict[str, str]]:
    """Baselines as graphs, by name; and those that cannot be captured, with the reason. One that is Tunable
    is tuned first, once."""
    captured, skipped = {}, {}
    for name, run in baselines.items():
        calls = sets.of_baseline(run)
        try:
            if isinstance(run, Tunable) and run.chosen is None:
                times = time_variants(watch, sets, run)
                run.choose(min(times, key=lambda variant: times[variant]))
            watch.run([calls[0], *calls])  # once more: the first call sets libraries up
            launches = launches_per_replay(watch.estimate(calls), watch.settings)
            if watch.settings.protocol == "cold":
                launches = max(launches, len(calls))
            captured[name] = watch.capture(calls, launches)
        except RuntimeError as error:
            skipped[name] = (str(error).splitlines() or [type(error).__name__])[0]
    return captured, skipped


def time_variants(watch: Stopwatch, sets: InputSets, tunable: Tunable) -> dict[str, float]:
    """µs a call, by variants, of those that run here: all captured, then sampled in turns. RuntimeError with
    the first one's reason where none runs."""
    replays, skipped = capture_baselines(watch, sets, tunable.variants)
    if not replays:
        raise RuntimeError(next(iter(skipped.values()), "no variants"))
    watch.settle()
    watch.sample(list(replays.values()), 1)
    taken = watch.sample(list(replays.values()), 2 * watch.settings.few, lead=True)
    return {name: float(np.median(samples)) for name, samples in zip(replays, taken, strict=True)}
