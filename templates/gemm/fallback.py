"""What serves where no kernel does. Exported folders have a copy: it imports torch alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

NAME = "torch.matmul"


def fallback(inputs: Mapping[str, torch.Tensor], flags: Mapping[str, Any]) -> torch.Tensor:
    """torch.matmul; with a bias or a residual torch.addmm or baddbmm, which round once. With fp32 out, sums
    of fp32. GELU, SiLU and the scale are those of a rounded product, as torch has them."""
    layout, kind, wide = flags["layout"], flags["epilogue"], flags["out"] == "fp32"
    a, b = (x[..., : x.shape[-1] - flags["gap"]] for x in (inputs["a"], inputs["b"]))
    a, b = a.mT if layout[0] == "T" else a, b.mT if layout[1] == "T" else b
    if kind == "residual" and not wide:
        return torch.baddbmm(inputs["residual"], a, b)
    if kind == "bias" and not wide and len(a) == 1:
        return torch.addmm(inputs["bias"], a[0], b[0])[None]
    sums = _wide(a, b) if wide else torch.matmul(a, b)
    if kind == "none":
        return sums
    found = _finished(kind, sums.float(), inputs)
    return found if wide else found.to(a.dtype)


def _wide(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Sums of fp32 that are not rounded. torch's product with another type of output has no gradient."""
    if a.is_cuda and not (torch.is_grad_enabled() and (a.requires_grad or b.requires_grad)):
        return torch.bmm(a, b, out_dtype=torch.float32)
    return torch.matmul(a.float(), b.float())


def _finished(kind: str, sums: torch.Tensor, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    other = inputs[kind.partition("_")[0]].float()
    if kind == "scale":
        return sums * other
    if kind == "bias_gelu":
        return torch.nn.functional.gelu(sums + other, approximate="tanh")
    return torch.nn.functional.silu(sums + other) if kind == "bias_silu" else sums + other
