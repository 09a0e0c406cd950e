"""What is promised of the numbers of each input family of attention, and the family of the largest ones.

All inputs are finite. Of NaN and infinity in inputs nothing is promised: points of flash_wgmma_split whose
exponentials are polynomials hide a NaN of K.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
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

TURNS = 1024
"""Seeds whose queries have other keys of their own."""
SHORT = 2048
"""Up to this length there are constants of one length alone: those of a shorter one are the first of them."""


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


def large(problem: Problem, seed: int, q: Tensor, k: Tensor, v: Tensor, away: Tensor) -> None:
    """Makes the family `large` of standard normal Q, K and V, (B, H, L, D), in place.

    Every second query has a key of its own, whose product with it is LARGE_DOT. The others see all keys
    about alike, so that sums of V without their denominator grow with every key; of half of these queries
    all scores are near -20. `away` is the unit direction of all ones for every fourth query, else 0,
    (L, D)."""
    import torch

    length, d, heads = problem["L"], problem["D"], problem["B"] * problem["H"]
    fixed = _for_large(d, dtype_named(problem.dtype).name, str(q.device))
    gain = math.sqrt(LARGE_DOT / (lone_factor(d) * d)) if heads * length >= FEW_ROWS else 1.0
    keys = across(k)
    every_second = own_keys(problem, seed, str(q.device))[:, :, ::2]
    own = keys.gather(2, every_second.expand(*every_second.shape[:3], d))
    q.div_(gain).add_(away, alpha=-20)
    torch.mul(own, gain * lone_factor(d), out=q[:, :, ::2])
    torch.add(fixed.along, keys, alpha=gain, out=k)
    torch.addcmul(fixed.middle, v.mul_(math.sqrt(0.5)).erf_(), fixed.most, out=v)  # erf: -1 to 1, all alike


ANCHORS = 32
"""Every so many keys of the family `outgrown` one is an anchor: the first of each tile is."""
RESERVED = 4
"""Dimensions in which only anchors and queries say what their products are: three for one number, in parts,
for the storage type holds as few as 8 bits of it, and one that moves all scores of a query."""


def outgrown(problem: Problem, seed: int, q: Tensor, k: Tensor, v: Tensor) -> None:
    """Makes the family `outgrown` of standard normal Q, K and V, (B, H, L, D), in the storage type, in place.

    All anchors have one score in a row, a query's own key one that is `growth` higher, all others are
    far below. All scores are near 0 or lower, of a quarter of the rows near -40 or lower. Anchors have almost
    nothing of V."""
    import torch

    fixed = _outgrowing(problem["L"], problem["D"], dtype_named(problem.dtype).torch, str(q.device))
    keys = torch.layer_norm(k[..., RESERVED:], fixed.longer.shape, fixed.longer)
    keys[:, :, ::ANCHORS].zero_()
    k[..., :RESERVED], k[..., RESERVED:] = fixed.keys, keys
    own = keys.gather(2, own_keys(problem, seed, str(q.device)).expand(keys.shape))
    queries = torch.mul(own, lone_factor(problem["D"]), out=q[..., RESERVED:])
    # each product is exact in fp32
    left = (queries.float() * own).sum(-1, dtype=torch.float64).sub_(fixed.growth)
    torch.sub(fixed.moved, left, out=q[..., 3])
    for place, part in enumerate(fixed.parts):
        held = torch.div(left, part, out=q[..., place])
        left.sub_(held, alpha=part)
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


class Constants(NamedTuple):
    """What inputs of a length are made of besides noise, fp32."""

    u: Tensor
    """The unit direction of all ones, (D,); `far` is 6 √D of it."""
    far: Tensor
    rows: Tensor
    """0, 1 …, (L,)."""
    away: Tensor
    """u for every fourth query, else 0: (L, D)."""
    lowest: Tensor
    """-u for those, so long that their scores in the family `spike` are below -LOWEST: (L, D)."""
    sides: Tensor
    """±u by turns, so long that scores are ±80: (L, D); the first is +."""
    climbs: Tensor
    """Queries by turns: scores of `climbing` with them grow from 0 to 96, like weights that grow with the
    power 1.5 of a key's number, and fall from 0 to -96: (L + 2, D)."""
    noise: Tensor
    """How much of noise is added to them: (L + 2, 1)."""


@lru_cache(maxsize=1024)
def constants(length: int, d: int, torch_device: str) -> Constants:
    if length < SHORT:
        whole = constants(SHORT, d, torch_device)
        long = {name: getattr(whole, name)[:length] for name in ("rows", "away", "lowest", "sides")}
        return whole._replace(**long, climbs=whole.climbs[: length + 2], noise=whole.noise[: length + 2])
    import torch

    rows = torch.arange(length, device=torch_device)
    u = torch.full((d,), d**-0.5, device=torch_device)
    away = (rows[:, None] % 4 == 3).float() * u
    turns = torch.arange(length + 2, device=torch_device)[:, None] % 3
    climbs = torch.where(turns == 0, 4 * u, torch.where(turns == 1, _alternating(d, torch_device), -4 * u))
    noise = torch.where(turns == 1, 0.005, 0.25)
    signs = 1 - 2 * (rows[:, None] % 2).float()
    sides = math.sqrt(80 * math.sqrt(d)) * signs * u
    lowest = away * -(lone_factor(d) * math.sqrt(d) + LOWEST)
    return Constants(u, 6 * math.sqrt(d) * u, rows, away, lowest, sides, climbs, noise)


