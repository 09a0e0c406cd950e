"""The gate: honest kernels are GREEN, wrong arithmetic and guesses are RED."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from host_kernels import (
    TASK,
    Memory,
    Program,
    flash,
    honest,
    inside,
    verdict,
)

from evo.errors import Red
from evo.gate.tolerance import compare
from evo.trial import Problem

# ------------------------------------------------------------------------------------------- honest kernels


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_an_honest_kernel_is_green(dtype: str, causal: bool) -> None:
    problem = TASK.problem("1,2,96,64", dtype, causal=causal)
    green = verdict(honest, problem)
    assert green.problem == problem
    assert green.report.schedule == "default"
    assert all(0 <= e.row_error <= e.limit < 0.02 for e in green.errors)
    assert {e.family for e in green.errors} == set(TASK.families.names)
    assert {f"L={n} " in " ".join(e.problem for e in green.errors) for n in (1, 31, 65, 96)} == {True}
    assert green.launches > len(green.errors)


@pytest.mark.parametrize("tile", [16, 32, 128])
@pytest.mark.parametrize("precise", [False, True])
def test_tilings_and_precise_weights_are_green(tile: int, precise: bool) -> None:
    for causal in (False, True):
        problem = TASK.problem("1,2,96,64", causal=causal)
        verdict(lambda m, p, _n: flash(m, p, tile=tile, round=not precise), problem)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("causal", [False, True])
def test_no_false_alarm_over_many_seeds(dtype: str, dim: int, causal: bool) -> None:
    problem = TASK.problem(f"1,2,96,{dim}", dtype, causal=causal)
    for seed in range(40):
        tile = (16, 32, 64, 128)[seed % 4]
        verdict(lambda m, p, _n, t=tile: flash(m, p, tile=t), problem, seed=seed)  # type: ignore[misc]


# -------------------------------------------------------------------------------------------- wrong numbers

WRONG_NUMBERS: dict[str, dict[str, Any]] = {
    "scale 2 % off": {"scale": 1.02},
    "last key dropped": {"drop_keys": 1},
    "second tile dropped": {"drop_tile": 32},
    "one padding key unmasked": {"padding": 1},
    "padding to the tile unmasked": {"padding": 17},
    "P in fp8": {"fp8": True},
    "scores in half precision": {"half_scores": True},
    "O not rescaled": {"no_rescale": True},
    "maximum of the first tile only": {"no_maximum": True},
    "output 0.2 % too large": {"gain": 1.002},
}
CAUSAL_NUMBERS: dict[str, dict[str, Any]] = {
    "mask one key too wide": {"diagonal": 1},
    "mask one key too narrow": {"diagonal": -1},
}


@pytest.mark.parametrize("name", WRONG_NUMBERS)
def test_wrong_arithmetic_is_red(name: str) -> None:
    with pytest.raises(Red) as caught:
        verdict(lambda m, p, _n: flash(m, p, tile=32, **WRONG_NUMBERS[name]))
    assert caught.value.reason in ("row error", "Inf in the output", "NaN in the output")


@pytest.mark.parametrize("seed", range(8))
def test_a_padding_key_at_one_boundary_length_is_red_whatever_the_seed(seed: int) -> None:
    """A gate whose lengths meet one family each let 1 of 14 such kernels through."""

    def program(memory: Memory, problem: Problem, _before: int) -> None:
        flash(memory, problem, tile=32, padding=int(problem["L"] == 31))

    with pytest.raises(Red) as caught:
        verdict(program, seed=seed)
    assert "L=31 " in caught.value.where


@pytest.mark.parametrize("name", CAUSAL_NUMBERS)
def test_wrong_masks_are_red(name: str) -> None:
    with pytest.raises(Red):
        verdict(
            lambda m, p, _n: flash(m, p, tile=32, **CAUSAL_NUMBERS[name]),
            TASK.problem("1,2,96,64", causal=True),
        )


def test_half_precision_sums_are_red_at_the_length_of_a_study() -> None:
    with pytest.raises(Red):
        verdict(lambda m, p, _n: flash(m, p, tile=16, half_sums=True), TASK.problem("1,2,512,64"))


def fixed(value: Callable[[Memory, Problem], torch.Tensor | float]) -> Program:
    def program(memory: Memory, problem: Problem, _before: int) -> None:
        inside(memory["o"], problem).copy_(torch.as_tensor(value(memory, problem)))

    return program


GUESSES: dict[str, Program] = {
    "zeros": fixed(lambda _m, _p: 0.0),
    "ones": fixed(lambda _m, _p: 1.0),
    "mean of V": fixed(lambda m, p: inside(m["v"], p).float().mean(2, keepdim=True)),
    "copy of V": fixed(lambda m, p: inside(m["v"], p)),
    "NaN": fixed(lambda _m, _p: math.nan),
    "infinity": fixed(lambda _m, _p: math.inf),
    "nothing written": lambda _m, _p, _n: None,
}


@pytest.mark.parametrize("guess", GUESSES)
def test_guesses_are_red(guess: str) -> None:
    with pytest.raises(Red):
        verdict(GUESSES[guess])


@pytest.mark.parametrize("family", TASK.families.names)
@pytest.mark.parametrize("length", [65, 96, 259])
@pytest.mark.parametrize("guess", ["zeros", "mean of V", "copy of V", "previous output"])
def test_guesses_fail_on_every_case(guess: str, length: int, family: str) -> None:
    """Not only somewhere: a case that a guess passes tests nothing. (Equal keys make the mean of V right.)"""
    problem = TASK.problem(f"1,2,{length},64")
    inputs = TASK.inputs(problem, family, 3, "cpu")
    reference, fair = TASK.reference(problem, inputs)["o"], TASK.honest(problem, inputs)["o"]
    before = TASK.inputs(problem, family, 4, "cpu")
    out = {
        "zeros": torch.zeros_like(fair),
        "mean of V": inputs["v"].float().mean(2, keepdim=True).expand(fair.shape).to(fair.dtype),
        "copy of V": inputs["v"],
        "previous output": TASK.honest(problem, before)["o"],
    }[guess]
    if guess == "mean of V" and family == "equal_keys":
        compare("o", out, reference, fair)
        return
    with pytest.raises(Red):
        compare("o", out, reference, fair)
