"""FlashAttention's forward pass in Triton: a tile of queries a program, online softmax over tiles of keys.

A baseline, and nothing that evo searches: it is what a person writes in Triton in an hour, tuned by Triton.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl


def _configurations() -> list[Any]:
    return [
        triton.Config({"ROWS": rows, "KEYS": keys}, num_warps=warps, num_stages=stages)
        for rows, warps in ((64, 4), (128, 4), (128, 8))
        for keys in (64, 128)
        for stages in (2, 3)
    ]


@triton.autotune(configs=_configurations(), key=["length", "D", "CAUSAL"])
@triton.jit
def _flash(
    q, k, v, o, length, scale_log2, D: tl.constexpr, CAUSAL: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1).to(tl.int64) * length * D
    first = tl.program_id(0) * ROWS
    rows = first + tl.arange(0, ROWS)
    columns = tl.arange(0, D)
    keys = tl.arange(0, KEYS)
    mine = tl.load(q + head + rows[:, None] * D + columns[None, :], mask=rows[:, None] < length, other=0.0)
    highest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    out = tl.zeros([ROWS, D], tl.float32)
    end = tl.minimum(first + ROWS, length) if CAUSAL else length
    for at in range(0, end, KEYS):
        inside = at + keys < length
        these = tl.load(
            k + head + (at + keys[None, :]) * D + columns[:, None], mask=inside[None, :], other=0.0
        )
        scores = tl.dot(mine, these) * scale_log2
        visible = inside[None, :]
        if CAUSAL:
            visible = visible & (rows[:, None] >= at + keys[None, :])
        scores = tl.where(visible, scores, float("-inf"))
        higher = tl.maximum(highest, tl.max(scores, 1))
        weights = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(highest - higher)
        total = total * shrink + tl.sum(weights, 1)
        values = tl.load(
            v + head + (at + keys[:, None]) * D + columns[None, :], mask=inside[:, None], other=0.0
        )
        out = tl.dot(weights.to(values.dtype), values, out * shrink[:, None])
        highest = higher
    out = out / total[:, None]
    tl.store(
        o + head + rows[:, None] * D + columns[None, :],
        out.to(o.dtype.element_ty),
        mask=rows[:, None] < length,
    )


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """softmax(q kᵀ / √D) v of (B, H, L, D) tensors, D a power of two."""
    b, h, length, d = q.shape
    o = torch.empty_like(q)
    scale_log2 = math.log2(math.e) / math.sqrt(d)

    def grid(chosen: dict[str, int]) -> tuple[int, int]:
        return triton.cdiv(length, chosen["ROWS"]), b * h

    _flash[grid](q, k, v, o, length, scale_log2, D=d, CAUSAL=causal)
    return o


def tuned() -> str:
    """What Triton's tuner chose in the first call."""
    best = _flash.best_config
    return " ".join(f"{name}={value}" for name, value in best.all_kwargs().items() if value is not None)
