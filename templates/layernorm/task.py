"""y = (x - mean) / √(variance + 1e-5) · weight + bias; mean and variance (of the whole row) are a row's own.

x, y: (rows, columns); weight, bias: (columns,); fp16, bf16 or fp32. Rows of x may have a gap between them. A
row whose elements are all equal gives bias, as far as fp32 goes. Nothing is promised for NaN and infinity.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from evo.task import Baseline, DeclaredTensor, Flag, In, Out, load_module
from evo.trial import Problem

if TYPE_CHECKING:
    from torch import Tensor

_row = load_module(Path(__file__).parents[1] / "include" / "row" / "row_task.py")
_baselines = load_module(Path(__file__).with_name("baselines.py"))
EPSILON = 1e-5


class LayerNorm(_row.RowTask):  # type: ignore[name-defined, misc]
    """The families of evo.task.tensors suit it: `small` shows a wrong epsilon, `alike` a variance that is not
    0 where it should be, `large` sums that overflow fp16, `spike` a mean that one element carries; in each
    case some rows are far from 0, where squares without the mean cancel."""

    name = "layernorm"
    flags: Mapping[str, Flag] = {"gap": _row.GAP}
    tensors: Mapping[str, DeclaredTensor] = {
        "x": In("rows", "columns", gap="gap"),
        "weight": In("columns"),
        "bias": In("columns"),
        "y": Out("rows", "columns"),
    }
    packages = _baselines.DISTRIBUTIONS

    @property
    def problems(self) -> Mapping[str, tuple[Problem, ...]]:
        """Prefill and decoding of language models, and problem 40 of KernelBench's level 1."""
        at = self.problem_of
        return {
            "prefill": (*(at(*shape) for shape in _row.PREFILL), at(2048, 4096, "fp16")),
            "decoding": tuple(at(r, c) for r in _row.DECODING_ROWS for c in _row.DECODING_COLUMNS),
            "kernelbench": (at(16, 64 * 256 * 256, "fp32"),),
        }

    def compute(self, problem: Problem, inputs: Mapping[str, Tensor]) -> Tensor:
        x = self.x(problem, inputs)
        apart = x - x.mean(-1, keepdim=True)
        factor = (apart.square().mean(-1, keepdim=True) + EPSILON).rsqrt()
        return apart * factor * inputs["weight"] + inputs["bias"]

    def baselines(
        self, problem: Problem, torch_device: str = "cuda", patient: bool = False
    ) -> dict[str, Baseline]:
        found: dict[str, Baseline] = _baselines.quick(problem, EPSILON)
        return found | (_baselines.patient(problem, EPSILON) if patient and torch_device != "cpu" else {})


TASK = LayerNorm()
