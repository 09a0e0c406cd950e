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


def test_fresh_memory_is_zero(driver: ctypes.CDLL) -> None:
    """Whatever is captured: the thread's capture mode is relaxed meanwhile, and comes back."""
    address = ours.zeros(3, 100)
    assert bytes_at(address, 100) == bytes(100)
    assert driver.open_streams() == 0
    assert driver.capture_modes() == 21
    assert driver.pushes_and_pops() == 1001
    with pytest.raises(ours.Refused):
        ours.zeros(0, 2 << 20)
    assert driver.capture_modes() == 2121


@pytest.fixture
def _nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, empty in (("_KEPT", {}), ("_OF_GRAPHS", []), ("_FREE", [])):
        monkeypatch.setattr(scratch, name, empty)


def zeroed(stream: int, capture: int = 0, nbytes: int = 100, place: int = 0) -> int:
    return scratch.zeroed(stream, capture, device=0, nbytes=nbytes, place=place)


@pytest.mark.usefixtures("_nothing_kept")
def test_each_stream_and_place_keeps_its_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch is told which stream is current: there is no GPU here."""
    first = zeroed(5)
    assert bytes_at(first, 4096) == bytes(4096)
    assert zeroed(5, nbytes=4096) == first, "kernels leave it zero"
    assert zeroed(5, place=1) != first, "another workspace of the same launch"
    larger = zeroed(5, nbytes=5000)
    assert larger != first
    assert bytes_at(larger, 8192) == bytes(8192)
    assert zeroed(5) == larger
    assert zeroed(6) not in (first, larger)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: SimpleNamespace(cuda_stream=6))
    tickets = {"name": "tickets", "nbytes": 8, "zeroed": True}
    assert scratch.made([tickets], "cuda:0") == {"tickets": zeroed(6)}


@pytest.mark.usefixtures("_nothing_kept")
def test_a_graph_has_zeros_of_its_own_until_it_is_gone(driver: ctypes.CDLL) -> None:
    """Nothing is captured that sets them to zero: they are, when they are given."""
    usual, stream = zeroed(5), ctypes.c_void_p(5)
    assert ours.capture_of(5) == 0
    found = []
    for graph in (1, 2):
        driver.begin_capture(graph, stream)
        capture = ours.capture_of(5)
        assert ours.capture_of(6) == 0, "of another stream"
        found.append(zeroed(5, capture))
        assert zeroed(5, capture) == found[-1]
        assert bytes_at(found[-1], 4096) == bytes(4096)
    assert len({usual, *found}) == 3
    driver.destroy_graph(1)
    driver.begin_capture(3, stream)
    assert zeroed(5, ours.capture_of(5)) == found[0], "what the first one had"
    driver.destroy_graph(3)
    driver.begin_capture(4, stream)
    assert zeroed(5, ours.capture_of(5)) == found[0], "again"
    assert len(scratch._KEPT) == 3
    driver.begin_capture(0, None)
    assert zeroed(5, ours.capture_of(5)) == usual


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
