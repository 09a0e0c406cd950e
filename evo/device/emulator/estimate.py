"""An estimate of a kernel's time on a named GPU, from what the emulator counted: a model, no measurement.

    time = launch + cluster + filling shared memory + rounds, not below what L2 and DRAM need
    cycles of all rounds = p-norm over the pipes of the busiest SM, and over one warp's own chain of latencies

Pipes of an SM: issue slots, FP32 lanes, integer lanes, MUFU (exp2, rcp ...), conversions, tensor cores,
shared memory wavefronts, bytes from L2. The chain is what one warp cannot hide: with one or two warps a
scheduler, which is what attention kernels run at, an instruction's latency and not its pipe is what costs.
The p-norm (p = 4) stands for imperfect overlap: two pipes that are both nearly full take longer than the
fuller one.

CHAIN_CYCLES, PIPE_FACTORS and the times of clusters and of shared memory were fitted together (least squares
of log time, held to the values of data sheets and micro-benchmarks by a weak prior) to 1,802 kernels of five
templates that were measured on an H200 at B, H, L, D = 1, 8, 512, 64. benchmarks/results/estimate-h200.json
says how well they order kernels that they were fitted to, and kernels that they were not. On other GPUs and
shapes nothing was fitted. For other tasks and templates the estimate is a guess, and calls itself one
(`fitted.is_fitted`).

What it does not know, and so where it fails:

- PTX is not SASS: ptxas removes moves, merges address arithmetic and schedules; spills count by their bytes.
- The order of instructions: how much of a chain overlaps is one constant a class, not a dependency graph.
  Variants that differ only in the order of independent work get the same estimate, and the fastest of many
  near-equal kernels is not found: at most one of the ten fastest is among the ten with the lowest estimates.
- Latency of loads behind a pipeline of stages: taken as hidden once a copy is asynchronous, but for what a
  wait at an mbarrier costs. One stage and two get the same estimate.
- L2 hit rate: all traffic is L2 traffic; DRAM counts only when the task's own bytes exceed the L2.
- Power: the clock is the table's.

Use it to order variants of one task on one GPU; benchmarks/emulator/estimate.py says how well that works.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from evo.gpu import Gpu
from evo.trial import LaunchConfig, Resources

NORM = 4.0
"""Exponent of the norm that joins the pipes; infinity would be a plain maximum."""

CHAIN_CYCLES: Mapping[str, float] = {
    "inst_int": 1.9, "inst_fp32": 0.8, "inst_fp16": 2.4, "inst_fp64": 16.0, "inst_mufu": 0.7,
    "inst_convert": 0.9, "inst_move": 0.3, "inst_predicate": 1.5, "inst_control": 3.0,
    "inst_load_global": 80.0, "inst_store_global": 3.0, "inst_load_shared": 2.4, "inst_store_shared": 13.6,
    "inst_load_local": 12.0, "inst_load_const": 4.0, "inst_atomic": 300.0, "inst_async_copy": 4.0,
    "inst_matrix_move": 44.5, "inst_warp": 20.4, "inst_barrier": 44.6, "inst_special": 4.0,
    "barrier_waits": 5.1, "mbarrier_waits": 790.0,
}  # fmt: skip
"""Cycles that one instruction adds to its warp's own time when nothing else runs: latency over the
parallelism that such code has. A wait at an mbarrier is a trip to L2."""

PIPE_FACTORS: Mapping[str, float] = {
    "issue": 0.34, "fp32": 2.16, "integer": 1.67, "mufu": 3.65, "convert": 0.41, "fp64": 1.0,
    "tensor": 2.68, "shared": 1.26, "l2": 1.26,
}  # fmt: skip
"""How much longer a pipe is busy than its peak rate says: above 1, few warps do not keep it fed; below, ptxas
leaves instructions out."""

CLUSTER_US = ((2, 0.95), (4, 1.32), (8, 0.28))
"""Clusters of at least so many CTAs take so much longer to start, to meet and to end; each adds to the
last."""

FILL_US_A_BYTE = 1.0 / 228e3
"""Time until the shared memory of an SM, as much as its CTAs take, is filled for the first time."""

COPY_SHARE = 0.22
"""The part of a CTA's asynchronous copies, at the rate of L2 to an SM, that nothing hides."""


@dataclass(frozen=True)
class SmRates:
    """What one SM does in a clock: lanes, or bytes. `mma_share` is the part of the tensor peak that mma.sync
    reaches
    (wgmma reaches it whole)."""

    fp32: int = 128
    integer: int = 64
    mufu: int = 16
    convert: int = 64
    fp64: int = 2
    shared_wavefronts: float = 1.0
    l2_bytes: int = 64
    mma_share: float = 1.0
    tensor_factor: float = 1.36
    """Takes the place of PIPE_FACTORS' on GPUs whose tensor cores are easier to keep fed: FlashAttention-2
    reaches 74 % of an A100's peak (Dao, arXiv 2307.08691)."""


RATES: Mapping[tuple[int, int], SmRates] = {
    (8, 0): SmRates(fp32=64, fp64=32, convert=16),
    (8, 6): SmRates(),
    (8, 9): SmRates(),
    (9, 0): SmRates(fp64=64, mma_share=0.62, tensor_factor=PIPE_FACTORS["tensor"]),
    (12, 0): SmRates(),
}
"""By compute capability; CUDA programming guide, table of arithmetic throughput."""


