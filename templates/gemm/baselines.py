"""What kernels of the product must beat: torch.matmul, cuBLASLt by its algorithms, torch.compile, Triton.

Each takes the inputs by name and gives c. `cublaslt` is there where nvmath-python is installed: it asks the
library for up to 32 algorithms of its heuristics, and evo's own stopwatch times them all; the one that is
chosen is named with its place among them. torch.matmul is what the library's heuristics put first.
"""

from __future__ import annotations

import functools
import importlib.util
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evo.task import Baseline, load_module
from evo.trial import Problem

if TYPE_CHECKING:
    from torch import Tensor

_call = load_module(Path(__file__).with_name("call.py"))
DISTRIBUTIONS = ("nvmath-python", "nvidia-cublas", "nvidia-cublas-cu12", "triton")


def quick(problem: Problem) -> dict[str, Baseline]:
    """torch's own, as written; where there is an epilogue that is more than one kernel."""
    return {"matmul": matmul(problem)}


def runs(run: Baseline, tensors: Mapping[str, Tensor]) -> bool:
    """Whether torch has this for these tensors: it says so by a RuntimeError."""
    try:
        run(tensors)
    except RuntimeError:
        return False
    return True


def matmul(problem: Problem) -> Baseline:
    """torch.addmm where a bias or a residual is added (one kernel of cuBLASLt), else torch.matmul. With fp32
    out torch's mm of that out_dtype on a GPU; on a CPU, where there is none, of fp32 inputs."""
    import torch

    kind, wide = problem["epilogue"], problem["out"] == "fp32"

    def product(a: Tensor, b: Tensor) -> Tensor:
        if not wide:
            return torch.matmul(a, b)
        if not a.is_cuda:
            return torch.matmul(a.float(), b.float())
        return torch.bmm(a, b, out_dtype=torch.float32)

    def run(inputs: Mapping[str, Tensor]) -> Any:
        a, b = _call.matrices(problem, inputs)
        if kind in ("bias", "residual") and not wide:
            other = inputs[kind]
            if kind == "residual":
                return torch.baddbmm(other, a, b)
            if problem["batch"] == 1:
                return torch.addmm(other, a[0], b[0])[None]
        c = product(a, b)
        if kind == "none":
            return c
        return _call.finished(problem, c, inputs).to(_call.rounded(problem))

    return run


def patient(problem: Problem) -> dict[str, Baseline]:
    """Those that are compiled, or choose among algorithms, in their first call."""
    found: dict[str, Baseline] = {"compiled": _compiled(problem)}
    if _installed("triton") and problem["gap"] == 0:
        kernel = Path(__file__).with_name("triton_gemm.py")
        triton = functools.cache(lambda: load_module(kernel))
        found["triton"] = _explained(lambda inputs: triton().gemm(problem, inputs))
    if _installed("nvmath") and problem["epilogue"] == "none":
        found["cublaslt"] = load_module(Path(__file__).with_name("cublaslt.py")).tunable(problem)
    return found


def _installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _explained(run: Baseline) -> Baseline:
    """Compilers raise anything; a baseline raises RuntimeError."""

    @functools.wraps(run)
    def explained(inputs: Mapping[str, Tensor]) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return run(inputs)
        except Exception as error:
            raise RuntimeError(f"{type(error).__name__}: {error}") from error

    return explained


def _compiled(problem: Problem) -> Baseline:
    """The product and its epilogue by torch.compile, tuned as far as it goes."""
    import torch

    tuned = torch.compile(matmul(problem), dynamic=False, fullgraph=True, mode="max-autotune-no-cudagraphs")
    return _explained(tuned)
