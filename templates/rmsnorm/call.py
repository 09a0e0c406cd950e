"""What every kernel of RMSNorm is called with."""

from __future__ import annotations

from pathlib import Path

from evo.task import load_module
from evo.trial import Problem, ScalarArg

kernels = load_module(Path(__file__).parents[1] / "include" / "row" / "kernels.py")
EPSILON = 1e-6


def operation(problem: Problem) -> kernels.Operation:  # type: ignore[name-defined]
    residual = bool(problem["residual"])
    return kernels.Operation(
        buffers=("x", *(("residual",) if residual else ()), "weight", "y"),
        scalars=(ScalarArg(EPSILON, "f32"),),
        streams=1 + residual,
        weights=1,
        gap=problem["gap"],
        holes={"residual": residual},
    )
