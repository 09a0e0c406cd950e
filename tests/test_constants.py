"""Tensors in constant memory: written before each launch, of one module alone, and refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from evo.cache import Cache, default_folder
from evo.compile import Compiler, find_compiler
from evo.device import Device, Kernel, Region
from evo.device.driver import gpu_names
from evo.device.emulator import EmulatorDevice, EmulatorKernel
from evo.device.synchronous import SynchronousDevice
from evo.errors import BadTemplate, Infeasible, MachineError, Red
from evo.gate import Green, check
from evo.gpu import Limits, target
from evo.task import load_task
from evo.template import Template, load_template
from evo.template.constants import constants_of, unfilled
from evo.testing.device import HELD
from evo.timing import TimingSettings
from evo.timing.inputs import InputSets
from evo.trial import BufferArg, Constant, LaunchConfig, Problem

SOURCE = """#define LARGEST 7
__constant__ float d_filter[LARGEST * LARGEST];  // large enough for the largest

__global__ void blur(const float* image, float* y, int height, int width, int taps) {
  const int column = blockIdx.x * block_size_x + threadIdx.x, row = blockIdx.y;
  if (column >= width) return;
  float sum = 0.f;
  for (int i = 0; i < taps; ++i)
    for (int j = 0; j < taps; ++j) {
      const int r = row + i - taps / 2, c = column + j - taps / 2;
      if (r >= 0 && r < height && c >= 0 && c < width)
        sum += image[r * width + c] * d_filter[i * taps + j];
    }
  y[row * width + column] = sum;
}
"""
TASK = """
from dataclasses import replace

from torch.nn.functional import conv2d, pad

from evo import In, Out, Task


class Blur(Task):
    name, sizes = "blur", {"height": 9, "width": 40, "taps": 5}
    tensors = {
        "image": In("height", "width"),
        "weight": In("taps", "taps", constant="d_filter"),
        "y": Out("height", "width"),
    }
    timing_inputs = {"normal": "the plain family", "spike": "another"}

    def gate_problems(self, problem, tiles):
        sizes = (3, 33, 3), (8, 5, 7), (1, 1, 1), (4, 9, 8)
        return tuple(problem.replace(height=h, width=w, taps=taps) for h, w, taps in sizes)

    def compute(self, problem, tensors):
        image, weight = (tensors[name][None, None] for name in ("image", "weight"))
        before, after = problem["taps"] // 2, (problem["taps"] - 1) // 2
        return conv2d(pad(image, (before, after, before, after)), weight)


TASK = Blur()
"""
TEMPLATE = """
from evo.template import template

TEMPLATE = template(tune_params={"block_size_x": [32, 64]}, grid=["ceil(width / block_size_x)", "height"])
"""


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    try:
        found = find_compiler(None, Cache(default_folder()))
    except MachineError as none:
        pytest.skip(f"{none.message}")
    yield found
    found.close()


@pytest.fixture(scope="module")
def emulator() -> EmulatorDevice:
    try:
        return EmulatorDevice(target("sm_89"))
    except MachineError as none:
        pytest.skip(f"{none.message}")


def written(folder: Path, source: str = SOURCE, task: str = TASK, python: str = TEMPLATE) -> Template:
    place = folder / "blur"
    place.mkdir()
    for name, text in {"task.py": task, "blur.cu": source, "blur.py": python}.items():
        (place / name).write_text(text)
    return load_template(load_task("blur", (folder,)), "blur", (folder,), target("sm_89"))


def verdict(template: Template, compiler: Compiler, device: Device, seed: int = 3) -> Green:
    task, point = template.task, template.space.default
    candidate = template.candidate(point, task.example)
    binary = compiler.compile(candidate.source, candidate.entry, device.gpu.arch)
    first = device.load(binary, candidate.launch)

    def kernel_for(at: Problem) -> tuple[Kernel, LaunchConfig]:
        if why := template.supports(at, Limits.of(target("sm_89"))):
            raise Infeasible(why)
        return first, template.launch(point, at)

    return check(kernel_for, device, task, task.example, (32,), seed=seed)


@pytest.mark.nvcc
def test_a_convolution_reads_its_filter_from_constant_memory(
    tmp_path: Path, compiler: Compiler, emulator: EmulatorDevice
) -> None:
    """The gate's problems have filters of many sizes, and each family another one: one module reads all.
    Those that are too large for the variable are not served."""
    template = written(tmp_path)
    launch = template.launch(template.space.default, template.task.example)
    assert launch.constants == (Constant("d_filter", "weight"),)
    assert [arg.buffer for arg in launch.args if isinstance(arg, BufferArg)] == ["image", "y"]
    assert LaunchConfig.from_json(launch.to_json()) == launch
    large = template.task.example.replace(taps=8)
    limits = Limits.of(target("sm_89"))
    assert template.supports(large, limits) == "__constant__ d_filter has room for 49 elements, weight has 64"
    for seed in range(3):
        verdict(template, compiler, emulator, seed)


KEEPS = """__device__ float kept[49];
__device__ int known;

