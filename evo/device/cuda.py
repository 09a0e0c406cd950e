"""The `cuda` device: a real GPU, by the driver API on torch's primary context. Alone imports CUDA bindings.

Candidates arrive as cubins with one entry point; buffers, streams and launches are ours. What the driver
refuses is Unlaunchable. After an error that kills the context (an illegal address, a trap) the launch is
Crashed, `dead` is true, and nothing but ending the process helps.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from evo.compile.nvcc import Compiler
from evo.device import LaunchReport, Region
from evo.errors import CandidateError, Crashed, MachineError, Unlaunchable, UsageError
from evo.gpu import Gpu, known_gpu
from evo.trial import Argument, Binary, BufferArg, LaunchConfig, ScalarArg, TensorMapArg

PORTABLE_CLUSTER = 8
"""CTAs that a cluster may have on every GPU that has clusters."""
TENSOR_MAP_BYTES, TENSOR_MAP_ALIGNMENT = 128, 64
BUSY_BYTES = 64 << 20
DIRT = 0x7FFF7FFF
"""NaN as fp32, as two fp16 and as two bf16."""

_SCALARS: dict[str, Any] = {
    "i32": ctypes.c_int32,
    "u32": ctypes.c_uint32,
    "i64": ctypes.c_int64,
    "f32": ctypes.c_float,
}
_TENSOR_CORE_FLOP = {(8, 0): 2048, (8, 6): 1024, (8, 9): 1024, (9, 0): 4096, (10, 0): 8192, (12, 0): 1024}
"""Dense fp16 FLOP a clock an SM, by compute capability: for GPUs that are not in the table by name."""
_L2_OVER_DRAM = 4.0
"""L2 over DRAM bandwidth of a GPU that is not in the table by name; a bound, so rather too high."""

_DIRTY_SOURCE = """// fills the shared memory of an SM, so that a kernel that reads before it writes finds NaN
extern "C" __global__ void dirty(unsigned dirt, int words) {
  extern __shared__ unsigned shared[];
  volatile unsigned* word = shared;
  for (int i = threadIdx.x; i < words; i += blockDim.x) word[i] = dirt;
}
"""


def gpu_names() -> list[str]:
    """The names of the GPUs that CUDA sees, by index; empty where there is no driver or no GPU."""
    try:
        driver = _driver()
        count = _ask(driver.cuDeviceGetCount())
        return [_name(driver, _ask(driver.cuDeviceGet(i))) for i in range(count)]
    except MachineError:
        return []


def gpu_at(index: int) -> Gpu:
    """Limits and rates of GPU number `index`: limits from the driver; rates from the table where it knows the
    GPU by name, else derived. UsageError if there is no such GPU, MachineError if there is none at all."""
    driver = _driver()
    count = _ask(driver.cuDeviceGetCount())
    if not 0 <= index < count:
        raise UsageError(f"there is no cuda:{index}", f"this machine has {count} CUDA device(s)")
    device = _ask(driver.cuDeviceGet(index))

    def read(name: str) -> int:
        which = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(_ask(driver.cuDeviceGetAttribute(which, device)))

    capability = (read("COMPUTE_CAPABILITY_MAJOR"), read("COMPUTE_CAPABILITY_MINOR"))
    sms, clock_ghz = read("MULTIPROCESSOR_COUNT"), read("CLOCK_RATE") / 1e6
    dram_gbps = 2 * read("MEMORY_CLOCK_RATE") * read("GLOBAL_MEMORY_BUS_WIDTH") / 8e6
    name = _name(driver, device)
    known = known_gpu(name)
    tensor_tflops = _TENSOR_CORE_FLOP.get(capability, 8192) * sms * clock_ghz / 1e3
    return Gpu(
        name=known.name if known else name,
        arch=f"sm_{capability[0]}{capability[1]}" + ("a" if capability == (9, 0) else ""),
        sms=sms,
        smem_per_cta=read("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        smem_per_sm=read("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
        threads_per_sm=read("MAX_THREADS_PER_MULTIPROCESSOR"),
        ctas_per_sm=read("MAX_BLOCKS_PER_MULTIPROCESSOR"),
        registers_per_sm=read("MAX_REGISTERS_PER_MULTIPROCESSOR"),
        threads_per_cta=read("MAX_THREADS_PER_BLOCK"),
        max_cluster=PORTABLE_CLUSTER if read("CLUSTER_LAUNCH") else 1,
        clock_ghz=clock_ghz,
        dram_gbps=known.dram_gbps if known else dram_gbps,
        l2_gbps=known.l2_gbps if known else dram_gbps * _L2_OVER_DRAM,
        l2_bytes=read("L2_CACHE_SIZE"),
        tensor_tflops=known.tensor_tflops if known else tensor_tflops,
    )


def _driver() -> Any:
    """`cuda.bindings.driver`, initialised. MachineError where there is no driver or no GPU."""
    hint = "run without a GPU: --device emulator"
    try:
        from cuda.bindings import driver

        (status,) = driver.cuInit(0)
    except (ImportError, RuntimeError, OSError) as error:
        raise MachineError(f"no NVIDIA driver: {str(error).splitlines()[0]}", hint) from error
    if status != driver.CUresult.CUDA_SUCCESS:
        raise MachineError(f"the NVIDIA driver does not start: {status.name}", hint)
    return driver


def _ask(answer: tuple[Any, ...]) -> Any:
    """The value of a driver call that only fails on a broken machine."""
    status, *values = answer
    if int(status) != 0:
        raise MachineError(f"the NVIDIA driver says {status.name}", "see nvidia-smi and dmesg")
    return values[0] if len(values) == 1 else None if not values else tuple(values)


def _name(driver: Any, device: Any) -> str:
    return str(_ask(driver.cuDeviceGetName(128, device)).split(b"\0")[0].decode())


class CudaDevice:
    """GPU number `index` of this process. `compiler` is needed for `dirty_shared_memory` alone."""

    kind: Literal["cuda", "emulator"] = "cuda"

    def __init__(self, index: int = 0, compiler: Compiler | None = None) -> None:
        self.driver = _driver()
        self.gpu = gpu_at(index)
        import torch

        self.index = index
        self.torch_device = f"cuda:{index}"
        self.compiler = compiler
        self.dead = False
        """Whether the context died: no further call will succeed."""
        try:
            torch.cuda.set_device(index)
            torch.cuda.init()
            torch.zeros(1, device=self.torch_device)  # makes the primary context, current in this thread
        except (RuntimeError, AssertionError) as error:
            raise MachineError(
                f"torch cannot use cuda:{index}: {str(error).splitlines()[0]}",
                "install a torch built for CUDA: pip install torch",
            ) from error
        self._device = _ask(self.driver.cuDeviceGet(index))
        self._encode_tiled = ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled
        self.uuid = self._uuid()
        self._nvml = _Nvml(self.uuid)
        self._dirty: tuple[CudaKernel, LaunchConfig] | None = None
        self._busy: Any = None

    @property
    def name(self) -> str:
        return _name(self.driver, self._device)

    @property
    def driver_version(self) -> str:
        """The newest CUDA that the driver serves: "13.0"."""
        number = _ask(self.driver.cuDriverGetVersion())
        return f"{number // 1000}.{number % 1000 // 10}"

    @property
    def schedules(self) -> tuple[str, ...]:
        return ("default",)

    def _uuid(self) -> str:
        raw = bytes(_ask(self.driver.cuDeviceGetUuid(self._device)).bytes)[:16].hex()
        return f"GPU-{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}"

    def load(self, binary: Binary, launch: LaunchConfig) -> CudaKernel:
        """Load the cubin and have the driver grant `launch`; Unlaunchable if it does not."""
        kernel = CudaKernel(self, binary)
        kernel.grant(launch)
        return kernel

    def dirty_shared_memory(self) -> None:
        """Fill all shared memory of all SMs with NaN: what a CTA did not write itself is garbage."""
        if self._dirty is None:
            if self.compiler is None:
                raise RuntimeError("CudaDevice was made without a compiler")
            words = self.gpu.smem_per_cta // 4
            launch = LaunchConfig(
                grid=(2 * self.gpu.sms, 1, 1),  # one CTA fits an SM: two waves reach every SM
                block=(1024, 1, 1),
                smem_bytes=4 * words,
                args=(ScalarArg(DIRT, "u32"), ScalarArg(words, "i32")),
            )
            self._dirty = (
                self.load(self.compiler.compile(_DIRTY_SOURCE, "dirty", self.gpu.arch), launch),
                launch,
            )
        kernel, launch = self._dirty
        kernel.enqueue(launch, _NO_BUFFERS, self.stream)

    def keep_memory_busy(self) -> None:
        """Starts two copies of BUSY_BYTES on a stream of their own and does not wait: they run beside what is
        launched next."""
        import torch

        if self._busy is None:
            blocks = [torch.zeros(BUSY_BYTES, dtype=torch.uint8, device=self.torch_device) for _ in "ab"]
            self._busy = torch.cuda.Stream(self.index), blocks
        stream, (source, target) = self._busy
        copy, on = self.driver.cuMemcpyDtoDAsync, self.driver.CUstream(stream.cuda_stream)
        for _ in range(2):
            copy(target.data_ptr(), source.data_ptr(), BUSY_BYTES, on)

    @property
    def stream(self) -> int:
        """torch's current stream on this device, as the driver's handle."""
        import torch

        return int(torch._C._cuda_getCurrentRawStream(self.index))  # a Stream object takes 6 µs more

    def synchronize(self) -> None:
        """Wait for all work; Crashed if some of it killed the context."""
        self.settle(self.driver.cuCtxSynchronize()[0])

    def reset_persisting_l2(self) -> None:
        """Makes lines that were told to stay in the L2 cache ordinary ones again."""
        self.driver.cuCtxResetPersistingL2Cache()

    def mark(self) -> Any:
        """A point in the work of torch's current stream; who waits for it leaves its core to a compiler."""
        import torch

        event = torch.cuda.Event(blocking=True)
        event.record()
        return event

    def reach(self, mark: Any) -> None:
        """Wait until the work before `mark` is done; Crashed if the context is dead by then."""
        self.settle(self.driver.cuEventSynchronize(self.driver.CUevent(mark.cuda_event))[0])

    def settle(self, status: Any) -> None:
        """Crashed if `status`, of a call that waits, is an error: a kernel did something forbidden."""
        if int(status) == 0:
            return
        self.dead = True
        raise Crashed(_words(status), f"{status.name} while the kernel ran; the CUDA context is lost")

    def clocks(self) -> dict[str, float]:
        """`sm_mhz`, `memory_mhz`, `temperature_c`, `power_w`, `throttled` (0, 1) and `busy_percent` (of
        NVML's last sample period, up to a second, a kernel was running), as far as NVML says."""
        return self._nvml.clocks()

    def sm_mhz(self) -> float | None:
        """The SM clock now: the cheapest reading."""
        return self._nvml.sm_mhz()

    def other_processes(self) -> tuple[int, ...]:
        """Process ids of others that compute on this GPU, as far as NVML shows them."""
        return self._nvml.other_processes()

    def close(self) -> None:
        """Drop what is held on the GPU; the context is torch's."""
        self._dirty = self._busy = None
        self._nvml.close()


