"""FAST: the statistics on the CPU, on samples whose truth is known; the measuring itself on a GPU."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evo.cache import Cache
from evo.compile import Compiler, find_compiler
from evo.device.cuda import CudaDevice
from evo.device.driver import gpu_names
from evo.gpu import KNOWN_GPUS, Roof
from evo.task import Tunable, load_task
from evo.timing import (
    Ready,
    TimingSession,
    TimingSettings,
    bootstrap_median,
    bootstrap_ratio,
    capture_baselines,
    clear_loser,
    launches_per_replay,
    median_interval,
    settled,
    time_variants,
)
from evo.timing.inputs import InputSets
from evo.timing.stopwatch import Replay, Stopwatch
from evo.trial import LaunchConfig


def needs_gpu(test: Any) -> Any:
    """Marks a test that needs a GPU; skipped, with the reason, where there is none."""
    return pytest.mark.gpu(pytest.mark.skipif(not gpu_names(), reason="there is no NVIDIA GPU here")(test))


def skewed(rng: np.random.Generator, median: float, count: int, spread: float = 0.02) -> Any:
    """Times as a GPU gives them: a floor and a long tail above it; `median` is the true median."""
    tail = rng.exponential(1.0, count)
    return median * (1 + spread * (tail - math.log(2)))


@pytest.mark.parametrize("count", [6, 7, 10, 25, 60, 400, 800])
def test_the_interval_of_a_median_covers_it_as_often_as_it_says(count: int) -> None:
    rng = np.random.default_rng(count)
    hits = 0
    for _ in range(600):
        interval = median_interval(skewed(rng, 9.1, count))
        assert interval.low <= interval.high
        hits += interval.low <= 9.1 <= interval.high
    assert hits / 600 > 0.925  # 0.95 and three standard deviations of 600 tries


def test_the_interval_of_few_samples_says_its_true_level() -> None:
    interval = median_interval(np.array([3.0, 1.0, 2.0]))
    assert (interval.low, interval.high) == (1.0, 3.0)
    assert interval.level == pytest.approx(0.75)
    assert median_interval(np.array([1.0])).level == 0.0


@given(st.lists(st.floats(0.5, 1e4), min_size=1, max_size=60))
def test_an_interval_lies_within_the_samples_and_around_the_median(values: list[float]) -> None:
    samples = np.array(values)
    interval = median_interval(samples)
    assert samples.min() <= interval.low <= np.median(samples) <= interval.high <= samples.max()


def test_the_bootstrap_covers_the_median() -> None:
    rng = np.random.default_rng(5)
    hits = 0
    for seed in range(300):
        interval = bootstrap_median(skewed(rng, 9.1, 40), seed, resamples=400)
        hits += interval.low <= 9.1 <= interval.high
    assert hits / 300 > 0.9


def test_the_ratio_of_equal_kernels_seldom_wins() -> None:
    """A/A: the lower bound of a 95 % interval exceeds 1 in about 2.5 % of the comparisons."""
    rng = np.random.default_rng(6)
    wins = 0
    for seed in range(400):
        drift = 1 + 0.01 * np.sin(np.arange(60) / 9)  # a clock that wanders hits both alike
        _, interval = bootstrap_ratio(
            skewed(rng, 9.1, 60) * drift, skewed(rng, 9.1, 60) * drift, seed, resamples=400
        )
        wins += interval.low > 1
    assert wins / 400 < 0.05


def test_a_planted_difference_is_found() -> None:
    rng = np.random.default_rng(7)
    found = 0
    for seed in range(100):
        ratio, interval = bootstrap_ratio(
            skewed(rng, 9.1 * 1.02, 60), skewed(rng, 9.1, 60), seed, resamples=400
        )
        assert ratio == pytest.approx(1.02, abs=0.03)
        found += interval.low > 1
    assert found >= 90


def test_the_same_samples_and_seed_give_the_same_interval() -> None:
    samples = skewed(np.random.default_rng(8), 9.1, 30)
    assert bootstrap_median(samples, 3) == bootstrap_median(samples, 3)
    assert bootstrap_median(samples, 3) != bootstrap_median(samples, 4)


def test_sampling_stops_when_the_interval_is_narrow() -> None:
    rng = np.random.default_rng(9)
    assert not settled(np.full(9, 9.1), 0.005)  # too few to say
    assert settled(np.full(10, 9.1), 0.005)
    assert not settled(skewed(rng, 9.1, 20, spread=0.2), 0.005)
    assert settled(skewed(rng, 9.1, 400, spread=0.01), 0.005)


def test_only_a_clear_loser_is_dropped() -> None:
    assert clear_loser(np.array([10.0, 9.8]), 9.1, 1.05)
    assert not clear_loser(np.array([10.0, 9.5]), 9.1, 1.05)
    assert not clear_loser(np.array([10.0]), None, 1.05)


def test_a_replay_takes_as_long_as_wanted() -> None:
    settings = TimingSettings(replay_us=300, most_launches=256)
    assert launches_per_replay(10, settings) == 30
    assert launches_per_replay(5000, settings) == 1
    assert launches_per_replay(0.6, settings) == 256
    assert launches_per_replay(0.0, settings) == 256


class Slow(Stopwatch):
    """A stopwatch on no GPU: calls that take `us`, of which the host needs `host_us` each."""

    def __init__(self, us: float, host_us: float) -> None:
        self.settings = TimingSettings()
        self.us, self.host_us = us, host_us
        self.launched = 0

    def replay(self) -> None:
        """It is its own graph: nothing is launched."""

    def _time_once(self, calls: Any) -> float:  # noqa: ARG002
        return max(self.us, self.host_us)

    def capture(self, calls: Any, launches: int) -> Replay:  # noqa: ARG002
        return Replay(self, launches)

    def sample(self, replays: Any, turns: int, lead: bool = False) -> Any:  # noqa: ARG002
        self.launched += replays[0].launches
        return [np.array([self.us + 2.5 / replays[0].launches])]


def test_how_long_the_host_takes_for_a_call_is_no_part_of_the_estimate() -> None:
    """A compiled baseline of 5.9 µs whose calls took the host 160 was timed two launches at a time."""
    for host_us in (20.0, 160.0, 1000.0):
        assert Slow(5.9, host_us).estimate([lambda: None]) == pytest.approx(5.9 + 2.5 / 4)
    long = Slow(4000.0, 20.0)
    assert long.estimate([lambda: None]) == pytest.approx(4000, rel=0.01)
    assert long.launched == 1


def test_the_floor_is_below_the_best_known_kernels() -> None:
    gpu = KNOWN_GPUS["H200"]
    mission = Roof(gpu, flop=4 * 8 * 512 * 512 * 64, nbytes=4 * 8 * 512 * 64 * 2, in_l2=True).floor_us
    assert 0.1 < mission < 1.0  # best measured there: 4.13 µs
    large = Roof(
        gpu, flop=4 * 2 * 16 * 4096**2 * 128, nbytes=4 * 2 * 16 * 4096 * 128 * 2, in_l2=False
    ).floor_us
    assert 200 < large < 428  # cuDNN's time on it
    copy = Roof(gpu, flop=0, nbytes=4.8e9, in_l2=False).floor_us
    assert copy == pytest.approx(850)


# --- on a GPU ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiler]:
    with find_compiler(None, Cache(tmp_path_factory.mktemp("cache"))) as compiler:
        yield compiler


@pytest.fixture(scope="module")
def session(compiler: Compiler) -> Iterator[TimingSession]:
    from evo.task import load_task

    device = CudaDevice(0, compiler)
    task = load_task("attention")
    yield TimingSession(device, task, task.example, seed=1)
    device.close()


def green(
    session: TimingSession, compiler: Compiler, template_name: str, more: str = "", **changed: Any
) -> Any:
    """A GREEN kernel; `more`: CUDA that it runs first."""
    from evo.gate import check
    from evo.task import load_task
    from evo.template import load_template
    from evo.trial import Problem

    device, task = session.device, load_task("attention")
    template = load_template(task, template_name)
    point = {**template.space.default, **changed}

    def kernel_for(problem: Problem) -> Any:
        candidate = template.candidate(point, problem)
        source = candidate.source.replace(SHARED, more + SHARED)
        binary = compiler.compile(source, candidate.entry, device.gpu.arch)
        return device.load(binary, candidate.launch), candidate.launch

    tiles = template.tiles(point, session.problem)
    return check(kernel_for, device, task, session.problem, tiles, seed=1)


SHARED = "    extern __shared__ __align__(128) unsigned char shared_memory[];"
"""The first line of a kernel of `flash_mma`."""
BET = """
    if (fabsf(static_cast<float>(q[threadIdx.x % 64])) > 6.f)
        for (const long long begin = clock64(); clock64() - begin < 3200;) continue;
