"""Kernels that need scratch memory, as exported folders and in the table of known calls: every template that
has workspaces, in each format."""

from __future__ import annotations

import ctypes
import importlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from kept import kept
from test_export_formats import compiled
from test_fast_call import Known, address, driver, launch, library, like, table, x_of

from evo.cache import Cache, default_folder
from evo.compile import build_table_library, find_compiler
from evo.confirm.champions import Champion
from evo.confirm.choice import launch_by, template_of
from evo.confirm.portfolio import rows_of
from evo.device.driver import gpu_names
from evo.errors import MachineError
from evo.export import Bundle, bundle_of, write
from evo.export.reach import reach_of
from evo.gpu import Limits, target
from evo.launch import Loaded, Output, plan_of
from evo.launch.contract import cases, check
from evo.launch.dispatch import Dispatch, Place, launch_of, serves
from evo.task import load_task

__all__ = ["driver", "library", "table"]
H200 = Place("NVIDIA H200", (9, 0))
JOINED: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "gemv": ("gemm", "gemv", "2,320,8192,1", {"split": 2}),
    "skinny": ("gemm", "gemm_skinny", "16,640,4096,1", {"split": 4}),
    "split": ("gemm", "gemm_mma", "96,192,1024,1", {"work": "tiles", "split": 4}),
    "stream": ("gemm", "gemm_mma", "256,1024,512,1", {"work": "stream", "split": 1}),
    "wgmma": ("gemm", "gemm_wgmma", "512,2048,4096,1", {"splits": 2, "join": "workspace"}),
    "w4a16": ("gemm_w4a16", "w4a16", "16,512,4096", {"split": 2}),
}
"""By name: task, template, sizes, point. All are for sm_90a."""


def champion(name: str) -> Champion:
    return kept(*JOINED[name], "sm_90a")


@pytest.mark.parametrize("name", JOINED)
def test_workspaces_of_the_table_are_those_of_the_template(name: str) -> None:
    one = champion(name)
    task, limits = load_task(one.problem.task), Limits.of(target(one.arch))
    template = template_of(one, limits)

    def launch_at(problem: Any) -> Any:
        found = launch_by(template, one, problem, limits)
        return None if isinstance(found, str) else found

    reach = reach_of(one, task, launch_at)
    assert {space["zeroed"] for space in reach.launch["workspaces"]} == {False, True}
    assert reach.tried > 60
    if name == "stream":
        tiles = [["M", 64], ["N", 64], ["K", 32], ["batch", 1]]
        assert reach.launch["grid"][0] == {"times": 1, "of": tiles, "over": 4, "most": limits.gpu.sms}
    for factor in (1, 2, 5):
        sizes = {size: number * factor for size, number in one.problem.sizes.items()}
        if not serves({"reach": reach.ranges}, sizes):
            assert factor > 1
            continue
        due = launch_at(one.problem.replace(**sizes))
        assert launch_of(reach.launch, sizes) == json.loads(due.to_json())
    assert not serves({"reach": reach.ranges}, {**one.problem.sizes, "K": one.problem["K"] + 1})


# ---- folders


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return bundle_with("skinny", "wgmma")


def bundle_with(*names: str) -> Bundle:
    chosen = [champion(name) for name in names]
    try:
        compiler = find_compiler(None, Cache(default_folder()), parts=("cubin",))
    except MachineError as error:
        pytest.skip(str(error))
    with compiler:
        return bundle_of(load_task(chosen[0].problem.task), chosen, rows_of(chosen), compiler)