@dataclass(frozen=True)
class _Prepared:
    """What a launch hands to the driver: most launches are the one before once more."""

    launch: LaunchConfig
    regions: Mapping[str, Region]
    stream: int
    config: Any
    values: list[Any]
    pointers: Any


_NO_BUFFERS: Mapping[str, Region] = {}


class CudaKernel:
    """A loaded entry point; unloaded when nobody holds it any more."""

    def __init__(self, device: CudaDevice, binary: Binary) -> None:
        self.device = device
        self._binary = binary
        self._module: Any = None
        self._last: _Prepared | None = None
        driver = device.driver
        status, module = driver.cuModuleLoadData(binary.cubin)
        if int(status):
            raise self._refused(status, "not loadable")
        self._module = module
        status, self._function = driver.cuModuleGetFunction(module, binary.entry.encode())
        if int(status):
            raise Unlaunchable("no such entry", f"{binary.entry}: {status.name}")

    @property
    def binary(self) -> Binary:
        return self._binary

    def _refused(self, status: Any, reason: str) -> CandidateError | MachineError:
        """What an error of a call that does not wait means."""
        if status.name in _STICKY:
            self.device.dead = True
            return Crashed(_words(status), f"{status.name}: the CUDA context is lost")
        if status.name == "CUDA_ERROR_OUT_OF_MEMORY":
            return MachineError("the GPU is out of memory", "does another process use it? see nvidia-smi")
        return Unlaunchable(reason, f"the driver says {status.name}")

    def attribute(self, name: str) -> int:
        """A function attribute by its name in the driver API: "NUM_REGS", "LOCAL_SIZE_BYTES" …"""
        which = getattr(self.device.driver.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
        return int(_ask(self.device.driver.cuFuncGetAttribute(which, self._function)))

    def grant(self, launch: LaunchConfig) -> None:
        """Ask the driver for all that `launch` needs; Unlaunchable if it can never be granted."""
        driver, gpu = self.device.driver, self.device.gpu
        smem = launch.smem_bytes + self.attribute("SHARED_SIZE_BYTES")
        if smem > gpu.smem_per_cta:
            raise Unlaunchable("shared memory", f"{smem} bytes a CTA, {gpu.name} has {gpu.smem_per_cta}")
        most = self.attribute("MAX_THREADS_PER_BLOCK")
        if launch.threads > most:
            raise Unlaunchable("block size", f"{launch.threads} threads a CTA, this kernel allows {most}")
        which = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        (status,) = driver.cuFuncSetAttribute(self._function, which, launch.smem_bytes)
        if int(status):
            raise self._refused(status, "shared memory")
        if launch.cluster == (1, 1, 1):
            if self.ctas_resident(launch) < 1:
                raise Unlaunchable("resources", f"{launch.threads} threads and {smem} bytes fit no SM")
        elif self.clusters_resident(launch) < 1:
            raise Unlaunchable("cluster size", f"no cluster of {launch.cluster} CTAs fits {gpu.name}")

    def ctas_resident(self, launch: LaunchConfig) -> int:
        """CTAs of `launch` that an SM holds at once."""
        ask = self.device.driver.cuOccupancyMaxActiveBlocksPerMultiprocessor
        return int(_ask(ask(self._function, launch.threads, launch.smem_bytes)))

    def clusters_resident(self, launch: LaunchConfig) -> int:
        """Clusters of `launch` that the GPU holds at once; Unlaunchable if the driver refuses their size."""
        ask = self.device.driver.cuOccupancyMaxActiveClusters
        status, count = ask(self._function, self._config(launch, self.device.stream))
        if int(status):
            raise self._refused(status, "cluster size")
        return int(count)

    def _config(self, launch: LaunchConfig, stream: int) -> Any:
        driver = self.device.driver
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = launch.grid
        config.blockDimX, config.blockDimY, config.blockDimZ = launch.block
        config.sharedMemBytes = launch.smem_bytes
        config.hStream = driver.CUstream(stream)
        if launch.cluster != (1, 1, 1):
            attribute = driver.CUlaunchAttribute()
            attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            size = attribute.value.clusterDim
            size.x, size.y, size.z = launch.cluster
            config.attrs = [attribute]
            config.numAttrs = 1
        return config

    def enqueue(self, launch: LaunchConfig, regions: Mapping[str, Region], stream: int) -> None:
        """Launch on `stream` without waiting (it may be capturing a graph). Unlaunchable if refused."""
        last = self._last
        if last is None or not (last.launch is launch and last.regions is regions and last.stream == stream):
            last = self._last = self._prepared(launch, regions, stream)
        (status,) = self.device.driver.cuLaunchKernelEx(
            last.config, self._function, ctypes.addressof(last.pointers), 0
        )
        if int(status):
            raise self._refused(status, _words(status))

    def _prepared(self, launch: LaunchConfig, regions: Mapping[str, Region], stream: int) -> _Prepared:
        values = [self._argument(arg, regions) for arg in launch.args]
        pointers = (ctypes.c_void_p * max(1, len(values)))(*[ctypes.addressof(value) for value in values])
        return _Prepared(launch, regions, stream, self._config(launch, stream), values, pointers)

    def launch(
        self, launch: LaunchConfig, regions: Mapping[str, Region], schedule: str = "default"
    ) -> LaunchReport:
        """Run once on torch's current stream and wait. Unlaunchable if refused; Crashed if it dies."""
        begin = time.perf_counter()
        stream = self.device.stream
        self.enqueue(launch, regions, stream)
        driver = self.device.driver
        self.device.settle(driver.cuStreamSynchronize(driver.CUstream(stream))[0])
        return LaunchReport(schedule, time.perf_counter() - begin)

    def start(
        self, launch: LaunchConfig, regions: Mapping[str, Region], schedule: str = "default"
    ) -> LaunchReport:
        """Like `launch`, but without waiting: `CudaDevice.synchronize` tells how it ended."""
        self.enqueue(launch, regions, self.device.stream)
        return LaunchReport(schedule, 0.0)

    def _argument(self, arg: Argument, regions: Mapping[str, Region]) -> Any:
        """A ctypes object with the bytes of a kernel argument."""
        if isinstance(arg, ScalarArg):
            return _SCALARS[arg.type](arg.value)
        region = regions[arg.buffer]
        if isinstance(arg, BufferArg):
            return ctypes.c_uint64(region.address)
        return self._tensor_map(arg, region)

    def _tensor_map(self, arg: TensorMapArg, region: Region) -> Any:
        """A CUtensorMap at an aligned address. Encoded through ctypes: the bindings' own object is a Python
        object, which need not lie on the 64 bytes that the driver wants."""
        driver = self.device.driver
        types = driver.CUtensorMapDataType
        kind = {
            "fp16": types.CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
            "bf16": types.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            "fp32": types.CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
            "u8": types.CU_TENSOR_MAP_DATA_TYPE_UINT8,
            "fp8": types.CU_TENSOR_MAP_DATA_TYPE_UINT8,
            "u16": types.CU_TENSOR_MAP_DATA_TYPE_UINT16,
            "i32": types.CU_TENSOR_MAP_DATA_TYPE_INT32,
            "u32": types.CU_TENSOR_MAP_DATA_TYPE_UINT32,
            "i64": types.CU_TENSOR_MAP_DATA_TYPE_INT64,
            "u64": types.CU_TENSOR_MAP_DATA_TYPE_UINT64,
        }[arg.dtype]
        modes = driver.CUtensorMapSwizzle
        swizzle = {
            0: modes.CU_TENSOR_MAP_SWIZZLE_NONE,
            32: modes.CU_TENSOR_MAP_SWIZZLE_32B,
            64: modes.CU_TENSOR_MAP_SWIZZLE_64B,
            128: modes.CU_TENSOR_MAP_SWIZZLE_128B,
        }[arg.swizzle]
        rank = len(arg.shape)
        room = ctypes.create_string_buffer(TENSOR_MAP_BYTES + TENSOR_MAP_ALIGNMENT)
        offset = -ctypes.addressof(room) % TENSOR_MAP_ALIGNMENT
        encoded = (ctypes.c_char * TENSOR_MAP_BYTES).from_buffer(room, offset)  # keeps `room` alive
        status = self.device._encode_tiled(
            ctypes.byref(encoded),
            ctypes.c_int(int(kind)),
            ctypes.c_uint32(rank),
            ctypes.c_void_p(region.address),
            (ctypes.c_uint64 * rank)(*arg.shape),
            (ctypes.c_uint64 * max(1, rank - 1))(*arg.strides),
            (ctypes.c_uint32 * rank)(*arg.box),
            (ctypes.c_uint32 * rank)(*[1] * rank),
            ctypes.c_int(int(driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE)),
            ctypes.c_int(int(swizzle)),
            ctypes.c_int(int(driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B)),
            ctypes.c_int(int(driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)),
        )
        if status:
            name = driver.CUresult(status).name
            raise Unlaunchable("tensor map", f"{name} for {arg} over {region.nbytes} bytes")
        return encoded

    def __del__(self) -> None:
        if self._module is not None and not self.device.dead:
            with contextlib.suppress(RuntimeError, TypeError):  # bindings go first at exit
                self.device.driver.cuModuleUnload(self._module)


_STICKY = frozenset({
    "CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_LAUNCH_FAILED", "CUDA_ERROR_LAUNCH_TIMEOUT",
    "CUDA_ERROR_ASSERT", "CUDA_ERROR_HARDWARE_STACK_ERROR", "CUDA_ERROR_ILLEGAL_INSTRUCTION",
    "CUDA_ERROR_MISALIGNED_ADDRESS",
    "CUDA_ERROR_INVALID_ADDRESS_SPACE", "CUDA_ERROR_INVALID_PC", "CUDA_ERROR_CONTEXT_IS_DESTROYED",
    "CUDA_ERROR_ECC_UNCORRECTABLE", "CUDA_ERROR_EXTERNAL_DEVICE", "CUDA_ERROR_TENSOR_MEMORY_LEAK",
    "CUDA_ERROR_CONTAINED",
})  # fmt: skip
"""Errors after which every further call in the context fails."""


def _words(status: Any) -> str:
    """`CUDA_ERROR_ILLEGAL_ADDRESS` -> "illegal address"."""
    return str(status.name).removeprefix("CUDA_ERROR_").replace("_", " ").lower()


class _Nvml:
    """What NVML says of one GPU; silent where it is absent or locked (containers, MIG)."""

    def __init__(self, uuid: str) -> None:
        import pynvml

        self._nvml: Any = pynvml
        self._handle: Any = None
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)

    def _read(self, name: str, *args: Any) -> float | None:
        try:
            return float(getattr(self._nvml, name)(self._handle, *args))
        except self._nvml.NVMLError:
            return None

    def clocks(self) -> dict[str, float]:
        if self._handle is None:
            return {}
        nvml = self._nvml
        power = self._read("nvmlDeviceGetPowerUsage")
        reasons = self._read("nvmlDeviceGetCurrentClocksEventReasons")
        slowed = (
            nvml.nvmlClocksEventReasonSwThermalSlowdown
            | nvml.nvmlClocksThrottleReasonHwSlowdown
            | nvml.nvmlClocksThrottleReasonHwThermalSlowdown
            | nvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown
        )
        try:
            busy: float | None = float(nvml.nvmlDeviceGetUtilizationRates(self._handle).gpu)
        except nvml.NVMLError:
            busy = None
        readings = {
            "busy_percent": busy,
            "sm_mhz": self._read("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
            "memory_mhz": self._read("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
            "temperature_c": self._read("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
            "power_w": None if power is None else power / 1000,
            "throttled": None if reasons is None else float(bool(int(reasons) & slowed)),
        }
        return {name: value for name, value in readings.items() if value is not None}

    def sm_mhz(self) -> float | None:
        """The SM clock alone: the cheapest reading."""
        return self._read("nvmlDeviceGetClockInfo", self._nvml.NVML_CLOCK_SM) if self._handle else None

    def other_processes(self) -> tuple[int, ...]:
        if self._handle is None:
            return ()
        try:
            found = self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle)
        except self._nvml.NVMLError:
            return ()
        return tuple(sorted({int(p.pid) for p in found} - {os.getpid()}))

    def close(self) -> None:
        if self._handle is not None:
            self._handle = None
            with contextlib.suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()
