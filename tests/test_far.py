"""Offsets beyond 2^31 elements on the emulator: the last CTAs of a launch, on pages that take no memory; and
problems of which not even one piece can run there."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from host_kernels import HostDevice

from evo.cache import Cache, default_folder
from evo.compile import Compiler, find_compiler
from evo.device import Kernel, LaunchReport
from evo.device.emulator import EmulatorDevice
from evo.errors import MachineError, Red, Unproven
from evo.gate.budget import Budget
from evo.gate.cases import plan, plan_own
from evo.gate.far import FAR_OFFSETS, NotMet, check_last_piece, compare_last, is_far, served
from evo.gpu import target
from evo.selftest.zoo import Zoo
from evo.selftest.zoo_run import _gate, try_planted
from evo.task import load_task
from evo.trial import LaunchConfig, Problem

TASK = load_task("attention")
CHEATS = Zoo.of(TASK)
FAR = TASK.problem("257,254,600,64")
SMALL = TASK.problem("1,8,160,64")


@pytest.fixture(scope="module")
def tools() -> Iterator[tuple[EmulatorDevice, Compiler]]:
    try:
        compiler = find_compiler(None, Cache(default_folder()))
        device = EmulatorDevice(target("sm_89"))
    except MachineError as none:
        pytest.skip(none.message)
    with compiler:
        yield device, compiler


def last_piece(name: str, device: EmulatorDevice, compiler: Compiler) -> None:
    planted = CHEATS.read(name)
    binary = compiler.compile(planted.source, "kernel", "sm_89")

    def kernel_for(at: Problem) -> tuple[Kernel, LaunchConfig]:
        launch = planted.launch(at)
        return device.load(binary, launch), launch

    device.expect(1)
    both = [served(kernel_for, at) for at in (FAR, TASK.share(FAR, 0.0))]
    check_last_piece(TASK, both[0], both[1], 5, "cpu")


@pytest.mark.nvcc
def test_the_last_piece_of_a_problem_that_no_memory_holds_is_met(
    tools: tuple[EmulatorDevice, Compiler],
) -> None:
    assert sum(buffer.nbytes for buffer in TASK.buffers(FAR)) > 18 << 30
    last_piece("honest_far", *tools)
    with pytest.raises(Red, match="last piece alone"):
        last_piece("far_one_percent", *tools)
    with pytest.raises(Red, match="out of bounds"):
        last_piece("far_offsets_in_an_int", *tools)
    with pytest.raises(NotMet, match="do not write the last piece"):
        last_piece("far_output_elsewhere", *tools)


def test_only_the_emulator_and_only_far_problems_have_such_a_case(
    tools: tuple[EmulatorDevice, Compiler],
) -> None:
    device, _ = tools
    assert is_far(TASK, FAR)
    assert not is_far(TASK, TASK.problem("32,16,65536,64"))  # 2^31 elements: the last offset fits
    for thorough in (False, True):
        cases = plan(TASK, FAR, (32,), device, seed=1, thorough=thorough)
        assert [case.class_name for case in cases if case.kind == "far"] == [FAR_OFFSETS]
        assert not any(case.kind == "far" for case in plan(TASK, SMALL, (32,), device, seed=1))


def test_rows_that_only_one_launch_wrote_are_not_compared() -> None:
    unwritten = torch.full((4, 8), -1, dtype=torch.int16).view(torch.float16)
    alone, far = unwritten.clone(), unwritten.clone()
    alone[2:] = 1.0
    with pytest.raises(NotMet, match="do not write"):
        compare_last({"o": alone}, {"o": far}, TASK)
    far[3] = 1.0
    compare_last({"o": alone}, {"o": far}, TASK)
    far[2] = 1.5
    with pytest.raises(Red, match="last piece alone"):
        compare_last({"o": alone}, {"o": far}, TASK)


def test_of_a_piece_that_takes_too_long_it_is_said_how_long() -> None:
    long = TASK.problem("1,2,131072,64")
    cases = plan_own(TASK, long, 1, HostDevice(), (32,))
    budget = Budget(TASK, long, thorough=False)
    budget.plan(cases)
    budget.pay(replace(cases[0], problem=SMALL), LaunchReport("eager", 0.1, {"instructions": 1e6}))
    assert [budget.own_share(case) for case in cases] == [None] * len(cases)
    assert budget.extent().missed == tuple({case.class_name: None for case in cases})
    said = " ".join(budget.extent().left_out)
    assert re.search(r"own problem, normal: normal one piece of it takes \d\.\de\+1\d instructions, ", said)


@pytest.mark.nvcc
@pytest.mark.slow  # its small cases alone take seconds
def test_a_problem_of_which_no_piece_can_run_is_unproven_soon_and_says_why(
    tools: tuple[EmulatorDevice, Compiler],
) -> None:
    planted = CHEATS.read("honest_static_tables")
    object.__setattr__(planted, "problem", TASK.problem("64,64,131072,64"))
    begun = time.process_time()
    with pytest.raises(Unproven, match="own problem, normal") as said:
        _gate(planted, *tools, TASK, 3)
    assert time.process_time() - begun < 60
    extent = said.value.extent
    assert extent is not None
    assert "own problem, normal" in extent.missed
    assert any("one piece of it takes" in why for why in extent.left_out)
    assert all(
        ran * 2 >= planned
        for name, (ran, planned) in extent.cases.items()
        if not name.startswith("own problem") and name != FAR_OFFSETS
    )


@pytest.mark.nvcc
@pytest.mark.slow  # the whole gate, some of it on long heads
def test_a_far_problem_is_green_whole(tools: tuple[EmulatorDevice, Compiler]) -> None:
    found = try_planted(CHEATS.read("honest_far"), *tools, TASK, seed=3)
    assert (found.outcome, found.reasoned) == ("GREEN", True)
