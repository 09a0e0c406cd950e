"""The `cuda` device on a real GPU: what it grants, what it refuses, and what kills it."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import scalars

from evo.cache import Cache
from evo.compile import Compiler, find_compiler
from evo.device import Region
from evo.device.cuda import CudaDevice
from evo.device.driver import STICKY, ask, gpu_names, words_of
from evo.device.nvml import Nvml
from evo.device.open import start_device
from evo.dtype import DTYPES
from evo.errors import Crashed, MachineError, Unlaunchable, UsageError
from evo.gpu import known_gpu
from evo.trial import BufferArg, LaunchConfig, ScalarArg, TensorMapArg

torch = pytest.importorskip("torch")


def needs_gpu(test: Any) -> Any:
    """Marks a test that needs a GPU; skipped, with the reason, where there is none."""
    return pytest.mark.gpu(pytest.mark.skipif(not gpu_names(), reason="there is no NVIDIA GPU here")(test))


SCALE = """
extern "C" __global__ void scale(const float* x, float* y, int n, float factor) {
  extern __shared__ float tile[];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  tile[threadIdx.x] = i < n ? x[i] : 0.f;
  __syncthreads();
  if (i < n) y[i] = factor * tile[threadIdx.x];
}
"""
PEEK = """
extern "C" __global__ void peek(unsigned* y, int words) {
  extern __shared__ unsigned tile[];
  volatile unsigned* unwritten = tile;
  for (int i = threadIdx.x; i < words; i += blockDim.x) y[blockIdx.x * words + i] = unwritten[i];
}
"""
CLUSTER = """
extern "C" __global__ void cluster(unsigned* y) {
  unsigned rank, size;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  if (threadIdx.x == 0) y[blockIdx.x] = 100 * size + rank;
}
"""
TILE = """
struct alignas(64) CUtensorMap { char opaque[128]; };
extern "C" __global__ void tile(const __grid_constant__ CUtensorMap map, unsigned short* y) {
  __shared__ alignas(128) unsigned short box[8 * 64];
  __shared__ alignas(8) unsigned long long barrier;
  unsigned at = (unsigned)__cvta_generic_to_shared(&barrier), to = (unsigned)__cvta_generic_to_shared(box);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(at));
    asm volatile("fence.mbarrier_init.release.cluster;");
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(at), "r"(8 * 64 * 2));
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2, %3}], [%4];"
        ::"r"(to), "l"(&map), "r"(0), "r"(4), "r"(at) : "memory");
  }
  __syncthreads();
  unsigned done = 0;
  while (!done)
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p;}"
                 : "=r"(done) : "r"(at) : "memory");
  for (int i = threadIdx.x; i < 8 * 64; i += blockDim.x) y[i] = box[i];
}
"""


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiler]:
    with find_compiler(None, Cache(tmp_path_factory.mktemp("cache"))) as compiler:
        yield compiler


@pytest.fixture(scope="module")
def device(compiler: Compiler) -> Iterator[CudaDevice]:
    device = CudaDevice(0, compiler)
    yield device
    device.close()


def region(name: str, tensor: Any, writable: bool = True) -> Region:
    return Region(name, tensor.data_ptr(), tensor.numel() * tensor.element_size(), writable)


def scale_launch(n: int, smem_bytes: int = 512, threads: int = 128) -> LaunchConfig:
    args = (BufferArg("x"), BufferArg("y"), ScalarArg(n, "i32"), ScalarArg(2.5, "f32"))
    return LaunchConfig((-(-n // threads), 1, 1), (threads, 1, 1), smem_bytes, args)


def regions_of(**tensors: Any) -> Mapping[str, Region]:
    return {name: region(name, tensor) for name, tensor in tensors.items()}


def test_without_a_gpu_it_says_so() -> None:
    if gpu_names():
        pytest.skip("there is a GPU")
    with pytest.raises(MachineError, match="NVIDIA driver") as caught:
        CudaDevice(0)
    assert "emulator" in caught.value.hint


@pytest.mark.parametrize("asked", ["auto", "emulator", "cuda:99", "cuda:nonsense", "cud"])
def test_what_cannot_be_started_ahead_is_left_to_who_opens_it(asked: str) -> None:
    start_device(asked)


def test_the_driver_knows_what_is_asked_of_it_by_name() -> None:
    driver = pytest.importorskip("cuda.bindings.driver")
    assert set(driver.CUresult.__members__) >= STICKY
    elements = driver.CUtensorMapDataType.__members__
    assert all(f"CU_TENSOR_MAP_DATA_TYPE_{dtype.tensor_map}" in elements for dtype in DTYPES.values())


def test_an_answer_of_the_driver_is_its_values_or_an_error() -> None:
    driver = pytest.importorskip("cuda.bindings.driver")
    fine, wrong = driver.CUresult.CUDA_SUCCESS, driver.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    assert [ask(answer) for answer in ((fine,), (fine, 3), (fine, 3, 4))] == [None, 3, (3, 4)]
    with pytest.raises(MachineError, match="says CUDA_ERROR_ILLEGAL_ADDRESS"):
        ask((wrong, 3))
    assert words_of(wrong) == "illegal address"


def test_of_a_gpu_that_nvml_does_not_know_nothing_is_told() -> None:
    """Nor where there is no NVML at all."""
    silent = Nvml("GPU-00000000-0000-0000-0000-000000000000")
    assert (silent.readings(), silent.sm_mhz(), silent.other_processes()) == ({}, None, ())
    silent.close()


@needs_gpu
def test_limits_come_from_the_driver(device: CudaDevice) -> None:
    properties = torch.cuda.get_device_properties(0)
    gpu = device.gpu
    assert gpu.sms == properties.multi_processor_count
    assert gpu.compute_capability == (properties.major, properties.minor)
    assert gpu.smem_per_cta == properties.shared_memory_per_block_optin
    assert gpu.l2_bytes == properties.L2_cache_size
    assert device.name == properties.name
    assert gpu_names()[0] == device.name
    assert gpu.dram_gbps > 100
    assert gpu.tensor_tflops > 10
    if known := known_gpu(device.name):  # the table agrees with the driver
        assert (known.sms, known.smem_per_cta, known.smem_per_sm) == (
            gpu.sms,
            gpu.smem_per_cta,
            gpu.smem_per_sm,
        )
        assert (known.threads_per_sm, known.ctas_per_sm) == (gpu.threads_per_sm, gpu.ctas_per_sm)


@needs_gpu
def test_an_index_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="cuda:99"):
        CudaDevice(99)


@needs_gpu
def test_a_launch_computes(device: CudaDevice, compiler: Compiler) -> None:
    x = torch.arange(1000, dtype=torch.float32, device="cuda")
    y = torch.zeros_like(x)
    kernel = device.load(compiler.compile(SCALE, "scale", device.gpu.arch), scale_launch(1000))
    report = kernel.launch(scale_launch(1000), regions_of(x=x, y=y))
    assert torch.equal(y, 2.5 * x)
    assert report.seconds > 0
    assert kernel.registers == kernel.binary.resources.registers


@needs_gpu
def test_shared_memory_up_to_the_limit(device: CudaDevice, compiler: Compiler) -> None:
    x = torch.arange(256, dtype=torch.float32, device="cuda")
    y = torch.zeros_like(x)
    binary = compiler.compile(SCALE, "scale", device.gpu.arch)
    launch = scale_launch(256, smem_bytes=device.gpu.smem_per_cta)
    kernel = device.load(binary, launch)
    kernel.launch(launch, regions_of(x=x, y=y))
    assert torch.equal(y, 2.5 * x)
    assert kernel.ctas_resident(launch) == 1
    with pytest.raises(Unlaunchable) as caught:
        device.load(binary, replace(launch, smem_bytes=launch.smem_bytes + 16))
    assert caught.value.reason == "shared memory"


@needs_gpu
def test_what_the_driver_refuses_is_unlaunchable(device: CudaDevice, compiler: Compiler) -> None:
    x = torch.zeros(256, device="cuda")
    bounded = SCALE.replace("void scale", "void __launch_bounds__(64) scale")
    with pytest.raises(Unlaunchable, match="block size"):
        device.load(compiler.compile(bounded, "scale", device.gpu.arch), scale_launch(256))
    binary = compiler.compile(SCALE, "scale", device.gpu.arch)
    with pytest.raises(Unlaunchable, match="no such entry"):
        device.load(replace(binary, entry="other"), scale_launch(256))
    damaged = binary.cubin[:100] + bytes(len(binary.cubin))  # the driver reads as far as the header says
    with pytest.raises(Unlaunchable, match="not loadable"):
        device.load(replace(binary, cubin=damaged), scale_launch(256))
    kernel = device.load(binary, scale_launch(256))
    with pytest.raises(Unlaunchable):
        kernel.launch(replace(scale_launch(256), grid=(1, 70_000, 1)), regions_of(x=x, y=x))
    foreign = "sm_80" if device.gpu.compute_capability[0] != 8 else "sm_90"
    with pytest.raises(Unlaunchable, match="not loadable"):
        device.load(compiler.compile(SCALE, "scale", foreign), scale_launch(256))
    kernel.launch(scale_launch(256), regions_of(x=x, y=x))  # the device still works
    assert device.usable


@needs_gpu
def test_a_graph_replays_what_was_enqueued(device: CudaDevice, compiler: Compiler) -> None:
    x = torch.ones(128, device="cuda")
    launch = scale_launch(128)
    kernel = device.load(compiler.compile(SCALE, "scale", device.gpu.arch), launch)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(2):
            kernel.start(launch, regions_of(x=x, y=x))
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(x, torch.full_like(x, 2.5**2))


@needs_gpu
def test_shared_memory_can_be_dirtied(device: CudaDevice, compiler: Compiler) -> None:
    words = 4096
    y = torch.zeros(device.gpu.sms * words, dtype=torch.int32, device="cuda")
    args = (BufferArg("y"), ScalarArg(words, "i32"))
    launch = LaunchConfig((device.gpu.sms, 1, 1), (256, 1, 1), 4 * words, args)
    kernel = device.load(compiler.compile(PEEK, "peek", device.gpu.arch), launch)
    device.disturb(0)
    kernel.launch(launch, regions_of(y=y))
    assert (y == 0x7FFF7FFF).float().mean() > 0.9


@needs_gpu
def test_clusters(device: CudaDevice, compiler: Compiler) -> None:
    if device.gpu.max_cluster < 2:
        pytest.skip("this GPU has no clusters")
    y = torch.zeros(8, dtype=torch.int32, device="cuda")
    launch = LaunchConfig((8, 1, 1), (32, 1, 1), 0, (BufferArg("y"),), cluster=(4, 1, 1))
    binary = compiler.compile(CLUSTER, "cluster", device.gpu.arch)
    kernel = device.load(binary, launch)
    kernel.launch(launch, regions_of(y=y))
    assert y.tolist() == [400, 401, 402, 403] * 2
    assert kernel.clusters_resident(launch) > 0
    with pytest.raises(Unlaunchable, match="cluster"):
        device.load(binary, replace(launch, cluster=(64, 1, 1), grid=(64, 1, 1)))


@needs_gpu
def test_a_tensor_map(device: CudaDevice, compiler: Compiler) -> None:
    if device.gpu.compute_capability < (9, 0):
        pytest.skip("this GPU has no TMA")
    x = torch.arange(10 * 64, dtype=torch.float32, device="cuda").to(torch.float16).reshape(10, 64)
    y = torch.full((8, 64), -1.0, dtype=torch.float16, device="cuda")
    map_arg = TensorMapArg("x", "fp16", (64, 10), (128,), (64, 8))
    launch = LaunchConfig((1, 1, 1), (64, 1, 1), 0, (map_arg, BufferArg("y")))
    kernel = device.load(compiler.compile(TILE, "tile", device.gpu.arch), launch)
    kernel.launch(launch, regions_of(x=x, y=y))
    assert torch.equal(y[:6], x[4:])
    assert (y[6:] == 0).all()  # rows outside the tensor read as zero
    bad = replace(launch, args=(replace(map_arg, strides=(100,)), BufferArg("y")))
    with pytest.raises(Unlaunchable, match="tensor map"):
        kernel.launch(bad, regions_of(x=x, y=y))


@needs_gpu
def test_a_kernel_takes_a_number_of_every_type(device: CudaDevice, compiler: Compiler) -> None:
    out = torch.zeros(len(scalars.NAMES), dtype=torch.float64, device="cuda")
    binary = compiler.compile(scalars.SOURCE, "scalars", device.gpu.arch)
    device.load(binary, scalars.LAUNCH).launch(scalars.LAUNCH, regions_of(out=out))
    assert out.tolist() == scalars.EXPECTED


@needs_gpu
def test_readings(device: CudaDevice) -> None:
    clocks = device.clocks.readings()
    assert all(struct.pack("d", value) for value in clocks.values())
    if "sm_mhz" in clocks:
        assert 100 < clocks["sm_mhz"] < 5000
    assert device.uuid.startswith("GPU-")
    assert device.driver_version.count(".") == 1


@needs_gpu
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("*(volatile int*)16 = 1;", "illegal address"),
        ('asm volatile("trap;");', "launch failed|illegal instruction"),
        ("((volatile long long*)((char*)y + 4))[0] = 1;", "misaligned address"),
    ],
)
def test_a_sticky_error_is_a_crash(tmp_path: Path, body: str, reason: str) -> None:
    """In a process of its own: the context does not survive."""
    program = f"""
import pathlib, re, torch
from evo.cache import Cache
from evo.device import Region
from evo.device.cuda import CudaDevice
from evo.errors import Crashed
from evo.compile import find_compiler
from evo.trial import BufferArg, LaunchConfig
device = CudaDevice(0)
source = 'extern "C" __global__ void k(int* y) {{ {body} }}'
with find_compiler(None, Cache(pathlib.Path({str(tmp_path)!r}))) as compiler:
    binary = compiler.compile(source, "k", device.gpu.arch)
launch = LaunchConfig((1, 1, 1), (32, 1, 1), 0, (BufferArg("y"),))
y = torch.zeros(64, dtype=torch.int32, device="cuda")
kernel = device.load(binary, launch)
for attempt in range(2):
    try:
        kernel.launch(launch, {{"y": Region("y", y.data_ptr(), 256, True)}})
    except Crashed as error:
        assert not device.usable
        print(error.reason, flush=True)
import os
os._exit(0)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.split("\n")[:2]
    assert first in reason.split("|")
    assert second  # a dead context stays dead
    assert Crashed.outcome == "CRASHED"
