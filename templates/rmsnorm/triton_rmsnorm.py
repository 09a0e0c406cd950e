"""RMSNorm in Triton: a program a row, which is read once where it fits a block, else twice."""

from __future__ import annotations

from typing import Any

import torch
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]

LARGEST_BLOCK = 16384
"""Columns of a block: longer rows are read twice."""


@triton.jit  # type: ignore[untyped-decorator]
def _row(
    x, residual, weight, y, pitch, columns, epsilon,
    ADD: tl.constexpr, BLOCK: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((BLOCK,), tl.float32)
    h = total  # Triton forgets what only a loop defines
    for begin in range(0, columns, BLOCK):
        at = begin + tl.arange(0, BLOCK)
        h = tl.load(x + row * pitch + at, at < columns, 0.0).to(tl.float32)
        if ADD:
            h += tl.load(residual + row * columns + at, at < columns, 0.0).to(tl.float32)
        total += h * h
    factor = 1 / tl.sqrt(tl.sum(total) / columns + epsilon)
    for begin in range(0, columns, BLOCK):
        at = begin + tl.arange(0, BLOCK)
        if not WHOLE:
            h = tl.load(x + row * pitch + at, at < columns, 0.0).to(tl.float32)
            if ADD:
                h += tl.load(residual + row * columns + at, at < columns, 0.0).to(tl.float32)
        if ADD:
            tl.store(residual + row * columns + at, h, at < columns)
        w = tl.load(weight + at, at < columns, 0.0).to(tl.float32)
        tl.store(y + row * columns + at, h * factor * w, at < columns)


def rmsnorm(x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, epsilon: float) -> Any:
    """y; with a `residual`, which is changed in place, y and residual by name."""
    rows, columns = x.shape
    y = torch.empty((rows, columns), dtype=x.dtype, device=x.device)
    block = min(LARGEST_BLOCK, triton.next_power_of_2(columns))
    _row[(rows,)](
        x, residual, weight, y, x.stride(0), columns, epsilon,
        ADD=residual is not None, BLOCK=block, WHOLE=columns <= block,
        num_warps=min(16, max(1, block // 512)),
    )  # fmt: skip
    return y if residual is None else {"y": y, "residual": residual}
