"""Inputs that show mistakes in kernels of 4-bit weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from evo.errors import UsageError
from evo.task import load_module
from evo.trial import Problem

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_packing = load_module(Path(__file__).with_name("packing.py"))
DEVIATION = 4.6
"""Of a code that may be any, from 0 to 15."""
APART = 2.0**13
"""How far apart x and scales of the family `far_scales` are from those of `normal`."""
SMALL = 2.0**-15
"""What x of the family `alike` is no smaller than: y is just above the subnormal numbers."""
LARGEST_RESULT = 8192.0
"""What results of the family `offset` are about."""


def drawn(problem: Problem, family: str, seed: int, torch_device: str) -> dict[str, Tensor]:
    """x, w4, scales and zeros of a family:

    normal      x is N(0, 1), codes, scales and zero points are any: y has a deviation of about 1
    peaky       one element of x in sixteen is 16 times as large: a lost one shows; scales are of both signs
    alike       each row of x has one small number, all codes are 15: roundings add up to one side, y is small
    spike       one element in each row of x, anywhere, is far above all others: each lost one shows
    cancelling  what the first half of K adds up to, more than fp16 holds where K is long, the second half
                takes away again but for N(0, 1): sums in fp16 overflow or lose everything
    far_scales  in turns of groups x is beyond what sums of fp16 hold and scales are below its normal numbers,
                or the other way round: what is clamped or taken for 0 shows
    offset      x around 4, codes mostly above the zero point: sums grow with K, not with its root, and y is
                nearly as large as fp16 holds
    integers    x from -2 to 2, scales 1, codes next to the zero point: no sum is rounded, even in fp16
    x_zero      x is 0: so is y
    """
    import torch

    if family not in FAMILIES:
        raise UsageError(f"unknown input family: {family}", f"one of {', '.join(FAMILIES)}")
    rng = torch.Generator(device=torch_device).manual_seed(seed)
    n, k = problem["N"], problem["K"]
    groups = k // _packing.GROUP
    x = torch.randn((problem["M"], k), generator=rng, device=torch_device)
    drawn_scales = torch.rand((n, groups), generator=rng, device=torch_device)
    w = torch.randint(256, (n, k // 2), generator=rng, device=torch_device, dtype=torch.uint8)
    zeros = torch.full((n, groups), 8, device=torch_device)
    if problem["zeros"]:
        zeros = torch.randint(16, (n, groups), generator=rng, device=torch_device)
    found = {"x": x, "w4": w, "scales": (0.5 + drawn_scales) / (DEVIATION * math.sqrt(k)), "zeros": zeros}
    FAMILIES[family](found, rng)
    names = ("x", "w4", "scales", "zeros") if problem["zeros"] else ("x", "w4", "scales")
    return {name: found[name] if name == "w4" else found[name].half() for name in names}


Drawn = dict[str, "Tensor"]
"""x and scales in fp32, w4 in bytes, zeros in whole numbers."""


def _normal(_drawn: Drawn, _rng: torch.Generator) -> None:
    pass


def _peaky(drawn: Drawn, rng: torch.Generator) -> None:
    import torch

    drawn["x"] *= 1 + 15 * (torch.rand(drawn["x"].shape, generator=rng, device=rng.device) < 1 / 16)
    drawn["scales"] *= (
        1 - 2 * (torch.rand(drawn["scales"].shape, generator=rng, device=rng.device) < 0.5).float()
    )


def _alike(drawn: Drawn, _rng: torch.Generator) -> None:
    first = drawn["x"][:, :1]
    drawn["x"] = ((first + first.sign()) * SMALL).expand_as(drawn["x"])
    drawn["w4"].fill_(0xFF)


def _spike(drawn: Drawn, rng: torch.Generator) -> None:
    import torch

    rows, k = drawn["x"].shape
    where = torch.randint(k, (rows, 1), generator=rng, device=rng.device)
    # on top of what all others add up to, whichever code it meets
    drawn["x"].scatter_(1, where, 64 * math.sqrt(k))
    drawn["w4"] = _but_eight(drawn["w4"])


def _cancelling(drawn: Drawn, rng: torch.Generator) -> None:
    """The first groups and as many last ones are pairs; of a single group its halves."""
    import torch

    (rows, k), groups = drawn["x"].shape, drawn["scales"].shape[1]
    pairs = groups // 2
    half = pairs * _packing.GROUP or _packing.GROUP // 2
    paired = torch.rand((rows, half), generator=rng, device=rng.device) < 7 / 8
    for part, value in ((drawn["x"][:, :half], 1000.0), (drawn["x"][:, k - half :], -1000.0)):
        part.masked_fill_(paired, value)
    w = drawn["w4"]
    w |= 0x88  # from 8 on: half of a sum is of one sign
    w[:, (k - half) // 2 :] = w[:, : half // 2]
    for name in ("scales", "zeros"):
        drawn[name][:, groups - pairs :] = drawn[name][:, :pairs].clone()


def _far_scales(drawn: Drawn, _rng: torch.Generator) -> None:
    import torch

    odd = torch.arange(drawn["scales"].shape[1], device=drawn["x"].device) % 2 == 1
    factor = torch.where(odd, 1 / APART, APART)
    drawn["x"] *= factor.repeat_interleave(_packing.GROUP)
    drawn["scales"] /= factor


def _offset(drawn: Drawn, _rng: torch.Generator) -> None:
    drawn["x"] += 4
    drawn["w4"] |= 0x44
    k = drawn["x"].shape[1]
    drawn["scales"] *= LARGEST_RESULT / (4 * math.sqrt(k))


def _integers(drawn: Drawn, rng: torch.Generator) -> None:
    import torch

    drawn["x"] = torch.randint(-2, 3, drawn["x"].shape, generator=rng, device=rng.device).float()
    zeros = drawn["zeros"].clamp(1, 14)
    drawn["zeros"] = zeros
    drawn["scales"] = torch.ones_like(drawn["scales"])
    near = torch.randint(-1, 2, (len(zeros), 128 * zeros.shape[1]), generator=rng, device=rng.device)
    codes = zeros.repeat_interleave(_packing.GROUP, 1) + near
    drawn["w4"] = _packing.bytes_of(codes.to(torch.uint8))


def _x_zero(drawn: Drawn, _rng: torch.Generator) -> None:
    drawn["x"].zero_()


def _but_eight(w: Tensor) -> Tensor:
    """Codes of which none is 8: each weight counts, where no zero points are given."""
    codes = _packing.codes_of(w)
    codes[codes == 8] = 15
    found: Tensor = _packing.bytes_of(codes)
    return found


FAMILIES: Mapping[str, Callable[[Drawn, torch.Generator], None]] = {
    "normal": _normal,
    "peaky": _peaky,
    "alike": _alike,
    "spike": _spike,
    "cancelling": _cancelling,
    "far_scales": _far_scales,
    "offset": _offset,
    "integers": _integers,
    "x_zero": _x_zero,
}