@pytest.fixture(scope="module")
def package(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("exported") / "gemm"
    write(bundle, folder, "python", build_table_library(default_folder()))
    sys.path.insert(0, str(folder))
    yield importlib.import_module("evo_gemm")
    sys.path.remove(str(folder))


@pytest.mark.nvcc
def test_the_python_folder_says_what_each_problem_needs(package: Any) -> None:
    dispatch = Dispatch(package.gemm.folder)
    flags = {"layout": "NT", "epilogue": "none", "out": "same", "gap": 0}
    decided = dispatch.decide(H200, "bf16", flags, {"M": 7, "N": 4096, "K": 1024, "batch": 1})
    assert decided.kernel is not None
    assert "gemm_skinny" in decided.kernel["name"]
    assert decided.launch["workspaces"] == [
        {"name": "partials", "nbytes": 256 * 4 * 16 * 16 * 4, "zeroed": False},
        {"name": "tickets", "nbytes": 4 * 256, "zeroed": True},
    ]
    a, b = torch.randn(1, 7, 64).bfloat16(), torch.randn(1, 9, 64).bfloat16()
    assert torch.equal(package.gemm(a, b), a @ b.mT), "the fallback, for there is no GPU"


@pytest.mark.nvcc
@pytest.mark.parametrize("form", ["flashinfer", "hf"])
def test_other_formats_carry_the_same_table(bundle: Bundle, tmp_path: Path, form: str) -> None:
    write(bundle, tmp_path / "made", form)
    if form == "hf":
        text = (tmp_path / "made" / "build" / "torch-cuda" / "dispatch.json").read_text()
    else:
        (file,) = (tmp_path / "made").iterdir()
        sources = {one["path"]: one["content"] for one in json.loads(file.read_text())["sources"]}
        assert "evo_gemm/scratch.py" in sources
        text = sources["evo_gemm/dispatch.json"]
    assert all(len(one["launch"]["workspaces"]) == 2 for one in json.loads(text)["kernels"])


@pytest.fixture(scope="module")
def packing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The package of a kernel whose weights are packed."""
    folder = tmp_path_factory.mktemp("packed")
    write(bundle_with("w4a16"), folder, "python", build_table_library(default_folder()))
    sys.path.insert(0, str(folder))
    yield importlib.import_module("evo_gemm_w4a16")
    sys.path.remove(str(folder))


@pytest.mark.nvcc
def test_a_folder_packs_what_its_kernels_read(packing: Any) -> None:
    call, task = packing.gemm_w4a16, load_task("gemm_w4a16")
    for zeros in (False, True):
        problem = task.problem("12,200,4096", zeros=zeros)
        inputs = task.inputs(problem, "normal", 0, "cpu")
        given = {name: inputs[name] for name in inputs if name not in task.packings}
        packed = call.pack(**given)
        assert all(torch.equal(packed[name], inputs[name]) for name in task.packings)
        due = task.reference(problem, inputs)["y"]
        assert (call(**given, **packed).double() - due).abs().max() < 0.1
        told = call.explain(**given, **packed, place=H200)
        assert ("the nearest" in told) == (not zeros), "its code is for no zero points"
    short = {**inputs, "w4": inputs["w4"][:, :-64].contiguous()}
    with pytest.raises(ValueError, match=r"w4 is \(200, 1984\): with the other tensors it is \(200, 2048\)"):
        call(**short)
    assert all(check(call, case, "cpu") for case in cases(call.folder))


MAIN = """
#include "evo_gemm.h"
#include <stdio.h>
static char memory[1 << 24];
static long cleared, at_clear;
static int set(uint64_t where, unsigned char value, size_t bytes, void *stream) {
    (void)stream, at_clear = (long)(where - (uint64_t)memory), cleared = (long)bytes + value;
    return 0;
}
static int said(const evo_config *c, void *f, void **p, void **x) {
    (void)c, (void)f, (void)x;
    printf("%ld %ld, %ld %ld\\n", (long)(*(char **)p[3] - memory), (long)(*(char **)p[4] - memory), at_clear,
           cleared);
    return 0;
}
int main(void) {
    evo_driver driver = {.launch = said, .set_bytes = set};
    int64_t size[4] = {7, 4096, 1024, 1};
    void *buffer[3] = {0};
    const char *flags = "layout=NT epilogue=none out=same";
    const evo_kernel *one = evo_find(evo_gemm_kernels, evo_gemm_count, 9, 0, "bf16", flags, size);
    if (!one) return 1;
    evo_loaded loaded = {one, 0};
    printf("%ld\\n", (long)evo_workspace_bytes(one, size));
    if (evo_some(3, 4) != 1 || evo_some(9, 4) != 2 || evo_least(7, 5) != 5) return 2;
    return evo_run(&driver, &loaded, size, buffer, memory, 0);
}
"""


@pytest.mark.nvcc
def test_the_c_header_asks_for_a_workspace_and_clears_what_must_be_zero(
    bundle: Bundle, tmp_path: Path
) -> None:
    write(bundle, tmp_path / "c", "c")
    done = subprocess.run([compiled(tmp_path / "c", MAIN)], capture_output=True, text=True, check=True)
    tickets, partials = 4 * 256, 256 * 4 * 16 * 16 * 4
    assert done.stdout.split("\n")[:2] == [str(tickets + partials), f"{tickets} 0, 0 {tickets}"]


# ---- the table of known calls


def test_a_known_call_makes_its_workspaces(table: Known, driver: ctypes.CDLL) -> None:
    """`scaled` writes x times 2.5 into its scratch memory; the second one is an address."""
    kept_memory, asked = torch.zeros(64), []

    def zeroed(stream: int, capture: int) -> int:
        asked.append((stream, capture))
        return int(kept_memory.data_ptr())

    def failing(stream: int, capture: int) -> int:
        raise MemoryError(stream, capture)

    x = x_of()
    spaces: Sequence[dict[str, Any]] = [
        {"name": "partials", "nbytes": 4 * x.numel(), "zeroed": False},
        {"name": "tickets", "nbytes": 256, "zeroed": True},
    ]
    for written in ("partials", "tickets"):
        args = (
            {"kind": "buffer", "buffer": "x"},
            {"kind": "buffer", "buffer": written},
            {"kind": "scalar", "value": 2.5, "type": "f32"},
            {"kind": "scalar", "value": 24, "type": "i32"},
        )
        makers = [
            Output(-1, {"size": (4 * x.numel(),), "dtype": torch.uint8, "device": "cpu"}),
            Output(-1, {}, zeroed),
        ]
        said = launch(*args, workspaces=spaces)
        loaded = Loaded("the kernel", address(driver.scaled), 0)
        plan = plan_of(said, loaded, {"x": 0, "y": -1}, [Output(-1, like(x))], [("y", -1)], makers)
        named = {"causal": written == "tickets"}
        assert table.add(plan, x, **named)
        assert table.call(x, **named).shape == x.shape
    assert asked == [(0, 0), (0, 0)]
    for graph in (1, 1, 2, 2):
        driver.begin_capture(graph, None)
        table.call(x, causal=True)
        table.call(x, causal=True)
    assert asked[2:] == [(0, 101), (0, 102)], "once for each graph"
    driver.begin_capture(0, None)
    assert torch.equal(kept_memory[:24].view(x.shape), 2.5 * x)
    refused = [Output(-1, {}, failing), makers[0]]
    table.add(plan_of(said, loaded, {"x": 0, "y": -1}, [Output(-1, like(x))], [("y", -1)], refused), x)
    with pytest.raises(MemoryError, match="0, 0"):
        table.call(x)


# ---- results, on a GPU


def served(call: Any, *tensors: torch.Tensor) -> torch.Tensor:
    assert "made for this very problem" in call.explain(*tensors) or "the nearest" in call.explain(*tensors)
    found: torch.Tensor = call(*tensors)
    return found


@pytest.mark.gpu
@pytest.mark.nvcc
@pytest.mark.skipif(not gpu_names(), reason="there is no NVIDIA GPU here")
def test_on_a_gpu_two_streams_and_a_graph_share_no_workspace(package: Any) -> None:
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("its kernels are for sm_90a")
    given = [
        (torch.randn(1, 16, 2048).bfloat16().cuda(), torch.randn(1, n, 2048).bfloat16().cuda())
        for n in (2112, 4096, 160)
    ]
    due = [a.float() @ b.mT.float() for a, b in given]

    def right(found: torch.Tensor, at: int) -> bool:
        return bool((found.float() - due[at]).abs().max() < 1.0)  # sums of 2048 products, in bf16

    for at, (a, b) in enumerate(given):
        assert right(served(package.gemm, a, b), at)
    streams = [torch.cuda.Stream() for _ in range(2)]
    torch.cuda.synchronize()
    results = []
    for turn in range(300):
        with torch.cuda.stream(streams[turn % 2]):
            results.append((turn % 3, package.gemm(*given[turn % 3])))
    torch.cuda.synchronize()
    assert all(right(found, at) for at, found in results)
    graph, out = torch.cuda.CUDAGraph(), torch.empty(1, 16, 4096, device="cuda", dtype=torch.bfloat16)
    with torch.cuda.graph(graph):
        package.gemm(*given[1], out=out)
    for _ in range(50):
        out.zero_()
        with torch.cuda.stream(streams[0]):
            package.gemm(*given[1])
        graph.replay()
    torch.cuda.synchronize()
    assert right(out, 1)


@pytest.mark.gpu
@pytest.mark.nvcc
@pytest.mark.skipif(not gpu_names(), reason="there is no NVIDIA GPU here")
def test_on_a_gpu_a_graph_holds_kernels_alone_and_leaves_its_memory_to_the_next(package: Any) -> None:
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("its kernels are for sm_90a")
    a, b = torch.randn(1, 16, 2048).bfloat16().cuda(), torch.randn(1, 4096, 2048).bfloat16().cuda()
    out, due = torch.empty(1, 16, 4096, device="cuda", dtype=torch.bfloat16), a.float() @ b.mT.float()
    served(package.gemm, a, b)
    package.gemm(a, b, out=out)
    scratch = importlib.import_module(f"{type(package.gemm).__module__.rpartition('.')[0]}.scratch")
    blocks = set()
    for _ in range(3):
        graph, count = torch.cuda.CUDAGraph(keep_graph=True), ctypes.c_size_t()
        with torch.cuda.graph(graph):
            for _ in range(4):
                package.gemm(a, b, out=out)
        handle = ctypes.c_void_p(graph.raw_cuda_graph())
        assert ctypes.CDLL("libcuda.so.1").cuGraphGetNodes(handle, None, ctypes.byref(count)) == 0
        assert count.value == 4
        _, block = scratch._OF_GRAPHS[-1]
        blocks.add(block.address)
        for _ in range(3):
            out.zero_()
            graph.replay()
            assert (out.float() - due).abs().max() < 1.0
        del graph
        torch.cuda.synchronize()
        deadline = time.monotonic() + 10
        while block not in scratch._FREE and time.monotonic() < deadline:  # the driver posts it from a thread
            scratch._collect()
    assert len(blocks) == 1


@pytest.mark.gpu
@pytest.mark.nvcc
@pytest.mark.skipif(not gpu_names(), reason="there is no NVIDIA GPU here")
@pytest.mark.parametrize("name", [name for name in JOINED if JOINED[name][0] == "gemm"])
def test_on_a_gpu_c_computes_what_python_does(name: str, tmp_path: Path) -> None:
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("its kernels are for sm_90a")
    made = bundle_with(name)
    write(made, tmp_path / "c", "c")
    found = ctypes.CDLL(str(compiled(tmp_path / "c", WRAPPED, "-shared", "-fPIC")))
    sizes = made.kernels[0].champion.problem.sizes
    a = torch.randn(1, sizes["M"], sizes["K"], device="cuda").bfloat16()
    b = torch.randn(1, sizes["N"], sizes["K"], device="cuda").bfloat16()
    c = torch.empty(1, sizes["M"], sizes["N"], device="cuda", dtype=torch.bfloat16)
    size = (ctypes.c_int64 * 4)(*sizes.values())
    found.room.restype = ctypes.c_int64
    memory = torch.full((found.room(size),), 255, dtype=torch.uint8, device="cuda")
    buffers = (ctypes.c_void_p * 3)(*(x.data_ptr() for x in (a, b, c)))
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    for _ in range(3):
        c.zero_()
        assert found.multiply(size, buffers, ctypes.c_void_p(memory.data_ptr()), stream) == 0
        torch.cuda.synchronize()
        assert (c.float() - a.float() @ b.mT.float()).abs().max() < 2.0


WRAPPED = """
#include "evo_gemm.h"
static const evo_kernel *found(int64_t *size) {
    return evo_find(evo_gemm_kernels, evo_gemm_count, 9, 0, "bf16", "layout=NT epilogue=none out=same",
                    size);
}
int64_t room(int64_t *size) { return evo_workspace_bytes(found(size), size); }
int multiply(int64_t *size, void **buffer, void *workspace, void *stream) {
    static evo_driver driver;
    evo_loaded loaded;
    if (evo_open(&driver) || evo_load(&driver, found(size), &loaded)) return 1;
    return evo_run(&driver, &loaded, size, buffer, workspace, stream);
}
"""
