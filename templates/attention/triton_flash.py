"""FlashAttention's forward pass in Triton: a tile of queries a program, online softmax over tiles of keys.

A baseline, and nothing that evo searches: it is what a person writes in Triton in an hour.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl


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


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, **tiles: int) -> torch.Tensor:
    """softmax(q kᵀ / √D) v of (B, H, L, D) tensors, D a power of two. `tiles`: ROWS and KEYS of a tile,
    num_stages, num_warps."""
    b, h, length, d = q.shape
    o = torch.empty_like(q)
    grid = (triton.cdiv(length, tiles["ROWS"]), b * h)
    scale_log2 = math.log2(math.e) / math.sqrt(d)
    _flash[grid](q, k, v, o, length, scale_log2, D=d, CAUSAL=causal, **tiles)
    return o