"""
"""Extra work where an element of the first query is large: on `sharp` inputs alone, 1.6 µs."""


@needs_gpu
def test_a_kernel_that_is_slower_on_one_input_is_ranked_by_that(
    session: TimingSession, compiler: Compiler
) -> None:
    session.incumbent_us = None
    sure, bet = (session.measure(green(session, compiler, "flash_mma", more)) for more in ("", BET))
    assert not sure.varies
    assert bet.varies
    assert bet.times["normal"].median_us == pytest.approx(sure.times["normal"].median_us, rel=0.03)
    assert bet.median_us == bet.times["sharp"].median_us
    assert 1.2 < bet.median_us / sure.median_us < 1.45
    assert bet.on == "sharp"
    assert session.incumbent_us == sure.median_us


@needs_gpu
def test_a_kernel_that_lost_on_one_input_is_not_timed_on_the_next(
    session: TimingSession, compiler: Compiler
) -> None:
    session.incumbent_us = None
    session.measure(green(session, compiler, "flash_mma"))
    timing = session.measure(green(session, compiler, "flash_mma", BET))
    assert list(timing.times) == ["normal", "sharp"]
    assert not timing.complete


@needs_gpu
def test_a_baseline_never_takes_more_than_half_of_the_free_memory(session: TimingSession) -> None:
    import torch

    def takes(share: float) -> Any:
        def run(inputs: Any) -> Any:
            free, _ = torch.cuda.mem_get_info()
            return torch.empty(int(share * free), dtype=torch.uint8, device=inputs["q"].device)

        return run

    sets = InputSets(session.device, load_task("attention"), session.problem, session.settings, 3)
    with torch.no_grad():
        baselines = {"modest": takes(0.1), "greedy": takes(0.7)}
        replays, skipped = capture_baselines(session.watch, sets, baselines)
    assert set(replays) == {"modest"}
    assert re.fullmatch(r"it needs more than \d+\.\d GB, half of the free memory", skipped["greedy"])
    torch.empty(1 << 30, dtype=torch.uint8, device="cuda")  # the limit is gone


@needs_gpu
def test_baselines_are_timed_at_the_start(session: TimingSession) -> None:
    known = session.baselines_us[session.first]
    assert {"sdpa", "math"} <= set(known)
    assert 2 < known[session.best_baseline(session.first)] < known["math"]


@needs_gpu
def test_the_fastest_variant_of_a_baseline_is_chosen(session: TimingSession) -> None:
    import torch

    def times(count: int) -> Any:
        def run(inputs: Any) -> Any:
            for _ in range(count):
                found = inputs["q"] * 2
            return found

        return run

    def broken(_: Any) -> Any:
        raise RuntimeError("out of resource: shared memory")

    tunable = Tunable({"broken": broken, "nine": times(9), "one": times(1), "four": times(4)})
    settings = session.settings
    sets = InputSets(session.device, load_task("attention"), session.problem, settings, 3)
    with torch.no_grad():
        watch = Stopwatch(session.device, settings)
        replays, skipped = capture_baselines(watch, sets, {"good": tunable, "bad": Tunable({"x": broken})})
        known = time_variants(watch, sets, tunable)
    assert tunable.chosen == "one"
    assert known["one"] < known["four"] < known["nine"]
    assert set(replays) == {"good"}
    assert skipped == {"bad": "out of resource: shared memory"}


@needs_gpu
@pytest.mark.parametrize("causal", [False, True])
def test_every_baseline_computes_attention(causal: bool) -> None:
    import torch

    task = load_task("attention")
    problem = task.problem("1,4,300,64", causal=causal)
    inputs = task.inputs(problem, "normal", 0, "cuda")
    expected = task.reference(problem, inputs)["o"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch deprecates what it imports itself
        torch.compiler.reset()
    ran = set()
    for name, run in task.baselines(problem, "cuda", patient=True).items():
        variants = run.variants if isinstance(run, Tunable) else {"": run}
        for variant, each in variants.items():
            with torch.no_grad():
                try:
                    out = each(inputs)
                except RuntimeError:  # not on this GPU, or not with this version: it says so and is left out
                    continue
            assert (out.double() - expected).abs().max() < 5e-3, (name, variant)
            ran.add(name)
    assert {"sdpa", "math", "hybrid"} <= ran


@needs_gpu
def test_an_empty_kernel_is_a_node_of_a_graph(session: TimingSession, compiler: Compiler) -> None:
    launch = LaunchConfig((1, 1, 1), (32, 1, 1), 0, ())
    source = 'extern "C" __global__ void empty() {}'
    kernel = session.device.load(compiler.compile(source, "empty", session.device.gpu.arch), launch)
    replay = session.watch.capture([lambda: kernel.start(launch, {})], 256)
    (samples,) = session.watch.sample([replay], 10)
    assert 0.3 < float(np.median(samples[1:])) < 1.5  # 0.56 to 0.60 on an H200


@needs_gpu
def test_a_green_kernel_gets_a_time_beside_the_baselines(session: TimingSession, compiler: Compiler) -> None:
    session.incumbent_us = None
    timing = session.measure(green(session, compiler, "flash_mma"))
    assert 2 < timing.median_us < 200
    assert timing.interval.low <= timing.median_us <= timing.interval.high
    assert (timing.interval.high - timing.interval.low) / timing.median_us < 0.05
    assert list(timing.times) == ["normal", "sharp", "sink", "growing"]
    assert timing.complete
    assert timing.median_us == max(time.median_us for time in timing.times.values())
    for time in timing.times.values():
        assert len(time.samples_us) >= 10
        assert time.speedup == pytest.approx(min(time.baselines_us.values()) / time.median_us, rel=0.1)
    assert timing.speedup == min(time.speedup or 0.0 for time in timing.times.values())
    assert timing.speedup_interval is not None
    assert session.incumbent_us == timing.median_us


@needs_gpu
def test_a_graph_that_turns_out_too_short_is_captured_again(
    session: TimingSession, compiler: Compiler
) -> None:
    """As when another process had the GPU while the first launches were timed."""
    session.incumbent_us = None
    kernel = green(session, compiler, "flash_mma")
    usual = session.measure(kernel).median_us
    session.incumbent_us = None
    calls = session.prepare(kernel).calls
    short = Ready(calls, session.watch.capture(calls, 1), frozenset((0,)), hopeless=False)
    assert session.time(short).median_us == pytest.approx(usual, rel=0.03)  # 2.5 us more, were it kept


@needs_gpu
def test_a_clear_loser_is_dropped_early(session: TimingSession, compiler: Compiler) -> None:
    session.incumbent_us = 1.0
    kernel = green(session, compiler, "flash_mma")
    timing = session.measure(kernel)
    assert list(timing.times) == ["normal"], "a loser is timed on the plain inputs alone"
    assert not timing.complete
    assert len(timing.times["normal"].samples_us) <= 5
    assert session.measure(kernel, whole=True).complete
    assert session.incumbent_us == 1.0


@needs_gpu
def test_a_kernel_against_itself_does_not_win(session: TimingSession, compiler: Compiler) -> None:
    kernel = green(session, compiler, "flash_mma")
    times = []
    for _ in range(5):
        session.incumbent_us = None
        times.append(session.measure(kernel).median_us)
    assert max(times) / min(times) < 1.03


@needs_gpu
def test_cold_is_not_faster_than_warm(session: TimingSession, compiler: Compiler) -> None:
    from evo.task import load_task

    settings = TimingSettings(protocol="cold")
    cold = TimingSession(session.device, load_task("attention"), session.problem, seed=2, settings=settings)
    kernel = green(session, compiler, "flash_mma")
    session.incumbent_us = None
    warm_us = session.measure(kernel).median_us
    timing = cold.measure(kernel)
    assert timing.protocol == "cold"
    assert timing.median_us > 0.98 * warm_us
