"""What serves where no kernel does. Exported folders have a copy: it imports torch alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

NAME = "torch.matmul of weights in fp16"
GROUP = 128


def fallback(inputs: Mapping[str, torch.Tensor], flags: Mapping[str, Any]) -> torch.Tensor:
    """Each weight made fp16, and multiplied; x, scales and zeros may have a gradient."""
    w4, scales = inputs["w4"], inputs["scales"][..., None]
    codes = torch.stack((w4 & 15, w4 >> 4), -1).view(len(w4), -1, GROUP).to(scales.dtype)
    zeros = inputs["zeros"][..., None] if flags["zeros"] else 8
    return inputs["x"] @ ((codes - zeros) * scales).view(len(w4), -1).T
