"""The table of known calls: what it launches, what it leaves to Python. The driver is a library of the tests
that calls functions of this process, so that all but NVIDIA's part runs without a GPU."""

from __future__ import annotations

import ctypes
import gc
import itertools
import resource
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from command import ROOT
from test_fallbacks import TASKS

from evo.cache import Cache, default_folder
from evo.compile import build_shared_library, build_table_library, host_compiler, toolkits
from evo.errors import MachineError
from evo.launch import SOURCES, Loaded, Output, plan_of, table_of
from evo.task import load_task

SHAPE = (3, 8)
CONTEXT = 77


@pytest.fixture(scope="module")
def library() -> Path:
    try:
        return build_table_library(default_folder())
    except MachineError as error:
        pytest.skip(str(error))


@pytest.fixture
def driver(tmp_path: Path) -> ctypes.CDLL:
    """Each test has one of its own: it counts."""
    source, flags = ROOT / "tests/host_driver.cpp", ["-std=c++20", "-O1", f"-I{SOURCES[0].parent}"]
    built = build_shared_library("driver", [source], flags, Cache(default_folder()), headers=[SOURCES[-1]])
    own = tmp_path / "driver.so"
    own.write_bytes(built.read_bytes())
    found = ctypes.CDLL(str(own))
    found.context_now.restype = ctypes.c_void_p
    return found


class Known:
    """A table, called as Python calls functions."""

    def __init__(self, library: Path, driver: ctypes.CDLL, names: tuple[str, ...] = ("x", "causal")) -> None:
        self._table = table_of(library, names)
        verbs = ("launch", "current", "make_current", "push", "pop", "encode", "capture")
        self._table.drive(*(address(getattr(driver, verb)) for verb in verbs))
        self.size: Callable[[], int] = self._table.size

    def call(self, *values: Any, out: Any = None, **named: Any) -> Any:
        return self._table.call(values, out, named)

    def add(self, plan: Any, *values: Any, out: Any = None, **named: Any) -> bool:
        return bool(self._table.add(plan, values, out, named))


@pytest.fixture
def table(library: Path, driver: ctypes.CDLL) -> Known:
    return Known(library, driver)


def address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def launch(*args: dict[str, Any], **changed: Any) -> dict[str, Any]:
    config = {"grid": [2, 3, 4], "block": [64, 1, 1], "smem_bytes": 99, "cluster": [1, 1, 1]}
    return {**config, "workspaces": [], "args": args, **changed}


def scaled(driver: ctypes.CDLL, given: int = -1, context: int = 0, **changed: Any) -> tuple[Any, ...]:
    """out = 2.5 x; `x` is the call's first argument, `given` where its output is."""
    args = (
        {"kind": "buffer", "buffer": "x"},
        {"kind": "buffer", "buffer": "y"},
        {"kind": "scalar", "value": 2.5, "type": "f32"},
        {"kind": "scalar", "value": 24, "type": "i32"},
    )
    loaded = Loaded("the kernel", address(driver.scaled), context)
    output = Output(given, like(x_of()))
    return plan_of(launch(*args, **changed), loaded, {"x": 0, "y": -1}, [output], [("y", -1)])


def like(x: torch.Tensor) -> dict[str, Any]:
    return {"size": x.shape, "dtype": x.dtype, "device": x.device}


