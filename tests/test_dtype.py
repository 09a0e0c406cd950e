"""The table of types: names, widths and bytes, beside torch's and numpy's."""

from __future__ import annotations

import math

import pytest
import torch

from evo.dtype import DTYPES, SCALARS, dtype_named
from evo.errors import UnknownName
from evo.trial import LaunchConfig, ScalarArg


@pytest.mark.parametrize("name", DTYPES)
def test_widths_and_signs_are_those_of_torch(name: str) -> None:
    dtype, found = DTYPES[name], dtype_named(name).torch
    assert dtype.nbytes == found.itemsize
    assert dtype.floating == found.is_floating_point
    if dtype.kind in ("int", "uint"):
        assert (torch.iinfo(found).min < 0) == (dtype.kind == "int")


@pytest.mark.parametrize("name", SCALARS)
def test_a_scalar_has_the_bytes_that_torch_gives_it(name: str) -> None:
    dtype = dtype_named(name)
    values: tuple[int | float | bool, ...] = (0, 1)
    if dtype.floating:
        values += (0.1, -3.14159, 1 / 3, 1e-3, 1.00390625, 1.01171875, 65280.0, -0.0, math.inf, -math.inf)
    if dtype.kind == "int":
        values += (-1, -(2 ** (8 * dtype.nbytes - 1)), 2 ** (8 * dtype.nbytes - 1) - 1)
    for value in values:
        kept = torch.tensor([value], dtype=dtype.torch)
        assert dtype.pack(value) == kept.view(torch.uint8).numpy().tobytes(), value
    if dtype.floating:
        packed = torch.frombuffer(bytearray(dtype.pack(math.nan)), dtype=dtype.torch)
        assert packed.isnan().all()


@pytest.mark.parametrize(
    ("name", "value"), [("i8", 128), ("u8", -1), ("i32", 2**31), ("fp16", 7e4), ("u32", 0.5), ("fp8", 1.0)]
)
def test_what_does_not_fit_is_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"does not fit {name}"):
        dtype_named(name).pack(value)


def test_the_spelling_of_stored_launches_is_kept() -> None:
    assert dtype_named("f32") is dtype_named("fp32")
    launch = LaunchConfig((1, 1, 1), (1, 1, 1), 0, (ScalarArg(0.125, "f32"),))
    assert '{"kind":"scalar","type":"f32","value":0.125}' in launch.to_json()
    assert LaunchConfig.from_json(launch.to_json()) == launch


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("float", "fp32"), ("float32", "fp32"), ("torch.float64", "fp64"), ("np.double", "fp64"),
        ("__half", "fp16"), ("Float16", "fp16"), ("bfloat16", "bf16"), ("__nv_bfloat16", "bf16"),
        ("int", "i32"), ("int32", "i32"), ("int64_t", "i64"), ("uint8", "u8"), ("fp_16", "fp16"),
    ],
)  # fmt: skip
def test_the_spelling_of_others_is_refused_with_evos(said: str, meant: str) -> None:
    with pytest.raises(UnknownName, match=f"unknown dtype: {said}") as caught:
        dtype_named(said)
    assert caught.value.hint.startswith(f"did you mean {meant}? one of ")
