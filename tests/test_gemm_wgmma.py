"""The Hopper template of the product: a point to begin with for every size, code that compiles within its
models, parameters that all change it, renders that do not move, and results that are right on the emulator.

Golden renders live in tests/golden/; after an intended change write them anew with
`python tests/test_gemm_wgmma.py` and read the diff.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_cuda import needs_gpu

from benchmarks.gemm import shapes
from evo.cache import Cache, default_folder
from evo.compile import Compiler, find_compiler
from evo.device.open import real_gpu
from evo.errors import CandidateError, MachineError
from evo.evaluate import EvaluatorSpec
from evo.gpu import Limits, target
from evo.selftest.mutant_results import MutationTarget
from evo.selftest.mutants import MutationRun
from evo.task import load_task
from evo.template import load_template
from evo.testing import TemplateTests
from evo.trial import InputTime, Interval, Point, Problem, Timing, Value, body_of

torch.set_num_threads(1)  # small tensors: more threads only wait for each other

GEMM = load_task("gemm")
WGMMA = load_template(GEMM, "gemm_wgmma")
LIMITS = Limits.of(target("sm_90a"))
GOLDEN = Path(__file__).parent / "golden"
TURNS: Point = {
    "schedule": "pingpong", "consumers": 2, "persistent": True, "epilogue": "tma", "producer": "warpgroup"
}  # fmt: skip
"""Consumers that take turns: for small problems the rules refuse it, as their tiles are fewer than SMs; the
gate has a problem of 280 matrices for it."""
SHAPES = (
    "1,8,8,1", "3,16,8,100", "64,64,64,1", "512,512,512,1", "1024,1024,1024,1", "2048,2048,2048,1",
    "8192,8192,8192,1", "4096,7168,16384,1", "4096,4096,7168,1", "4096,7168,2048,1", "96,2112,7168,1",
    "16,7168,57344,1", "16384,16384,64,1", "100,24,16384,3",
)  # fmt: skip
CASES: dict[str, tuple[str, dict[str, Any], Point]] = {
    "one consumer": ("100,72,136,1", {}, {"stages": 3}),
    "cooperative": (
        "256,256,256,1", {"epilogue": "bias_gelu"},
        {"consumers": 2, "bn": 128, "stages": 4, "epilogue": "tma", "panel": 4},
    ),
    "in turns": ("256,256,256,1", {}, {**TURNS, "rows": 2, "bn": 128, "stages": 6, "panel": 8}),
    "in turns, small": (
        "72,136,200,1", {"epilogue": "bias"}, {**TURNS, "bn": 64, "stages": 3, "panel": 4, "in_flight": 2}
    ),
    "in turns, 192 rows": (
        "256,256,256,1", {"layout": "NN", "epilogue": "bias"},
        {**TURNS, "rows": 3, "bn": 128, "stages": 4, "raster": "n"},
    ),
    "late": (
        "256,256,256,1", {"epilogue": "residual"},
        {**TURNS, "schedule": "cooperative", "bn": 256, "stages": 4, "multicast": "b"},
    ),
    "late, K short": (
        "136,264,72,1", {"layout": "TN"},
        {**TURNS, "schedule": "cooperative", "rows": 2, "bn": 128, "stages": 3},
    ),
    "in turns, 176 columns": (
        "256,360,256,1", {"epilogue": "bias_gelu"},
        {**TURNS, "rows": 2, "bn": 176, "stages": 5, "epilogue": "direct", "multicast": "b"},
    ),
    "in turns, boxes of 88 columns": (
        "256,360,256,1", {"epilogue": "bias_gelu"},
        {**TURNS, "rows": 2, "bn": 176, "stages": 5, "multicast": "b"},
    ),
    "boxes of 32 columns": (
        "100,72,264,1", {"epilogue": "bias"}, {"bn": 32, "bk": 128, "stages": 3, "epilogue": "tma"}
    ),
    "in turns, five boxes of 32 columns": (
        "256,328,256,1", {"epilogue": "bias"}, {**TURNS, "rows": 2, "bn": 160, "stages": 4}
    ),
    "late, boxes of 72 columns": (
        "264,296,200,1", {"epilogue": "residual"},
        {**TURNS, "schedule": "cooperative", "bn": 144, "stages": 4, "multicast": "b"},
    ),
    "boxes of 56 columns": (
        "136,232,200,2", {}, {"consumers": 2, "bn": 112, "stages": 4, "epilogue": "tma"}
    ),
    "48 columns, split in a cluster": (
        "100,104,520,1", {"epilogue": "bias"},
        {"bn": 48, "stages": 3, "splits": 2, "join": "cluster"},
    ),
    "late, three boxes of 32 columns": (
        "136,264,200,1", {"epilogue": "residual"},
        {**TURNS, "schedule": "cooperative", "bn": 96, "stages": 4, "multicast": "a"},
    ),
    "late, boxes of 24 columns": (
        "136,264,200,1", {"epilogue": "residual"},
        {**TURNS, "schedule": "cooperative", "bn": 48, "stages": 4, "multicast": "a"},
    ),
    "three in turns": (
        "256,256,256,1", {"layout": "TN", "out": "fp32", "epilogue": "residual"},
        {**TURNS, "consumers": 3, "producer": "warp", "bn": 64, "stages": 3},
    ),
    "B for both": (
        "300,264,520,1", {"epilogue": "scale"},
        {**TURNS, "schedule": "cooperative", "persistent": False, "bn": 128, "stages": 3, "multicast": "b"},
    ),
    "A for both": (
        "72,136,136,1", {"epilogue": "bias_silu"}, {"multicast": "a", "persistent": True, "epilogue": "tma"}
    ),
    "A across, for both": (
        "136,136,264,1", {"layout": "TN"},
        {**TURNS, "schedule": "cooperative", "bn": 128, "bk": 128, "multicast": "a"},
    ),
    "B for both, in turns": (
        "300,264,520,1", {"layout": "NN"}, {**TURNS, "rows": 2, "bn": 128, "stages": 3, "multicast": "b"}
    ),
    "split": ("100,72,520,1", {}, {"stages": 3, "splits": 4}),
    "split, in panels of columns": (
        "130,264,520,2", {"out": "fp32"},
        {"consumers": 2, "stages": 3, "splits": 2, "multicast": "a", "raster": "n"},
    ),
    "two in flight": ("100,72,520,1", {}, {"stages": 3, "in_flight": 2}),
    "two in flight, late": (
        "264,256,72,1", {"layout": "NN"},
        {**TURNS, "schedule": "cooperative", "bn": 128, "stages": 4, "in_flight": 2},
    ),
    "split in a cluster": (
        "100,72,520,1", {"epilogue": "residual"}, {"stages": 3, "splits": 2, "join": "cluster"}
    ),
    "split in a cluster of 8": (
        "130,136,1032,2", {"out": "fp32"}, {"rows": 2, "stages": 3, "splits": 8, "join": "cluster"}
    ),
    "boxes of C one by one": (
        "100,200,136,1", {"epilogue": "bias"}, {"consumers": 2, "bn": 192, "stages": 3, "epilogue": "tma"}
    ),
    "split, in turns": (
        "300,264,520,1", {"out": "fp32"}, {**TURNS, "bn": 128, "stages": 3, "splits": 2, "multicast": "a"}
    ),
    "odd rows": (
        "77,101,200,2", {"epilogue": "residual", "gap": 8}, {"consumers": 3, "bn": 96, "persistent": True}
    ),
    "wide": ("77,104,200,2", {"epilogue": "bias", "gap": 64, "out": "fp32"}, {"bn": 256, "bk": 128}),
}  # fmt: skip
"""What is tried on the emulator: a problem, and what its point has that is not the default."""
QUICK = (
    "in turns", "in turns, boxes of 88 columns", "boxes of 32 columns", "late", "split", "split in a cluster",
    "A for both", "two in flight",
)  # fmt: skip
GOLDENS: dict[str, tuple[str, dict[str, Any], Point]] = {
    "gemm_wgmma_large": ("4096,7168,16384,1", {}, {}),
    "gemm_wgmma_split": (
        "96,2112,7168,1", {"layout": "NN", "epilogue": "bias_gelu", "out": "fp32"}, {"multicast": "a"}
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    try:
        found = find_compiler(None, Cache(default_folder()))
    except MachineError as error:
        pytest.skip(str(error))
    with found:
        yield found


@pytest.mark.nvcc
class TestWgmma(TemplateTests):
    task, template, problems, points = "gemm", "gemm_wgmma", ("130,136,72,1", "130,136,520,1"), 0


@pytest.mark.parametrize("shape", SHAPES)
def test_there_is_a_point_to_begin_with_for_every_size(shape: str) -> None:
    for flags in ({}, {"layout": "NN"}, {"layout": "TN", "gap": 8}, {"out": "fp32", "epilogue": "residual"}):
        problem = GEMM.problem(shape, **flags)
        if WGMMA.supports(problem, LIMITS) is not None:
            continue
        for limits in (LIMITS, Limits.of(target("sm_90a"), 48 << 10)):
            for point in (WGMMA.space.default_for(problem, limits), WGMMA.space.default):
                assert WGMMA.space.why_not(point, limits, problem) is None, f"{problem.key} {dict(point)}"


def test_a_search_begins_with_what_its_model_of_clocks_prefers() -> None:
    def agrees(shape: str, **values: Value) -> bool:
        return values.items() <= WGMMA.space.default_for(GEMM.problem(shape), LIMITS).items()

    for shape in ("4096,7168,16384,1", "4096,4096,7168,1", "4096,7168,2048,1", "8192,8192,8192,1"):
        assert agrees(shape, persistent=True, consumers=2, rows=1, bn=256, stages=4, multicast="b", panel=8)
    assert agrees("512,4736,960,1", consumers=2, rows=1, bn=144, splits="auto")  # 132 tiles for 132 SMs
    assert agrees("832,5696,8192,1", persistent=True, consumers=2, rows=1, bn=160)  # 252, in two waves
    assert agrees("8576,1024,384,1", schedule="pingpong", bn=128)
    assert agrees("64,192,1152,1", bn=32, splits="auto", join="cluster", epilogue="tma")  # in 4 parts each


def test_rows_that_tma_cannot_copy_are_refused() -> None:
    for shape, layout in (("64,64,33,1", "NT"), ("64,33,64,1", "NN"), ("33,64,64,1", "TN")):
        assert WGMMA.supports(GEMM.problem(shape, layout=layout), LIMITS)
    assert WGMMA.supports(GEMM.problem("64,64,64,1", gap=1), LIMITS)
    assert WGMMA.supports(GEMM.problem("33,35,64,1"), LIMITS) is None


def test_the_grid_has_the_form_of_the_tiles_where_it_can() -> None:
    def grid(shape: str, **changes: Value) -> tuple[int, int, int]:
        point = {**WGMMA.space.default, "splits": 1, **changes}
        candidate = WGMMA.candidate(point, GEMM.problem(shape))
        x, y, z = candidate.launch.grid
        assert ("kByGrid = true;" in candidate.source) == (y * z > 1)
        return x, y, z

    assert grid("256,512,4096,3") == (4, 8, 3), "the side of fewer tiles goes first"
    assert grid("512,256,4096,3") == (4, 8, 3)
    assert grid("256,512,4096,3", raster="n") == (4, 8, 3)
    assert grid("256,512,4096,3", raster="m") == (8, 4, 3)
    assert grid("256,512,4096,3", splits=4) == (16, 8, 3)
    assert grid("256,512,4096,3", splits=2, join="cluster") == (8, 8, 3)
    assert grid("256,512,4096,3", multicast="a") == (8, 4, 3), "four pairs across, and four tiles down"
    assert grid("256,512,4096,3", panel=4) == (96, 1, 1)
    assert grid("256,512,4096,3", persistent=True) == (96, 1, 1)
    assert grid("4194304,64,64,1", raster="m") == (65536, 1, 1), "more than a grid may have along y"
    assert grid("4194240,64,64,1", raster="m") == (1, 65535, 1)


@pytest.mark.parametrize("shape", ["8192,8192,8192,1", "1024,1024,1024,1"])
def test_spaces_are_worth_searching(shape: str) -> None:
    feasible = WGMMA.space.feasible(LIMITS, GEMM.problem(shape))
    assert feasible.exact
    assert feasible.count > 10_000


def gated(problem: Problem, changes: Point, device: str = "emulator") -> None:
    """The default point with `changes` through the gate, for finalists too where launches cost nothing."""
    gpu = LIMITS.gpu if device == "emulator" else real_gpu(device)
    if gpu.arch != "sm_90a":
        pytest.skip(f"{gpu.name} has no wgmma")
    evaluator = EvaluatorSpec("gemm", device, gpu, Limits.of(gpu), default_folder()).build()
    template = load_template(GEMM, "gemm_wgmma", gpu=gpu)
    candidate = template.candidate({**template.space.default, "splits": 1, **changes}, problem)
    try:
        evaluator.gate(candidate, 0, thorough=device != "emulator")
    except CandidateError as error:
        pytest.fail(f"{error.outcome} {error.reason}: {error.detail} at {error.where}")
    finally:
        evaluator.close()


@pytest.mark.nvcc
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in CASES]
)
def test_it_is_right_on_the_emulator(name: str) -> None:
    shape, flags, changes = CASES[name]
    gated(GEMM.problem(shape, **flags), changes)


@needs_gpu  # some seconds each
@pytest.mark.parametrize("name", CASES)
def test_it_is_right_on_a_gpu(name: str) -> None:
    shape, flags, changes = CASES[name]
    gated(GEMM.problem(shape, **flags), changes, "cuda:0")


@needs_gpu  # some seconds each
@pytest.mark.parametrize("shape", ["512,512,512,1", "2048,2048,2048,1", "4096,7168,2048,1", "96,2112,7168,1"])
def test_first_points_are_right_on_a_gpu(shape: str) -> None:
    for flags in ({}, {"layout": "TN", "epilogue": "bias_gelu"}, {"layout": "NN", "out": "fp32"}):
        problem = GEMM.problem(shape, **flags)
        gated(problem, WGMMA.space.default_for(problem, LIMITS), "cuda:0")


def fits_easily(point: Point, problem: Problem) -> bool:
    """Whether K is whole, and there are registers beyond the model."""
    p = WGMMA.space.filling(point, problem, LIMITS.gpu)
    module = WGMMA._module.tile
    return bool(p.splits == 1 and int(p.rows) * int(p.bn) // 2 + 64 < int(module.register_cap(p, problem)))


@pytest.mark.nvcc
@pytest.mark.slow  # a second a point
@pytest.mark.parametrize("shape", ["8192,8192,8192,1", "1024,1032,1024,1"])
@pytest.mark.parametrize("layout", ["NT", "NN", "TN"])
def test_sampled_points_compile_within_their_models(shape: str, layout: str, compiler: Compiler) -> None:
    """None serialises its wgmmas, and none spills where there is room beyond the model of registers."""
    problem, rng = GEMM.problem(shape, layout=layout, epilogue="bias_gelu"), np.random.default_rng(3)
    feasible = WGMMA.space.feasible(LIMITS, problem)
    for point in (feasible.sample(rng) for _ in range(12)):
        candidate = WGMMA.candidate(point, problem)
        resources = compiler.compile(candidate.source, candidate.entry, "sm_90a").resources
        assert not resources.warnings, dict(point)
        if fits_easily(point, problem):
            assert resources.spill_bytes == 0, dict(point)


@pytest.mark.nvcc
def test_clusters_wait_for_no_memory_of_the_gpu(compiler: Compiler) -> None:
    """A release to the cluster begins with MEMBAR.ALL.GPU: in each step it takes longer than the product."""
    problem = GEMM.problem("1024,1032,8192,1")
    points: tuple[Point, ...] = (
        {"multicast": "a"}, {"multicast": "b", "rows": 2}, {"splits": 2, "join": "cluster", "stages": 4},
    )  # fmt: skip
    for changes in points:
        candidate = WGMMA.candidate({**WGMMA.space.default, "splits": 1, **changes}, problem)
        ptx = compiler.compile(candidate.source, candidate.entry, "sm_90a").ptx
        assert "mbarrier.arrive.shared::cluster" in ptx
        assert "arrive.release.cluster" not in ptx
        assert "cluster.arrive.release" not in ptx


@pytest.mark.nvcc
@pytest.mark.slow  # a second a parameter
def test_no_parameter_is_dead(compiler: Compiler) -> None:
    """Each value of each parameter gives another program than its neighbour, all else equal."""
    problem = GEMM.problem("1024,1024,8192,1")
    feasible, rng = WGMMA.space.feasible(LIMITS, problem), np.random.default_rng(1)

    def code(point: Point) -> object:
        candidate = WGMMA.candidate(point, problem)
        machine_code = compiler.compile(candidate.source, candidate.entry, "sm_90a").machine_code
        return machine_code, candidate.launch

    def tells(point: Point, other: Point) -> bool:
        """Whether parts of K are joined at all, and C is stored in another way, if these alone differ."""
        one, two = (WGMMA.space.filling(p, problem, LIMITS.gpu) for p in (point, other))
        joined = one.join == two.join or one.splits > 1
        by_tma = WGMMA._module.tile.by_tma
        return bool(joined and (one.epilogue == two.epilogue or by_tma(one) != by_tma(two)))

    for parameter in WGMMA.space.parameters:
        for point in (feasible.sample(rng) for _ in range(2000)):
            others: list[dict[str, Value]] = [
                {**point, parameter.name: value} for value in parameter.neighbours(point[parameter.name])
            ]
            if others := [one for one in others if feasible.contains(one) and tells(point, one)]:
                assert code(point) != code(others[0]), f"{parameter.name} changes nothing at {dict(point)}"
                break
        else:
            pytest.fail(f"no two feasible points differ in {parameter.name} alone")


def test_the_benchmark_has_points_for_its_shapes() -> None:
    for text in shapes.SHAPES:
        problem = shapes.problem_of(GEMM, text)
        points = shapes.points_of(WGMMA, problem, LIMITS, quick=False)
        assert len(points) >= 5, text
        assert points[:1] == shapes.points_of(WGMMA, problem, LIMITS, quick=True)
    large = shapes.points_of(WGMMA, shapes.problem_of(GEMM, shapes.SHAPES[0]), LIMITS, quick=False)
    assert len(large) >= 8


def test_the_benchmark_says_the_least_ratio() -> None:
    def time(us: float, library: float) -> InputTime:
        return InputTime(us, Interval(us, us), baselines_us={"matmul": library})

    timing = Timing.ranked({"normal": time(10, 11), "wide": time(12, 12.6)})
    found = shapes.summary(GEMM, GEMM.problem("1000,1000,1000,1"), timing)
    assert found["ratio"] == {"matmul": 1.05}
    assert found["tflops"] == {"normal": 200.0, "wide": 166.7}


@pytest.mark.nvcc
@pytest.mark.slow  # a minute each
@pytest.mark.parametrize("name", ["in turns, small", "split"])
def test_mutants_that_change_a_bit_are_refused(name: str) -> None:
    """But for those that round otherwise: the line allows them."""
    shape, flags, changes = CASES[name]
    point = {**WGMMA.space.default, "splits": 1, **changes}
    problem = GEMM.problem(shape, **flags)
    found = MutationRun(MutationTarget("gemm_wgmma", problem, LIMITS.gpu, default_folder(), point=point))
    found.verify()
    for mutant in found.some(12):
        one = found.try_one(mutant)
        green = [seed for seed, outcome in one.finalists.items() if outcome == "GREEN"]
        free = one.kind in ("rounding", "flushed or not")
        assert one.fate != "survived" or free or not (one.differs and green), f"{one.text}: {one.after}"


def render(stem: str) -> str:
    shape, flags, changes = GOLDENS[stem]
    problem = GEMM.problem(shape, **flags)
    point = {**WGMMA.space.default_for(problem, LIMITS), **changes}
    return body_of(WGMMA.candidate(point, problem).source)


@pytest.mark.parametrize("stem", GOLDENS)
def test_renders_do_not_move(stem: str) -> None:
    golden = GOLDEN / f"{stem}.cu"
    assert golden.is_file(), "write it with: python tests/test_gemm_wgmma.py"
    assert render(stem) == golden.read_text(encoding="utf-8")


if __name__ == "__main__":
    for stem in GOLDENS:
        (GOLDEN / f"{stem}.cu").write_text(render(stem), encoding="utf-8")