def x_of(*shape: int) -> torch.Tensor:
    return torch.randn(shape or SHAPE, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", TASKS)
def test_a_call_with_all_flags_of_a_task_is_known(name: str, library: Path, driver: ctypes.CDLL) -> None:
    """As code of inductor gives them. A call that is not known takes ten times as long."""
    flags = load_task(name).flags
    table, x = Known(library, driver, tuple(flags)), x_of()
    for values in itertools.product(*(flag.values for flag in flags.values())):
        named = dict(zip(flags, values, strict=True))
        assert table.call(x, **named) is None
        assert table.add(scaled(driver), x, **named)
        assert torch.equal(table.call(x, **named), 2.5 * x)


def test_calls_are_told_apart_by_the_values_of_flags(table: Known, driver: ctypes.CDLL) -> None:
    x = x_of()
    texts = ["", "N", "NT", "NTNTNTNT", "NTNTNTNTN", "ä" * 40]
    known: list[Any] = [0, 1, -1, 64, 2**62, True, False, None, *texts]
    for count, value in enumerate(known):
        assert table.call(x, causal=value) is None
        assert table.add(scaled(driver), x, causal=value)
        assert table.size() == count + 1
    strange: list[Any] = [2**64, 0.5, "x" * 4000, b"NT", (1,)]
    for value in (2, "NTNTNTNTNT", "n", *strange):
        assert table.call(x, causal=value) is None
    for value in strange:
        assert not table.add(scaled(driver), x, causal=value)


def test_a_known_call_is_launched_and_gives_its_output(table: Known, driver: ctypes.CDLL) -> None:
    x = x_of()
    assert table.call(x, causal=True) is None
    assert table.add(scaled(driver, cluster=[2, 1, 1], cooperative=True), x, causal=True)
    assert not table.add(scaled(driver), x, causal=True), "it is known"
    y = table.call(x, causal=True)
    assert torch.equal(y, 2.5 * x)
    said = [driver.last_number(at) for at in range(10)]
    assert said == [2, 3, 4, 64, 99, 2, 4, 2, 2, 1], "grid, threads, shared memory, cluster, cooperative"
    other = x_of() + 1
    assert torch.equal(table.call(other, causal=True), 2.5 * other)
    with torch.no_grad():
        parameter = torch.nn.Parameter(other)
        assert torch.equal(table.call(parameter, causal=True), 2.5 * other)
    assert table.size() == 1


def test_an_output_that_was_given_is_written(table: Known, driver: ctypes.CDLL) -> None:
    x, out = x_of(), torch.empty(SHAPE)
    assert table.add(scaled(driver, given=1), x, out=out)
    assert table.call(x, out=out) is out
    assert torch.equal(out, 2.5 * x)
    whole = torch.zeros(2, *SHAPE)
    assert table.call(whole[0], out=whole[0]) is None, "it would overwrite what it reads"
    assert table.call(whole[0], out=whole[1]) is not None


def test_what_is_not_the_same_call_is_left_to_python(table: Known, driver: ctypes.CDLL) -> None:
    x = x_of()
    table.add(scaled(driver), x, causal=True)
    wide = x_of(3, 16)
    others: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((x,), {}),
        ((x,), {"causal": False}),
        ((x,), {"causal": 1}),
        ((x,), {"out": True}),
        ((x,), {"causal": True, "unknown": True}),
        ((), {"x": x, "causal": True}),
        ((x, x), {"causal": True}),
        ((x_of(4, 8),), {"causal": True}),
        ((x_of(24),), {"causal": True}),
        ((x.double(),), {"causal": True}),
        ((x.to(torch.int32),), {"causal": True}),
        ((wide[:, ::2],), {"causal": True}),
        ((wide.view(-1)[1:25].view(SHAPE),), {"causal": True}),
        ((x.to("meta"),), {"causal": True}),
        ((x.to_sparse(),), {"causal": True}),
        ((x.numpy(),), {"causal": True}),
        ((x.clone().requires_grad_(),), {"causal": True}),
        ((torch.nn.Buffer(x),), {"causal": [True]}),
        ((torch.empty(0, 8),), {"causal": True}),
    ]
    for values, named in others:
        assert table.call(*values, **named) is None, (values, named)
    leaf = x.clone().requires_grad_()
    with torch.no_grad():
        assert torch.equal(table.call(leaf, causal=True), 2.5 * x)


def test_a_subclass_of_tensors_is_left_to_python(table: Known, driver: ctypes.CDLL) -> None:
    class Own(torch.Tensor):  # type: ignore[misc]
        pass

    table.add(scaled(driver), x_of())
    assert table.call(x_of().as_subclass(Own)) is None
    with torch._subclasses.FakeTensorMode() as mode:
        assert table.call(mode.from_tensor(x_of())) is None


def test_what_the_driver_refuses_is_left_to_python(table: Known, driver: ctypes.CDLL) -> None:
    x = x_of()
    table.add(scaled(driver), x)
    driver.answer_with(700)
    assert table.call(x) is None
    driver.answer_with(0)
    assert table.call(x) is not None


def test_the_context_of_the_thread_comes_back(table: Known, driver: ctypes.CDLL) -> None:
    x = x_of()
    table.add(scaled(driver, context=CONTEXT), x)
    assert table.call(x) is not None
    assert (driver.context_now(), driver.pushes_and_pops()) == (CONTEXT, 0), "a thread without one keeps it"
    table.call(x)
    assert driver.pushes_and_pops() == 0
    driver.make_current(ctypes.c_void_p(5))
    table.call(x)
    assert driver.pushes_and_pops() == 1001


def test_a_tensor_map_is_encoded_for_each_address(table: Known, driver: ctypes.CDLL) -> None:
    arg = {"kind": "tensor_map", "buffer": "x", "dtype": "bf16", "shape": [8, 3], "strides": [32],
           "box": [4, 2], "swizzle": 64}  # fmt: skip
    loaded = Loaded(None, address(driver.told), 0)
    empty = {"size": (11,), "dtype": torch.int64, "device": "cpu"}
    launched = launch(arg, {"kind": "buffer", "buffer": "y"})
    x = x_of()
    table.add(plan_of(launched, loaded, {"x": 0, "y": -1}, [Output(-1, empty)], [("y", -1)]), x)
    several = [x, *(x.clone() for _ in range(6))]
    for given in (*several, *several):
        assert table.call(given).tolist() == [9, 2, given.data_ptr(), 8, 3, 32, 4, 2, 1, 2, 3]
    before = driver.maps_encoded()
    for given in several[-4:]:
        assert table.call(given).tolist()[2] == given.data_ptr()
    assert driver.maps_encoded() == before, "the last ones are remembered"


