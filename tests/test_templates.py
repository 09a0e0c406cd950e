"""The attention templates: spaces of the promised size, code that compiles and stays within its models,
parameters that all change it, renders that do not move, and results that are right on the emulator.

Golden renders live in tests/golden/; after an intended change write them anew with
`python tests/test_templates.py` and read the diff.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from evo.cache import Cache, default_folder
from evo.compile import Compiler, find_compiler
from evo.device import Region
from evo.device.emulator import EmulatorDevice, load_interpreter
from evo.errors import CandidateError, MachineError
from evo.gate.tolerance import Errors, compare
from evo.gpu import Limits, target
from evo.space import Filling
from evo.task import load_task
from evo.template import Template, load_template
from evo.trial import Point, Problem, body_of

TASK = load_task("attention")
TEMPLATES = {name: load_template(TASK, name) for name in ("scalar", "wmma", "flash_mma")}
HEAD_DIMS = (32, 64, 80, 96, 128, 256)
DTYPES = ("fp16", "bf16")
GOLDEN = Path(__file__).parent / "golden"

GOLDEN_POINTS: dict[str, tuple[tuple[str, Problem, Point], ...]] = {
    "scalar": (
        ("default", TASK.problem("1,8,512,64"), {}),
        (
            "shared",
            TASK.problem("1,8,512,128", "bf16", causal=True),
            {"state": "shared", "loop_order": "kv_outer", "q_tiles": 2, "vector": 2},
        ),
    ),
    "wmma": (
        ("default", TASK.problem("1,8,512,64"), {}),
        (
            "qk_only",
            TASK.problem("1,8,512,96", "bf16", causal=True),
            {"matmuls": "qk_only", "state": "shared", "stages": 1, "swizzle": "none"},
        ),
    ),
    "flash_mma": (
        ("default", TASK.problem("1,8,512,64"), {}),
        (
            "split",
            TASK.problem("1,8,512,128", "bf16", causal=True),
            {"kv_split": 2, "bn": 32, "q_path": "registers", "epilogue": "shared", "swizzle": "pad",
             "rescale": "lazy", "grid_order": "heavy_first"},
        ),
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


@pytest.fixture(scope="module")
def emulator() -> EmulatorDevice:
    try:
        load_interpreter()
    except MachineError as error:
        pytest.skip(str(error))
    return EmulatorDevice(target("sm_90a"))


def all_kinds() -> Iterator[Problem]:
    """Every head dimension, storage type and mask at the mission's length."""
    for d, dtype, causal in itertools.product(HEAD_DIMS, DTYPES, (False, True)):
        yield TASK.problem(f"1,2,512,{d}", dtype, causal=causal)


def pairwise(template: Template, problem: Problem, limits: Limits, count: int, seed: int) -> list[Point]:
    """`count` feasible points, each the one of 20 draws that adds most pairs of values not yet seen."""
    feasible, rng = template.space.feasible(limits, problem), np.random.default_rng(seed)
    seen: set[object] = set()
    chosen: list[Point] = []
    for _ in range(count):
        draws = [feasible.sample(rng) for _ in range(20)]
        best = max(draws, key=lambda p: len(set(itertools.combinations(p.items(), 2)) - seen))
        seen |= set(itertools.combinations(best.items(), 2))
        chosen.append(best)
    return chosen


