"""What cross-entropy kernels must beat: torch's own, compiled code, and libraries where installed."""

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


def _torch(problem: Problem, ignored: int) -> Baseline:
    import torch

    columns, lse = problem["columns"], bool(problem["lse"])

    def run(inputs: Mapping[str, Tensor]) -> Any:
        x = inputs["x"][:, :columns].float()
        loss = torch.nn.functional.cross_entropy(x, inputs["labels"], reduction="none", ignore_index=ignored)
        return {"loss": loss, "lse": x.logsumexp(-1)} if lse else {"loss": loss}

    return run


def quick(problem: Problem, ignored: int) -> dict[str, Baseline]:
    return {"torch_loss": _torch(problem, ignored)}


def patient(problem: Problem, ignored: int) -> dict[str, Baseline]:
    """Those that are compiled in their first call."""
    columns = problem["columns"]

    def quack() -> Baseline:
        cross_entropy = importlib.import_module("quack.cross_entropy").cross_entropy_fwd
        return lambda inputs: cross_entropy(
            inputs["x"][:, :columns], inputs["labels"], ignore_index=ignored, return_lse=bool(problem["lse"])
        )

    return {
        "compiled": _row.compiled(_torch(problem, ignored)),
        **_row.installed({"quack": ("quack", quack)}),
    }
