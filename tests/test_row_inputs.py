"""Inputs of row kernels: what each mistake that was GREEN once is shown by."""

from __future__ import annotations

import math

import pytest
import torch

from evo.errors import Red
from evo.gate.tolerance import compare, refuse_broken
from evo.task import load_task

torch.set_num_threads(1)  # small tensors: more threads only wait for each other


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
def test_some_rows_are_tiny_whatever_the_seed(dtype: str) -> None:
    task = load_task("rmsnorm")
    problem = task.problem("8,64", dtype)
    for seed in range(16):
        for family in set(task.families.names) - {"alike", "spike"}:
            row = task.inputs(problem, family, seed, "cpu")["x"].float().square().mean(-1).sqrt()
            scale = 2.0**36 if family == "large" and dtype != "fp16" else 1.0
            assert ((row > 0) & (row < scale * 2.0**-6)).any(), (family, seed)


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
def test_elements_of_minus_infinity_have_no_weight(dtype: str, log: bool) -> None:
    """A kernel of which a warp sees nothing else made its row NaN, and was GREEN."""
    task = load_task("softmax")
    problem = task.problem("3,200", dtype, log=log, gap=1)
    (masked,) = (relation for relation in task.relations(problem) if relation.name == "masked")
    x = task.inputs(problem, "normal", 0, "cpu")
    before, after = task.honest(problem, x), task.honest(problem, masked.change(x))
    refuse_broken(masked, before, after, task.tolerance)
    for row, column, value in ((0, 0, math.nan), (1, 199, -30.0), (2, 0, -3.0), (2, 150, math.inf)):
        wrong = after["y"].clone()
        wrong[row, column] = value
        with pytest.raises(Red, match="masked"):
            refuse_broken(masked, before, {"y": wrong}, task.tolerance)


def test_one_pass_over_shifted_rows_gives_no_variance() -> None:
    task = load_task("layernorm")
    for dtype in ("fp16", "fp32"):
        problem = task.problem("4,1000", dtype)
        inputs = task.inputs(problem, "far_from_zero", 0, "cpu")
        x = inputs["x"].float()
        variance = x.square().mean(-1, keepdim=True) - x.mean(-1, keepdim=True).square()
        y = (x - x.mean(-1, keepdim=True)) * (variance.clamp_min(0) + 1e-5).rsqrt()
        y = (y * inputs["weight"].float() + inputs["bias"].float()).to(inputs["x"].dtype)
        reference, honest = task.reference(problem, inputs)["y"], task.honest(problem, inputs)["y"]
        compare("y", honest, reference, honest, task.tolerance)
        with pytest.raises(Red):
            compare("y", y, reference, honest, task.tolerance)
