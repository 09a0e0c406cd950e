"""The templates of matrix products for few rows and for mma.sync: default points, code within its models,
renders that do not move, and results that are right on the emulator.

Golden renders live in tests/golden/; after an intended change write them anew with
`python tests/test_gemm_kernels.py` and read the diff.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evo.cache import Cache, default_folder
from evo.compile import Compiler, find_compiler
from evo.device.driver import gpu_names
from evo.device.open import real_gpu
from evo.errors import CandidateError, MachineError
from evo.evaluate import EvaluatorSpec
from evo.gpu import Limits, target
from evo.space import Filling
from evo.task import load_task
from evo.template import Template, load_template
from evo.testing import TaskTests, TemplateTests
from evo.trial import Point, Problem, body_of

GOLDEN = Path(__file__).parent / "golden"
PROBLEMS: dict[tuple[str, str], tuple[tuple[str, dict[str, Any]], ...]] = {
    ("gemm_w4a16", "w4a16"): (
        ("1,8192,8192", {}), ("3,100,256", {"zeros": True}), ("24,8192,8192", {}),
        ("64,7168,20480", {"zeros": True}), ("1,1,128", {}), ("8,8192,81920", {}),
    ),
    ("gemm", "gemm_mma"): (
        ("4096,4096,4096,1", {}), ("100,96,264,2", {"layout": "NN", "epilogue": "bias_gelu", "gap": 8}),
        ("33,70,100,1", {"layout": "TN", "epilogue": "residual", "out": "fp32", "dtype": "fp16"}),
        ("1,1,1,1", {"gap": 1, "epilogue": "scale"}), ("96,2112,7168,1", {"epilogue": "bias_silu"}),
        ("160,24,1000,1", {"epilogue": "bias", "layout": "TN", "out": "fp32"}),
    ),
    ("gemm", "gemm_skinny"): (
        ("1,7168,57344,1", {"dtype": "fp16"}), ("16,7168,57344,1", {"dtype": "fp16"}), ("1,2112,7168,1", {}),
        ("5,72,264,3", {"epilogue": "residual", "gap": 8}), ("1,1,8,1", {"epilogue": "scale", "out": "fp32"}),
        ("12,100,1024,1", {"epilogue": "bias_gelu"}),
    ),
    ("gemm", "gemv"): (
        ("1,7168,57344,1", {"dtype": "fp16"}), ("8,7168,7168,1", {}), ("1,2112,7168,1", {}),
        ("5,72,263,3", {"epilogue": "residual", "gap": 1}), ("1,1,1,1", {"epilogue": "scale", "out": "fp32"}),
        ("3,100,1022,1", {"epilogue": "bias_gelu"}),
    ),
}  # fmt: skip
"""Problems of each kind that a template has code of its own for."""
TEMPLATES = {(task, name): load_template(load_task(task), name) for task, name in PROBLEMS}
GOLDENS: dict[str, tuple[str, str, str, dict[str, Any], Point]] = {
    "gemm_w4a16_default": ("gemm_w4a16", "w4a16", "1,8192,8192", {}, {}),
    "gemm_w4a16_split": (
        "gemm_w4a16", "w4a16", "16,8192,8192", {"zeros": True},
        {"split": 4, "strips": 2, "x_path": "ring", "scaled": "weights"},
    ),
    "gemm_mma_default": ("gemm", "gemm_mma", "4096,4096,4096,1", {}, {}),
    "gemm_mma_stream": (
        "gemm", "gemm_mma", "1024,1024,1024,1", {"layout": "TN", "epilogue": "bias_gelu", "dtype": "fp16"},
        {"work": "stream", "split": 1, "store": "shared", "swizzle": "pad"},
    ),
    "gemm_skinny_default": ("gemm", "gemm_skinny", "1,7168,57344,1", {"dtype": "fp16"}, {}),
    "gemm_skinny_split": (
        "gemm", "gemm_skinny", "16,2112,7168,1", {"epilogue": "residual"},
        {
            "split": 4, "strips": 2, "depth_warps": 8, "shares": "ranges", "tiles_a_stage": 1, "stages": 4,
            "copies": "lanes", "a_path": "ring",
        },
    ),
    "gemm_skinny_rows": (
        "gemm", "gemm_skinny", "2,7168,57344,1", {"dtype": "fp16"},
        {
            "strips": 2, "depth_warps": 4, "shares": "turns", "tiles_a_stage": 4, "stages": 2,
            "copies": "rows", "hint": "evict_first",
        },
    ),
    "gemv_default": ("gemm", "gemv", "1,2112,7168,1", {}, {}),
    "gemv_odd": ("gemm", "gemv", "3,100,1021,1", {"epilogue": "bias_silu"}, {"loads": "usual"}),
}  # fmt: skip
REACH = 40
"""The same as `reach`, of templates that do not say it."""


class TestGemmW4A16(TaskTests):
    task, tiles = "gemm_w4a16", (16, 256)


@pytest.mark.nvcc
class TestW4A16(TemplateTests):
    task, template, problems, points = "gemm_w4a16", "w4a16", ("1,64,512", "20,80,512"), 1


@pytest.mark.nvcc
class TestGemmMma(TemplateTests):
    task, template, problems, points = "gemm", "gemm_mma", ("70,72,200,1",), 1


@pytest.mark.nvcc
class TestGemmSkinny(TemplateTests):
    task, template, problems, points = "gemm", "gemm_skinny", ("3,40,520,1",), 1


@pytest.mark.nvcc
class TestGemv(TemplateTests):
    task, template, problems, points = "gemm", "gemv", ("2,40,1000,1",), 1


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    try:
        found = find_compiler(None, Cache(default_folder()))
    except MachineError as error:
        pytest.skip(str(error))
    with found:
        yield found


def problems_of(template: Template) -> list[Problem]:
    task = template.task
    return [task.problem(shape, **flags) for shape, flags in PROBLEMS[task.name, template.name]]


@pytest.mark.parametrize("key", TEMPLATES, ids="-".join)
def test_there_is_a_point_to_begin_with_for_every_size(key: tuple[str, str]) -> None:
    template = TEMPLATES[key]
    targets = [("sm_80", None), *((arch, smem) for arch in ("sm_89", "sm_90a") for smem in (48 << 10, None))]
    for arch, smem in targets:
        limits = Limits.of(target(arch), smem)
        for problem in problems_of(template):
            point = template.space.default_for(problem, limits)
            refused = template.space.why_not(point, limits, problem)
            assert refused is None, f"{arch} {problem.key} {dict(point)}: {refused}"


@pytest.mark.parametrize("key", TEMPLATES, ids="-".join)
def test_every_value_of_every_parameter_is_feasible_somewhere(key: tuple[str, str]) -> None:
    template, limits = TEMPLATES[key], Limits.of(target("sm_90a"))
    left = {(p.name, value) for p in template.space.parameters for value in p.values}
    for problem in problems_of(template):
        if not left:
            break
        feasible = template.space.feasible(limits, problem)
        for i, parameter in enumerate(template.space.parameters):
            left -= {(parameter.name, parameter.values[j]) for j in np.unique(feasible.indices[:, i])}
    assert not left


def reach(template: Template, point: Point, problem: Problem) -> float:
    """Registers beyond the model that ptxas takes at most where it is free to."""
    module = template._module
    return float(module.reach(Filling(point), problem)) if hasattr(module, "reach") else REACH


def check_point(template: Template, arch: str, compiler: Compiler, problem: Problem, point: Point) -> None:
    """It compiles without warnings and static shared memory, within its model, and spills only beyond it."""
    candidate = template.candidate(point, problem)
    found = compiler.compile(candidate.source, candidate.entry, arch).resources
    cap = int(np.asarray(template._module.register_cap(Filling(point), problem)))
    model = float(np.asarray(template._module.registers(Filling(point), problem)))
    most = model + reach(template, point, problem)
    where = f"at most {most} {arch} {problem.key} {dict(point)}: {found}"
    assert not found.warnings, where
    assert found.static_smem_bytes == 0, where
    assert found.registers <= min(most, cap), where
    if most <= cap:
        assert found.spill_bytes == 0, where


def check_compiled(template: Template, arch: str, compiler: Compiler, problem: Problem, count: int) -> None:
    feasible, rng = template.space.feasible(Limits.of(target(arch)), problem), np.random.default_rng(7)
    for _ in range(count):
        check_point(template, arch, compiler, problem, feasible.sample(rng))


UNROLLED: dict[str, tuple[str, int, Point]] = {
    "parts": ("sm_80", 1, {"bm": 64, "bn": 64, "bk": 32, "warps_m": 2, "warps_n": 4, "split": 8}),
    "parts, capped": (
        "sm_80", 1, {"bm": 64, "bn": 64, "bk": 32, "warps_m": 2, "warps_n": 4, "split": 8, "min_ctas": 2},
    ),
    "copies": (
        "sm_80", 0,
        {"bm": 128, "bn": 32, "bk": 64, "warps_m": 1, "warps_n": 2, "split": 1, "store": "shared"},
    ),
    "copies, capped": (
        "sm_90a", 2, {"bm": 16, "bn": 128, "bk": 64, "warps_m": 1, "warps_n": 1, "stages": 2, "panel": 4},
    ),
}  # fmt: skip
"""Of gemm_mma: what takes most registers beyond the model, and what spills for it. (arch, number of the
problem, what is not the default.)"""


@pytest.mark.nvcc
@pytest.mark.parametrize("unrolled", UNROLLED)
def test_what_ptxas_unrolls_is_within_reach(unrolled: str, compiler: Compiler) -> None:
    arch, number, changes = UNROLLED[unrolled]
    template = TEMPLATES["gemm", "gemm_mma"]
    problem, limits = problems_of(template)[number], Limits.of(target(arch))
    point = {**template.space.default_for(problem, limits), **changes}
    assert template.space.why_not(point, limits, problem) is None
    check_point(template, arch, compiler, problem, point)


@pytest.mark.nvcc
@pytest.mark.parametrize("key", TEMPLATES, ids="-".join)
def test_drawn_points_compile_within_their_models(key: tuple[str, str], compiler: Compiler) -> None:
    check_compiled(TEMPLATES[key], "sm_89", compiler, problems_of(TEMPLATES[key])[0], 1)


@pytest.mark.nvcc
@pytest.mark.slow
@pytest.mark.parametrize("key", TEMPLATES, ids="-".join)
def test_many_points_compile_within_their_models(key: tuple[str, str], compiler: Compiler) -> None:
    for arch in ("sm_80", "sm_89", "sm_90a"):
        for problem in problems_of(TEMPLATES[key]):
            check_compiled(TEMPLATES[key], arch, compiler, problem, 6)


def check_green(
    template: Template, device: str, limits: Limits, problems: Iterable[Problem], count: int
) -> None:
    """The first point of each problem and `count` drawn ones, through the whole gate."""
    rng = np.random.default_rng(11)
    spec = EvaluatorSpec(template.task.name, device, limits.gpu, limits, default_folder())
    evaluator = spec.build()
    try:
        for problem in problems:
            feasible = template.space.feasible(limits, problem)
            first = template.space.default_for(problem, limits)
            for seed, point in enumerate([first, *(feasible.sample(rng) for _ in range(count))]):
                try:
                    evaluator.gate(template.candidate(point, problem), seed, thorough=False)
                except CandidateError as error:
                    where = f"{problem.key} {dict(point)} at {error.where}"
                    pytest.fail(f"{error.outcome} {error.reason}: {error.detail}; {where}")
    finally:
        evaluator.close()


@pytest.mark.nvcc
@pytest.mark.slow
@pytest.mark.parametrize("key", TEMPLATES, ids="-".join)
def test_many_points_are_green(key: tuple[str, str]) -> None:
    template, sizes = TEMPLATES[key], set(TEMPLATES[key].task.sizes) & set(SMALL)
    small = [p.replace(**{n: min(p[n], SMALL[n]) for n in sizes}) for p in problems_of(template)]
    check_green(template, "emulator", Limits.of(target("sm_90a")), small, 6)


@pytest.mark.gpu
@pytest.mark.skipif(not gpu_names(), reason="there is no NVIDIA GPU here")
@pytest.mark.parametrize("key", TEMPLATES, ids="-".join)
def test_points_are_green_on_a_gpu(key: tuple[str, str]) -> None:
    """Problems in full: about half a minute a template."""
    template = TEMPLATES[key]
    check_green(template, "cuda:0", Limits.of(real_gpu("cuda:0")), problems_of(template), 3)


SMALL = {"M": 96, "N": 160, "K": 1024}
"""Sizes that one core takes through the gate in a few seconds."""


def render(task: str, name: str, shape: str, flags: dict[str, Any], changes: Point) -> str:
    template = TEMPLATES[task, name]
    problem = template.task.problem(shape, **flags)
    default = template.space.default_for(problem, Limits.of(target("sm_90a")))
    return body_of(template.candidate({**default, **changes}, problem).source)


@pytest.mark.parametrize("stem", GOLDENS)
def test_renders_do_not_move(stem: str) -> None:
    golden = GOLDEN / f"{stem}.cu"
    assert golden.is_file(), "write it with: python tests/test_gemm_kernels.py"
    assert render(*GOLDENS[stem]) == golden.read_text(encoding="utf-8")


if __name__ == "__main__":
    for stem, golden in GOLDENS.items():
        (GOLDEN / f"{stem}.cu").write_text(render(*golden), encoding="utf-8")
