"""What a GPU can do: limits that decide feasibility and rates that bound a time. Named GPUs and targets.

Sources: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; vendors' datasheets
for rates (dense, without sparsity). On a real GPU the limits are read off the driver instead.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from evo.errors import UnknownName, UsageError

KIB = 1024
RESERVED_SMEM_PER_CTA = 1 * KIB
"""Shared memory that the system takes from every CTA on sm_80 and up, bytes."""
SM_PARTS = 4
"""Parts of an SM, each with a quarter of its registers: every warp lives in one of them."""


@dataclass(frozen=True)
class Gpu:
    """Limits and rates of one GPU. Bytes, counts, GHz, GB/s, TFLOP/s as the names say."""

    name: str
    arch: str
    """What code is compiled for: "sm_89", "sm_90a"."""
    sms: int
    smem_per_cta: int
    """Opt-in limit of shared memory a CTA, bytes (static + dynamic)."""
    smem_per_sm: int
    threads_per_sm: int
    ctas_per_sm: int
    registers_per_sm: int = 65536
    threads_per_cta: int = 1024
    max_cluster: int = 1
    clock_ghz: float = 0.0
    dram_gbps: float = 0.0
    l2_gbps: float = 0.0
    l2_bytes: int = 0
    tensor_tflops: float = 0.0
    """Dense fp16 with fp32 accumulation."""
    launch_us: float = 0.6
    """One empty kernel as a node of a CUDA graph (measured 0.56 to 0.60 µs on an H200)."""

    @property
    def compute_capability(self) -> tuple[int, int]:
        return arch_number(self.arch)

    def ctas_resident(self, threads: int, registers: int, smem_bytes: int) -> int:
        """CTAs of this shape that fit on one SM: 0 if not even one does. `registers` a thread (0: not known),
        `smem_bytes` a CTA (static + dynamic)."""
        return int(self.residents(threads, registers, smem_bytes))

    def residents(self, threads: Any, registers: Any, smem_bytes: Any) -> npt.NDArray[np.int64]:
        """`ctas_resident` of many shapes, each argument a number or an array."""
        warps, smem_bytes = -(-np.asarray(threads) // 32), np.asarray(smem_bytes)
        by_smem = self.smem_per_sm // (smem_bytes + RESERVED_SMEM_PER_CTA)
        registers_a_warp = np.maximum(1, -(-np.asarray(registers) // 8)) * 8 * 32
        by_registers = self.registers_per_sm // SM_PARTS // registers_a_warp * SM_PARTS // warps
        by_threads = self.threads_per_sm // (warps * 32)
        limits = (by_smem, by_registers, by_threads, self.ctas_per_sm)
        fitting: npt.NDArray[np.int64] = np.minimum.reduce(np.broadcast_arrays(*limits)).astype(np.int64)
        return fitting


@dataclass(frozen=True)
class Roof:
    """The roofline of a GPU over one computation: `flop` operations, and `nbytes` that must be moved from and
    to the L2 cache (`in_l2`) or DRAM. Figures are 0 where the GPU's rates are unknown."""

    gpu: Gpu
    flop: float
    nbytes: float
    in_l2: bool

    @classmethod
    def over(cls, gpu: Gpu, flop: float, nbytes: float) -> Roof:
        """With the data in the L2 cache if they fit into it."""
        return cls(gpu, flop, nbytes, nbytes <= gpu.l2_bytes)

    @property
    def bandwidth_gbps(self) -> float:
        return self.gpu.l2_gbps if self.in_l2 else self.gpu.dram_gbps

    @property
    def intensity(self) -> float:
        """FLOP a byte."""
        return self.flop / self.nbytes

    @property
    def ridge(self) -> float:
        """The intensity from which on arithmetic is the bound."""
        return self.gpu.tensor_tflops * 1e3 / self.bandwidth_gbps if self.bandwidth_gbps else 0.0

    @property
    def bound(self) -> str:
        """What is the bound, in words."""
        if self.intensity >= self.ridge:
            return "Tensor Cores"
        return "L2 bandwidth" if self.in_l2 else "DRAM bandwidth"

    @property
    def floor_us(self) -> float:
        """No kernel is faster. 15 % is taken off for boost clocks."""
        arithmetic = self.flop / (self.gpu.tensor_tflops * 1e6) if self.gpu.tensor_tflops else 0.0
        traffic = self.nbytes / (self.bandwidth_gbps * 1e3) if self.bandwidth_gbps else 0.0
        return 0.85 * max(arithmetic, traffic)


def _ada(name: str, sms: int, clock: float, dram: float, l2_mib: int, tensor: float) -> Gpu:
    return Gpu(
        name,
        "sm_89",
        sms,
        smem_per_cta=99 * KIB,
        smem_per_sm=100 * KIB,
        threads_per_sm=1536,
        ctas_per_sm=24,
        clock_ghz=clock,
        dram_gbps=dram,
        l2_gbps=dram * 4,
        l2_bytes=l2_mib * KIB * KIB,
        tensor_tflops=tensor,
    )