def register_cap(template: Template, point: Point, problem: Problem) -> int:
    """What `__launch_bounds__` leaves a thread."""
    threads = template.launch(point, problem).threads * int(point.get("min_ctas", 1))
    return min(255, 65536 // threads // 8 * 8)


def model_of_registers(template: Template, point: Point, problem: Problem) -> float:
    return float(np.asarray(template._module.registers(Filling(point), problem)))


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("limits", [("sm_80", None), ("sm_89", None), ("sm_89", 48 << 10), ("sm_90a", None)])
def test_the_default_is_feasible_everywhere(name: str, limits: tuple[str, int | None]) -> None:
    template, allowed = TEMPLATES[name], Limits.of(target(limits[0]), limits[1])
    for problem in all_kinds():
        if problem["D"] in (80, 256):
            continue  # other tiles than the default's: see below
        for length in (1, 64, 512, 16384):
            sized = problem.replace(L=length)
            assert template.space.why_not(template.space.default, allowed, sized) is None, sized.key


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("d", [80, 256])
def test_odd_and_wide_rows_have_points(name: str, d: int) -> None:
    template, problem = TEMPLATES[name], TASK.problem(f"1,8,512,{d}")
    assert template.space.feasible(Limits.of(target("sm_89")), problem).count > 30


@pytest.mark.parametrize("name", TEMPLATES)
def test_spaces_are_worth_searching(name: str) -> None:
    template, problem = TEMPLATES[name], TASK.problem("1,8,512,64")
    assert template.space.size < 4_000_000, "no longer enumerated whole"
    for arch, smem in (("sm_89", 48 << 10), ("sm_89", None), ("sm_90a", None)):
        feasible = template.space.feasible(Limits.of(target(arch), smem), problem)
        assert feasible.count > (20_000 if name == "flash_mma" else 200)
        if smem:
            continue  # the largest tiles are for those who opt in
        no_mask_no_cluster = {"heavy_first", 2 if arch == "sm_89" else None}
        for i, parameter in enumerate(template.space.parameters):
            taken = {parameter.values[j] for j in np.unique(feasible.indices[:, i])}
            allowed = no_mask_no_cluster if parameter.name in ("grid_order", "cta_split") else set()
            assert set(parameter.values) - taken <= allowed, (arch, parameter.name)


@pytest.mark.nvcc
@pytest.mark.parametrize("arch", ["sm_89", "sm_90a"])
@pytest.mark.parametrize("name", TEMPLATES)
def test_sampled_points_compile_within_their_models(name: str, arch: str, compiler: Compiler) -> None:
    check_compiled(TEMPLATES[name], arch, compiler, list(all_kinds())[:: 7 if arch == "sm_89" else 11], 1)


@pytest.mark.nvcc
@pytest.mark.slow
@pytest.mark.parametrize("name", TEMPLATES)
def test_many_points_compile_within_their_models(name: str, compiler: Compiler) -> None:
    for arch in ("sm_80", "sm_89", "sm_90a"):
        check_compiled(TEMPLATES[name], arch, compiler, list(all_kinds()), 6)


def check_compiled(
    template: Template, arch: str, compiler: Compiler, problems: list[Problem], each: int
) -> None:
    """Every point compiles, without warnings or static shared memory; none spills for want of registers where
    the model sees room: some compilers keep a few bytes in memory though they leave most registers alone."""
    for seed, problem in enumerate(problems):
        for point in pairwise(template, problem, Limits.of(target(arch)), each, seed):
            candidate = template.candidate(point, problem)
            resources = compiler.compile(candidate.source, candidate.entry, arch).resources
            cap = register_cap(template, point, problem)
            where = f"{arch} {problem.key} {dict(point)}"
            assert not resources.warnings, where
            assert resources.static_smem_bytes == 0, where
            assert resources.registers <= cap, where
            # flash_mma takes 54 to 90 registers more than its model at D = 80 and 96
            room = 48 if problem["D"] in (32, 64, 128, 256) else 112
            if model_of_registers(template, point, problem) + room <= cap and resources.registers > cap - 8:
                assert resources.spill_bytes == 0, where


@pytest.mark.nvcc
@pytest.mark.parametrize(
    "name",
    # of the others TemplateTests sees in each run that every parameter changes the source or the launch
    [n if n == "flash_mma" else pytest.param(n, marks=pytest.mark.slow) for n in TEMPLATES],
)
def test_no_parameter_is_dead(name: str, compiler: Compiler) -> None:
    """Each value of each parameter gives other machine code than its neighbour, all else equal."""
    template, problem = TEMPLATES[name], TASK.problem("1,2,512,64", causal=True)
    limits = Limits.of(target("sm_90a"))
    feasible, rng = template.space.feasible(limits, problem), np.random.default_rng(1)

    def code(point: Point) -> str:
        candidate = template.candidate(point, problem)
        return compiler.compile(candidate.source, candidate.entry, "sm_90a").machine_code

    for parameter in template.space.parameters:
        for point in [template.space.default, *(feasible.sample(rng) for _ in range(400))]:
            others = [{**point, parameter.name: v} for v in parameter.neighbours(point[parameter.name])]
            others = [other for other in others if feasible.contains(other)]
            if others:
                assert code(point) != code(others[0]), f"{parameter.name} changes nothing at {dict(point)}"
                break
        else:
            pytest.fail(f"no two feasible points differ in {parameter.name} alone")


@dataclass(frozen=True)
class Bench:
    """A template on the emulator."""

    device: EmulatorDevice
    compiler: Compiler
    template: Template
    arch: str = "sm_90a"

    def judge(self, point: Point, problem: Problem, family: str, schedule: str) -> Errors:
        """The gate's judgement of one launch, on buffers of exactly the problem's size."""
        candidate = self.template.candidate(point, problem)
        binary = self.compiler.compile(body_of(candidate.source), candidate.entry, self.arch)
        inputs = TASK.inputs(problem, family, 0, "cpu")
        output = torch.full_like(inputs["q"], float("nan"))
        regions = {
            name: Region(name, t.data_ptr(), t.nbytes, writable=name == "o", initialised=name != "o")
            for name, t in {**inputs, "o": output}.items()
        }
        self.device.load(binary, candidate.launch).launch(candidate.launch, regions, schedule)
        expected, honest = TASK.reference(problem, inputs)["o"], TASK.honest(problem, inputs)["o"]
        return compare("o", output, expected, honest)

    def check(self, problems: list[Problem], each: int, lengths: tuple[int, ...], seed: int) -> None:
        """Sampled points at ragged lengths: right, and free of faults in every order of events."""
        rng = np.random.default_rng(seed)
        for problem in problems:
            for point in pairwise(self.template, problem, Limits.of(target(self.arch)), each, seed):
                for length in lengths:
                    schedule, family = (
                        str(rng.choice(self.device.schedules)),
                        str(rng.choice(TASK.families.names)),
                    )
                    sized = problem.replace(L=length)
                    try:
                        self.judge(point, sized, family, schedule)
                    except CandidateError as red:
                        pytest.fail(f"{sized.key} {family} {schedule} {dict(point)}: {red} at {red.where}")


@pytest.mark.nvcc
@pytest.mark.slow  # TemplateTests takes a few points of each template through the whole gate
@pytest.mark.parametrize("name", TEMPLATES)
def test_sampled_points_are_right(name: str, compiler: Compiler, emulator: EmulatorDevice) -> None:
    Bench(emulator, compiler, TEMPLATES[name]).check(list(all_kinds())[::5], 1, (1, 65, 130), seed=3)


@pytest.mark.nvcc
@pytest.mark.slow
@pytest.mark.parametrize("name", TEMPLATES)
def test_many_points_are_right(name: str, compiler: Compiler, emulator: EmulatorDevice) -> None:
    lengths = (1, 63, 64, 65, 127, 129, 200, 512)
    Bench(emulator, compiler, TEMPLATES[name]).check(list(all_kinds()), 3, lengths, seed=4)


def render(name: str, problem: Problem, changes: Point) -> str:
    template = TEMPLATES[name]
    return body_of(template.candidate({**template.space.default, **changes}, problem).source)


GOLDENS = [(name, *golden) for name, goldens in GOLDEN_POINTS.items() for golden in goldens]


@pytest.mark.parametrize(
    ("name", "stem", "problem", "changes"), GOLDENS, ids=[f"{g[0]}-{g[1]}" for g in GOLDENS]
)
def test_renders_do_not_move(name: str, stem: str, problem: Problem, changes: Point) -> None:
    golden = GOLDEN / f"{name}_{stem}.cu"
    assert golden.is_file(), "write it with: python tests/test_templates.py"
    assert render(name, problem, changes) == golden.read_text(encoding="utf-8")


if __name__ == "__main__":
    for name, stem, problem, changes in GOLDENS:
        (GOLDEN / f"{name}_{stem}.cu").write_text(render(name, problem, changes), encoding="utf-8")