@dataclass(frozen=True)
class Estimate:
    """An estimate and what it is made of. `pipes` are cycles of the busiest SM. It is a guess unless the
    constants were fitted to such kernels."""

    us: float
    bound: str
    waves: float
    resident: int
    pipes: Mapping[str, float]
    fitted: bool = False

    def explain(self) -> str:
        """One line for a person, labelled as what it is."""
        word = "an estimate" if self.fitted else "a guess: the model was fitted to other kernels"
        largest = sorted(self.pipes.items(), key=lambda item: -item[1])[:4]
        shares = ", ".join(f"{name} {cycles:.0f}" for name, cycles in largest)
        return (
            f"~{self.us:.2f} µs ({word}, not measured): {self.waves:.2f} waves of {self.resident} "
            f"CTAs an SM, bound by {self.bound}; cycles: {shares}"
        )


def estimate_us(
    counters: Mapping[str, float], resources: Resources, launch: LaunchConfig, gpu: Gpu, nbytes: int
) -> float:
    """Estimated time of one launch in µs. `counters` are a LaunchReport's, `nbytes` the task's compulsory
    traffic."""
    return estimate(counters, resources, launch, gpu, nbytes).us


def estimate(
    counters: Mapping[str, float], resources: Resources, launch: LaunchConfig, gpu: Gpu, nbytes: int
) -> Estimate:
    """The same with its parts. Raises ValueError for a GPU without a clock in the table."""
    if not gpu.clock_ghz:
        raise ValueError(f"no rates known for {gpu.name}")
    ctas = counters["ctas"]
    smem = launch.smem_bytes + resources.static_smem_bytes
    fitting = max(1, gpu.ctas_resident(launch.threads, resources.registers, smem))
    busiest = -(-int(ctas) // gpu.sms)
    resident, rounds = min(fitting, busiest), -(-busiest // fitting)
    per_cta = {name: value / ctas for name, value in counters.items()}
    factors = {**PIPE_FACTORS, "tensor": _rates(gpu).tensor_factor}
    loads = {
        name: cycles * factors[name] * busiest
        for name, cycles in _pipe_cycles(per_cta, launch, resources, gpu).items()
    }
    loads["latency"] = _chain_cycles(per_cta, launch) * rounds
    start = gpu.launch_us + resident * smem * FILL_US_A_BYTE
    start += sum(us for least, us in CLUSTER_US if math.prod(launch.cluster) >= least)
    copied = per_cta.get("async_copy_bytes", 0.0) * resident
    cycles = _joined(loads.values()) + COPY_SHARE * copied / _rates(gpu).l2_bytes
    busy = cycles / (gpu.clock_ghz * 1e3)
    bound = max(loads, key=lambda name: loads[name])
    sectors = counters.get("global_sectors_read", 0) + counters.get("global_sectors_written", 0)
    memory = max(
        sectors * 32 / (gpu.l2_gbps * 1e3), nbytes / (gpu.dram_gbps * 1e3) if nbytes > gpu.l2_bytes else 0
    )
    if memory > busy:
        busy, bound = memory, "memory"
    return Estimate(start + busy, bound, ctas / (gpu.sms * fitting), resident, loads)


def _joined(parts: Iterable[float]) -> float:
    """Cycles until all of `parts`, which overlap imperfectly, are done."""
    return float(sum(part**NORM for part in parts) ** (1 / NORM))


def _rates(gpu: Gpu) -> SmRates:
    return RATES.get(gpu.compute_capability, SmRates())


def _pipe_cycles(
    cta: Mapping[str, float], launch: LaunchConfig, resources: Resources, gpu: Gpu
) -> dict[str, float]:
    """Cycles of each pipe of an SM for one CTA. `cta` holds counters a CTA."""
    rates = _rates(gpu)

    def count(*names: str) -> float:
        return sum(cta.get(name, 0.0) for name in names)

    integer, fp32 = count("inst_int", "inst_predicate"), count("inst_fp32", "inst_fp16")
    instructions = count("instructions") - 0.7 * count("inst_move")  # ptxas folds most moves away
    spills = resources.spill_bytes * launch.threads / 128
    flop_a_clock = gpu.tensor_tflops * 1e3 / (gpu.sms * gpu.clock_ghz)
    tensor_instructions = count("inst_tensor")
    # a warp's share of a wgmma is eight times the largest mma.sync and more
    warpgroup = tensor_instructions and count("tensor_flop") / tensor_instructions > 8192
    tensor_rate = flop_a_clock * (1.0 if warpgroup else rates.mma_share)
    return {
        "issue": instructions / 4,
        "fp32": (fp32 + (integer if rates.fp32 > rates.integer else 0.0)) * 32 / rates.fp32,
        "integer": integer * 32 / rates.integer,
        "mufu": count("mufu") / rates.mufu,
        "convert": count("inst_convert") * 32 / rates.convert,
        "fp64": count("inst_fp64") * 32 / rates.fp64,
        "tensor": count("tensor_flop") / tensor_rate if tensor_rate else 0.0,
        "shared": (count("shared_wavefronts") + spills) / rates.shared_wavefronts,
        "l2": count("global_sectors_read", "global_sectors_written") * 32 / rates.l2_bytes,
    }


def _chain_cycles(cta: Mapping[str, float], launch: LaunchConfig) -> float:
    """Cycles that one warp needs by itself."""
    warps = -(-launch.threads // 32)
    return sum(cta.get(name, 0.0) * cycles for name, cycles in CHAIN_CYCLES.items()) / warps
