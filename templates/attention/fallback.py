"""What serves where no kernel does. Exported folders have a copy: it imports torch alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

NAME = "torch.nn.functional.scaled_dot_product_attention"


def fallback(inputs: Mapping[str, torch.Tensor], flags: Mapping[str, Any]) -> torch.Tensor:
    """torch's attention, by the backend that torch chooses."""
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=flags["causal"])
