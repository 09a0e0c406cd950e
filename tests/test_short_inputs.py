"""Inputs of tasks of the short form: how far from 1 numbers are, and what integers are drawn."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from test_short_form import made


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
def test_huge_tiny_and_stepped_inputs_are_what_they_say(tmp_path: Path, dtype: str) -> None:
    tensors = f'dtypes, tensors = ("{dtype}",), {{"x": In("n"), "y": Out("n")}}'
    task = made(tmp_path, 'sizes = {"n": 4000}', tensors, "x['x'] ** 5")
    largest = torch.finfo(task.inputs(task.example, "huge", 1, "cpu")["x"].dtype).max
    below = []
    for seed in range(8):
        huge, tiny = (
            task.inputs(task.example, family, seed, "cpu")["x"].double() for family in ("huge", "tiny")
        )
        steps = task.timing_tensors(task.example, "steps", seed, "cpu")["x"].double()
        assert largest / 2**10 < huge.abs().max() ** 5 <= largest / 2 or dtype != "fp16"
        assert huge.abs().max() > (5e5 if dtype != "fp16" else 3), "no smaller than it must be"
        below.append(bool((huge <= 0).all()))
        assert 0 < tiny.abs().median() < 2**-13
        assert torch.equal(steps * 32, (steps * 32).round())
        assert steps.unique().numel() < steps.numel() / 2, "ties"
    assert any(below)
    assert not all(below)


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_numbers_are_as_far_from_1_as_a_task_reaches(tmp_path: Path, dtype: str) -> None:
    """A task of squares loses what a copy keeps; a float that becomes an int32 is held within it."""
    tensors = f'dtypes, tensors = ("{dtype}",), {{"x": In("n"), "y": Out("n", dtype="fp32")}}'
    whole = f'dtypes, tensors = ("{dtype}",), {{"x": In("n"), "y": Out("n", dtype="i32")}}'
    copied, squared, counted = (
        made(tmp_path / str(at), 'sizes = {"n": 4000}', *one)
        for at, one in enumerate(
            [(tensors, "x['x']"), (tensors, "x['x'] ** 4"), (whole, "x['x'].clamp(-1e9, 1e9).int()")]
        )
    )
    for seed in range(4):
        huge, less, held = (
            float(task.inputs(task.example, "huge", seed, "cpu")["x"].double().abs().max())
            for task in (copied, squared, counted)
        )
        assert 2**60 < huge < 2**64
        assert 2**20 < less < 2**24
        assert 2**20 < held < 2**24
        tiny, more = (
            float(task.inputs(task.example, "tiny", seed, "cpu")["x"].double().abs().max())
            for task in (copied, squared)
        )
        assert tiny < 2**-54
        assert 2**-30 < more < 2**-24


def test_whole_numbers_that_are_not_added_are_all_of_their_type(tmp_path: Path) -> None:
    tensors = 'dtypes, tensors = ("i32",), {"a": In("n"), "b": In("n"), "y": Out("n")}'
    compared = made(tmp_path, 'sizes = {"n": 4000}', tensors, "x['a'].maximum(x['b'])")
    values = compared.inputs(compared.example, "huge", 0, "cpu")["a"].long()
    assert values.min() == -(2**31)
    assert values.max() == 2**31 - 1


def test_whole_numbers_of_no_range_are_as_large_as_two_that_are_added_may_be(tmp_path: Path) -> None:
    tensors = 'dtypes, tensors = ("i32",), {"x": In("n"), "y": Out("n")}'
    task = made(tmp_path, 'sizes = {"n": 4000}', tensors, "x['x'] + 1")
    values = task.inputs(task.example, "huge", 3, "cpu")["x"].long()
    assert 2**29 < values.abs().max() <= 2**30
    assert task.inputs(task.example, "tiny", 3, "cpu")["x"].abs().median() <= 1
