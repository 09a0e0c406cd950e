"""Graphs of chained launches, and the time of their replays between two events."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from evo.device import Device
from evo.timing.statistics import Samples

Call = Callable[[], Any]
"""Enqueues one launch, or the several of a baseline, on torch's current stream."""


@dataclass(frozen=True)
class TimingSettings:
    """How much effort a time is worth. Times of GPU work, baselines included, unless said otherwise."""

    protocol: Literal["warm", "cold"] = "warm"
    sets: int = 4
    """Sets of inputs that launches rotate among (warm)."""
    replay_us: float = 300.0
    """How long a replay should take: the gap between an event and the first node must vanish in it."""
    most_launches: int = 256
    """Launches in a graph, at most."""
    half_width: float = 0.005
    """The relative half-width of the interval at which sampling stops."""
    cap_ms: float = 100.0
    few: int = 5
    """Samples after which a clear loser is dropped."""
    margin: float = 1.05
    """A loser's interval lies above the incumbent by this factor."""
    hopeless: float = 3.0
    """A candidate whose first launches are slower than the incumbent by this factor gets 3 short samples."""
    refresh_s: float = 120.0
    """How old the times of the baselines may become."""


def launches_per_replay(estimate_us: float, settings: TimingSettings) -> int:
    """Launches in a graph, so that a replay takes about `replay_us`."""
    wanted = math.ceil(settings.replay_us / max(estimate_us, 0.1))
    return max(1, min(settings.most_launches, wanted))


STREAMS = 32
"""What `Stopwatch.settle` touches. 16 are enough, 12 are not."""


TRIES = 3
"""Samples of a first estimate, of which the least counts: another process may have had the GPU meanwhile."""


class Graph(Protocol):
    """Work that was captured, as torch.cuda.CUDAGraph holds it."""

    def replay(self) -> None: ...


@dataclass(frozen=True)
class Replay:
    """A captured graph of `launches` chained launches."""

    graph: Graph
    launches: int


class Stopwatch:
    """Captures calls on a stream of its own, and times replays of what it captured."""

    def __init__(self, device: Device, settings: TimingSettings) -> None:
        import torch

        self.device = device
        self.settings = settings
        self.stream = torch.cuda.Stream(device.torch_device)
        self._others = [torch.cuda.Stream(device.torch_device) for _ in range(STREAMS)]
        self._touched = torch.zeros(1, device=device.torch_device)
        passing = 2 * device.gpu.l2_bytes if settings.protocol == "cold" else 0
        self._passing = torch.empty(passing // 4, device=device.torch_device)
        """What is read in front of a cold sample: nothing of the last one is left in the L2."""

    def settle(self) -> None:
        """Gives a node of a graph the price that it has in a process by itself, which uses many streams.

        After another process has worked on the GPU a node costs 0.51 µs instead of 0.69 until 16 streams have
        had work (H200; docs/timing.md): the times of a search would depend on its neighbours. No other
        process may work between this and the samples."""
        import torch

        before = torch.cuda.current_stream(self.device.torch_device)
        try:
            for stream in self._others:
                torch.cuda.set_stream(stream)  # the context manager takes 40 µs each time
                self._touched.fill_(0)
        finally:
            torch.cuda.set_stream(before)
        self.device.finish()

    def run(self, calls: Sequence[Call]) -> None:
        """The calls, eagerly."""
        import torch

        with torch.cuda.stream(self.stream):
            for call in calls:
                call()

    def capture(self, calls: Sequence[Call], launches: int) -> Replay:
        """A graph of `launches` calls in a chain, rotating among `calls`."""
        import torch

        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(self.device.torch_device)
        with torch.cuda.stream(self.stream):
            graph.capture_begin(capture_error_mode="relaxed")
            try:
                for i in range(launches):
                    calls[i % len(calls)]()
            except BaseException:
                with suppress(RuntimeError):  # the capture is broken; what broke it is worth more
                    graph.capture_end()
                raise
            graph.capture_end()
        return Replay(graph, launches)

    def estimate(self, calls: Sequence[Call]) -> float:
        """A first idea, µs a launch, of a replay: the host needs 20 µs for a launch and 150 for one of a
        compiled baseline, and a graph of too few launches would measure its own 2.5 µs along with them.
        Others may use the GPU meanwhile."""
        estimate = self._time_once(calls[:2])  # the host's part included: what is short must be tried again
        for launches in (1, 4):
            if launches == 1 or estimate <= self.settings.replay_us / 2:
                replay = self.capture(calls, launches)
                estimate = min(estimate, float(self.sample([replay], TRIES, lead=True)[0].min()))
        return estimate

    def _time_once(self, calls: Sequence[Call]) -> float:
        """µs a call, the host's launch path included; the first calls are not counted."""
        import torch

        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.run(calls)
        begin.record(self.stream)
        self.run(calls)
        end.record(self.stream)
        self.device.finish()
        return float(begin.elapsed_time(end)) * 1e3 / len(calls)

    def sample(self, replays: Sequence[Replay], turns: int, lead: bool = False) -> list[Samples]:
        """`turns` samples of each, in turns that run forwards and backwards; µs a launch.

        `lead`: in front of each sample the same graph is replayed once more, untimed. Among many replays the
        host falls behind now and then; the GPU then waits between the event and the first node, and 12 µs
        were added to one sample in two (H200, 11 contestants). With a lead the GPU has work meanwhile, and
        what the L2 cache holds is the contestant's own, not its predecessor's. Without it there is one such
        replay in front of them all: the first sample was 2 to 6 % too long, for the GPU waited for the
        host. In front of each cold sample twice the L2 is read: a small problem has not so many sets that
        they pass by it."""
        import torch

        if self.settings.protocol == "cold":
            self.device.reset_persisting_l2()
        with torch.cuda.stream(self.stream):
            marks: list[tuple[int, Any, Any]] = []
            if replays and not lead:
                replays[0].graph.replay()
            for turn in range(turns):
                order = range(len(replays)) if turn % 2 == 0 else reversed(range(len(replays)))
                for which in order:
                    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                    if lead:
                        replays[which].graph.replay()
                    if len(self._passing):
                        self._passing.sum()
                    begin.record(self.stream)
                    replays[which].graph.replay()
                    end.record(self.stream)
                    marks.append((which, begin, end))
        self.device.finish()
        taken: list[list[float]] = [[] for _ in replays]
        for which, begin, end in marks:
            taken[which].append(begin.elapsed_time(end) * 1e3 / replays[which].launches)
        return [np.array(samples) for samples in taken]

    def throttled(self) -> bool:
        """Whether the SM clock is below three quarters of its usual rate."""
        mhz = self.device.clocks.sm_mhz()
        return mhz is not None and mhz < 0.75 * 1e3 * self.device.gpu.clock_ghz

    def readings(self, throttled: int) -> dict[str, float]:
        """Clocks, temperature and power now, how many samples were dropped for a throttled clock, and how
        many other processes compute on this GPU."""
        clocks = self.device.clocks
        others = float(len(clocks.other_processes()))
        return {**clocks.readings(), "throttled_samples": float(throttled), "other_processes": others}
