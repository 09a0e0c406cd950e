"""What is promised of the numbers of each input family of attention, and the family of the largest ones.

All inputs are finite. Of NaN and infinity in inputs nothing is promised: points of flash_wgmma_split whose
exponentials are polynomials hide a NaN of K.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING, NamedTuple

from evo.dtype import dtype_named
from evo.trial import Problem

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Range = tuple[float, float]

_NOISE: Mapping[str, Range] = {"q": (1, 8), "k": (1, 8), "v": (1, 8)}
RANGES: Mapping[str, Mapping[str, Range]] = {
    "normal": {**_NOISE, "score": (0, 12)},
    "peaky": {**_NOISE, "q": (4, 30), "k": (1, 14), "score": (0.5, 80)},
    "ascending": {**_NOISE, "q": (0.05, 4), "k": (0.1, 40), "score": (0, 130)},
    "large_logits": {**_NOISE, "q": (2, 8), "k": (2, 8), "score": (50, 130)},
    "offset_v": {**_NOISE, "k": (1, 14), "q": (1, 14), "v": (4, 12), "score": (0, 60)},
    "equal_keys": {**_NOISE, "k": (1, 14), "q": (1, 14), "score": (0, 60)},
    "huge_end": {**_NOISE, "k": (4, 14), "q": (1, 14), "score": (1, 130)},
    "tiny": {"q": (1, 14), "k": (1, 14), "v": (2.0**-41, 2.0**-9), "score": (0, 60)},
    "large": {"q": (50, 3e3), "k": (2, 40), "v": (3e4, 1e31), "dot": (2e3, 9e4), "score": (200, 2e4)},
    "outgrown": {"q": (20, 6e3), "k": (1, 8), "v": (2.0**-14, 8), "score": (0, 1400)},
    "spike": {**_NOISE, "q": (30, 800), "k": (1, 8), "margin": (100, math.inf), "score": (200, 2600)},
}
"""Family -> what is measured of its inputs (see `measures`), and between what it lies, whatever the size, the
flags, the storage type and the seed."""

LARGE_DOT, FEW_ROWS = 8e4, 64
"""The largest product of Q and K in the family `large`: more than fp16 holds. Where there are fewer rows than
FEW_ROWS it is about 3000: a score of 10^4, rounded in fp32, moves a weight by 5e-4, and a limit that is
drawn from so few rows need not allow that."""
LOWEST = 1000
"""All scores of some queries of the family `spike` are below minus this."""
TINY = {"fp16": 2.0**-12, "bf16": 2.0**-40}
"""Values of the family `tiny`: means of them are below the normal numbers of fp16, and far above those of
fp32."""
LARGEST = {"fp16": 6e4, "bf16": 1e30}
"""Values of the family `large`: fp16 holds 65504; in bf16 the sums of 2^24 keys in fp32 must not overflow,
nor those of 2^19 keys while a kernel lets their weights grow above 1."""


def measures(problem: Problem, inputs: Mapping[str, Tensor]) -> dict[str, float]:
    """Of each input the largest magnitude; of Q Kᵀ too, before (dot) and after (score) it is scaled; and by
    how much the largest score of a query is above all others, at least (margin). Hidden keys count."""
    found = {name: float(tensor.double().abs().max()) for name, tensor in inputs.items()}
    products = inputs["q"].double() @ inputs["k"].double().transpose(-1, -2)
    scores = products / math.sqrt(problem["D"])
    found |= {"dot": float(products.abs().max()), "score": float(scores.abs().max()), "margin": math.inf}
    if problem["L"] > 1:
        best = scores.topk(2).values
        found["margin"] = float((best[..., 0] - best[..., 1]).min())
    return found


def lone_factor(d: int) -> float:
    """Q is so many times a key of its own, a vector of length √D: in few dimensions other keys lie nearer, so
    there must be more of it for a score that is 100 above all others."""
    return 20 * (128 / d) ** 1.25


def large(problem: Problem, seed: int, q: Tensor, k: Tensor, v: Tensor, u: Tensor, away: Tensor) -> None:
    """Makes the family `large` of standard normal Q, K and V, (B, H, L, D), in place.

    Every second query has a key of its own, whose product with it is LARGE_DOT. The others see all keys
    about alike, so that sums of V without their denominator grow with every key; of half of these queries
    all scores are near -20. `u` is the unit direction of all ones, (D,); `away` is u for every fourth query,
    else 0, (L, D)."""
    import torch

    length, d, heads = problem["L"], problem["D"], problem["B"] * problem["H"]
    fixed = _fixed(heads, length, d, bool(problem["causal"]), str(q.device))
    own = (fixed.places + seed) % fixed.visible
    factor = lone_factor(d)
    gain = math.sqrt(LARGE_DOT / (factor * d)) if heads * length >= FEW_ROWS else 1.0
    as_long(across(k))
    # in place: what needs no new memory takes the host a third less
    own_keys = k.gather(2, own.view(*k.shape[:3], 1).expand(k.shape)).mul_(gain * factor)
    q.div_(gain).add_(away, alpha=-20)
    torch.where(fixed.second, own_keys, q, out=q)
    k.mul_(gain).add_(u, alpha=math.sqrt(d))
    share = v.abs_().div_(math.sqrt(2)).erf_()  # 0 to 1, all alike
    share.mul_(0.8).add_(0.2).mul_(fixed.sign * LARGEST[dtype_named(problem.dtype).name])


ANCHORS = 32
"""Every so many keys of the family `outgrown` one is an anchor: the first of each tile is."""
RESERVED = 4
"""Dimensions in which only anchors and queries say what their products are: three for one number, in parts,
for the storage type holds as few as 8 bits of it, and one that moves all scores of a query."""


def outgrown(problem: Problem, seed: int, q: Tensor, k: Tensor, v: Tensor) -> None:
    """Makes the family `outgrown` of standard normal Q, K and V, (B, H, L, D), in place.

    All anchors have one score in a row, a query's own key one that is `growth` higher, all others are
    far below. All scores are near 0 or lower, of a quarter of the rows near -40 or lower. Anchors have almost
    nothing of V."""
    import torch

    storage = dtype_named(problem.dtype).torch
    length, d, heads = problem["L"], problem["D"], problem["B"] * problem["H"]
    fixed = _outgrowing(length, d, storage, str(q.device))
    places, visible, *_ = _fixed(heads, length, d, bool(problem["causal"]), str(q.device))
    own = (places + seed) % visible
    k[..., :RESERVED].zero_()
    as_long(k)
    k[:, :, ::ANCHORS].zero_()
    k.copy_(k.to(storage))
    own_keys = k.gather(2, own.view(*k.shape[:3], 1).expand(k.shape))
    torch.mul(own_keys, lone_factor(d), out=q)
    left = (q.to(storage).double() * own_keys).sum(-1) - fixed.growth
    q[..., 3] = fixed.moved - left
    for place, part in enumerate(fixed.parts):
        held = (left / part).to(storage)
        q[..., place] = held
        left.sub_(held, alpha=part)
    k[..., :RESERVED] = fixed.keys
    v[:, :, ::ANCHORS].mul_(2.0**-12)


def huge_end(q: Tensor, k: Tensor, u: Tensor, far: Tensor, seed: int) -> None:
    """The last key lies along the mean query direction, far out; in every second head the first one."""
    q.add_(u, alpha=2)
    heads = k.view(-1, *k.shape[2:])
    heads[seed % 2 :: 2, -1] = far
    heads[1 - seed % 2 :: 2, 0] = far


def show_padding(q: Tensor, k: Tensor, u: Tensor, away: Tensor) -> None:
    """Makes a padding key show in some queries, in place: adds 4 (q·u) to all scores of a query, where q·u is
    -5 for some."""
    root = math.sqrt(q.shape[-1])
    k.add_(u, alpha=4 * root)
    # q·u is the sum of q by the root; a product of a matrix takes the host longer
    q.addcmul_(q.sum(-1, keepdim=True).add_(5 * root), away, value=-1 / root)


def across(x: Tensor) -> Tensor:
    """`x`, (…, D), without what lies along the direction of all ones; in place."""
    return x.sub_(x.mean(-1, keepdim=True))


def as_long(x: Tensor) -> Tensor:
    """`x`, (…, D), with vectors of length √D; in place."""
    import torch

    return x.div_(torch.linalg.vector_norm(x, dim=-1, keepdim=True)).mul_(math.sqrt(x.shape[-1]))


class _Fixed(NamedTuple):
    """What `large` is made of besides noise and seed."""

    places: Tensor
    """(B·H, L): whole numbers, which say the key of its own of a query."""
    visible: Tensor
    """(L,): keys that a query sees."""
    second: Tensor
    """(L, 1): whether a query has a key of its own."""
    sign: Tensor
    """(D,): 1 and -1 by turns."""


class _Outgrowing(NamedTuple):
    """What `outgrown` is made of besides noise."""

    growth: Tensor
    """(L,), fp64: by how much the product of a query with its own key is above that with an anchor. The
    weight of one query in 16 is then 2^16, less what fp32 may add: beyond the numbers of fp16. Others of its
    warp must not raise the maxima for it: their weights are near 2^7, just below a number of the storage or
    just above one. Kernels that leave a maximum as it is until it has grown by 2^8 round such weights."""
    moved: Tensor
    """(L,), fp64: the products of a query with all anchors."""
    parts: tuple[float, ...]
    """An anchor in the reserved dimensions: steps by which the storage type holds ever smaller rests."""
    keys: Tensor
    """(L, RESERVED): all keys there."""


@lru_cache(maxsize=1024)
def _outgrowing(length: int, d: int, storage: torch.dtype, torch_device: str) -> _Outgrowing:
    import torch

    rows = torch.arange(length, device=torch_device, dtype=torch.float64)
    spacing = torch.finfo(storage).eps
    nearly = torch.where(rows % 2 == 1, 0.97, 0.03)
    most = rows % 16 == rows // 16 * 7 % 16
    powers = torch.where(most, 16 - 1.5e-4, 7 + torch.log2(1 + nearly * spacing))
    growth = powers * math.log(2) * math.sqrt(d)
    moved = torch.where(rows % 8 >= 6, -40.0, 0.0) * math.sqrt(d)
    step = spacing**0.75
    parts = (4.0, 4 * step, 4 * step * step)
    keys = torch.tensor([0.0, 0.0, 0.0, 1.0], device=torch_device).repeat(length, 1)
    keys[::ANCHORS, :3] = torch.tensor(parts, device=torch_device)
    return _Outgrowing(growth, moved, parts, keys)


@lru_cache(maxsize=1024)
def _fixed(heads: int, length: int, d: int, causal: bool, torch_device: str) -> _Fixed:
    import torch

    rows, columns = (torch.arange(size, device=torch_device) for size in (length, d))
    places = rows * 7919 + torch.arange(heads, device=torch_device)[:, None] * 611953
    visible = rows + 1 if causal else rows * 0 + length
    return _Fixed(places, visible, (rows % 2 == 0)[:, None], 1 - 2 * (columns % 2))


@cache  # a graph that was captured goes on to use it
def below(length: int, torch_device: str) -> Tensor:
    """(L, 1): how far below its maximum the honest computation sets a row, up to a power of two."""
    import torch

    rows = torch.arange(length, device=torch_device)[:, None]
    return math.log(2) * (rows * 0.6180339887 % 1)
