"""The honest computation's draws, made together: each is what it is by itself."""

from __future__ import annotations

import math
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import pytest
import torch

from evo.dtype import dtype_named
from evo.task import In, Out, Task, load_task, roundings
from evo.task.roundings import LONGEST_CHAIN, farthest, rounded_on_the_way, summed_sizes
from evo.task.task import ROUNDED_DRAWS
from evo.task.tensors import Tensors, precise
from evo.trial import Problem

TASKS: dict[str, tuple[str, dict[str, object]]] = {
    "rmsnorm": ("5,300", {"residual": True, "gap": 8}),
    "layernorm": ("5,300", {}),
    "softmax": ("5,300", {"log": True}),
    "cross_entropy": ("70,40", {"lse": True}),
}


def alone(x: torch.Tensor, along: list[int], number: int, place: int) -> torch.Tensor:
    """What one input seems to be in one draw, which is a part of that for the next larger shape whose sizes
    are powers of two: the last part of a dimension along which is added from the last term on."""
    rng = torch.Generator().manual_seed(number * 1009 + place)
    larger = [2 ** math.ceil(math.log2(size)) for size in x.shape]
    drawn = torch.rand(larger, generator=rng, dtype=x.dtype) * 2 - 1
    off, step = 2.0 * drawn, torch.full_like(drawn, 0.5 - number) if number < 2 else drawn
    for at in along:
        chain = step.flip(at).cumsum(at).flip(at) if number % 2 else step.cumsum(at)
        off = off + chain.clamp(-512, 512)
    for at, size in enumerate(x.shape):
        off = off.narrow(at, larger[at] - size if at in along and number % 2 else 0, size)
    return x * (1 + off * (torch.finfo(x.dtype).eps / 2))


def by_draws(task: Task, problem: Problem, inputs: Tensors) -> dict[str, torch.Tensor]:
    """The honest computation, one draw after the other."""
    declared, wide = task.declared(problem), precise(inputs, "fp32")
    summed = summed_sizes(declared) | set(task.summed)
    exact = task.reference(problem, inputs)
    found = dict(exact)
    for number in range(ROUNDED_DRAWS):
        seeming = {
            name: alone(x, [i for i, d in enumerate(declared[name].dimensions) if d in summed], number, place)
            if x.is_floating_point()
            else x
            for place, (name, x) in enumerate(wide.items())
        }
        for name, output in task._named(problem, task.compute(problem, seeming)).items():
            farther = (output - exact[name]).abs() > (found[name] - exact[name]).abs()
            found[name] = found[name].where(~farther, output.to(found[name].dtype))
    types = {buffer.name: dtype_named(buffer.dtype).torch for buffer in task.buffers(problem)}
    return {name: output.to(types[name]) for name, output in found.items()}


@pytest.mark.parametrize("together", [1, 4000, 1 << 22])
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("name", TASKS)
def test_draws_together_are_those_one_by_one(
    name: str, dtype: str, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roundings, "AT_ONCE", together)
    task, (shape, flags) = load_task(name), TASKS[name]
    problem = task.problem(shape, dtype, **flags)
    for family in task.families.names:
        inputs = task.inputs(problem, family, 5, "cpu")
        found, wanted = Task.honest(task, problem, inputs), by_draws(task, problem, inputs)
        assert all(torch.equal(found[output], wanted[output]) for output in wanted), family


@pytest.mark.parametrize("rows", ["rows", 700])
def test_a_sum_along_a_dimension_that_is_a_number_may_be_as_far_off_as_along_a_size(rows: str | int) -> None:
    class Sums(Task):
        name, sizes, dtypes = "sums", {"rows": 700, "columns": 64}, ("fp32",)
        tensors: ClassVar = {"x": In(rows, 1, "columns"), "y": Out("columns")}

        def compute(self, problem: Problem, x: Tensors) -> torch.Tensor:  # noqa: ARG002
            return x["x"].sum((0, 1))

    task = Sums()
    assert summed_sizes(task.tensors) == {rows}
    inputs = {"x": torch.ones(700, 1, 64)}
    exact, honest = task.reference(task.example, inputs)["y"], task.honest(task.example, inputs)["y"]
    one_by_one = (honest.double() - exact).abs().max() / 700
    assert 100 < one_by_one / 2.0**-24 < LONGEST_CHAIN


