"""FAST: the statistics on the CPU, on samples whose truth is known; the measuring itself on a GPU."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evo.errors import UnknownName
from evo.gpu import KNOWN_GPUS, Roof
from evo.task import load_task
from evo.timing import (
    TimingSettings,
    bootstrap_median,
    bootstrap_ratio,
    clear_loser,
    drifted,
    launches_per_replay,
    median_interval,
    ranking_named,
    settled,
    timing_inputs,
)
from evo.timing.baselines import refusal
from evo.timing.stopwatch import Replay, Stopwatch


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


def test_a_time_has_drifted_where_its_median_has_moved() -> None:
    rng = np.random.default_rng(10)
    rested, steady = skewed(rng, 7.45, 30, spread=0.002), skewed(rng, 7.28, 5, spread=0.002)
    assert drifted(rested, steady, 0.01)
    assert drifted(steady, rested, 0.01)  # a clock may also fall
    assert not drifted(steady, skewed(rng, 7.28, 30, spread=0.002), 0.01)
    assert not drifted(np.array([7.3, 7.3, 7.3]), np.array([7.3, 7.3, 9.0]), 0.01)  # one odd sample


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


def test_a_baseline_that_is_refused_says_why() -> None:
    memory = RuntimeError("CUDA out of memory. Tried to allocate 16.00 GiB.\nmore lines")
    assert refusal(memory, 70_000_000_000) == "it needs more than 70.0 GB, half of the free memory"
    wrapped = RuntimeError("OutOfMemoryError: Allocation on device")
    assert refusal(wrapped, 1) == "it needs more than 0.0 GB, half of the free memory"
    assert refusal(RuntimeError("out of resource: shared memory\nx"), 1) == "out of resource: shared memory"
    assert refusal(RuntimeError(), 1) == "RuntimeError"


def test_the_input_that_a_ranking_names_is_timed_first() -> None:
    task = load_task("attention")
    assert timing_inputs(task, "worst") == timing_inputs(task, "mean") == tuple(task.timing_inputs)
    assert timing_inputs(task, "sink") == ("sink", "normal", "sharp", "growing")
    assert timing_inputs(task, "plain") == ("plain",), "as it was before there were timing inputs"
    for ranking in ("worst", "mean", "growing"):
        assert ranking_named(ranking, task) == ranking
    for text in ("plain", "Sharp", ""):
        with pytest.raises(UnknownName, match="unknown ranking") as caught:
            ranking_named(text, task)
        assert "sharp" in caught.value.hint