__device__ float weight_at(int at) {
  if (!known) {
    for (int i = 0; i < 49; ++i) kept[i] = d_filter[i];
    known = 1;
  }
  return kept[at];
}

__global__"""
WRITES = 'asm volatile("{ .reg .u64 a; cvta.const.u64 a, d_filter; st.f32 [a], 0f3F800000; }"); y[row'


@pytest.mark.nvcc
@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("d_filter[i * taps + j]", "d_filter[j * taps + i]", "row error"),
        ("d_filter[i * taps + j]", "d_filter[i * taps + j + 1]", "row error"),
        ("d_filter[i * taps + j]", "d_filter[i * 5 + j]", "row error"),
        ("d_filter[i * taps + j]", "d_filter[i * taps + j + 49]", "out of bounds"),
        ("y[row", WRITES, "module-level state"),
        ("__global__", KEEPS, "module-level state"),
    ],
)
def test_a_wrong_use_of_constant_memory_is_red(
    tmp_path: Path, compiler: Compiler, emulator: EmulatorDevice, before: str, after: str, said: str
) -> None:
    source = SOURCE.replace(before, after)
    if after is KEEPS:  # a filter of an earlier case
        source = source.replace("* d_filter[i * taps + j]", "* weight_at(i * taps + j)")
    with pytest.raises(Red) as caught:
        verdict(written(tmp_path, source), compiler, emulator)
    assert caught.value.reason == said


DECLARED = """#define N 3
constexpr int M = 2 * N;
__constant__ float a[N], b[M*2];
__constant__ unsigned long long c;
extern "C" __constant__ const __align__(16) float4 d[N][2] ;  // __constant__ float no[9];
__constant__ int e[] = {1, 2};
__constant__ Weights f;
__global__ void k(float* y) {
#if USED == 1
  y[0] = d[0][0].x;
#endif
  y[1] = b[0] + e[0];
}
"""


def test_what_a_source_declares_in_constant_memory() -> None:
    found = constants_of(DECLARED)
    assert {name: (one.dtype, one.line, one.elements({})) for name, one in found.items()} == {
        "a": ("fp32", 3, 3), "b": ("fp32", 3, 12), "c": ("u64", 4, 1), "d": ("fp32", 5, 24),
        "e": ("i32", 6, None), "f": (None, 7, None),
    }  # fmt: skip
    assert found["a"].elements({"N": 8}) == 8  # a macro that evo sets
    assert [one.name for one in unfilled(DECLARED)] == ["b"]


@pytest.mark.parametrize(
    ("file", "before", "after", "said"),
    [
        ("source", "float d_filter", "float other", r"blur.cu:1: there is no __constant__ d_filter for weig"),
        ("source", "float d_filter", "double d_filter", r"blur.cu:2: __constant__ d_filter is fp64"),
        ("source", "LARGEST 7", "LARGEST 4", r"blur.cu:2: .*room for 16 elements, weight has 25"),
        ("task", '"d_filter"', '"d filter"', r"task.py:\d+: tensor weight has constant='d filter'"),
        ("task", '"image": In("height", "width")', '"image": In("height", "width", constant="d_filter")',
         r"task.py:\d+: tensors image and weight are both in the constant d_filter"),
        ("task", "TASK =", 'Blur.tensors["y"] = replace(Blur.tensors["y"], constant="d")\nTASK =',
         r"task.py:\d+: tensor y is written, and in constant memory"),
    ],
)  # fmt: skip
def test_a_mistake_is_said_with_its_line(
    tmp_path: Path, file: str, before: str, after: str, said: str
) -> None:
    texts = {"source": SOURCE, "task": TASK}
    assert before in texts[file]
    texts[file] = texts[file].replace(before, after)
    with pytest.raises(BadTemplate, match=said) as caught:
        written(tmp_path, **texts)
    assert caught.value.hint


class OnHost(SynchronousDevice):
    """Has room for all sets."""

    gpu = target("sm_89")


@pytest.mark.nvcc
def test_timed_launches_find_their_constants_and_do_not_copy_them(
    tmp_path: Path, compiler: Compiler, emulator: EmulatorDevice
) -> None:
    """All sets hold the same, for one module has one constant memory; each timing input is written once."""
    template = written(tmp_path)
    task = template.task
    candidate = template.candidate(template.space.default, task.example)
    binary = compiler.compile(candidate.source, candidate.entry, emulator.gpu.arch)
    kernel = emulator.load(binary, candidate.launch)
    sets = InputSets(OnHost(), task, task.example, TimingSettings(), 7)  # type: ignore[arg-type]
    calls = sets.of_kernel(kernel, candidate.launch)
    assert len(calls) > 1
    assert len(sets.names) > 1
    for name in sets.names:
        sets.fill(name)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(EmulatorKernel, "write_constants", no_copies)
            for call in calls:
                call()
        sets.keep(calls, frozenset(range(len(calls))))
    sets.judge()


def no_copies(_kernel: EmulatorKernel, launch: LaunchConfig, _regions: object) -> None:
    assert not launch.constants


# ---- on a GPU


def needs_gpu(test: Any) -> Any:
    """Marks a test that needs a GPU; skipped, with the reason, where there is none."""
    return pytest.mark.gpu(pytest.mark.skipif(not gpu_names(), reason="there is no NVIDIA GPU here")(test))


@pytest.fixture(scope="module")
def gpu(compiler: Compiler) -> Iterator[Device]:
    from evo.device.cuda import CudaDevice

    device = CudaDevice(0, compiler)
    yield device
    device.close()


@needs_gpu
@pytest.mark.parametrize("after", ["d_filter[j * taps + i]", "d_filter[i * 5 + j]"])
def test_a_gpu_finds_a_wrong_index_too(tmp_path: Path, compiler: Compiler, gpu: Device, after: str) -> None:
    template = written(tmp_path, SOURCE.replace("d_filter[i * taps + j]", after))
    with pytest.raises(Red) as caught:
        verdict(template, compiler, gpu)
    assert caught.value.reason == "row error"


@needs_gpu
def test_a_gpu_times_launches_and_copies_constants_before(
    tmp_path: Path, compiler: Compiler, gpu: Device
) -> None:
    """The outputs of timed launches are judged on every timing input: no graph has old constants. A copy
    takes longer than this kernel does."""
    from evo.timing import TimingSession

    template = written(tmp_path)
    kernel = verdict(template, compiler, gpu)
    session = TimingSession(gpu, template.task, template.task.example, seed=1, at_once=False)
    times = session.measure(kernel, whole=True)
    assert list(times.times) == list(template.task.timing_inputs)


@needs_gpu
def test_a_graph_of_launches_copies_constants(compiler: Compiler, gpu: Device) -> None:
    """What a person captures is right whenever it is replayed."""
    launch = LaunchConfig((1, 1, 1), (4, 1, 1), 0, (BufferArg("y"),), constants=(Constant("held", "x"),))
    kernel = gpu.load(compiler.compile(HELD, "show", gpu.gpu.arch), launch)
    x, y = torch.zeros(4, device=gpu.torch_device), torch.zeros(4, device=gpu.torch_device)
    regions = {n: Region(n, t.data_ptr(), 16, n == "y") for n, t in {"x": x, "y": y}.items()}
    kernel.launch(launch, regions)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel.start(launch, regions)
    for value in (2.0, 3.0):
        x.fill_(value)
        graph.replay()
        assert y.tolist() == [value] * 4
