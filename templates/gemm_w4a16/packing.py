"""Weights in the order in which the lanes of a warp feed them to mma.sync's m16n8k16.

A strip is 16 rows of W. Of a strip and 64 elements of K a lane has 32 codes, 16 bytes. Lane 4 g + t has
those of rows g and g + 8 whose place in K is 16 t to 16 t + 15: which element of K meets which is free as
long as x is read alike, and so a lane reads 32 bytes of x in one piece. Word s has elements 4 s to 4 s + 3 of
these, nibble h + 2 j + 4 e the element 4 s + 2 j + e of row g + 8 h. Rows that W has not are 0, and so are
their scales.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evo.task import Packing, Tensors
from evo.trial import Problem

if TYPE_CHECKING:
    from torch import Tensor

GROUP = 128
"""Elements of K that share a scale and a zero point."""


def strips(problem: Problem) -> int:
    """Strips of 16 rows, the last one filled up."""
    return -(-problem["N"] // 16)


def _weight_shape(problem: Problem) -> tuple[int, ...]:
    """(strips, groups, tiles of 64, lanes, words)."""
    return strips(problem), problem["K"] // GROUP, 2, 32, 4


def _scale_shape(problem: Problem) -> tuple[int, ...]:
    """(strips, groups, 8 rows, scales of rows g and g + 8 and, where there are some, their zero points)."""
    return strips(problem), problem["K"] // GROUP, 8, 4 if problem["zeros"] else 2


def _pack_weights(problem: Problem, inputs: Tensors) -> Tensor:
    import torch

    count, groups = _weight_shape(problem)[:2]
    codes = _filled_up(codes_of(inputs["w4"]), 16 * count)
    # (strip, half, g, group, tile, t, word, j, e)
    parts = codes.view(count, 2, 8, groups, 2, 4, 4, 2, 2)
    nibbles = parts[:, 0] | parts[:, 1] << 4  # (strip, g, group, tile, t, word, j, e): halves share a byte
    in_order = nibbles.permute(0, 2, 3, 1, 4, 5, 7, 6).contiguous()  # strip, group, tile, g, t, word, e, j
    return in_order.view(-1, 4).view(torch.int32).view(_weight_shape(problem))


def _unpack_weights(problem: Problem, packed: Tensor) -> dict[str, Tensor]:
    """By the formula for each nibble, as the first lines of this file have it."""
    import torch

    count, groups = packed.shape[:2]
    codes = torch.zeros((16 * count, GROUP * groups), dtype=torch.uint8, device=packed.device)
    # rows 16 strip + 8 half + g, places 128 group + 64 tile + 16 t + element
    places = codes.view(count, 2, 8, groups, 2, 4, 16)
    lanes = packed.view(count, groups, 2, 8, 4, 4)
    for word in range(4):
        for nibble in range(8):
            half, element = nibble & 1, 4 * word + 2 * (nibble >> 1 & 1) + (nibble >> 2)
            found = lanes[..., word] >> (4 * nibble) & 15  # (strip, group, tile, g, t)
            places[:, half, ..., element] = found.permute(0, 3, 1, 2, 4).to(torch.uint8)
    return {"w4": bytes_of(codes[: problem["N"]])}


def _pack_scales(problem: Problem, inputs: Tensors) -> Tensor:
    import torch

    names = ("scales", "zeros") if problem["zeros"] else ("scales",)
    count = strips(problem)
    # (strip, half, g, group) each
    parts = [_filled_up(inputs[name], 16 * count).view(count, 2, 8, -1) for name in names]
    halves = [part[:, half] for part in parts for half in range(2)]
    return torch.stack(halves, -1).permute(0, 2, 1, 3).contiguous()


def _unpack_scales(problem: Problem, packed: Tensor) -> dict[str, Tensor]:
    import torch

    found = {}
    for place, name in enumerate(("scales", "zeros") if problem["zeros"] else ("scales",)):
        rows = torch.zeros((16 * packed.shape[0], packed.shape[1]), dtype=packed.dtype, device=packed.device)
        for g in range(8):
            for half in range(2):
                rows[g + 8 * half :: 16] = packed[:, :, g, 2 * place + half]
        found[name] = rows[: problem["N"]].contiguous()
    return found


def codes_of(w: Tensor) -> Tensor:
    """(N, K), u8: the codes, 0 to 15, of the bytes (N, K / 2). The lower nibble comes first."""
    import torch

    return torch.stack((w & 15, w >> 4), -1).view(w.shape[0], -1)


def bytes_of(codes: Tensor) -> Tensor:
    """The way back."""
    return codes[:, ::2] | codes[:, 1::2] << 4


def _filled_up(rows: Tensor, count: int) -> Tensor:
    """With rows of zeros up to `count`."""
    import torch

    return torch.nn.functional.pad(rows, (0, 0, 0, count - len(rows)))


PACKINGS = {
    "weight_tiles": Packing(_weight_shape, "i32", _pack_weights, _unpack_weights),
    "scale_tiles": Packing(_scale_shape, "fp16", _pack_scales, _unpack_scales),
}
