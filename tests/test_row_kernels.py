"""The templates of row kernels: default points for every size, code that compiles within its models,
parameters that all change it, renders that do not move, and results that are right on the emulator.

Golden renders live in tests/golden/; after an intended change write them anew with
`python tests/test_row_kernels.py` and read the diff.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from evo.cache import Cache, default_folder
from evo.compile import Compiler, find_compiler
from evo.device import Region
from evo.device.emulator import EmulatorDevice
from evo.errors import CandidateError, MachineError
from evo.evaluate import EvaluatorSpec
from evo.gpu import Limits, target
from evo.space import Filling
from evo.task import load_task
from evo.template import Template, load_template
from evo.testing import TaskTests, TemplateTests
from evo.trial import Point, Problem, body_of

TASKS = {name: load_task(name) for name in ("rmsnorm", "layernorm", "softmax", "cross_entropy")}
NAMES = ("row_registers", "row_twice", "row_cluster")
TEMPLATES = {(task, name): load_template(TASKS[task], name) for task in TASKS for name in NAMES}
ARCHS = ("sm_80", "sm_89", "sm_90a")
GOLDEN = Path(__file__).parent / "golden"
SHAPES = (
    "1,1",
    "1,4096",
    "3,33",
    "1,16384",
    "128,8192",
    "2048,4096",
    "2048,16384",
    "32768,256",
    "32768,65536",
)
REACH = {"row_registers": {"sm_80": 65536, "sm_89": 65536, "sm_90a": 262144}}
"""Columns that the registers of a CTA, or of a cluster, hold."""
FLAGS: dict[str, tuple[dict[str, object], ...]] = {
    "rmsnorm": ({}, {"residual": True}, {"gap": 1}),
    "layernorm": ({}, {"gap": 64}),
    "softmax": ({}, {"log": True}, {"gap": 8}),
    "cross_entropy": ({}, {"lse": True}, {"gap": 8}),
}
"""Kinds of problems of a task: other kernels."""
GOLDENS: dict[str, tuple[str, str, str, dict[str, object], Point]] = {
    "rmsnorm_row_registers_default": ("rmsnorm", "row_registers", "2048,4096", {}, {}),
    "rmsnorm_row_registers_ahead": (
        "rmsnorm", "row_registers", "2048,4096", {"residual": True},
        {"grid": "persistent", "ahead": 1, "weights": "once"},
    ),
    "rmsnorm_row_twice_default": ("rmsnorm", "row_twice", "2048,4096", {}, {}),
    "rmsnorm_row_cluster_default": ("rmsnorm", "row_cluster", "2048,4096", {}, {}),
    "layernorm_row_registers_default": ("layernorm", "row_registers", "2048,4096", {}, {}),
    "softmax_row_twice_default": ("softmax", "row_twice", "2048,4096", {}, {}),
    "cross_entropy_row_cluster_default": ("cross_entropy", "row_cluster", "2048,4096", {"lse": True}, {}),
}  # fmt: skip


class TestRmsNorm(TaskTests):
    task = "rmsnorm"


class TestLayerNorm(TaskTests):
    task = "layernorm"


class TestSoftmax(TaskTests):
    task = "softmax"


class TestCrossEntropy(TaskTests):
    task = "cross_entropy"


@pytest.mark.nvcc
class TestLayerNormTwice(TemplateTests):
    task, template, problems, points = "layernorm", "row_twice", ("3,136",), 0


@pytest.mark.nvcc
class TestSoftmaxRegisters(TemplateTests):
    task, template, problems, points = "softmax", "row_registers", ("3,136",), 0


@pytest.mark.nvcc
class TestCrossEntropyCluster(TemplateTests):
    task, template, problems, points = "cross_entropy", "row_cluster", ("3,1032",), 0


@pytest.mark.nvcc
class TestRmsNormRegisters(TemplateTests):
    task, template, problems, points = "rmsnorm", "row_registers", ("3,520",), 0


@pytest.mark.nvcc
class TestRmsNormTwice(TemplateTests):
    task, template, problems, points = "rmsnorm", "row_twice", ("3,520",), 0


@pytest.mark.nvcc
class TestRmsNormCluster(TemplateTests):
    task, template, problems, points = "rmsnorm", "row_cluster", ("3,1032",), 0


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    try:
        found = find_compiler(None, Cache(default_folder()))
    except MachineError as error:
        pytest.skip(str(error))
    with found:
        yield found


def served(template: Template, arch: str, shapes: tuple[str, ...] = SHAPES) -> Iterator[Problem]:
    """Problems of every kind that the template serves on `arch`."""
    limits, most = Limits.of(target(arch)), REACH.get(template.name, {}).get(arch, 2**30)
    for number, flags in enumerate(FLAGS[template.task.name]):
        for dtype in template.task.dtypes[: 3 if number == 0 else 1]:
            for shape in shapes:
                problem = template.task.problem(shape, dtype, **flags)
                wide = problem["columns"] * (4 if dtype == "fp32" else 2) * (1 + ("residual" in flags))
                if template.supports(problem, limits) is None and wide <= most:
                    yield problem


@pytest.mark.parametrize(("task", "name"), TEMPLATES)
def test_there_is_a_point_to_begin_with_for_every_size(task: str, name: str) -> None:
    template = TEMPLATES[task, name]
    for arch in ARCHS:
        limits = Limits.of(target(arch))
        for problem in served(template, arch):
            point = template.space.default_for(problem, limits)
            refused = template.space.why_not(point, limits, problem)
            assert refused is None, f"{arch} {problem.key} {dict(point)}: {refused}"


@pytest.mark.parametrize(("task", "name"), TEMPLATES)
def test_spaces_are_worth_searching(task: str, name: str) -> None:
    template, limits = TEMPLATES[task, name], Limits.of(target("sm_90a"))
    feasible = template.space.feasible(limits, template.task.problem("2048,16384"))
    assert feasible.exact
    assert feasible.count > 1000


@pytest.mark.slow  # half a second a space
@pytest.mark.parametrize(("task", "name"), TEMPLATES)
def test_every_value_is_met_at_some_size(task: str, name: str) -> None:
    template, limits = TEMPLATES[task, name], Limits.of(target("sm_90a"))
    met: dict[str, set[object]] = {p.name: set() for p in template.space.parameters}
    for shape in SHAPES:
        problem = template.task.problem(shape)
        if template.supports(problem, limits) is None:
            found = template.space.feasible(limits, problem)
            for i, parameter in enumerate(template.space.parameters):
                met[parameter.name] |= {parameter.values[j] for j in np.unique(found.indices[:, i])}
    assert met == {p.name: set(p.values) for p in template.space.parameters}


def register_cap(template: Template, point: Point, problem: Problem) -> int:
    """What `__launch_bounds__` leaves a thread."""
    threads = template.launch(point, problem).threads * int(point["min_ctas"])
    return min(255, 65536 // threads // 8 * 8)


def reach(template: Template, point: Point, problem: Problem) -> int:
    """What ptxas may take beyond the model of registers."""
    return int(template._module.reach(Filling(point), problem))


def compiled(template: Template, arch: str, problem: Problem, point: Point, compiler: Compiler) -> None:
    candidate = template.candidate(point, problem)
    resources = compiler.compile(candidate.source, candidate.entry, arch).resources
    where = f"{template.name} {arch} {problem.key} {dict(point)}"
    assert not resources.warnings, where
    assert resources.static_smem_bytes == 0, where
    assert resources.spill_bytes == 0, where


@pytest.mark.nvcc
@pytest.mark.parametrize("arch", ["sm_80", "sm_89"])  # sm_90a: TemplateTests
def test_a_default_compiles_without_spills(arch: str, compiler: Compiler) -> None:
    for task in TASKS:
        template = TEMPLATES[task, "row_registers"]
        problem = template.task.problem("2048,8192")
        point = template.space.default_for(problem, Limits.of(target(arch)))
        compiled(template, arch, problem, point, compiler)


@pytest.mark.nvcc
@pytest.mark.parametrize("first", [0.0, 3e4])
def test_one_pass_of_layernorm_survives_a_first_element_far_from_the_mean(
    first: float, compiler: Compiler
) -> None:
    """Its sums are relative to that element: where it outweighs all others, most of them cancels."""
    template, problem = TEMPLATES["layernorm", "row_registers"], TASKS["layernorm"].problem("2,4096", "fp32")
    gpu = target("sm_90a")
    point = {**template.space.default_for(problem, Limits.of(gpu)), "passes": 1}
    candidate = template.candidate(point, problem)
    torch = pytest.importorskip("torch")
    inputs = TASKS["layernorm"].inputs(problem, "normal", 1, "cpu")
    inputs["x"][:, 0] = first
    y = torch.full_like(inputs["x"], torch.nan)
    device = EmulatorDevice(gpu)
    kernel = device.load(compiler.compile(candidate.source, candidate.entry, gpu.arch), candidate.launch)
    tensors = {**inputs, "y": y}
    regions = {
        name: Region(name, t.data_ptr(), t.nbytes, writable=name == "y", initialised=name != "y")
        for name, t in tensors.items()
    }
    kernel.launch(candidate.launch, regions)
    expected = TASKS["layernorm"].reference(problem, inputs)["y"]
    assert (y - expected).abs().max() <= 1e-5 * expected.abs().max()


@pytest.mark.nvcc
@pytest.mark.slow  # a second each
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize(("task", "name"), TEMPLATES)
def test_every_default_compiles_without_spills(task: str, name: str, arch: str, compiler: Compiler) -> None:
    template, limits = TEMPLATES[task, name], Limits.of(target(arch))
    for problem in served(template, arch, SHAPES[1::2]):
        compiled(template, arch, problem, template.space.default_for(problem, limits), compiler)


@pytest.mark.nvcc
@pytest.mark.slow  # a second each
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize(("task", "name"), TEMPLATES)
def test_sampled_points_stay_within_their_models(task: str, name: str, arch: str, compiler: Compiler) -> None:
    """None spills where there is room beyond the model of registers."""
    template, limits, rng = TEMPLATES[task, name], Limits.of(target(arch)), np.random.default_rng(0)
    for problem in served(template, arch, ("2048,4096", "512,30000", "1,8192")):
        points = template.space.feasible(limits, problem).points
        for number in rng.permutation(len(points))[:4]:
            point = points[int(number)]
            taken = (template.registers(point, problem) or 0) + reach(template, point, problem)
            if taken <= register_cap(template, point, problem):
                compiled(template, arch, problem, point, compiler)


@pytest.mark.nvcc
@pytest.mark.slow  # a second each
@pytest.mark.parametrize(("task", "name"), TEMPLATES)
def test_no_parameter_is_dead(task: str, name: str, compiler: Compiler) -> None:
    """Each value of each parameter gives another program than its neighbour, all else equal."""
    template, problem = TEMPLATES[task, name], TASKS[task].problem("4096,4096")
    limits = Limits.of(target("sm_90a"))
    feasible, rng = template.space.feasible(limits, problem), np.random.default_rng(1)

    def code(point: Point) -> object:
        candidate = template.candidate(point, problem)
        machine_code = compiler.compile(candidate.source, candidate.entry, "sm_90a").machine_code
        return machine_code, candidate.launch

    for parameter in template.space.parameters:
        for point in (feasible.sample(rng) for _ in range(2000)):
            others = [{**point, parameter.name: v} for v in parameter.neighbours(point[parameter.name])]
            if others := [other for other in others if feasible.contains(other)]:
                assert code(point) != code(others[0]), f"{parameter.name} changes nothing at {dict(point)}"
                break
        else:
            pytest.fail(f"no two feasible points differ in {parameter.name} alone")


def gate_some(task: str, name: str, shape: str, count: int, seed: int, **wanted: object) -> None:
    """`count` points with the values `wanted` go through the gate on the emulator."""
    template, limits, rng = TEMPLATES[task, name], Limits.of(target("sm_90a")), np.random.default_rng(seed)
    evaluator = EvaluatorSpec(task, "emulator", limits.gpu, limits, default_folder()).build()
    flags = FLAGS[task][seed % len(FLAGS[task])]
    dtype = TASKS[task].dtypes[seed % len(TASKS[task].dtypes)]
    problem = TASKS[task].problem(shape, dtype, **flags)
    if template.supports(problem, limits) is not None:
        problem = TASKS[task].problem(shape, dtype)
    points = template.space.feasible(limits, problem).points
    numbers = rng.permutation(len(points))
    fitting = (points[int(n)] for n in numbers if wanted.items() <= points[int(n)].items())
    try:
        for point, _ in zip(fitting, range(count), strict=False):
            try:
                evaluator.gate(template.candidate(point, problem), seed, thorough=False)
            except CandidateError as error:
                where = f"{problem.key} {dict(point)} at {error.where}"
                pytest.fail(f"{error.outcome} {error.reason}: {error.detail}; {where}")
    finally:
        evaluator.close()


@pytest.mark.nvcc
@pytest.mark.slow  # three seconds a point
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("task", "name"), TEMPLATES)
def test_sampled_points_are_right(task: str, name: str, seed: int) -> None:
    gate_some(task, name, "5,1000", 3, seed)
    gate_some(task, name, "1300,512", 2, seed, grid="persistent")
    if name == "row_cluster":
        gate_some(task, name, "1300,512", 2, seed, copies="threads", stages=3)
        gate_some(task, name, "1300,512", 2, seed, copies="bulk", stages=2)


def render(stem: str) -> str:
    task, name, shape, flags, changes = GOLDENS[stem]
    template, problem = TEMPLATES[task, name], TASKS[task].problem(shape, None, **flags)
    point = template.space.default_for(problem, Limits.of(target("sm_90a")))
    return body_of(template.candidate({**point, **changes}, problem).source)


@pytest.mark.parametrize("stem", GOLDENS)
def test_renders_do_not_move(stem: str) -> None:
    golden = GOLDEN / f"{stem}.cu"
    assert golden.is_file(), "write it with: python tests/test_row_kernels.py"
    assert render(stem) == golden.read_text(encoding="utf-8")


if __name__ == "__main__":
    for stem in GOLDENS:
        (GOLDEN / f"{stem}.cu").write_text(render(stem), encoding="utf-8")
