"""What softmax kernels must beat: torch's own, compiled code, and libraries where they are installed."""

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


def _torch(problem: Problem) -> Baseline:
    columns, log = problem["columns"], bool(problem["log"])

    def run(inputs: Mapping[str, Tensor]) -> Any:
        x = inputs["x"][:, :columns]
        return x.log_softmax(-1) if log else x.softmax(-1)

    return run


def quick(problem: Problem) -> dict[str, Baseline]:
    return {"torch_softmax": _torch(problem)}


def patient(problem: Problem) -> dict[str, Baseline]:
    """Those that are compiled in their first call."""
    columns = problem["columns"]

    def quack() -> Baseline:
        softmax = importlib.import_module("quack.softmax").softmax
        return lambda inputs: softmax(inputs["x"][:, :columns])

    def liger() -> Baseline:
        function = importlib.import_module("liger_kernel.ops.softmax").LigerSoftmaxFunction
        return lambda inputs: function.apply(inputs["x"][:, :columns])

    makers = {} if problem["log"] else {"quack": ("quack", quack), "liger": ("liger_kernel", liger)}
    return {"compiled": _row.compiled(_torch(problem)), **_row.installed(makers)}
