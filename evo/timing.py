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

import fcntl
import math
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from evo.device import Region
from evo.device.cuda import CudaDevice, CudaKernel
from evo.errors import Red
from evo.gate import Green
from evo.gate.judging import judge
from evo.gpu import Gpu
from evo.task import Task
from evo.trial import Interval, LaunchConfig, Problem, Timing

if TYPE_CHECKING:
    from torch import Tensor

Samples = NDArray[np.float64]
"""µs a launch."""


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


# --- statistics --------------------------------------------------------------------------------------------


def median_interval(samples: Samples, level: float = 0.95) -> Interval:
    """The interval of the median by order statistics: exact, distribution-free, without random numbers.

    Below 6 samples no such interval of 95 % exists: the range of the samples, and its true level, is given.
    """
    ordered = np.sort(samples)
    n = len(ordered)
    if n > 500:  # the binomial is a normal distribution by now
        low = int(n / 2 - NormalDist().inv_cdf((1 + level) / 2) * math.sqrt(n) / 2)
        return Interval(float(ordered[low]), float(ordered[n - 1 - low]), level)
    tail = 0.5**n
    low, chance = 0, tail
    while low + 1 < n // 2 + n % 2:
        tail *= (n - low) / (low + 1)  # P(exactly low + 1 samples below the median)
        if 2 * (chance + tail) > 1 - level:
            break
        chance += tail
        low += 1
    covered = max(0.0, 1 - 2 * chance)
    return Interval(float(ordered[low]), float(ordered[n - 1 - low]), min(level, covered))


def bootstrap_median(samples: Samples, seed: int, level: float = 0.95, resamples: int = 2000) -> Interval:
    """The percentile-bootstrap interval of the median."""
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, len(samples), (resamples, len(samples)))
    return _percentiles(np.median(samples[drawn], axis=1), level)


def bootstrap_ratio(
    over: Samples, under: Samples, seed: int, level: float = 0.95, resamples: int = 2000
) -> tuple[float, Interval]:
    """median(over) / median(under) and its interval; sample i of both was taken in the same round, so whole
    rounds are drawn."""
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, len(over), (resamples, len(over)))
    ratios = np.median(over[drawn], axis=1) / np.median(under[drawn], axis=1)
    return float(np.median(over) / np.median(under)), _percentiles(ratios, level)


def _percentiles(values: Samples, level: float) -> Interval:
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high), level)


def settled(samples: Samples, half_width: float) -> bool:
    """Whether the 95 % interval of the median is within ±`half_width` of it."""
    if len(samples) < 10:
        return False
    interval = median_interval(samples)
    return (interval.high - interval.low) / 2 <= half_width * float(np.median(samples))


def clear_loser(samples: Samples, incumbent_us: float | None, margin: float) -> bool:
    """Whether even the fastest sample is slower than the incumbent by `margin`."""
    return incumbent_us is not None and float(samples.min()) > margin * incumbent_us


def launches_per_replay(estimate_us: float, settings: TimingSettings) -> int:
    """Launches in a graph, so that a replay takes about `replay_us`."""
    wanted = math.ceil(settings.replay_us / max(estimate_us, 0.1))
    return max(1, min(settings.most_launches, wanted))


def floor_us(gpu: Gpu, flop: float, nbytes: float, in_l2: bool) -> float:
    """The roofline's floor: no kernel computes `flop` or moves `nbytes` faster. `in_l2`: the data may come
    from the L2 cache. 15 % is taken off for boost clocks. 0 where the GPU's rates are unknown."""
    bandwidth = gpu.l2_gbps if in_l2 else gpu.dram_gbps
    arithmetic = flop / (gpu.tensor_tflops * 1e6) if gpu.tensor_tflops else 0.0
    traffic = nbytes / (bandwidth * 1e3) if bandwidth else 0.0
    return 0.85 * max(arithmetic, traffic)


# --- measuring ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Replay:
    """A captured graph of `launches` chained launches."""

    graph: Any
    launches: int


@dataclass(frozen=True)
class _Set:
    """One set of inputs, an output of its own, and what the output must be (on the host, where no kernel
    can read it)."""

    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    reference: Mapping[str, Tensor]
    honest: Mapping[str, Tensor]