def _hopper(name: str, sms: int, clock: float, dram: float, l2_mib: int, tensor: float) -> Gpu:
    return Gpu(
        name,
        "sm_90a",
        sms,
        smem_per_cta=227 * KIB,
        smem_per_sm=228 * KIB,
        threads_per_sm=2048,
        ctas_per_sm=32,
        max_cluster=8,
        clock_ghz=clock,
        dram_gbps=dram,
        l2_gbps=5500.0,
        l2_bytes=l2_mib * KIB * KIB,
        tensor_tflops=tensor,
    )


KNOWN_GPUS: dict[str, Gpu] = {
    gpu.name: gpu
    for gpu in (
        Gpu("A100", "sm_80", 108, 163 * KIB, 164 * KIB, 2048, 32, clock_ghz=1.41, dram_gbps=1555.0,
            l2_gbps=4000.0, l2_bytes=40 * KIB * KIB, tensor_tflops=312.0),
        Gpu("RTX 3090", "sm_86", 82, 99 * KIB, 100 * KIB, 1536, 16, clock_ghz=1.695, dram_gbps=936.0,
            l2_gbps=2500.0, l2_bytes=6 * KIB * KIB, tensor_tflops=71.0),
        _ada("L4", 58, 2.04, 300.0, 48, 121.0),
        _ada("RTX 4090", 128, 2.52, 1008.0, 72, 165.0),
        _hopper("H100", 132, 1.83, 3350.0, 50, 989.0),
        _hopper("H200", 132, 1.98, 4800.0, 60, 989.0),
        Gpu("RTX 5090", "sm_120", 170, 99 * KIB, 100 * KIB, 1536, 24, max_cluster=8, clock_ghz=2.41,
            dram_gbps=1792.0, l2_gbps=6000.0, l2_bytes=96 * KIB * KIB, tensor_tflops=210.0),
    )
}  # fmt: skip
"""GPUs by the name that `--gpu` takes and estimates are made for."""

TARGETS: dict[str, Gpu] = {
    "sm_80": KNOWN_GPUS["A100"],
    "sm_86": KNOWN_GPUS["RTX 3090"],
    "sm_89": KNOWN_GPUS["L4"],
    "sm_90": replace(KNOWN_GPUS["H200"], arch="sm_90"),
    "sm_90a": KNOWN_GPUS["H200"],
    "sm_120": KNOWN_GPUS["RTX 5090"],
}
"""The GPU that stands for each `--target`."""


def arch_number(arch: str) -> tuple[int, int]:
    """`"sm_90a"` -> `(9, 0)`."""
    match = re.fullmatch(r"sm_(\d+)(\d)([af]?)", arch)
    if not match:
        raise UsageError(f"malformed architecture: {arch}", f"one of {', '.join(TARGETS)}")
    return int(match[1]), int(match[2])


def target(name: str) -> Gpu:
    """The GPU that stands for a named target; UnknownName if there is none."""
    if name not in TARGETS:
        raise UnknownName.among("target", name, list(TARGETS))
    return TARGETS[name]


_BESIDE_MODEL = re.compile(r"nvidia|geforce|tesla|rtx|gpu|sxm\d*|pcie|nvl|hbm\d+e?|\d+gb")
"""Words of a device name that leave its model the same: "Ti", "Laptop", "MIG" and others do not."""


def known_gpu(device_name: str) -> Gpu | None:
    """The table's entry for a driver's device name ("NVIDIA A100-SXM4-80GB" -> A100), or None."""
    words = re.split(r"[\s-]+", device_name.strip().lower())
    models = [word for word in words if not _BESIDE_MODEL.fullmatch(word)]
    found = (gpu for name, gpu in KNOWN_GPUS.items() if [name.lower().removeprefix("rtx ")] == models)
    return next(found, None)


@dataclass(frozen=True)
class Limits:
    """What a space is pruned by: a GPU (real or a target's), optionally with less shared memory, and the
    newest instruction set that templates may use."""

    gpu: Gpu
    smem_bytes: int
    instructions: str
    """An arch name: a template that needs a newer (or another architecture's) feature set is infeasible."""

    @classmethod
    def of(
        cls, gpu: Gpu, smem_limit: int | None = None, instructions: str | None = None, target_name: str = ""
    ) -> Limits:
        """The GPU's own limits; with a `target_name` that target's, as far as the GPU has them."""
        if target_name:
            meant = target(target_name)
            smem = min(smem_limit or meant.smem_per_cta, meant.smem_per_cta, gpu.smem_per_cta)
            return cls(meant, smem, instructions or target_name)
        smem = gpu.smem_per_cta if smem_limit is None else min(smem_limit, gpu.smem_per_cta)
        return cls(gpu, smem, instructions or gpu.arch)

    def allows(self, needed: str) -> bool:
        """Whether code that needs `needed` ("sm_80", "sm_90a") may be used: an "a" set is exact, others are
        minima."""
        if needed.endswith("a"):
            return self.instructions == needed
        return arch_number(self.instructions) >= arch_number(needed)
