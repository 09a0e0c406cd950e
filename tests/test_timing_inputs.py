"""What attention kernels are timed on is what its names say."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from evo.errors import UsageError
from evo.task import load_task

torch.set_num_threads(1)

TASK = load_task("attention")
PROBLEM = TASK.problem("1,4,512,64")


def scores(name: str, seed: int = 3) -> Any:
    """(heads, queries, keys), fp64."""
    inputs = {k: t.double() for k, t in TASK.timing_tensors(PROBLEM, name, seed, "cpu").items()}
    return (inputs["q"] @ inputs["k"].transpose(-1, -2) / math.sqrt(PROBLEM["D"]))[0]


def test_the_plain_one_is_the_plain_family() -> None:
    plain, family = (make(PROBLEM, "normal", 5, "cpu") for make in (TASK.timing_tensors, TASK.inputs))
    assert all(torch.equal(plain[name], family[name]) for name in "qkv")
    assert scores("normal").std() == pytest.approx(1, abs=0.05)


def test_sharp_scores_have_a_deviation_of_four() -> None:
    assert scores("sharp").std() == pytest.approx(4, abs=0.2)


def test_most_queries_prefer_the_first_key_of_a_sink() -> None:
    first = scores("sink").argmax(-1) == 0
    assert 0.9 < first.double().mean() < 1, "most, not all"


@pytest.mark.parametrize("tile", [32, 64, 128])
def test_growing_scores_move_the_maximum_of_every_row_in_every_tile(tile: int) -> None:
    found = scores("growing")
    highest = found.unflatten(-1, (-1, tile)).amax(-1)
    assert (highest.diff(dim=-1) > 0).all()
    assert highest[..., -1].max() < 150, "a score of hundreds is no score of a model"


def test_an_unknown_timing_input_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown timing input") as caught:
        TASK.timing_tensors(PROBLEM, "peaky", 0, "cpu")
    assert "sharp" in caught.value.hint
