"""Weights of 4 bits: the line of what is still right, where tensor cores cut off the sums that they add."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from evo.gate.tolerance import limits_of
from evo.task import load_module, load_task
from evo.trial import Problem

torch.set_num_threads(1)  # small tensors: more threads only wait for each other

TASK = load_task("gemm_w4a16")
BASELINES = load_module(Path(__file__).parents[1] / "templates" / "gemm_w4a16" / "baselines.py")
STEP = 16
"""Of K in one mma.sync."""
LOST_BITS = 52 - 23
"""Of an fp64 number's fraction, that fp32 has not."""


def cut_off(problem: Problem, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """(M, N), fp16: each sum of `STEP` more products is cut off to fp32, towards 0."""
    weights = BASELINES.dequantised(problem, inputs).double()
    x, sums = inputs["x"].double(), torch.zeros(problem["M"], problem["N"], dtype=torch.float64)
    for k in range(0, problem["K"], STEP):
        more = sums + x[:, k : k + STEP] @ weights[:, k : k + STEP].T
        sums = (more.view(torch.int64) >> LOST_BITS << LOST_BITS).view(torch.float64)
    return sums.half()


@pytest.mark.parametrize("shape", ["3,257,640", "33,129,512"])
def test_sums_that_are_cut_off_stay_well_within_the_line(shape: str) -> None:
    problem = TASK.problem(shape, "fp16", zeros=True)
    for seed in range(24):
        inputs = TASK.inputs(problem, "cancelling", seed, "cpu")
        reference = TASK.reference(problem, inputs)["y"]
        limits = limits_of(reference, TASK.honest(problem, inputs)["y"], TASK.tolerance)
        off = (cut_off(problem, inputs) - reference).abs().max()
        assert off <= 0.5 * limits.element_limit, f"seed {seed}"