def test_so_many_draws_are_made_together_as_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = {"x": torch.randn(10, 10), "labels": torch.arange(10)}
    for most, sizes in ((10_000, [8]), (300, [3, 3, 2]), (1, [1] * 8)):
        monkeypatch.setattr(roundings, "AT_ONCE", most)
        parts = list(rounded_on_the_way(inputs, {}, set(), 8))
        assert [len(part) for part in parts] == sizes
        assert all(draw["labels"] is inputs["labels"] for part in parts for draw in part)


def test_roundings_of_a_small_input_are_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second time nothing is drawn, whatever the values are: so a CUDA graph may do it."""
    task = load_task("rmsnorm")
    problem = task.problem("7,333")
    first, second = (task.inputs(problem, "normal", seed, "cpu") for seed in (1, 2))
    wanted = [by_draws(task, problem, inputs) for inputs in (first, second)]
    monkeypatch.setattr(roundings, "_KEPT", {})
    monkeypatch.setattr(roundings, "_SPENT", {})
    Task.honest(task, problem, first)
    monkeypatch.setattr(roundings, "_factors", None)
    found = [Task.honest(task, problem, inputs) for inputs in (first, second)]
    for one, other in zip(found, wanted, strict=True):
        assert all(torch.equal(one[name], other[name]) for name in other)


def test_roundings_take_no_more_memory_than_they_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roundings, "_KEPT", {})
    monkeypatch.setattr(roundings, "_SPENT", {})
    monkeypatch.setattr(roundings, "_kept_bytes", lambda _: 1 << 20)
    for rows in range(1, 40):
        list(rounded_on_the_way({"x": torch.ones(rows, 300)}, {}, set(), 8))
        (spent,) = roundings._SPENT.values()
        assert spent == sum(kept.nbytes for kept in roundings._KEPT.values()) <= 1 << 20
    assert [kept.shape[1] for kept in roundings._KEPT.values()] == [64], "the oldest have given way"
    large = {"x": torch.ones(1000, 300)}
    list(rounded_on_the_way(large, {}, set(), 8))
    assert [kept.shape[1] for kept in roundings._KEPT.values()] == [64]


def test_roundings_are_kept_by_several_threads_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roundings, "_KEPT", {})
    monkeypatch.setattr(roundings, "_SPENT", {})
    monkeypatch.setattr(roundings, "_kept_bytes", lambda _: 1 << 16)
    make = roundings._factors

    def slowly(*asked: Any) -> torch.Tensor:
        time.sleep(0.001)
        return make(*asked)

    def drawn(_: int) -> list[torch.Tensor]:
        shapes = [(rows, columns) for rows in (1, 3, 9) for columns in (1, 5, 30, 100, 250)]
        each = [next(rounded_on_the_way({"x": torch.ones(shape)}, {}, set(), 8)) for shape in 2 * shapes]
        return [draws[3]["x"] for draws in each]

    monkeypatch.setattr(roundings, "_factors", slowly)
    wanted = drawn(0)
    with ThreadPoolExecutor(8) as threads:
        for found in threads.map(drawn, range(8)):
            assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))
    (spent,) = roundings._SPENT.values()
    assert spent == sum(kept.nbytes for kept in roundings._KEPT.values()) <= 1 << 16


@pytest.mark.parametrize("rows", [5, 1000])
def test_draws_do_not_follow_from_what_was_kept_before(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a trial's verdict would follow from what its process had checked before."""
    found = []
    for room in (0, 1 << 30):
        monkeypatch.setattr(roundings, "_KEPT", {})
        monkeypatch.setattr(roundings, "_SPENT", {})
        monkeypatch.setattr(roundings, "_kept_bytes", lambda _, room=room: room)
        found.append(
            [one["x"] for one in next(rounded_on_the_way({"x": torch.ones(rows, 300)}, {}, set(), 8))]
        )
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_what_is_no_number_is_not_far() -> None:
    nan, inf = math.nan, math.inf
    exact = torch.tensor([1.0, 1.0, nan, inf, 1.0, 0.0], dtype=torch.float64)
    outputs = [torch.tensor(row) for row in ([2.0, nan, 5.0, 7.0, inf, 3.0], [0.5, 3.0, 6.0, inf, 9.0, -3.0])]
    found = farthest(exact, outputs)
    wanted = torch.tensor([2.0, 3.0, nan, inf, inf, 3.0], dtype=torch.float64)
    torch.testing.assert_close(found, wanted, equal_nan=True, rtol=0, atol=0)
