"""The judge: its two rules, their lines, and where it says that an output is wrong."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from host_kernels import (
    SMALL,
    TASK,
)

from evo.errors import Red
from evo.gate.tolerance import DEFAULT, compare
from evo.trial import Problem


def judged(change: Callable[[torch.Tensor], object], problem: Problem = SMALL) -> None:
    inputs = TASK.inputs(problem, "offset_v", 5, "cpu")
    fair = TASK.honest(problem, inputs)["o"]
    out = fair.clone()
    change(out)
    compare("o", out, TASK.reference(problem, inputs)["o"], fair)


def test_the_honest_computation_is_on_its_own_line() -> None:
    judged(lambda _out: None)


def test_one_wrong_row_is_named() -> None:
    def change(out: torch.Tensor) -> None:
        out[0, 1, 77] *= 1.01

    with pytest.raises(Red, match="1 of 192 rows") as caught:
        judged(change)
    assert caught.value.where.startswith("o[0, 1, 77, ")


def test_one_wrong_element_in_a_long_row_is_named() -> None:
    def change(out: torch.Tensor) -> None:
        out[0, 1, 77, 9] += 0.016  # 3.5e-4 of the row's length: below the line of rows

    with pytest.raises(Red) as caught:
        judged(change, TASK.problem("1,2,96,128"))
    assert caught.value.reason == "element error"
    assert caught.value.where == "o[0, 1, 77, 9]"


@pytest.mark.parametrize(
    ("value", "reason"), [(math.nan, "NaN in the output"), (-math.inf, "Inf in the output")]
)
def test_nan_and_inf_are_told_apart(value: float, reason: str) -> None:
    def change(out: torch.Tensor) -> None:
        out[0, 0, 5, 6] = value

    with pytest.raises(Red) as caught:
        judged(change)
    assert caught.value.reason == reason
    assert caught.value.where == "o[0, 0, 5, 6]"


def test_a_row_of_zeros_is_held_to_the_size_of_the_others() -> None:
    reference = torch.randn(4, 8, dtype=torch.float64).half().double()
    reference[2] = 0
    fair = reference.half()
    compare("o", fair, reference, fair)
    wrong = fair.clone()
    wrong[2, 3] = 0.01
    with pytest.raises(Red):
        compare("o", wrong, reference, fair)


@pytest.mark.parametrize(
    ("rows", "floor"), [(DEFAULT.few_rows, DEFAULT.row_floor), (DEFAULT.few_rows - 1, DEFAULT.few_rows_floor)]
)
def test_the_line_never_falls_below_rounding(rows: int, floor: float) -> None:
    exact = torch.randn(rows, 8, dtype=torch.float64).half()
    found = compare("o", exact, exact.double(), exact)
    assert found.row_error == 0
    assert found.row_limit == floor * 2**-11


@pytest.mark.parametrize("family", TASK.families.names)
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_one_key_may_have_a_rounded_weight(dtype: str, family: str) -> None:
    """One key: the honest computation is exact; a weight below 1 is rounded before it is divided out."""
    problem = TASK.problem("1,2,1,64", dtype)
    for seed in range(20):
        inputs = TASK.inputs(problem, family, seed, "cpu")
        reference, fair = TASK.reference(problem, inputs)["o"], TASK.honest(problem, inputs)["o"]
        for weight in torch.linspace(0.5, 0.999, 30):
            stored = weight.to(fair.dtype).double()
            out = (inputs["v"].double() * stored / weight.double()).to(fair.dtype)
            compare("o", out, reference, fair)
        wrong = fair.clone()
        largest = wrong.double().abs().argmax()
        wrong.view(-1)[largest] *= 1 + 6 * torch.finfo(fair.dtype).eps
        with pytest.raises(Red):
            compare("o", wrong, reference, fair)


def test_what_an_element_far_above_hides_in_a_vector_is_seen() -> None:
    reference = torch.ones(300, dtype=torch.float64)
    reference[200] = 1e4
    fair = reference.float()
    compare("y", fair.clone(), reference, fair)
    out = fair.clone()
    out[101] *= 1 + 1e-4
    with pytest.raises(Red, match="1 of 10 rows") as caught:
        compare("y", out, reference, fair)
    assert caught.value.where == "y[101]"


@pytest.mark.parametrize("byte", [2, 255])
def test_a_truth_value_is_0_or_1(byte: int) -> None:
    reference = torch.tensor([True, False, True])
    compare("m", torch.tensor([1, 0, 1], dtype=torch.uint8).view(torch.bool), reference, reference)
    with pytest.raises(Red) as caught:
        compare("m", torch.tensor([1, 0, byte], dtype=torch.uint8).view(torch.bool), reference, reference)
    assert (caught.value.reason, caught.value.where) == ("wrong integer", "m[2]")


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.uint32, torch.uint64])
@pytest.mark.parametrize("of", [torch.int32, torch.int64, None])
def test_unsigned_numbers_are_compared_by_value(dtype: torch.dtype, of: torch.dtype | None) -> None:
    out = torch.tensor([1, 200, 3]).to(dtype)
    compare("m", out, torch.tensor([1, 200, 3]).to(of or dtype), out)
    with pytest.raises(Red, match="wrong integer"):
        compare("m", out, torch.tensor([1, 201, 3]).to(of or dtype), torch.tensor([1, 201, 3]).to(dtype))
    if dtype == torch.uint32 and of == torch.int64:
        compare("m", torch.tensor([2**32 - 1]).to(dtype), torch.tensor([2**32 - 1]), out[:1])


def test_a_rounded_integer_may_be_that_of_fp32() -> None:
    reference, fair = torch.tensor([3, 4, 5]), torch.tensor([3, 5, 5])
    for out in (reference, fair):
        compare("q", out.clone(), reference, fair)
    with pytest.raises(Red, match="wrong integer"):
        compare("q", torch.tensor([3, 4, 4]), reference, fair)