def test_several_outputs_and_what_is_changed_in_place_are_named(table: Known, driver: ctypes.CDLL) -> None:
    args = ({"kind": "buffer", "buffer": "x"}, {"kind": "buffer", "buffer": "y"})
    numbers = ({"kind": "scalar", "value": 2, "type": "fp32"}, {"kind": "scalar", "value": 24, "type": "u32"})
    loaded, x = Loaded(None, address(driver.scaled), 0), x_of()
    plan = plan_of(
        launch(*args, *numbers), loaded, {"x": 0, "y": -1}, [Output(-1, like(x))], [("y", -1), ("x", 0)]
    )
    table.add(plan, x)
    found = table.call(x)
    assert list(found) == ["y", "x"]
    assert found["x"] is x
    assert torch.equal(found["y"], 2 * x)


def test_many_threads_and_calls_leave_no_memory_behind(table: Known, driver: ctypes.CDLL) -> None:
    table.add(scaled(driver), x_of())
    given = [x_of() + number for number in range(7)]
    expected = [2.5 * x for x in given]

    def right(start: int) -> bool:
        turns = range(start, start + 2500)
        return all(torch.equal(table.call(given[at % 7]), expected[at % 7]) for at in turns)

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(right, range(4)))
        gc.collect()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert all(threads.map(right, range(4)))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1024, "KiB"


def test_what_does_not_fit_is_refused(library: Path, table: Known, driver: ctypes.CDLL) -> None:
    with pytest.raises(ValueError, match="workspaces"):
        scaled(driver, workspaces=[{"name": "w", "nbytes": 4}])
    with pytest.raises(ValueError, match="fit"):
        plan_of(launch({"kind": "scalar", "value": 2**40, "type": "i32"}), Loaded(0, 0, 0), {}, [], [])
    with pytest.raises(TypeError, match="a plan is a tuple"):
        table.add("no plan", x_of())
    with pytest.raises(TypeError, match="a call is a tuple"):
        table_of(library, ()).call(x_of())
    with pytest.raises(TypeError):
        table.add((1, 2), x_of())
    assert table.call(x_of()) is None


def test_its_structs_are_those_of_the_driver_and_of_torch(tmp_path: Path) -> None:
    """Compiled against their own headers."""
    roots = [kit.root for kit in toolkits(None)]
    headers = [found for root in roots if (found := root / "include" / "cuda.h").is_file()]
    if not headers:
        pytest.skip("there is no cuda.h here")
    torch_headers = Path(torch.__file__).parent / "include"
    source = tmp_path / "layouts.cpp"
    source.write_text(LAYOUTS)
    folders = [headers[0].parent, torch_headers, SOURCES[0].parent]
    command = [str(host_compiler()), "-std=c++20", "-fsyntax-only", *(f"-I{one}" for one in folders)]
    done = subprocess.run([*command, str(source)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


LAYOUTS = """
#include <cuda.h>
#include <ATen/dlpack.h>
#include <cstddef>
#include "abi.hpp"
#define SAME(ours, mine, theirs, its) \\
    static_assert(offsetof(ours, mine) == offsetof(theirs, its) && \\
                  sizeof(ours::mine) == sizeof(theirs::its))
static_assert(sizeof(evo::LaunchConfig) == sizeof(CUlaunchConfig));
SAME(evo::LaunchConfig, smem_bytes, CUlaunchConfig, sharedMemBytes);
SAME(evo::LaunchConfig, stream, CUlaunchConfig, hStream);
SAME(evo::LaunchConfig, attributes, CUlaunchConfig, attrs);
SAME(evo::LaunchConfig, attributes_count, CUlaunchConfig, numAttrs);
static_assert(offsetof(evo::LaunchConfig, block) == offsetof(CUlaunchConfig, blockDimX));
static_assert(sizeof(evo::LaunchAttribute) == sizeof(CUlaunchAttribute));
SAME(evo::LaunchAttribute, value, CUlaunchAttribute, value);
static_assert(evo::kClusterDimension == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
static_assert(evo::kCooperative == CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
static_assert(sizeof(evo::DLTensor) == sizeof(DLTensor));
SAME(evo::DLTensor, dtype, DLTensor, dtype);
SAME(evo::DLTensor, strides, DLTensor, strides);
SAME(evo::DLTensor, byte_offset, DLTensor, byte_offset);
using Ours = evo::DLPackExchangeAPI;
SAME(Ours, dltensor_from_py_object_no_sync, DLPackExchangeAPI, dltensor_from_py_object_no_sync);
SAME(Ours, current_work_stream, DLPackExchangeAPI, current_work_stream);
static_assert(evo::kDLCPU == kDLCPU && evo::kDLPackMajor == DLPACK_MAJOR_VERSION);
static_assert(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 == 9 && CU_TENSOR_MAP_DATA_TYPE_FLOAT16 == 6);
static_assert(CU_TENSOR_MAP_SWIZZLE_128B == 3 && CU_TENSOR_MAP_L2_PROMOTION_L2_256B == 3);
"""
