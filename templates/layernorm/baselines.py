"""What LayerNorm kernels must beat: torch's own, compiled code, and libraries where they are installed."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evo.task import Baseline, load_module
from evo.trial import Problem

if TYPE_CHECKING:
    from torch import Tensor

_row = load_module(Path(__file__).parents[1] / "include" / "row" / "baselines.py")
DISTRIBUTIONS = ("triton", "liger-kernel", "quack-kernels")


def _torch(problem: Problem, epsilon: float) -> Baseline:
    import torch

    columns = problem["columns"]

    def run(inputs: Mapping[str, Tensor]) -> Any:
        norm = torch.nn.functional.layer_norm
        return norm(inputs["x"][:, :columns], (columns,), inputs["weight"], inputs["bias"], epsilon)

    return run


def quick(problem: Problem, epsilon: float) -> dict[str, Baseline]:
    return {"layer_norm": _torch(problem, epsilon)}


def patient(problem: Problem, epsilon: float) -> dict[str, Baseline]:
    """Those that are compiled in their first call."""
    columns = problem["columns"]

    def liger() -> Baseline:
        function = importlib.import_module("liger_kernel.ops.layer_norm").LigerLayerNormFunction
        return lambda inputs: function.apply(
            inputs["x"][:, :columns], inputs["weight"], inputs["bias"], epsilon
        )

    return {
        "compiled": _row.compiled(_torch(problem, epsilon)),
        **_row.installed({"liger": ("liger_kernel", liger)}),
    }
