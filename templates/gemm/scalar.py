"""The product by fp32 multiply-adds: slow, and right at any size; for GPUs and sizes that no other serves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evo.gpu import Gpu
from evo.space import Parameter, Space, rule
from evo.task import load_module
from evo.trial import LaunchConfig, Problem, Value

call = load_module(Path(__file__).with_name("call.py"))

NEEDS = "sm_80"
ENTRY = "gemm_scalar"


@rule("more than 64 sums a thread, or less than one")
def sums_in_registers(p: Any, _limits: Any, _problem: Problem) -> Any:
    each = (p.bm // p.side) * (p.bn // p.side)
    return (each <= 64) & (p.bm >= p.side) & (p.bn >= p.side)


SPACE = Space(
    (
        Parameter("bm", (16, 32, 64, 128), 64, "macro", meaning="rows of a tile"),
        Parameter("bn", (16, 32, 64, 128), 64, "macro", meaning="columns of a tile"),
        Parameter("bk", (8, 16, 32), 16, meaning="terms that are in shared memory at once"),
        Parameter("side", (8, 16), 16, meaning="threads along each side of a tile"),
    ),
    (sums_in_registers,),
)


def smem_bytes(p: Any, _problem: Problem) -> Any:
    """sizeof(SharedStorage): both tiles as floats, a column more against conflicts of banks."""
    return 4 * p.bk * (p.bm + p.bn + 2)


def threads(p: Any, _problem: Problem) -> Any:
    return p.side * p.side


def supports(problem: Problem) -> str | None:
    reason: str | None = call.serves(problem)
    return reason


def tiles(p: Any, _problem: Problem) -> tuple[int, ...]:
    return p.bm, p.bn, p.bk


def derived(p: Any, problem: Problem) -> dict[str, Value]:
    found: dict[str, Value] = call.holes(problem, int(smem_bytes(p, problem))) | call.layout(problem)
    return found


def launch(p: Any, problem: Problem, _gpu: Gpu) -> LaunchConfig:
    return LaunchConfig(
        grid=(-(-problem["M"] // p.bm), -(-problem["N"] // p.bn), problem["batch"]),
        block=(threads(p, problem), 1, 1),
        smem_bytes=int(smem_bytes(p, problem)),
        args=(*call.buffers(problem), *call.scalars(problem)),
    )
