"""The `cuda` device: a real GPU, by the driver API on torch's primary context.

Candidates arrive as cubins with one entry point; buffers, streams and launches are ours. What the driver
refuses is Unlaunchable. After an error that kills the context (an illegal address, a trap) the launch is
Crashed, the device is not `usable`, and nothing but ending the process helps.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from evo.compile import Compiler
from evo.device.arguments import scalar_bytes
from evo.device.driver import STICKY, ask, driver_api, gpu_at, name_of, uuid_of, words_of
from evo.device.gpu_lock import lock_of
from evo.device.nvml import Nvml
from evo.device.protocol import LaunchReport, Region, Wait
from evo.device.tensor_map import tensor_map
from evo.errors import CandidateError, Crashed, MachineError, Unlaunchable
from evo.trial import Argument, Binary, BufferArg, LaunchConfig, Resources, ScalarArg

BUSY_BYTES = 64 << 20
DIRT = 0x7FFF7FFF
"""NaN as fp32, as two fp16 and as two bf16."""

_DIRTY_SOURCE = """// fills the shared memory of an SM, so that a kernel that reads before it writes finds NaN
extern "C" __global__ void dirty(unsigned dirt, int words) {
  extern __shared__ unsigned shared[];
  volatile unsigned* word = shared;
  for (int i = threadIdx.x; i < words; i += blockDim.x) word[i] = dirt;
}
"""


class CudaDevice:
    """GPU number `index` of this process. `compiler` is needed for `disturb` alone."""

    measures = True
    launches_are_cheap = True
    checks_accesses = False
    schedules: tuple[str, ...] = ("default",)

    def __init__(self, index: int = 0, compiler: Compiler | None = None) -> None:
        self.driver = driver_api()
        self.gpu = gpu_at(index)
        import torch

        self.index = index
        self.torch_device = f"cuda:{index}"
        self.compiler = compiler
        self.usable = True
        try:
            torch.cuda.set_device(index)
            torch.cuda.init()
            torch.zeros(1, device=self.torch_device)  # makes the primary context, current in this thread
        except (RuntimeError, AssertionError) as error:
            raise MachineError(
                f"torch cannot use cuda:{index}: {str(error).splitlines()[0]}",
                "install a torch built for CUDA: pip install torch",
            ) from error
        self._device = ask(self.driver.cuDeviceGet(index))
        self.context = int(ask(self.driver.cuCtxGetCurrent()))
        """The driver's handle of torch's context."""
        self.uuid = uuid_of(self.driver, self._device)
        self.clocks = Nvml(self.uuid)
        self._lock = lock_of(self.uuid)
        self._dirty: tuple[CudaKernel, LaunchConfig] | None = None
        self._busy: Any = None
        self._threads = threading.local()
        self.idle_events: list[Any] = []
        """Events that no mark holds: to make one takes longer than to record it."""

    @property
    def name(self) -> str:
        return name_of(self.driver, self._device)

    @property
    def driver_version(self) -> str:
        """The newest CUDA that the driver serves: "13.0"."""
        number = ask(self.driver.cuDriverGetVersion())
        return f"{number // 1000}.{number % 1000 // 10}"

    @property
    def free_bytes(self) -> int:
        """What the GPU has left, and what torch holds of it for nothing."""
        import torch

        free, _ = torch.cuda.mem_get_info(self.index)
        idle = torch.cuda.memory_reserved(self.index) - torch.cuda.memory_allocated(self.index)
        return int(free + idle)

    def load(self, binary: Binary, launch: LaunchConfig) -> CudaKernel:
        """Load the cubin and have the driver grant `launch`; Unlaunchable if it does not."""
        kernel = CudaKernel(self, binary)
        kernel.grant(launch)
        return kernel

    def expect(self, instructions: float) -> None:
        """Nothing is counted: a deadline ends what hangs."""

    def disturb(self, turn: int) -> None:
        self._dirty_shared_memory()
        if turn % 2:
            self._keep_memory_busy()

    def _dirty_shared_memory(self) -> None:
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
            binary = self.compiler.compile(_DIRTY_SOURCE, "dirty", self.gpu.arch)
            self._dirty = self.load(binary, launch), launch
        kernel, launch = self._dirty
        kernel.start(launch, _NO_BUFFERS)

    def _keep_memory_busy(self) -> None:
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

    def mark(self) -> CudaMark:
        """A point in the work of torch's current stream."""
        return CudaMark(self)

    def finish(self) -> None:
        self.check(self.driver.cuCtxSynchronize()[0])

    def check(self, status: Any) -> None:
        """Crashed if `status`, of a call that waits, is an error: a kernel did something forbidden."""
        if int(status) == 0:
            return
        self.usable = False
        raise Crashed(words_of(status), f"{status.name} while the kernel ran; the CUDA context is lost")

    def reset_persisting_l2(self) -> None:
        self.driver.cuCtxResetPersistingL2Cache()

    def estimate_us(
        self, report: LaunchReport, resources: Resources, launch: LaunchConfig, nbytes: int
    ) -> None:
        """None: times are measured."""

    def alone(self, wait: Wait = nullcontext) -> AbstractContextManager[object]:
        return self._lock.alone(wait)

    def beside(self, wait: Wait = nullcontext) -> AbstractContextManager[object]:
        return self._lock.beside(wait)

    def give_way(self, finish: Callable[[], None], wait: Wait = nullcontext) -> None:
        self._lock.give_way(finish, wait)

    def entered(self) -> AbstractContextManager[object]:
        """A thread that has called nothing of CUDA has no context yet, and torch makes one current only when
        it changes the GPU."""
        import torch

        if torch._C._cuda_getDevice() != self.index:
            guard: AbstractContextManager[object] = torch.cuda.device(self.index)
            return guard
        if not getattr(self._threads, "entered", False):
            ask(self.driver.cuCtxSetCurrent(ask(self.driver.cuDevicePrimaryCtxRetain(self._device))))
            self._threads.entered = True
        return _HERE

    def close(self) -> None:
        """Drop what is held on the GPU; the context is torch's."""
        self._dirty = self._busy = None
        self.clocks.close()