CHECKED_ROWS = 4096
"""Rows of an output that are judged after timing."""


class TimingSession:
    """Inputs and baselines of one problem on one GPU, captured once, for many candidates.

    `incumbent_us` is the best time so far: slower candidates are dropped early. `timed` counts candidates."""

    def __init__(
        self, device: CudaDevice, task: Task, problem: Problem, *, seed: int,
        settings: TimingSettings | None = None,
    ) -> None:  # fmt: skip
        import torch

        self.device = device
        self.task = task
        self.problem = problem
        self.settings = settings or TimingSettings()
        self.incumbent_us: float | None = None
        self.timed = 0
        self._rng = random.Random(seed)
        self._stream = torch.cuda.Stream(device.index)
        with torch.no_grad():
            self._sets = [self._make_set(seed + i) for i in range(self._set_count())]
            self.skipped_baselines: dict[str, str] = {}
            """Baselines that cannot be captured into a graph, and why."""
            self._baselines = self._capture_baselines()
        self.baselines_us: dict[str, float] = {}
        self._refreshed = -math.inf
        with gpu_lock(device.uuid):
            self._refresh_baselines()

    def _set_count(self) -> int:
        if self.settings.protocol == "warm":
            return self.settings.sets
        return max(2, math.ceil(2 * self.device.gpu.l2_bytes / self.task.nbytes(self.problem)))

    def _make_set(self, seed: int) -> _Set:
        import torch

        where, family = self.device.torch_device, self.task.families[0]
        inputs = self.task.inputs(self.problem, family, seed, where)
        reference = self.task.reference(self.problem, inputs)
        honest = self.task.honest(self.problem, inputs)
        outputs = {name: torch.empty_like(tensor) for name, tensor in honest.items()}
        made = _Set(inputs, outputs, self._on_host(reference), self._on_host(honest))
        for secret in (reference, honest):  # a kernel must not find the answer in freed memory
            for tensor in secret.values():
                tensor.fill_(math.nan)
        return made

    def _on_host(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Rows to be judged, flattened to (rows, row length), on the host."""
        return {name: _some_rows(tensor).cpu() for name, tensor in tensors.items()}

    # ---- baselines

    def _capture_baselines(self) -> dict[str, _Replay]:
        import torch

        captured = {}
        for name, run in self.task.baselines(self.problem, self.device.torch_device).items():
            calls: list[Callable[[], Any]] = [self._call(run, s) for s in self._sets]
            try:
                with torch.cuda.stream(self._stream):
                    for call in (*calls[:1], *calls):  # once more: the first call sets libraries up
                        call()
                launches = launches_per_replay(self._estimate(calls), self.settings)
                if self.settings.protocol == "cold":
                    launches = max(launches, len(calls))
                captured[name] = self._capture(calls, launches)
            except RuntimeError as error:
                self.skipped_baselines[name] = str(error).splitlines()[0]
        return captured

    @staticmethod
    def _call(run: Callable[[Mapping[str, Tensor]], Any], made: _Set) -> Callable[[], Any]:
        return lambda: run(made.inputs)

    def _refresh_baselines(self) -> None:
        """Time all baselines, interleaved."""
        if not self._baselines or time.monotonic() - self._refreshed < self.settings.refresh_s:
            return
        names = list(self._baselines)
        replays = [self._baselines[name] for name in names]
        self._sample(replays, 1)
        for name, samples in zip(names, self._sample(replays, 2 * self.settings.few), strict=True):
            self.baselines_us[name] = float(np.median(samples))
        self._refreshed = time.monotonic()

    @property
    def best_baseline(self) -> str | None:
        """The name of the fastest baseline."""
        return min(self.baselines_us, key=lambda name: self.baselines_us[name], default=None)

    # ---- candidates

    def measure(self, green: Green) -> Timing:
        """The time of a GREEN kernel of this session's problem. Red if the time is impossible, or an output
        of the timed runs is wrong."""
        import torch

        if green.problem.key != self.problem.key:
            raise ValueError(f"this session times {self.problem.key}, not {green.problem.key}")
        kernel = green.kernel
        assert isinstance(kernel, CudaKernel)
        with torch.no_grad(), gpu_lock(self.device.uuid):
            self._refresh_baselines()
            timing = self._measure(kernel, green.launch)
        self.timed += 1
        if self.incumbent_us is None or timing.median_us < self.incumbent_us:
            self.incumbent_us = timing.median_us
        return timing

    def _measure(self, kernel: CudaKernel, launch: LaunchConfig) -> Timing:
        settings = self.settings
        workspaces = self._workspaces(launch)
        calls = [self._launch(kernel, launch, s, workspaces) for s in self._sets]
        for made in self._sets:
            for output in made.outputs.values():
                output.fill_(math.nan)
        self.device.synchronize()  # the stream of the samples does not wait for the one of the fills
        baseline, bar = self.best_baseline, self.incumbent_us
        estimate = self._estimate(calls)
        hopeless = bar is not None and estimate > settings.hopeless * bar
        launches = launches_per_replay(estimate, settings)
        if hopeless:
            launches = max(1, launches // 3)
        elif settings.protocol == "cold":
            launches = max(launches, len(self._sets))
        replay = self._capture(calls, launches)
        pair = [replay] if baseline is None else [replay, self._baselines[baseline]]
        samples, throttled = self._sample_until_known(pair, bar, 3 if hopeless else settings.few)
        self._judge_outputs(launches)
        self.device.synchronize()
        self._refuse_impossible(float(np.median(samples[0])))
        return self._timing(samples, baseline, throttled)

    def _launch(
        self, kernel: CudaKernel, launch: LaunchConfig, made: _Set, workspaces: Mapping[str, Tensor]
    ) -> Callable[[], Any]:
        import torch

        buffers = {**made.inputs, **made.outputs, **workspaces}
        regions = {
            name: Region(name, t.data_ptr(), t.numel() * t.element_size(), name not in made.inputs)
            for name, t in buffers.items()
        }
        index = self.device.index
        return lambda: kernel.enqueue(launch, regions, int(torch.cuda.current_stream(index).cuda_stream))

    def _workspaces(self, launch: LaunchConfig) -> dict[str, Tensor]:
        """One of each for all launches: they are chained."""
        import torch

        where = self.device.torch_device
        return {w.name: torch.zeros(w.nbytes, dtype=torch.uint8, device=where) for w in launch.workspaces}

    def _estimate(self, calls: Sequence[Callable[[], Any]]) -> float:
        """A first idea, µs a launch: of two launches; where they are short, of a replay, because a launch
        from Python takes some 20 µs."""
        estimate = self._time_once(calls[:2])
        if estimate > self.settings.replay_us / 2:
            return estimate
        replay = self._capture(calls, 4)
        self._sample([replay], 1)
        return float(self._sample([replay], 1)[0][0])

    def _sample_until_known(
        self, pair: Sequence[_Replay], bar: float | None, few: int
    ) -> tuple[list[Samples], int]:
        """Rounds of samples until enough is known, and how many were dropped for a throttled clock."""
        settings = self.settings
        self._sample(pair, 1)  # the first round warms up and is not kept
        kept: list[Samples] = [np.empty(0) for _ in pair]
        spent_ms, rounds, dropped = 0.0, few, 0
        while True:
            fresh = self._sample(pair, rounds)
            spent_ms += sum(float(s.sum()) * r.launches for s, r in zip(fresh, pair, strict=True)) / 1e3
            if self._throttled() and spent_ms < settings.cap_ms:
                dropped += rounds
                continue
            kept = [np.concatenate(both) for both in zip(kept, fresh, strict=True)]
            if clear_loser(kept[0], bar, settings.margin) or spent_ms >= settings.cap_ms:
                return kept, dropped
            if all(settled(samples, settings.half_width) for samples in kept):
                return kept, dropped
            rounds = max(few, len(kept[0]) // 2)

    def _throttled(self) -> bool:
        """Whether the SM clock is below three quarters of its usual rate."""
        mhz = self.device.sm_mhz()
        return mhz is not None and mhz < 0.75 * 1e3 * self.device.gpu.clock_ghz

    def _judge_outputs(self, launches: int) -> None:
        """Red unless the outputs of the timed runs are right: of the last launch, and of another one."""
        self.device.synchronize()
        used = min(launches, len(self._sets))
        last = (launches - 1) % len(self._sets)
        for which in {last, self._rng.randrange(used)}:
            made = self._sets[which]
            for name, output in self._on_host(made.outputs).items():
                try:
                    judge(name, output, made.reference[name], made.honest[name])
                except Red as red:
                    red.where = f"after timing: {red.where}"
                    raise

    def _refuse_impossible(self, median_us: float) -> None:
        task, gpu = self.task, self.device.gpu
        nbytes = task.nbytes(self.problem)
        in_l2 = self.settings.protocol == "warm" and nbytes * len(self._sets) <= 2 * gpu.l2_bytes
        floor = floor_us(gpu, task.flop(self.problem), nbytes, in_l2)
        if median_us < floor:
            raise Red("impossible time", f"{median_us:.3f} µs, the roofline's floor is {floor:.3f} µs")

    def _timing(self, samples: Sequence[Samples], baseline: str | None, throttled: int) -> Timing:
        own = samples[0]
        speedup, interval = None, None
        baselines = dict(self.baselines_us)
        seed = self._rng.randrange(2**32)
        if baseline is not None:
            baselines[baseline] = float(np.median(samples[1]))
            speedup, interval = bootstrap_ratio(samples[1], own, seed)
        clocks = {**self.device.clocks(), "throttled_samples": float(throttled)}
        clocks["other_processes"] = float(len(self.device.other_processes()))
        return Timing(
            samples_us=tuple(float(f"{s:.5g}") for s in own),
            median_us=float(np.median(own)),
            interval=bootstrap_median(own, seed),
            protocol=self.settings.protocol,
            baselines_us=baselines,
            speedup=speedup,
            speedup_interval=interval,
            clocks=clocks,
        )

    # ---- graphs and events

    def _capture(self, calls: Sequence[Callable[[], Any]], launches: int) -> _Replay:
        """A graph of `launches` calls in a chain, rotating among `calls`."""
        import torch

        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(self.device.index)
        with torch.cuda.stream(self._stream):
            graph.capture_begin(capture_error_mode="relaxed")
            try:
                for i in range(launches):
                    calls[i % len(calls)]()
            except BaseException:
                with suppress(RuntimeError):  # the capture is broken; what broke it is worth more
                    graph.capture_end()
                raise
            graph.capture_end()
        return _Replay(graph, launches)

    def _time_once(self, calls: Sequence[Callable[[], Any]]) -> float:
        """µs a call, the host's launch path included; the first calls are not counted."""
        import torch

        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(self._stream):
            for call in calls:
                call()
            begin.record(self._stream)
            for call in calls:
                call()
            end.record(self._stream)
        self.device.synchronize()
        return float(begin.elapsed_time(end)) * 1e3 / len(calls)

    def _sample(self, replays: Sequence[_Replay], rounds: int) -> list[Samples]:
        """`rounds` samples of each, in turns that run forwards and backwards; µs a launch."""
        import torch

        with torch.cuda.stream(self._stream):
            marks: list[tuple[int, Any, Any]] = []
            for turn in range(rounds):
                order = range(len(replays)) if turn % 2 == 0 else reversed(range(len(replays)))
                for which in order:
                    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                    begin.record(self._stream)
                    replays[which].graph.replay()
                    end.record(self._stream)
                    marks.append((which, begin, end))
        self.device.synchronize()
        taken: list[list[float]] = [[] for _ in replays]
        for which, begin, end in marks:
            taken[which].append(begin.elapsed_time(end) * 1e3 / replays[which].launches)
        return [np.array(samples) for samples in taken]


def timing_of(green: Green, session: TimingSession) -> Timing:
    """The time of a GREEN kernel, and of nothing else."""
    return session.measure(green)


def _some_rows(tensor: Tensor) -> Tensor:
    """(rows, row length): every row, or CHECKED_ROWS of them in equal steps."""
    rows = tensor.reshape(-1, tensor.shape[-1])
    return rows[:: max(1, len(rows) // CHECKED_ROWS)]


@contextmanager
def gpu_lock(uuid: str) -> Iterator[None]:
    """One timing on a GPU at a time, among all processes of this machine; waits for its turn."""
    path = Path(tempfile.gettempdir()) / f"evo-{uuid}.lock"
    path.touch(mode=0o666, exist_ok=True)
    with path.open("r") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # the kernel releases it when this process ends, however it ends
        yield
