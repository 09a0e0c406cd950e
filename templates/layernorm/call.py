"""What every kernel of LayerNorm is called with."""

from __future__ import annotations

from pathlib import Path

from evo.task import load_module
from evo.trial import Problem, ScalarArg

kernels = load_module(Path(__file__).parents[1] / "include" / "row" / "kernels.py")
EPSILON = 1e-5


def operation(problem: Problem) -> kernels.Operation:  # type: ignore[name-defined]
    return kernels.Operation(
        buffers=("x", "weight", "bias", "y"),
        scalars=(ScalarArg(EPSILON, "f32"),),
        weights=2,
        floats=2,
        online_floats=3,
        one_pass=True,
        gap=problem["gap"],
    )
