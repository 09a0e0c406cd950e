"""What attention kernels are timed on: noise, and what the scores of trained models are like.

A kernel may guess about the scores (that none is large, that a row's maximum seldom moves), and do more work
where it was wrong. On noise alone such a guess costs nothing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from evo.dtype import dtype_named
from evo.errors import UsageError
from evo.trial import Problem

if TYPE_CHECKING:
    from torch import Tensor

TIMING_INPUTS = {
    "normal": "N(0, 1): scores of deviation 1, as other benchmarks have them",
    "sharp": "scores of deviation 4: a few keys carry a row, and a guess that no score is large is wrong",
    "sink": "a first key that most queries prefer, as trained models have it: each row's maximum comes first",
    "growing": "scores that grow along the keys: each row's maximum moves in every tile",
}
"""Each with why it is there; the first is the plain one."""
PREFERENCE = 10.0
"""How far the score of the first key lies above the others, on average; its deviation is 2."""
GROWTH = 96.0
"""The score of the last key, where that of the first is 0; the gate's family `ascending` has the same."""


def tensors(problem: Problem, name: str, seed: int, torch_device: str) -> dict[str, Tensor]:
    """q, k and v (B, H, L, D) of a timing input. The same arguments give the same values on one kind of
    device. V is N(0, 1) in each."""
    import torch

    rng = torch.Generator(device=torch_device).manual_seed(seed)
    drawn = torch.randn((3, *problem.sizes.values()), generator=rng, device=torch_device)
    q, k, _ = drawn.unbind()
    length, d = problem["L"], problem["D"]
    along = d**-0.5  # each element of a unit vector
    if name == "sharp":
        q.mul_(4)
    elif name == "sink":
        q.add_(PREFERENCE / 2 * along)
        k[:, :, 0] = 2 * math.sqrt(d) * along
    elif name == "growing":
        height = torch.arange(length, device=torch_device)[:, None] * (GROWTH / 4 * math.sqrt(d) / length)
        q.mul_(0.25).add_(4 * along)
        k.mul_(0.25).add_(height * along)
    elif name != "normal":
        raise UsageError(f"unknown timing input: {name}", f"one of {', '.join(TIMING_INPUTS)}")
    return dict(zip("qkv", drawn.to(dtype_named(problem.dtype).torch).unbind(), strict=True))
