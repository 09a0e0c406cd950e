"""Weights in the order in which the lanes of a warp feed them to mma.sync's m16n8k16. Exported folders have a
copy: it imports torch alone.

A strip is 16 rows of W. Of a strip and 64 elements of K a lane has 32 codes, 16 bytes. Lane 4 g + t has
those of rows g and g + 8 whose place in K is 16 t to 16 t + 15: which element of K meets which is free as
long as x is read alike, and so a lane reads 32 bytes of x in one piece. Word s has elements 4 s to 4 s + 3 of
these, nibble h + 2 j + 4 e the element 4 s + 2 j + e of row g + 8 h. Rows that W has not are 0, and so are
their scales.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

GROUP = 128
"""Elements of K that share a scale and a zero point."""


def pack(inputs: Mapping[str, torch.Tensor], flags: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """`weight_tiles` and `scale_tiles`, made of w4, scales and, with the flag, zeros."""
    names = ("scales", "zeros") if flags["zeros"] else ("scales",)
    tiles = weight_tiles(inputs["w4"])
    return {"weight_tiles": tiles, "scale_tiles": scale_tiles([inputs[name] for name in names])}


def weight_tiles(w4: torch.Tensor) -> torch.Tensor:
    """(strips, groups, tiles of 64, lanes, words), i32, of (N, K / 2), u8."""
    codes = _filled_up(codes_of(w4))
    strips, groups = codes.shape[0] // 16, codes.shape[1] // GROUP
    # (strip, half, g, group, tile, t, word, j, e)
    parts = codes.view(strips, 2, 8, groups, 2, 4, 4, 2, 2)
    nibbles = parts[:, 0] | parts[:, 1] << 4  # (strip, g, group, tile, t, word, j, e): halves share a byte
    in_order = nibbles.permute(0, 2, 3, 1, 4, 5, 7, 6).contiguous()  # strip, group, tile, g, t, word, e, j
    return in_order.view(-1, 4).view(torch.int32).view(strips, groups, 2, 32, 4)


def scale_tiles(tensors: list[torch.Tensor]) -> torch.Tensor:
    """(strips, groups, 8 rows, scales of rows g and g + 8 and, where there are some, their zero points), of
    the scales and zero points, (N, K / 128) each."""
    # (strip, half, g, group) each
    filled = [_filled_up(tensor) for tensor in tensors]
    parts = [tensor.view(len(tensor) // 16, 2, 8, -1) for tensor in filled]
    halves = [part[:, half] for part in parts for half in range(2)]
    return torch.stack(halves, -1).permute(0, 2, 1, 3).contiguous()


def codes_of(w4: torch.Tensor) -> torch.Tensor:
    """(N, K), u8: the codes, 0 to 15, of the bytes (N, K / 2). The lower nibble comes first."""
    return torch.stack((w4 & 15, w4 >> 4), -1).view(w4.shape[0], -1)


def _filled_up(rows: torch.Tensor) -> torch.Tensor:
    """With rows of zeros up to a whole strip."""
    return torch.nn.functional.pad(rows, (0, 0, 0, -len(rows) % 16))
