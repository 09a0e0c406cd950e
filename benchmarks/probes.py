"""What a GPU is like at a moment: the true SM clock, the L2 cache's latency, what a node of a graph costs.

NVML's clock is a figure of the driver's, some milliseconds old. These are measured: a lone thread counts SM
clock cycles against the GPU's own nanosecond timer, and follows a chain of pointers through the L2 cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from evo.compile.nvcc import Compiler
from evo.device import Region
from evo.device.cuda import CudaDevice
from evo.timing.stopwatch import Stopwatch, TimingSettings
from evo.trial import BufferArg, LaunchConfig

SPIN = 4_000_000
"""Clock cycles over which the timer is read: 2 ms. It may tick in steps of 1 µs."""
HOPS = 1000
LINES = 16_384
"""Of 128 bytes: 2 MiB, all of it in the L2 cache and none of it in the L1."""
_SOURCE = f"""
__device__ unsigned long long now() {{
  unsigned long long t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t) :: "memory");
  return t;
}}
__device__ unsigned hop(const unsigned* at) {{
  unsigned to;
  asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(to) : "l"(at) : "memory");
  return to;
}}
extern "C" __global__ void probe(unsigned* chain, unsigned long long* out) {{
  unsigned long long t0 = now();
  const long long c0 = clock64();
  while (clock64() - c0 < {SPIN}) {{}}
  const long long c1 = clock64();
  unsigned long long t1 = now();
  out[0] = c1 - c0;
  out[1] = t1 - t0;
  unsigned at = 0;
  for (int i = 0; i < {HOPS}; ++i) at = hop(chain + 32 * at);
  out[3] = at;
  at = 0;
  const long long c2 = clock64();
  for (int i = 0; i < {HOPS}; ++i) at = hop(chain + 32 * at);
  out[2] = clock64() - c2;
  out[4] = at;
}}
"""
_EMPTY = 'extern "C" __global__ void empty() {}'


class Probe:
    """Looks at a GPU; a look takes about 4 ms of it."""

    def __init__(self, device: CudaDevice, compiler: Compiler) -> None:
        import torch

        self._watch = Stopwatch(device, TimingSettings())
        self._device = device
        order = np.random.default_rng(1).permutation(LINES)
        chain = np.zeros((LINES, 32), np.uint32)
        chain[order, 0] = np.roll(order, -1)
        self._chain = torch.from_numpy(chain.astype(np.int32)).to(device.torch_device)
        self._out = torch.zeros(5, dtype=torch.int64, device=device.torch_device)
        self._launch = LaunchConfig((1, 1, 1), (1, 1, 1), 0, (BufferArg("chain"), BufferArg("out")))
        arch = device.gpu.arch
        self._kernel = device.load(compiler.compile(_SOURCE, "probe", arch), self._launch)
        idle = LaunchConfig((1, 1, 1), (32, 1, 1), 0, ())
        self._idle = device.load(compiler.compile(_EMPTY, "empty", arch), idle)  # a graph does not hold it
        self._empty = self._watch.capture([lambda: self._idle.enqueue(idle, {}, device.stream)], 256)

    def look(self) -> dict[str, float]:
        """`sm_mhz`, `l2_cycles` (a load from the L2 cache), `node_us` (an empty kernel in a graph)."""
        self._kernel.launch(self._launch, {name: _region(name, t) for name, t in self._buffers().items()})
        cycles, ns, hops, _, _ = (int(number) for number in self._out.cpu())
        return {"sm_mhz": 1e3 * cycles / ns, "l2_cycles": hops / HOPS, "node_us": self.nodes()}

    def nodes(self) -> float:
        """µs a node of a graph of 256 empty kernels: the faster one of two replays."""
        (samples,) = self._watch.sample([self._empty], 2)
        return float(samples.min())

    def _buffers(self) -> dict[str, Any]:
        return {"chain": self._chain, "out": self._out}


def _region(name: str, tensor: Any) -> Region:
    return Region(name, tensor.data_ptr(), tensor.numel() * tensor.element_size(), True)
