"""The ten examples: short, tunable, GREEN on the emulator; each fault that is planted in them is RED."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from evo.cache import Cache, default_folder
from evo.compile import Compiler, find_compiler
from evo.device.emulator import EmulatorDevice
from evo.errors import CandidateError, MachineError, UnknownName
from evo.gate import check
from evo.gpu import KNOWN_GPUS, Limits, target
from evo.selftest.zoo import Planted, Zoo
from evo.selftest.zoo_run import try_planted
from evo.task import load_task
from evo.template import list_templates, load_template
from evo.trial import Point, Problem

torch.set_num_threads(1)  # small tensors: more threads only wait for each other

EXAMPLES = Path(__file__).parents[1] / "examples"
FOLDERS = (EXAMPLES,)
TINY = {
    "conv2d": "9,20,5",
    "gemm": "20,17,9",
    "histogram": "300,7",
    "reduce": "700",
    "rms_norm": "3,70",
    "saxpy": "333",
    "scan": "3,600",
    "softmax": "3,70",
    "stencil": "5,6,20",
    "transpose": "40,17",
}
"""A problem of each example that takes a moment."""
LIMITS = Limits.of(KNOWN_GPUS["L4"])
CHEATS = [(name, path.stem) for name in TINY for path in sorted((EXAMPLES / name / "cheats").glob("*.cu"))]
FAULTS = [one for one in CHEATS if not one[1].startswith("honest_")]
SEEDS = 50


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    try:
        found = find_compiler(None, Cache(default_folder()))
    except MachineError as none:
        pytest.skip(f"{none.message}")
    yield found
    found.close()


@pytest.fixture(scope="module")
def emulator() -> EmulatorDevice:
    try:
        return EmulatorDevice(target("sm_89"))
    except MachineError as none:
        pytest.skip(f"{none.message}")


def test_every_example_is_one_of_these() -> None:
    assert sorted(path.parent.name for path in EXAMPLES.glob("*/task.py")) == sorted(TINY)


@pytest.mark.parametrize("name", TINY)
def test_an_example_is_short_and_has_something_to_tune(name: str) -> None:
    python = [*(EXAMPLES / name).glob("*.py")]
    lines = [line for path in python for line in path.read_text().splitlines() if line.strip()]
    assert len(lines) <= 40
    task = load_task(name, FOLDERS)
    template = load_template(task, name, FOLDERS)
    assert 2 <= len(template.space.parameters) <= 5
    assert template.space.feasible(LIMITS, task.example).count >= 20
    assert len([fault for fault in FAULTS if fault[0] == name]) >= 2


def verdict(
    name: str, problem: Problem, point: Point, compiler: Compiler, emulator: EmulatorDevice, seed: int
) -> str:
    """GREEN, or how the candidate of a point ended."""
    task = load_task(name, FOLDERS)
    template = load_template(task, name, FOLDERS)
    candidate = template.candidate(point, problem)
    binary = compiler.compile(candidate.source, candidate.entry, emulator.gpu.arch)

    def kernel_for(at: Problem) -> tuple[object, object]:
        launch = template.launch(candidate.point, at)
        return emulator.load(binary, launch), launch

    try:
        tiles = template.tiles(candidate.point, problem)
        check(kernel_for, emulator, task, problem, tiles, seed=seed)  # type: ignore[arg-type]
    except CandidateError as error:
        return f"{error.outcome} {error.reason} {error.where} seed={seed} {dict(point)}"
    return "GREEN"


@pytest.mark.nvcc
@pytest.mark.parametrize("name", TINY)
def test_an_example_is_green(name: str, compiler: Compiler, emulator: EmulatorDevice) -> None:
    task = load_task(name, FOLDERS)
    default = load_template(task, name, FOLDERS).space.default
    assert verdict(name, task.problem(TINY[name]), default, compiler, emulator, 1) == "GREEN"


@pytest.mark.nvcc
@pytest.mark.parametrize(("name", "fault"), FAULTS)
def test_a_fault_planted_in_an_example_is_red(
    name: str, fault: str, compiler: Compiler, emulator: EmulatorDevice
) -> None:
    found = try_planted(planted(name, fault), emulator, compiler, load_task(name, FOLDERS), seed=3)
    assert found.outcome == "RED"
    assert found.reasoned, f"{found.reason} {found.where}"


@pytest.mark.nvcc
@pytest.mark.parametrize(("name", "other"), sorted(set(CHEATS) - set(FAULTS)))
def test_an_honest_kernel_beside_the_faults_is_green(
    name: str, other: str, compiler: Compiler, emulator: EmulatorDevice
) -> None:
    for seed in range(4):
        found = try_planted(planted(name, other), emulator, compiler, load_task(name, FOLDERS), seed)
        assert found.outcome == "GREEN", f"{found.reason} {found.where} seed={seed}"


def planted(name: str, fault: str) -> Planted:
    return Zoo.of(load_task(name, FOLDERS), FOLDERS).read(fault)


@pytest.mark.nvcc
@pytest.mark.slow  # ten times fifty checks
@pytest.mark.parametrize("name", TINY)
def test_an_example_is_green_at_any_seed_and_point(
    name: str, compiler: Compiler, emulator: EmulatorDevice
) -> None:
    """Half of the seeds at the default, half at points that are drawn; storage types in turns."""
    task = load_task(name, FOLDERS)
    space = load_template(task, name, FOLDERS).space
    problems = [task.problem(TINY[name], dtype) for dtype in task.dtypes]
    feasible, rng = space.feasible(LIMITS, problems[0]), np.random.default_rng(0)
    found = []
    for seed in range(SEEDS):
        point = feasible.sample(rng) if seed % 2 else space.default
        found.append(verdict(name, problems[seed // 2 % len(problems)], point, compiler, emulator, seed))
    assert set(found) == {"GREEN"}, [one for one in found if one != "GREEN"]


@pytest.mark.nvcc
@pytest.mark.slow  # ten times thirty checks
@pytest.mark.parametrize("seed", [0, 1, 2, *range(4, 11)])
@pytest.mark.parametrize(("name", "fault"), FAULTS)
def test_a_fault_planted_in_an_example_is_red_at_any_seed(
    name: str, fault: str, seed: int, compiler: Compiler, emulator: EmulatorDevice
) -> None:
    found = try_planted(planted(name, fault), emulator, compiler, load_task(name, FOLDERS), seed)
    assert found.reasoned, f"{found.outcome} {found.reason} {found.where}"


def test_a_task_hides_the_templates_of_another_of_its_name(tmp_path: Path) -> None:
    """A person's softmax is not the one that comes with evo; a folder without a task adds templates."""
    more = tmp_path / "more"
    (more / "softmax").mkdir(parents=True)
    for suffix in ("cu", "py"):
        shutil.copy(EXAMPLES / "softmax" / f"softmax.{suffix}", more / "softmax" / f"another.{suffix}")
    assert len(list_templates("softmax")) > 1
    assert list_templates("softmax", FOLDERS) == ["softmax"]
    assert list_templates("softmax", (more, EXAMPLES)) == ["another", "softmax"]
    with pytest.raises(UnknownName):
        load_template(load_task("softmax", FOLDERS), list_templates("softmax")[0], FOLDERS)
