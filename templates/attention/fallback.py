"""What serves where no kernel does. Exported folders have a copy: it imports torch alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

NAME = "torch.nn.functional.scaled_dot_product_attention"


def fallback(inputs: Mapping[str, torch.Tensor], flags: Mapping[str, Any]) -> torch.Tensor:
    """torch's attention, by the backend that torch chooses."""
    q, k, v = (_aligned(inputs[name]) for name in ("q", "k", "v"))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=flags["causal"])


def _aligned(tensor: torch.Tensor) -> torch.Tensor:
    """It, or a copy where it does not begin at a multiple of 16 bytes: torch 2.11 on an H200 computed wrong
    numbers of such tensors."""
    try:
        return tensor.clone() if tensor.data_ptr() % 16 else tensor
    except RuntimeError:  # torch.compile traces tensors without memory
        return tensor
