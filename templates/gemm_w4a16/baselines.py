"""What kernels of 4-bit weights must beat: torch, which makes fp16 weights of them and multiplies.

Marlin, whose published times are the goal, comes with no wheel that this package could install."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from evo.task import Baseline, load_module
from evo.trial import Problem

if TYPE_CHECKING:
    from torch import Tensor

_packing = load_module(Path(__file__).with_name("packing.py"))
_row = load_module(Path(__file__).parents[1] / "include" / "row" / "baselines.py")


def dequantised(problem: Problem, inputs: Mapping[str, Tensor]) -> Tensor:
    """(N, K): the weights in fp16, each rounded once."""
    codes = _packing.codes_of(inputs["w4"]).view(problem["N"], -1, _packing.GROUP).to(inputs["scales"].dtype)
    zeros = inputs["zeros"][..., None] if problem["zeros"] else 8
    return ((codes - zeros) * inputs["scales"][..., None]).view(problem["N"], problem["K"])


def quick(problem: Problem) -> dict[str, Baseline]:
    """torch's own kernels one after the other."""

    def run(inputs: Mapping[str, Tensor]) -> Tensor:
        return inputs["x"] @ dequantised(problem, inputs).T

    return {"dequantise": run}


def patient(problem: Problem) -> dict[str, Baseline]:
    """The same by torch.compile, tuned as far as it goes."""
    return {"compiled": _row.compiled(quick(problem)["dequantise"])}
