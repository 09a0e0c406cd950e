"""What every kernel of cross-entropy is called with."""

from __future__ import annotations

from pathlib import Path

from evo.task import load_module
from evo.trial import Problem, ScalarArg

kernels = load_module(Path(__file__).parents[1] / "include" / "row" / "kernels.py")
IGNORED = -100


def operation(problem: Problem) -> kernels.Operation:  # type: ignore[name-defined]
    return kernels.Operation(
        buffers=("x", "labels", "loss", *(("lse",) if problem["lse"] else ())),
        scalars=(ScalarArg(IGNORED, "i32"),),
        floats=2,
        online_floats=2,
        gap=problem["gap"],
        holes={"lse": bool(problem["lse"])},
    )
