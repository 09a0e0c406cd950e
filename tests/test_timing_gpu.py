"""FAST on a GPU: times, what kernels are timed on, baselines."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from evo.cache import Cache
from evo.compile import Compiler, find_compiler
from evo.device.cuda import CudaDevice
from evo.device.driver import gpu_names
from evo.task import Tunable, load_task
from evo.timing import (
    Ready,
    TimingSession,
    TimingSettings,
    capture_baselines,
    settled,
    time_variants,
)
from evo.timing.inputs import InputSets
from evo.timing.stopwatch import Stopwatch
from evo.trial import BufferArg, LaunchConfig, Workspace


def needs_gpu(test: Any) -> Any:
    """Marks a test that needs a GPU; skipped, with the reason, where there is none."""
    return pytest.mark.gpu(pytest.mark.skipif(not gpu_names(), reason="there is no NVIDIA GPU here")(test))


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
    if (fabsf(evo::Element::low(q[threadIdx.x % 64].bits)) > 6.f)
        for (const long long begin = clock64(); clock64() - begin < 3200;) continue;
"""
"""Extra work where an element of the first query is large: on `sharp` inputs alone, 1.6 µs."""
SURE = BET.replace("6.f", "6e4f")
"""The same look at the first query, and never extra work."""


@needs_gpu
def test_a_kernel_that_is_slower_on_one_input_is_ranked_by_that(
    session: TimingSession, compiler: Compiler
) -> None:
    session.incumbent_us = None
    sure, bet = (session.measure(green(session, compiler, "flash_mma", more)) for more in (SURE, BET))
    assert not sure.varies
    assert bet.varies
    assert bet.median_us == bet.times["sharp"].median_us
    extra_us = bet.median_us - bet.times["normal"].median_us
    assert abs(bet.times["normal"].median_us - sure.times["normal"].median_us) < extra_us / 2
    assert 1.2 < bet.median_us / sure.median_us < 1.45
    assert bet.on == "sharp"
    assert session.incumbent_us == sure.median_us


@needs_gpu
def test_a_kernel_that_lost_on_one_input_is_not_timed_on_the_next(
    session: TimingSession, compiler: Compiler
) -> None:
    session.incumbent_us = None
    session.measure(green(session, compiler, "flash_mma", SURE))  # the look at a query takes time too
    timing = session.measure(green(session, compiler, "flash_mma", BET))
    assert list(timing.times) == ["normal", "sharp"]
    assert not timing.complete


@needs_gpu
def test_a_baseline_never_takes_more_than_half_of_the_free_memory(session: TimingSession) -> None:
    import torch

    def takes(share: float) -> Any:
        def run(inputs: Any) -> Any:
            free, _ = torch.cuda.mem_get_info()
            return torch.empty(int(share * free), dtype=torch.uint8, device=inputs["q"].device).zero_()

        return run

    sets = InputSets(session.device, load_task("attention"), session.problem, session.settings, 3)
    with torch.no_grad():
        baselines = {"modest": takes(0.1), "greedy": takes(0.7)}
        replays, skipped = capture_baselines(session.watch, sets, baselines)
    assert set(replays) == {"modest"}
    assert re.fullmatch(r"it needs more than \d+\.\d GB, half of the free memory", skipped["greedy"])
    torch.empty(1 << 30, dtype=torch.uint8, device="cuda")  # the limit is gone


@needs_gpu
def test_inputs_are_there_before_the_stream_of_the_samples_sees_them(session: TimingSession) -> None:
    """That stream does not wait for the one that draws them. A kernel whose inputs are places in memory
    would crash, and be refused for it."""
    import torch

    torch.cuda._sleep(100_000_000)
    sets = InputSets(session.device, load_task("attention"), session.problem, session.settings, 1009)
    (call,) = sets.of_baseline(lambda inputs: inputs["q"].clone())[:1]
    with torch.cuda.stream(session.watch.stream):
        seen = call()
    torch.cuda.synchronize()
    assert torch.equal(seen, call()), "the contents of this seed, not what lay there"


@needs_gpu
def test_a_workspace_is_zero_before_the_stream_of_the_samples_sees_it(session: TimingSession) -> None:
    """That stream does not wait for the one on which zeros are written, and a busy GPU writes them late."""
    import torch

    sets = InputSets(session.device, load_task("attention"), session.problem, session.settings, 3)
    scratch = Workspace("scratch", 8 << 20, zeroed=True)
    launch = LaunchConfig((1, 1, 1), (32, 1, 1), 0, (BufferArg("scratch"),), workspaces=(scratch,))
    dirty = torch.full(
        (scratch.nbytes,), 255, dtype=torch.uint8, device="cuda"
    )  # its place is given out next
    del dirty
    torch.cuda._sleep(100_000_000)
    calls = sets.of_kernel(None, launch)  # type: ignore[arg-type]
    with torch.cuda.stream(session.watch.stream):
        seen = calls[0].read["scratch"].clone()  # type: ignore[attr-defined]
    torch.cuda.synchronize()
    assert not seen.any()


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
def test_a_small_copy_takes_longer_with_a_cold_cache() -> None:
    """32 KB, of which the L2 would hold any number of sets."""
    import torch

    device = CudaDevice()
    settings = {4: TimingSettings("warm"), 256: TimingSettings("cold")}
    source = torch.ones(256, 1 << 13, device="cuda:0")
    taken = {}
    for sets, setting in settings.items():
        watch = Stopwatch(device, setting)
        replay = watch.capture([partial(torch.clone, row) for row in source[:sets]], 256)
        watch.settle()
        taken[setting.protocol] = np.median(watch.sample([replay], 9, lead=True)[0][1:])
    assert taken["cold"] > taken["warm"]


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
        own = np.array(time.samples_us)
        assert len(own) == 10 or not settled(own[:10], 0.005), "a noisy baseline asks for no more"
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
    with session.device.beside():
        ready = session.prepare(kernel, (session.first,))
    assert list(session.time(ready).times) == ["normal"]
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
