"""y = h / √(mean of h² + 1e-6) · weight with h = x, or h = x + residual, which is then written back.

x, residual, y: (rows, columns); weight: (columns,); fp16, bf16 or fp32. The mean is that of a row. h is not
rounded before it is normalised, and residual holds h, rounded, afterwards. Rows of x may have a gap between
them; the other matrices are dense. Nothing is promised for NaN, infinity, and rows whose squares are beyond
fp32.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from evo.task import Baseline, DeclaredTensor, Flag, In, InOut, Out, load_module
from evo.trial import Problem

if TYPE_CHECKING:
    from torch import Tensor

_row = load_module(Path(__file__).parents[1] / "include" / "row" / "row_task.py")
_baselines = load_module(Path(__file__).with_name("baselines.py"))
EPSILON = 1e-6


class RmsNorm(_row.RowTask):  # type: ignore[name-defined, misc]
    """The families of evo.task.tensors suit it: `small` shows a wrong epsilon (the mean of squares is about
    as large), `large` squares that overflow fp16, `spike` one element that outweighs all others, `alike`
    equal ones, `normal` and `peaky` a lost tail."""

    name = "rmsnorm"
    flags: Mapping[str, Flag] = {
        "residual": Flag(meaning="A residual is added first, and the sum is written back."),
        "gap": _row.GAP,
    }
    tensors: Mapping[str, DeclaredTensor] = {
        "x": In("rows", "columns", gap="gap"),
        "residual": InOut("rows", "columns", when="residual"),
        "weight": In("columns"),
        "y": Out("rows", "columns"),
    }
    packages = _baselines.DISTRIBUTIONS

    @property
    def problems(self) -> Mapping[str, tuple[Problem, ...]]:
        """Decoding and prefill of language models, QuACK's figure, and problem 36 of KernelBench's level 1,
        with its features as columns. The first one is the example."""
        at = self.problem_of
        return {
            "prefill": tuple(at(*shape) for shape in _row.PREFILL),
            "decoding": tuple(at(r, c) for r in _row.DECODING_ROWS for c in _row.DECODING_COLUMNS),
            "residual": (at(2048, 4096, residual=True), at(1, 4096, residual=True)),
            "quack": tuple(at(*shape) for shape in _row.QUACK),
            "kernelbench": (at(112 * 512 * 512, 64, "fp32"),),
        }

    def compute(self, problem: Problem, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        h = self.x(problem, inputs)
        if problem["residual"]:
            h = h + inputs["residual"]
        y = h * (h.square().mean(-1, keepdim=True) + EPSILON).rsqrt() * inputs["weight"]
        return {"y": y, "residual": h} if problem["residual"] else {"y": y}

    def baselines(
        self, problem: Problem, torch_device: str = "cuda", patient: bool = False
    ) -> dict[str, Baseline]:
        found: dict[str, Baseline] = _baselines.quick(problem, EPSILON)
        return found | (_baselines.patient(problem, EPSILON) if patient and torch_device != "cpu" else {})


TASK = RmsNorm()
