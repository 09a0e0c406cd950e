"""The audit of the pruning: what it counts, on small runs of the real thing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from evo.cache import Cache, default_folder
from evo.compile import Compiler, find_compiler
from evo.device.emulator import EmulatorDevice
from evo.errors import MachineError
from evo.gpu import KNOWN_GPUS, Limits, target
from evo.selftest.audit import Audited, audit, summary
from evo.task import load_task
from evo.template import load_template

torch.set_num_threads(1)  # small tensors: more threads only wait for each other

TASK = load_task("attention")
CACHE = default_folder()


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    try:
        found = find_compiler(None, Cache(CACHE))
        EmulatorDevice(target("sm_89"))
    except MachineError as none:
        pytest.skip(f"{none.message}")
    yield found
    found.close()


def audited(compiler: Compiler, limits: Limits, gpu: str) -> list[Audited]:
    device = EmulatorDevice(KNOWN_GPUS[gpu])
    template = load_template(TASK, "scalar")
    return list(audit([template], TASK.example, limits, device, compiler, points=6, seed=1, jobs=1))


@pytest.mark.nvcc
def test_true_rules_have_no_false_feasible_point(compiler: Compiler) -> None:
    found = summary(audited(compiler, Limits.of(KNOWN_GPUS["L4"]), "L4"))
    assert found["feasible"] == 3
    assert found["false_feasible"] == 0
    assert found["templates"]["scalar"]["points"] == found["points"]


@pytest.mark.nvcc
def test_rules_that_refuse_what_the_device_grants_are_found(compiler: Compiler) -> None:
    found = summary(audited(compiler, Limits.of(KNOWN_GPUS["L4"], smem_limit=8 << 10), "L4"))
    assert found["false_infeasible"] > 0
    assert found["false_infeasible_rate"] > 0
    assert any("8 KB of shared memory" in reason for reason in found["false_infeasible_reasons"])


@pytest.mark.nvcc
def test_rules_that_allow_what_the_device_refuses_are_found(compiler: Compiler) -> None:
    """Pruned for an A100, run on a device whose CTAs have 8 KB."""
    small = replace(KNOWN_GPUS["A100"], smem_per_cta=8 << 10)
    template = load_template(TASK, "scalar")
    limits = Limits.of(KNOWN_GPUS["A100"])
    found = summary(
        list(
            audit([template], TASK.example, limits, EmulatorDevice(small), compiler, points=6, seed=1, jobs=1)
        )
    )
    assert found["false_feasible"] > 0
    assert found["false_feasible_reasons"] == {"UNLAUNCHABLE shared memory": found["false_feasible"]}
