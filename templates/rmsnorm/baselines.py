"""What RMSNorm kernels must beat: torch's own, compiled code, a kernel in Triton, and libraries where they
are installed. Each takes the inputs by name and gives y; with a residual also that."""

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
DISTRIBUTIONS = ("triton", "liger-kernel", "quack-kernels", "flashinfer-python")


def quick(problem: Problem, epsilon: float) -> dict[str, Baseline]:
    """torch's own kernel, after an addition where there is a residual."""
    import torch

    columns = problem["columns"]

    def run(inputs: Mapping[str, Tensor]) -> Any:
        h = inputs["x"][:, :columns]
        if not problem["residual"]:
            return torch.nn.functional.rms_norm(h, (columns,), inputs["weight"], epsilon)
        h = h + inputs["residual"]
        return {"y": torch.nn.functional.rms_norm(h, (columns,), inputs["weight"], epsilon), "residual": h}

    return {"rms_norm": run}


def patient(problem: Problem, epsilon: float) -> dict[str, Baseline]:
    """Those that are compiled in their first call."""
    columns, residual = problem["columns"], bool(problem["residual"])

    def plain(inputs: Mapping[str, Tensor]) -> Any:
        h = inputs["x"][:, :columns].float()
        if residual:
            h = h + inputs["residual"].float()
        y = h * (h.square().mean(-1, keepdim=True) + epsilon).rsqrt() * inputs["weight"].float()
        y = y.to(inputs["x"].dtype)
        return {"y": y, "residual": h.to(inputs["x"].dtype)} if residual else y

    def liger() -> Baseline:
        functions = importlib.import_module("liger_kernel.ops.rms_norm").LigerRMSNormFunction
        return lambda inputs: functions.apply(inputs["x"][:, :columns], inputs["weight"], epsilon)

    def quack() -> Baseline:
        rmsnorm = importlib.import_module("quack.rmsnorm").rmsnorm

        def run(inputs: Mapping[str, Tensor]) -> Any:
            more = {"residual": inputs["residual"]} if residual else {}
            return rmsnorm(inputs["x"][:, :columns], inputs["weight"], eps=epsilon, **more)

        return run

    def flashinfer() -> Baseline:
        norm = importlib.import_module("flashinfer.norm")

        def run(inputs: Mapping[str, Tensor]) -> Any:
            x, weight = inputs["x"][:, :columns], inputs["weight"]
            if not residual:
                return norm.rmsnorm(x, weight, epsilon)
            norm.fused_add_rmsnorm(x, inputs["residual"], weight, epsilon)  # in place: y takes the place of x
            return {"y": x, "residual": inputs["residual"]}

        return run

    def triton() -> Baseline:
        kernel = load_module(Path(__file__).with_name("triton_rmsnorm.py"))
        return lambda inputs: kernel.rmsnorm(
            inputs["x"][:, :columns], inputs.get("residual"), inputs["weight"], epsilon
        )

    makers = {
        "triton": ("triton", triton),
        "quack": ("quack", quack),
        **({} if residual else {"liger": ("liger_kernel", liger)}),
        **({} if problem.dtype == "fp32" else {"flashinfer": ("flashinfer", flashinfer)}),
    }
    return {"compiled": _row.compiled(plain), **_row.installed(makers)}
