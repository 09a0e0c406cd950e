"""The packings of the weights and of their scales, which pack.py makes and describes."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evo.task import Packing, Tensors, load_module
from evo.trial import Problem

if TYPE_CHECKING:
    from torch import Tensor

GROUP = 128
"""Elements of K that share a scale and a zero point."""


@cache
def _pack() -> Any:
    """pack.py, which imports torch."""
    return load_module(Path(__file__).with_name("pack.py"))


def strips(problem: Problem) -> int:
    """Strips of 16 rows, the last one filled up."""
    return -(-problem["N"] // 16)


def _weight_shape(problem: Problem) -> tuple[int, ...]:
    """(strips, groups, tiles of 64, lanes, words)."""
    return strips(problem), problem["K"] // GROUP, 2, 32, 4


def _scale_shape(problem: Problem) -> tuple[int, ...]:
    """(strips, groups, 8 rows, scales of rows g and g + 8 and, where there are some, their zero points)."""
    return strips(problem), problem["K"] // GROUP, 8, 4 if problem["zeros"] else 2


def _pack_weights(_problem: Problem, inputs: Tensors) -> Tensor:
    tiles: Tensor = _pack().weight_tiles(inputs["w4"])
    return tiles


def _unpack_weights(problem: Problem, packed: Tensor) -> dict[str, Tensor]:
    """By the formula for each nibble, as the first lines of pack.py have it."""
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
    names = ("scales", "zeros") if problem["zeros"] else ("scales",)
    tiles: Tensor = _pack().scale_tiles([inputs[name] for name in names])
    return tiles


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
    codes: Tensor = _pack().codes_of(w)
    return codes


def bytes_of(codes: Tensor) -> Tensor:
    """The way back."""
    return codes[:, ::2] | codes[:, 1::2] << 4


PACKINGS = {
    "weight_tiles": Packing(_weight_shape, "i32", _pack_weights, _unpack_weights),
    "scale_tiles": Packing(_scale_shape, "fp16", _pack_scales, _unpack_scales),
}
