"""y = (x - mean) / √(variance + 1e-5) · weight + bias; mean and variance (of the whole row) are a row's own.

x, y: (rows, columns); weight, bias: (columns,); fp16, bf16 or fp32. Rows of x may have a gap between them. A
row whose elements are all equal gives bias, as far as fp32 goes. Nothing is promised for NaN and infinity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from evo.task import Baseline, DeclaredTensor, Flag, In, Out, load_module
from evo.trial import Problem

if TYPE_CHECKING:
    from torch import Tensor

_row = load_module(Path(__file__).parents[1] / "include" / "row" / "row_task.py")
_baselines = load_module(Path(__file__).with_name("baselines.py"))
EPSILON = 1e-5
SHIFTED, APART = 2048.0, 2.0**-10
"""What rows of the family `far_from_zero` lie just below; the least relative distance of their two numbers,
that of fp16: were they closer, the mean of an honest kernel would be none any more, either."""


class LayerNorm(_row.RowTask):  # type: ignore[name-defined, misc]
    """The families of evo.task.tensors suit it: `small` shows a wrong epsilon, `alike` a variance that is not
    0 where it should be, `large` sums that overflow fp16, `spike` a mean that one element carries. One more,
    `far_from_zero`, has rows so far from 0 that E[x²] - E[x]² is no variance any more."""

    name = "layernorm"
    families = replace(_row.RowTask.families, others=("small", "far_from_zero"))
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

    def inputs(self, problem: Problem, family: str, seed: int, torch_device: str) -> dict[str, Tensor]:
        """Those of all row kernels; in the family `far_from_zero` each element of x is one of two neighbours
        below SHIFTED, of one sign in a row."""
        import torch

        far = family == "far_from_zero"
        found: dict[str, Tensor] = super().inputs(problem, "normal" if far else family, seed, torch_device)
        if far:
            x = found["x"]
            rng = torch.Generator(device=torch_device).manual_seed(seed)
            steps = 1 + torch.randint(2, x.shape, generator=rng, device=x.device)
            sign = 1 - 2 * (torch.arange(len(x), device=x.device)[:, None] % 2)
            x.copy_(sign * (SHIFTED - SHIFTED / 2 * max(torch.finfo(x.dtype).eps, APART) * steps))
        return found

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
