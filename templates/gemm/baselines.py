"""What kernels of the product must beat: torch.matmul, cuBLASLt by its algorithms, torch.compile, Triton.

Each takes the inputs by name and gives c. `cublaslt` is there where nvmath-python is installed: it asks the
library for up to CANDIDATES algorithms of its heuristics, and evo's own stopwatch times them all; the one
that is chosen is named with its place among them. torch.matmul is what the library's heuristics put first.
"""

from __future__ import annotations

import functools
import importlib.util
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evo.task import Baseline, Tunable, load_module
from evo.trial import Problem

if TYPE_CHECKING:
    from torch import Tensor

_call = load_module(Path(__file__).with_name("call.py"))
DISTRIBUTIONS = ("nvmath-python", "nvidia-cublas", "nvidia-cublas-cu12", "triton")
CANDIDATES = 32
"""Algorithms that cuBLASLt is asked for; it gives fewer where it knows fewer."""


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
        chosen = cublaslt(problem)
        if chosen is not None:
            found["cublaslt"] = chosen
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


def cublaslt(problem: Problem) -> Tunable | None:
    """cuBLASLt by each of up to CANDIDATES algorithms. A plan is bound to the tensors that it was made for,
    so each variant makes one for every set of inputs that it meets. None where a wider result is asked for,
    which nvmath's plans do not give."""
    if problem["out"] != "same":
        return None
    variants: dict[str, Baseline] = {}
    for number in range(CANDIDATES):
        variants[f"algorithm {number} of at most {CANDIDATES}"] = _explained(_algorithm(problem, number))
    return Tunable(variants)


def _algorithm(problem: Problem, number: int) -> Baseline:
    plans: dict[tuple[int, int], Any] = {}

    def run(inputs: Mapping[str, Tensor]) -> Any:
        a, b = _call.matrices(problem, inputs)
        key = (a.data_ptr(), b.data_ptr())
        if key not in plans:
            plans[key] = _planned(a, b, number)
        return plans[key].execute()

    return run


def _planned(a: Tensor, b: Tensor, number: int) -> Any:
    """A plan of nvmath for these operands, by its algorithm `number`."""
    from nvmath.linalg import advanced  # type: ignore[import-not-found]

    one = a.shape[0] == 1
    plan = advanced.Matmul(a[0] if one else a, b[0] if one else b)
    algorithms = plan.plan(preferences=advanced.MatmulPlanPreferences(limit=CANDIDATES))
    if number >= len(algorithms):
        plan.free()
        raise IndexError(f"cuBLASLt knows {len(algorithms)} algorithms here")
    return _Chosen(plan, algorithms[number], one)


class _Chosen:
    """A plan and one of its algorithms."""

    def __init__(self, plan: Any, algorithm: Any, one: bool) -> None:
        self._plan, self._algorithm, self._one = plan, algorithm, one

    def execute(self) -> Any:
        c = self._plan.execute(algorithm=self._algorithm)
        return c[None] if self._one else c