class CudaMark:
    """A point in the work of a stream. A thread that waits for it leaves its core to a compiler."""

    def __init__(self, device: CudaDevice) -> None:
        self._device, driver = device, device.driver
        if not device.idle_events:
            flags = driver.CUevent_flags
            kind = flags.CU_EVENT_BLOCKING_SYNC | flags.CU_EVENT_DISABLE_TIMING
            device.idle_events.append(ask(driver.cuEventCreate(kind)))
        self._event = device.idle_events.pop()
        device.check(driver.cuEventRecord(self._event, driver.CUstream(device.stream))[0])

    def reach(self) -> None:
        self._device.check(self._device.driver.cuEventSynchronize(self._event)[0])

    def __del__(self) -> None:
        self._device.idle_events.append(self._event)


@dataclass(frozen=True)
class _Prepared:
    """What a launch hands to the driver: most launches are the one before once more."""

    launch: LaunchConfig
    regions: Mapping[str, Region]
    stream: int
    config: Any
    values: list[Any]
    pointers: Any


_HERE = nullcontext()
_NO_BUFFERS: Mapping[str, Region] = {}
_STARTED = LaunchReport("default", 0.0)


class CudaKernel:
    """A loaded entry point; unloaded when it is not referenced any more."""

    def __init__(self, device: CudaDevice, binary: Binary) -> None:
        self.device = device
        self._binary = binary
        self._module: Any = None
        self._last: _Prepared | None = None
        self._configured: tuple[tuple[object, ...], Any] | None = None
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

    @property
    def handles(self) -> tuple[int, int]:
        return int(self._function), self.device.context

    def _refused(self, status: Any, reason: str) -> CandidateError | MachineError:
        """What an error of a call that does not wait means."""
        if status.name in STICKY:
            self.device.usable = False
            return Crashed(words_of(status), f"{status.name}: the CUDA context is lost")
        if status.name == "CUDA_ERROR_OUT_OF_MEMORY":
            return MachineError("the GPU is out of memory", "does another process use it? see nvidia-smi")
        return Unlaunchable(reason, f"the driver says {status.name}")

    def attribute(self, name: str) -> int:
        """A function attribute by its name in the driver API: "NUM_REGS", "LOCAL_SIZE_BYTES" …"""
        which = getattr(self.device.driver.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
        return int(ask(self.device.driver.cuFuncGetAttribute(which, self._function)))

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
            resident = self.ctas_resident(launch) * gpu.sms
            if resident < 1:
                raise Unlaunchable("resources", f"{launch.threads} threads and {smem} bytes fit no SM")
        else:
            resident = self.clusters_resident(launch) * math.prod(launch.cluster)
            if resident < 1:
                raise Unlaunchable("cluster size", f"no cluster of {launch.cluster} CTAs fits {gpu.name}")
        if launch.cooperative and launch.ctas > resident:
            raise Unlaunchable(
                "cooperative launch", f"{launch.ctas} CTAs, {gpu.name} holds {resident} at once"
            )

    @property
    def registers(self) -> int:
        return self.attribute("NUM_REGS")

    def ctas_resident(self, launch: LaunchConfig) -> int:
        occupancy = self.device.driver.cuOccupancyMaxActiveBlocksPerMultiprocessor
        return int(ask(occupancy(self._function, launch.threads, launch.smem_bytes)))

    def clusters_resident(self, launch: LaunchConfig) -> int:
        """Clusters of `launch` that the GPU holds at once; Unlaunchable if the driver refuses their size."""
        occupancy = self.device.driver.cuOccupancyMaxActiveClusters
        status, count = occupancy(self._function, self._new_config(launch, self.device.stream))
        if int(status):
            raise self._refused(status, "cluster size")
        return int(count)

    def _config(self, launch: LaunchConfig, stream: int) -> Any:
        """How the driver is asked for a launch: most differ from the one before in the grid alone."""
        rest = launch.block, launch.smem_bytes, launch.cluster, launch.cooperative, stream
        if self._configured is None or self._configured[0] != rest:
            self._configured = rest, self._new_config(launch, stream)
        config = self._configured[1]
        config.gridDimX, config.gridDimY, config.gridDimZ = launch.grid
        return config

    def _new_config(self, launch: LaunchConfig, stream: int) -> Any:
        driver = self.device.driver
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = launch.grid
        config.blockDimX, config.blockDimY, config.blockDimZ = launch.block
        config.sharedMemBytes = launch.smem_bytes
        config.hStream = driver.CUstream(stream)
        attributes = []
        if launch.cluster != (1, 1, 1):
            attribute = driver.CUlaunchAttribute()
            attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            size = attribute.value.clusterDim
            size.x, size.y, size.z = launch.cluster
            attributes.append(attribute)
        if launch.cooperative:
            attribute = driver.CUlaunchAttribute()
            attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
            attribute.value.cooperative = 1
            attributes.append(attribute)
        if attributes:
            config.attrs = attributes
            config.numAttrs = len(attributes)
        return config

    def launch(
        self, launch: LaunchConfig, regions: Mapping[str, Region], schedule: str = "default"
    ) -> LaunchReport:
        """Run once on torch's current stream and wait. Unlaunchable if refused; Crashed if it dies."""
        begin = time.perf_counter()
        self.start(launch, regions)
        driver = self.device.driver
        self.device.check(driver.cuStreamSynchronize(driver.CUstream(self.device.stream))[0])
        return LaunchReport(schedule, time.perf_counter() - begin)

    def start(
        self,
        launch: LaunchConfig,
        regions: Mapping[str, Region],
        schedule: str = "default",  # noqa: ARG002 - there is one
    ) -> LaunchReport:
        """Launch on torch's current stream without waiting. Unlaunchable if refused."""
        stream, last = self.device.stream, self._last
        if last is None or not (last.launch is launch and last.regions is regions and last.stream == stream):
            last = self._last = self._prepared(launch, regions, stream)
        (status,) = self.device.driver.cuLaunchKernelEx(
            last.config, self._function, ctypes.addressof(last.pointers), 0
        )
        if int(status):
            raise self._refused(status, words_of(status))
        return _STARTED

    def launch_end(self, launch: LaunchConfig, regions: Mapping[str, Region]) -> None:
        """None: a grid is launched whole."""

    def _prepared(self, launch: LaunchConfig, regions: Mapping[str, Region], stream: int) -> _Prepared:
        values = [self._argument(arg, regions) for arg in launch.args]
        pointers = (ctypes.c_void_p * max(1, len(values)))(*[ctypes.addressof(value) for value in values])
        return _Prepared(launch, regions, stream, self._config(launch, stream), values, pointers)

    def _argument(self, arg: Argument, regions: Mapping[str, Region]) -> Any:
        """A ctypes object with the bytes of a kernel argument."""
        if isinstance(arg, ScalarArg):
            raw = scalar_bytes(arg)
            return ctypes.create_string_buffer(raw, len(raw))
        region = regions[arg.buffer]
        if isinstance(arg, BufferArg):
            return ctypes.c_uint64(region.address)
        return tensor_map(self.device.driver, arg, region)

    def __del__(self) -> None:
        if self._module is not None and self.device.usable:
            with contextlib.suppress(RuntimeError, TypeError):  # bindings go first at exit
                self.device.driver.cuModuleUnload(self._module)
