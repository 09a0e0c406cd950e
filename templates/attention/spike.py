"""The family `spike` of attention: each query has a key of its own, whose score is far above all others."""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evo.task import load_module
from evo.trial import Problem

if TYPE_CHECKING:
    from torch import Tensor

_families = load_module(Path(__file__).with_name("families.py"))


def spike(problem: Problem, seed: int, q: Tensor, k: Tensor, fixed: Any) -> None:
    """For each query a key of its own, whose score is 100 above all others; in place."""
    import torch

    length, d, rows = problem["L"], problem["D"], fixed.rows
    own = _own(length, problem["B"] * problem["H"], seed, rows, bool(problem["causal"]))
    if problem["causal"]:
        own = torch.where((rows + seed) % 2 == 0, own, (rows + 1).clamp_max(length - 1))
    # keys across u, which q, a multiple of k_own, does not see; what lies along u lowers all its scores
    keys = _families.across(k)
    own_keys = keys.gather(2, own.view(*k.shape[:3], 1).expand(k.shape))
    torch.add(fixed.lowest, own_keys, alpha=_families.lone_factor(d), out=q)
    torch.add(keys, fixed.u, alpha=math.sqrt(d), out=k)


STRETCH = 128
"""Keys of the longest tile that `_own` was made for."""


def _own(length: int, heads: int, seed: int, rows: Tensor, causal: bool) -> Tensor:
    """(heads, L): for each query, of `rows` (L,), of each head a key that it sees. Where all keys are
    visible, those of a head are all keys. Over the heads, and over seeds from a multiple of 16 on, soon all
    pairs of (row mod tile, key mod tile) are met, for every tile that is a power of two up to STRETCH: the
    rows of one remainder have consecutive keys in each head, those of other heads and seeds lie between or
    follow."""
    by_heads = {8 << bit for bit in range((min(heads, 16) - 1).bit_length())}
    steps = [
        step for step in (4, 64, 32, 16, 8, 2, 1) if step not in by_heads and 2 * step > length // STRETCH
    ]
    turn = seed % 16 >> causal  # causal: a query has a key of its own at every second seed
    onward = sum(step for bit, step in enumerate(steps) if turn >> bit & 1) + 165 * (seed // 16)
    keys = (_turns(length, heads, str(rows.device)) + onward).remainder_(length)
    if not causal:
        return keys
    visible, place = rows + 1, keys % STRETCH
    stretches = ((visible - place + STRETCH - 1) // STRETCH).clamp_min(1)
    return (place + STRETCH * (keys // STRETCH % stretches)) % visible


@lru_cache(maxsize=1024)
def _turns(length: int, heads: int, torch_device: str) -> Tensor:
    """(heads, L) whole numbers, in each head all below L from some start on: those of rows that agree in
    their last bits follow each other."""
    import torch

    rows, bits = torch.arange(length), (length - 1).bit_length()
    backwards = sum(((rows >> bit & 1) << (bits - 1 - bit) for bit in range(bits)), torch.zeros_like(rows))
    of_head = torch.arange(heads)[:, None]
    between = (of_head // 16 & 1) * 4 + (of_head // 32 & 1) * 2 + (of_head // 64 & 1)
    turns = backwards.argsort().argsort() + 8 * (of_head % 16) + between + 5 * STRETCH * of_head
    if torch_device == "cpu":
        return turns
    return turns.pin_memory().to(torch_device, non_blocking=True)  # else it waits for all work before