def _alternating(d: int, torch_device: str) -> Tensor:
    """A unit direction at right angles to u, (D,)."""
    import torch

    return d**-0.5 * (1 - 2 * (torch.arange(d, device=torch_device) % 2))


@lru_cache(maxsize=1024)
def climbing(length: int, d: int, torch_device: str) -> Tensor:
    """Keys whose scores grow, (L, D), fp32."""
    import torch

    part = torch.arange(1, length + 1, device=torch_device)[:, None] / length
    along = 24 * (part - 1 / length) * d**-0.5
    return math.sqrt(d) * (along + 1.5 * part.log() * _alternating(d, torch_device))


def _peaky(q: Tensor, _k: Tensor, _fixed: Constants, _seed: int) -> None:
    q.mul_(4)


def _ascending(q: Tensor, k: Tensor, fixed: Constants, seed: int) -> None:
    """Each query climbs, with noise, in one of three ways."""
    import torch

    turn, (length, d) = seed % 3, k.shape[2:]
    here = slice(turn, turn + length)
    torch.addcmul(fixed.climbs[here], q, fixed.noise[here], out=q)
    torch.add(climbing(length, d, str(k.device)), k, alpha=0.25, out=k)


def _large_logits(q: Tensor, k: Tensor, fixed: Constants, _seed: int) -> None:
    """Scores of 80 ± 4 or -80 ± 4, by the sign of the query."""
    import torch

    torch.add(fixed.sides, q, alpha=0.5, out=q)
    torch.add(fixed.sides[0], k, alpha=0.5, out=k)


SHAPED: Mapping[str, Callable[[Tensor, Tensor, Constants, int], None]] = {
    "peaky": _peaky,
    "ascending": _ascending,
    "large_logits": _large_logits,
}
"""A family -> what it makes of standard normal queries and keys, in place."""


def across(x: Tensor) -> Tensor:
    """`x`, (…, D), without what lies along the direction of all ones, and then of length √D."""
    import torch

    return torch.layer_norm(x, x.shape[-1:])


def own_keys(problem: Problem, seed: int, torch_device: str) -> Tensor:
    """(B, H, L, 1): for each query a key that it sees."""
    heads, length, turn = problem["B"] * problem["H"], problem["L"], seed % TURNS
    places, visible = _places(heads, max(length, SHORT), torch_device)
    own = places[:, turn : turn + length].remainder(visible[:length] if problem["causal"] else length)
    return own.view(problem["B"], problem["H"], length, 1)


@lru_cache(maxsize=64)
def _places(heads: int, length: int, torch_device: str) -> tuple[Tensor, Tensor]:
    """(B·H, L + TURNS): whole numbers that say the key of its own of a query, and of a query for another
    seed; (L,): how many keys a query sees."""
    import torch

    rows = torch.arange(length + TURNS, device=torch_device)
    places = rows * 7919 + torch.arange(heads, device=torch_device)[:, None] * 611953
    return places, rows[:length] + 1


class _ForLarge(NamedTuple):
    """What `large` is made of besides noise, (D,) each."""

    along: Tensor
    """The direction of all ones, of length √D."""
    middle: Tensor
    """V lies around it: 1 and -1 by turns, times 0.6 of the largest."""
    most: Tensor
    """How far from there at most, up to sign."""


@cache
def _for_large(d: int, dtype: str, torch_device: str) -> _ForLarge:
    import torch

    signs = 1.0 - 2 * (torch.arange(d, device=torch_device) % 2)
    return _ForLarge(torch.ones_like(signs), 0.6 * LARGEST[dtype] * signs, 0.4 * LARGEST[dtype] * signs)


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
    """(L, RESERVED), in the storage type: all keys there."""
    longer: Tensor
    """(D - RESERVED,), in the storage type: what makes the other dimensions of a key as long as √D."""


@lru_cache(maxsize=1024)
def _outgrowing(length: int, d: int, storage: torch.dtype, torch_device: str) -> _Outgrowing:
    if length < SHORT:
        whole = _outgrowing(SHORT, d, storage, torch_device)
        return whole._replace(
            growth=whole.growth[:length], moved=whole.moved[:length], keys=whole.keys[:length]
        )
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
    longer = torch.full((d - RESERVED,), math.sqrt(d / (d - RESERVED)), dtype=storage, device=torch_device)
    return _Outgrowing(growth, moved, parts, keys.to(storage), longer)


@cache  # a graph that was captured goes on to use it
def below(length: int, torch_device: str) -> Tensor:
    """(L, 1): how far below its maximum the honest computation sets a row, up to a power of two."""
    import torch

    rows = torch.arange(length, device=torch_device)[:, None]
    return math.log(2) * (rows * 0.6180339887 % 1)
