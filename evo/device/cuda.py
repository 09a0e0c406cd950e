"""The `cuda` device: a real GPU, by the driver API on torch's primary context.

Candidates arrive as cubins with one entry point; buffers, streams and launches are ours. What the driver
refuses is Unlaunchable. After an error that kills the context (an illegal address, a trap) the launch is
Crashed, the device is not `usable`, and nothing but ending the process helps.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from evo.compile import Compiler
from evo.device.cuda_context import CudaContext
from evo.device.cuda_kernel import CudaKernel
from evo.device.driver import ask, name_of, uuid_of
from evo.device.gpu_lock import lock_of
from evo.device.nvml import Nvml
from evo.device.protocol import LaunchReport, Region, Wait
from evo.trial import Binary, LaunchConfig, Resources, ScalarArg

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


class CudaDevice(CudaContext):
    """GPU number `index` of this process. `compiler` is needed for `disturb` alone."""

    measures = True
    launches_are_cheap = True
    checks_accesses = False
    schedules: tuple[str, ...] = ("default",)

    def __init__(self, index: int = 0, compiler: Compiler | None = None) -> None:
        super().__init__(index)
        self.compiler = compiler
        self._device = ask(self.driver.cuDeviceGet(index))
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
            self._busy = torch.cuda.Stream(self.index), blocks, [block.data_ptr() for block in blocks]
        stream, _, (source, target) = self._busy
        for _ in range(2):
            self.driver.cuMemcpyDtoDAsync(target, source, BUSY_BYTES, stream.cuda_stream)

    def mark(self) -> CudaMark:
        """A point in the work of torch's current stream."""
        return CudaMark(self)

    def finish(self) -> None:
        self.check(self.driver.cuCtxSynchronize()[0])

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


_HERE = nullcontext()
_NO_BUFFERS: Mapping[str, Region] = {}
