"""Inputs of row kernels: what each mistake that was GREEN once is shown by."""

from __future__ import annotations

import math

import pytest
import torch
from host_kernels import HostDevice

from evo.errors import Red
from evo.gate.cases import plan
from evo.gate.tolerance import compare, refuse_broken
from evo.task import load_task
from evo.task.traits import OUTLIER

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


@pytest.mark.parametrize("name", ["rmsnorm", "layernorm", "softmax", "cross_entropy"])
def test_finalists_meet_an_outlier_in_each_column(name: str) -> None:
    """A kernel whose sum overlooked one column of a long ragged row was GREEN at most seeds."""
    task = load_task(name)
    for shape, tiles in (("64,2048", (8, 512)), ("3,1001", (1, 128)), ("1,4", (4, 32))):
        boundary, problem = len(task.gate_problems(task.problem(shape), tiles)), task.problem(shape)
        long = task.lone_problems(problem, tiles)[boundary:]
        assert {at["columns"] % 2 for at in long} == {0, 1}
        for at in long:
            first, count = 48 * 16, at["columns"]
            drawn = [task.inputs(at, "spike", first + n, "cpu")["x"] for n in range(8)]
            found = torch.cat([x[:, :count] == OUTLIER for x in drawn])
            assert found.any(0).all(), (at.key, count)
            few = found.sum(1) <= min(17, max(1, count // 3))
            assert (few | found.all(1)).all(), "else all elements of a row are equal"


@pytest.mark.parametrize(("name", "tiles"), [("softmax", (8, 512)), ("cross_entropy", (1, 32))])
def test_relations_are_checked_on_whole_chunks_too(name: str, tiles: tuple[int, ...]) -> None:
    """A kernel that made a row NaN where whole chunks of it are -inf was GREEN."""
    task, problem = load_task(name), load_task(name).problem("64,2048")
    assert task.gate_problems(problem, tiles)[0]["columns"] % 8
    (related,) = task.related_problems(problem, tiles)
    assert related["columns"] == min(2048, 8 * tiles[-1])
    cases = plan(task, problem, tiles, HostDevice(), seed=3)
    assert [case.problem["columns"] for case in cases if case.kind == "relations"] == [
        task.gate_problems(problem, tiles)[0]["columns"],
        related["columns"],
    ]


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
