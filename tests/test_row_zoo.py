"""The zoos of the row kernels: every planted kernel is refused, for the reason it should be, and honest ones
are not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

import pytest
import torch

from benchmarks.gate.mutation_judged import judged
from evo.cache import Cache, default_folder
from evo.compile import Compiler, find_compiler
from evo.device.emulator import EmulatorDevice
from evo.errors import MachineError
from evo.gpu import target
from evo.selftest.mutant_results import MutationTarget
from evo.selftest.mutants import MutationRun
from evo.selftest.zoo import Planted, Zoo
from evo.selftest.zoo_run import try_baselines, try_planted
from evo.task import load_task

torch.set_num_threads(1)  # small tensors: more threads only wait for each other

TASKS = {name: load_task(name) for name in ("rmsnorm", "layernorm", "softmax", "cross_entropy")}
ZOOS = {name: Zoo.of(task) for name, task in TASKS.items()}
EVERY = [(name, planted) for name, zoo in ZOOS.items() for planted in zoo.planted()]
QUICK = {
    "rmsnorm": ("math_last_column_dropped", "math_epsilon_ten_times", "memory_whole_chunks_written",
                "residual_not_written", "race_no_barrier", "order_stream_of_one_slot", "honest_stream",
                "order_lock_is_no_order", "honest_halves_in_turn", "math_mean_at_least"),
    "layernorm": ("math_variance_unbiased", "math_variance_in_one_pass"),
    "softmax": ("math_no_maximum", "math_minus_infinity", "math_thread_of_minus_infinity",
                "math_whole_chunks_of_minus_infinity", "log_warp_of_minus_infinity"),
    "cross_entropy": ("ignored_rows_have_a_loss", "math_whole_chunks_of_minus_infinity"),
}  # fmt: skip
"""Some of each kind; the others, half a second each, are slow tests."""
TRIED = [
    pytest.param(
        name,
        planted,
        id=f"{name}-{planted.name}",
        marks=() if planted.name in QUICK[name] else pytest.mark.slow,
    )
    for name, planted in EVERY
]


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    try:
        found = find_compiler(None, Cache(default_folder()))
    except MachineError as none:
        pytest.skip(f"{none.message}")
    with found:
        yield found


@pytest.fixture(scope="module")
def emulator() -> EmulatorDevice:
    try:
        return EmulatorDevice(target("sm_89"))
    except MachineError as none:
        pytest.skip(f"{none.message}")


@pytest.mark.nvcc
@pytest.mark.parametrize(("name", "planted"), TRIED)
def test_the_gate_sees_through_it(
    name: str, planted: Planted, compiler: Compiler, emulator: EmulatorDevice
) -> None:
    found = try_planted(planted, emulator, compiler, TASKS[name], seed=3)
    assert found.right, f"{found.outcome} {found.reason} {found.where}"
    assert found.reasoned, f"{found.outcome} {found.reason} {found.where}; expected {set(planted.expected)}"


@pytest.mark.parametrize("name", TASKS)
def test_the_librarys_own_kernels_are_not_refused(name: str) -> None:
    findings = list(try_baselines(ZOOS[name], "cpu", seed=5))
    assert findings
    assert {f.outcome for f in findings} == {"GREEN"}, [f for f in findings if f.outcome != "GREEN"]


def test_the_zoos_are_as_large_as_promised_and_every_file_says_what_is_wrong() -> None:
    cheats = [(name, planted) for name, planted in EVERY if not planted.honest]
    assert len(cheats) >= 90
    assert len({(name, planted.says) for name, planted in cheats}) == len(cheats)


@pytest.mark.nvcc
@pytest.mark.slow  # half a minute each
@pytest.mark.parametrize(
    ("name", "template", "shape"),
    [
        ("rmsnorm", "row_registers", "5,528"),
        ("softmax", "row_registers", "5,528"),
        ("rmsnorm", "row_cluster", "5,1040"),
    ],
)
def test_mutants_that_change_a_bit_are_refused(name: str, template: str, shape: str) -> None:
    """But for one operation of many that rounds otherwise: all of them are the planted `math_truncated`."""
    problem = TASKS[name].problem(shape)
    run = MutationRun(MutationTarget(template, problem, target("sm_90a"), default_folder()))
    run.verify()
    for mutant in run.some(12):
        found = run.try_one(mutant)
        green = [seed for seed, outcome in found.finalists.items() if outcome == "GREEN"]
        if found.fate == "survived" and found.differs and green:
            argued = judged({**asdict(found), "template": template})
            assert argued, f"{found.text}: {found.after}"
            assert argued[0] == "rounding"
