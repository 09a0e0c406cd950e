"""What only the emulator can say of a finalist. The rest of a referee needs a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from evo.errors import MachineError, Red
from evo.evaluate import Evaluator, EvaluatorSpec
from evo.gpu import Limits, target
from evo.referee import emulate
from evo.task import load_task
from evo.template import load_template
from evo.trial import Candidate

TASK = load_task("attention")
GPU = target("sm_89")


@pytest.fixture(scope="module")
def emulator() -> Iterator[Evaluator]:
    spec = EvaluatorSpec("attention", "emulator", GPU, Limits.of(GPU), Path.home() / ".cache" / "evo")
    try:
        made = spec.build()
    except MachineError as none:
        pytest.skip(f"{none.message}")
    yield made
    made.close()


def finalist(shape: str = "1,2,96,64") -> Candidate:
    template = load_template(TASK, "flash_mma")
    return template.candidate(template.space.default, TASK.problem(shape))


@pytest.mark.nvcc
def test_an_honest_finalist_is_clean_under_every_schedule(emulator: Evaluator) -> None:
    said = emulate(emulator, finalist(), seed=3)
    assert said.startswith("clean on the emulator: ")
    assert said.endswith(f" launches, {len(emulator.device.schedules)} schedules")


@pytest.mark.nvcc
def test_a_race_that_a_gpu_need_not_show_is_red(emulator: Evaluator) -> None:
    """A stage of K is read before the copy into it has been waited for."""
    honest = finalist()
    broken = honest.source.replace("cp.async.wait_group %0", "// cp.async.wait_group %0")
    assert broken != honest.source
    with pytest.raises(Red, match="emulator: race") as caught:
        emulate(emulator, replace(honest, source=broken), seed=3)
    assert "schedule=" in caught.value.where


def test_a_problem_too_large_for_it_is_left_out(emulator: Evaluator) -> None:
    assert "too large" in emulate(emulator, finalist("1,8,65536,64"), seed=3)
