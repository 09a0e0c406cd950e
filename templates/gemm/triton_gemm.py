"""A product in Triton, tuned by its own autotuner over tiles, stages and warps: what its users write."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl

from evo.task import load_module
from evo.trial import Problem

_call = load_module(Path(__file__).with_name("call.py"))

TILES = (
    (128, 256, 64, 3, 8), (256, 128, 64, 3, 8), (128, 128, 64, 4, 8), (128, 128, 64, 4, 4),
    (64, 256, 64, 4, 8), (128, 64, 64, 5, 4), (64, 128, 64, 5, 4), (64, 64, 64, 6, 4), (32, 64, 128, 5, 4),
    (16, 64, 128, 6, 4),
)  # fmt: skip
"""Rows, columns, terms, stages and warps."""
PANEL = 8


@triton.autotune(
    [
        triton.Config({"BM": m, "BN": n, "BK": k}, num_stages=stages, num_warps=warps)
        for m, n, k, stages, warps in TILES
    ],
    key=["M", "N", "K"],
)
@triton.jit
def _kernel(
    a, b, c, M, N, K, am, ak, bk, bn, ab, bb,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PANEL: tl.constexpr,
):  # fmt: skip
    down, across = tl.cdiv(M, BM), tl.cdiv(N, BN)
    at, matrix = tl.program_id(0), tl.program_id(1).to(tl.int64)
    panel = at // (PANEL * across)
    first = panel * PANEL
    height = tl.minimum(down - first, PANEL)
    row, column = first + (at % (PANEL * across)) % height, (at % (PANEL * across)) // height
    rows, columns = row * BM + tl.arange(0, BM), column * BN + tl.arange(0, BN)
    terms = tl.arange(0, BK)
    a += matrix * ab
    b += matrix * bb
    from_a = a + (rows % M)[:, None] * am + terms[None, :] * ak
    from_b = b + terms[:, None] * bk + (columns % N)[None, :] * bn
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for done in range(0, tl.cdiv(K, BK)):
        left = K - done * BK
        x = tl.load(from_a, mask=terms[None, :] < left, other=0.0)
        y = tl.load(from_b, mask=terms[:, None] < left, other=0.0)
        sums = tl.dot(x, y, sums)
        from_a += BK * ak
        from_b += BK * bk
    to = c + matrix * M * N + rows[:, None] * N + columns[None, :]
    tl.store(to, sums.to(c.dtype.element_ty), mask=(rows[:, None] < M) & (columns[None, :] < N))


def gemm(problem: Problem, inputs: Mapping[str, torch.Tensor]) -> Any:
    """C, (batch, M, N); an epilogue is torch's, after it."""
    a, b = _call.matrices(problem, inputs)
    m, n, k, batch = (problem[name] for name in ("M", "N", "K", "batch"))
    plain = problem["epilogue"] == "none"
    kind = _call.rounded(problem) if plain else torch.float32
    c = torch.empty((batch, m, n), dtype=kind, device=a.device)
    _kernel[lambda config: (triton.cdiv(m, config["BM"]) * triton.cdiv(n, config["BN"]), batch)](
        a, b, c, m, n, k, a.stride(1), a.stride(2), b.stride(1), b.stride(2), a.stride(0), b.stride(0),
        PANEL=PANEL,
    )  # fmt: skip
    return c if plain else _call.finished(problem, c, inputs).to(_call.rounded(problem))
