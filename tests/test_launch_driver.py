"""Launches of an exported folder without the compiled table, by ctypes; the driver is a library of the
tests."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
import torch
from test_fast_call import driver, launch, x_of

from evo.launch import driver as ours

__all__ = ["driver"]


@pytest.fixture(autouse=True)
def _library(driver: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "library", lambda: driver)


def test_a_kernel_is_loaded_in_the_context_of_its_gpu_and_launched(driver: ctypes.CDLL) -> None:
    loaded = ours.load(2, b"cubin", "scaled", 512)
    assert loaded.context == 42
    x, y = x_of(), torch.empty(3, 8)
    args = (
        {"kind": "buffer", "buffer": "x"},
        {"kind": "buffer", "buffer": "y"},
        {"kind": "scalar", "value": 2.5, "type": "f32"},
        {"kind": "scalar", "value": 24, "type": "i32"},
    )
    said = launch(*args, cluster=[2, 1, 1], cooperative=True)
    ours.launch(loaded, said, {"x": x.data_ptr(), "y": y.data_ptr()}, 0)
    assert torch.equal(y, 2.5 * x)
    assert [driver.last_number(at) for at in range(10)] == [2, 3, 4, 64, 99, 2, 4, 2, 2, 1]
    assert driver.pushes_and_pops() == 2002
    ours.launch(loaded, launch(*args, cooperative=True), {"x": y.data_ptr(), "y": y.data_ptr()}, 0)
    assert [driver.last_number(at) for at in (5, 6, 7)] == [1, 2, 1]


def test_a_tensor_map_lies_where_the_driver_wants_it() -> None:
    arg = {"kind": "tensor_map", "buffer": "x", "dtype": "bf16", "shape": [8, 3], "strides": [32],
           "box": [4, 2], "swizzle": 64}  # fmt: skip
    x, y = x_of(), torch.empty(11, dtype=torch.int64)
    loaded = ours.load(0, b"cubin", "told", 0)
    said = launch(arg, {"kind": "buffer", "buffer": "y"})
    ours.launch(loaded, said, {"x": x.data_ptr(), "y": y.data_ptr()}, 0)
    assert y.tolist() == [9, 2, x.data_ptr(), 8, 3, 32, 4, 2, 1, 2, 3]


def test_what_the_driver_refuses_has_its_word(driver: ctypes.CDLL) -> None:
    with pytest.raises(ours.Refused, match="NO_BINARY"):
        ours.load(0, b"no cubin", "scaled", 0)
    with pytest.raises(ours.Refused, match="the driver says NO"):
        ours.load(0, b"cubin", "scaled", 2000)
    loaded = ours.load(0, b"cubin", "scaled", 0)
    driver.answer_with(700)
    before = driver.pushes_and_pops()
    with pytest.raises(ours.Refused):
        ours.launch(loaded, launch(), {}, 0)
    assert driver.pushes_and_pops() == before + 1001, "the thread's own context is back"


def test_every_file_of_a_folder_is_there() -> None:
    from evo.export.python import RUNTIME

    names = {path.stem for path in Path(ours.__file__).parent.glob("*.py")} - {"__init__"}
    assert names == set(RUNTIME)
