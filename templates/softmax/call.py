"""What every kernel of softmax is called with."""

from __future__ import annotations

from pathlib import Path

from evo.task import load_module
from evo.trial import Problem

kernels = load_module(Path(__file__).parents[1] / "include" / "row" / "kernels.py")


def operation(problem: Problem) -> kernels.Operation:  # type: ignore[name-defined]
    return kernels.Operation(
        buffers=("x", "y"),
        floats=2,
        online_floats=2,
        gap=problem["gap"],
        holes={"log": bool(problem["log"])},
    )
