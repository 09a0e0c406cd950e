"""What ncu's metrics say of one launch: how busy each unit was, what warps waited for, occupancy and
bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping

from evo.explain import ncu

_PERCENT = r"\.avg\.pct_of_peak_sustained_elapsed"
UNITS: Mapping[str, tuple[str, ...]] = {
    "SM (its busiest part)": ("sm__throughput" + _PERCENT,),
    "Tensor Cores": (
        "sm__pipe_tensor_cycles_active" + _PERCENT,
        r"sm__pipe_tensor\w*_cycles_active" + _PERCENT,
        r"sm__inst_executed_pipe_tensor\w*" + _PERCENT,
    ),
    "multiply-add pipe": ("sm__pipe_fma_cycles_active" + _PERCENT,),
    "integer and logic pipe": ("sm__pipe_alu_cycles_active" + _PERCENT,),
    "special functions": ("sm__inst_executed_pipe_xu" + _PERCENT,),
    "L1 and shared memory": ("l1tex__throughput" + _PERCENT,),
    "L2": ("lts__throughput" + _PERCENT,),
    "DRAM": ("dram__throughput" + _PERCENT, "gpu__dram_throughput" + _PERCENT),
}
"""Units -> the metrics that say how busy they are; the first one that the GPU has is used. All are of the
whole duration, launch and end included, so that they can be compared."""
_STALL = r"smsp__average_warps_issue_stalled_(\w+?)_per_issue_active\.ratio"
STALLS: Mapping[str, str] = {
    "long_scoreboard": "loads from global or local memory",
    "short_scoreboard": "shared memory and special functions",
    "barrier": "barriers of the CTA",
    "membar": "memory fences",
    "wait": "fixed latencies between instructions",
    "math_pipe_throttle": "a full arithmetic pipe",
    "mio_throttle": "a full queue to shared memory",
    "lg_throttle": "a full queue to global memory",
    "tex_throttle": "a full queue to L1",
    "no_instruction": "instructions not in the cache",
    "dispatch_stall": "dispatch",
    "gmma": "warpgroup products (wgmma)",
    "sleeping": "sleeping",
    "branch_resolving": "branches",
    "drain": "stores at the end",
    "imc_miss": "the constant cache",
    "warpgroup_arrive": "a warpgroup's arrival",
}
"""What a warp waits for, by ncu's name of the stall."""


def measured_units(metrics: Mapping[str, float]) -> dict[str, float]:
    """Per cent of its peak, by unit, as far as the GPU has the counters."""
    found = {name: ncu.value(metrics, *patterns) for name, patterns in UNITS.items()}
    return {name: percent for name, percent in found.items() if percent is not None}


def measured_stalls(metrics: Mapping[str, float]) -> dict[str, float]:
    """What warps wait for, as shares of all waiting, the largest first. Warps that were ready, or running, do
    not wait."""
    found = {}
    for name, cycles in metrics.items():
        match = re.fullmatch(_STALL, name)
        if match and match[1] not in ("selected", "not_selected") and cycles > 0:
            found[match[1]] = cycles
    total = sum(found.values())
    return {name: cycles / total for name, cycles in sorted(found.items(), key=lambda item: -item[1])}


def measured_numbers(metrics: Mapping[str, float]) -> dict[str, float]:
    """Occupancy, waves, conflicts and bytes, by our names."""
    wanted = {
        "occupancy_percent": r"sm__warps_active\.avg\.pct_of_peak_sustained_active",
        "waves": r"launch__waves_per_multiprocessor",
        "bank_conflicts_load": r"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld\.sum",
        "bank_conflicts_store": r"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st\.sum",
        "dram_bytes_read": r"dram__bytes_read\.sum",
        "dram_bytes_written": r"dram__bytes_write\.sum",
        "l2_bytes": r"lts__t_bytes\.sum",
        "sm_ghz": r"sm__cycles_elapsed\.avg\.per_second",
    }
    found = {name: ncu.value(metrics, pattern) for name, pattern in wanted.items()}
    if found["sm_ghz"]:
        found["sm_ghz"] /= 1e9
    active = ncu.value(metrics, r"sm__cycles_active\.avg")
    elapsed = ncu.value(metrics, r"sm__cycles_elapsed\.avg")
    if active is not None and elapsed:
        found["active_percent"] = 100 * active / elapsed
    return {name: number for name, number in found.items() if number is not None}


def stall_text(stall: str) -> str:
    """What a warp waits for, in words."""
    return STALLS.get(stall, stall.replace("_", " "))
