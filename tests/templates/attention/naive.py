"""A template to test the machinery with: one thread a row, and a parameter that changes nothing."""

from __future__ import annotations

import math
from typing import Any

from evo.gpu import Limits
from evo.space import Parameter, Space, rule
from evo.trial import BufferArg, LaunchConfig, Point, Problem, ScalarArg, Value

NEEDS = "sm_80"
ENTRY = "naive"


@rule("more than half of the {problem[L]} rows would be idle")
def rows_are_used(p: Any, _limits: Limits, problem: Problem) -> Any:
    return (p.rows <= 8) | (p.rows <= 2 * problem["L"])


SPACE = Space(
    (
        Parameter("rows", (8, 16, 32), 16, "macro", meaning="query rows a CTA"),
        Parameter("unroll", (1, 2, 4), 2, off=1, meaning="dot products unrolled", expected="fewer branches"),
        Parameter("dead", (0, 1, 2), 0, meaning="changes no machine code"),
    ),
    (rows_are_used,),
)


def smem_bytes(p: Any, problem: Problem) -> Any:
    return p.rows * problem["D"] * 4


def threads(p: Any, _problem: Problem) -> Any:
    return p.rows


def tiles(point: Point, _problem: Problem) -> tuple[int, ...]:
    return (int(point["rows"]),)


def derived(p: Any, problem: Problem) -> dict[str, Value]:
    return {
        "smem_bytes": smem_bytes(p, problem),
        "dim": problem["D"],
        "causal": bool(problem["causal"]),
        "element": {"fp16": "__half", "bf16": "__nv_bfloat16"}[problem.dtype],
    }


def launch(p: Any, problem: Problem, _gpu: Any) -> LaunchConfig:
    length = problem["L"]
    return LaunchConfig(
        grid=(-(-length // p.rows), problem["B"] * problem["H"], 1),
        block=(p.rows, 1, 1),
        smem_bytes=smem_bytes(p, problem),
        args=(
            *(BufferArg(name) for name in "qkvo"),
            ScalarArg(length, "i32"),
            ScalarArg(math.log2(math.e) / math.sqrt(problem["D"]), "f32"),
        ),
    )
