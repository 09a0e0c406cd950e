"""Launches of an exported folder without the compiled table, by ctypes; the driver is a library of the
tests."""

from __future__ import annotations

import ctypes
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from test_fast_call import driver, launch, x_of

from evo.launch import driver as ours
from evo.launch import scratch

__all__ = ["driver"]


@pytest.fixture(autouse=True)
def _library(driver: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "library", lambda: driver)
    driver.stream_of_set.restype = ctypes.c_void_p


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


def bytes_at(address: int, count: int) -> bytes:
    return ctypes.string_at(address, count)


def test_fresh_memory_is_zero_for_its_stream(driver: ctypes.CDLL) -> None:
    """Whatever another thread captures: the thread's capture mode is relaxed meanwhile, and comes back."""
    address = ours.zeros(3, 100, 77)
    assert bytes_at(address, 100) == bytes(100)
    assert driver.stream_of_set() == 77
    assert driver.capture_modes() == 21
    assert driver.pushes_and_pops() == 1001
    with pytest.raises(ours.Refused):
        ours.zeros(0, 2 << 20, 0)
    assert driver.capture_modes() == 2121


def test_each_stream_and_place_keeps_its_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch is told which stream is current: there is no GPU here."""
    stream, device = SimpleNamespace(device_index=0, cuda_stream=5), torch.device("cuda", 0)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: stream)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(scratch, "_KEPT", {})
    first = scratch.zeroed(100, device, 0)
    assert bytes_at(first, 4096) == bytes(4096)
    assert scratch.zeroed(4096, device, 0) == first, "kernels leave it zero"
    assert scratch.zeroed(100, device, 1) != first, "another workspace of the same launch"
    larger = scratch.zeroed(5000, device, 0)
    assert larger != first
    assert bytes_at(larger, 8192) == bytes(8192)
    assert scratch.zeroed(100, device, 0) == larger
    stream.cuda_stream = 6
    assert scratch.zeroed(100, device, 0) not in (first, larger)
    tickets = {"name": "tickets", "nbytes": 8, "zeroed": True}
    (maker,) = scratch.makers([tickets], device)
    assert maker.make is scratch.zeroed
    assert maker.make(**maker.empty) == scratch.zeroed(8, device, 0)


def test_other_scratch_memory_is_torchs() -> None:
    found = scratch.made([{"name": "partials", "nbytes": 64, "zeroed": False}], "cpu")
    assert found["partials"].numel() == 64
    assert scratch.address_of(found["partials"]) == found["partials"].data_ptr()
    assert scratch.address_of(17) == 17


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
