"""What a call of torch's attention is in this task, for `evo.capture`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from evo.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor


def call(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[dict[str, Tensor], dict[str, object]]:
    """Buffers and flags of a call of torch.nn.functional.scaled_dot_product_attention: its parameters.
    Tensors of fewer than four dimensions are of one batch, or of one head of it. UsageError, with the reason,
    for a call that the task does not compute."""
    if attn_mask is not None:
        raise UsageError("attn_mask is given")
    if dropout_p:
        raise UsageError("dropout_p is not 0")
    if scale is not None and not math.isclose(scale, query.shape[-1] ** -0.5, rel_tol=1e-6):
        raise UsageError("scale is not 1/sqrt(D)")
    if query.dim() > 4:
        raise UsageError("more than four dimensions")
    if query.shape[-2] != key.shape[-2]:
        raise UsageError("other numbers of queries and keys")
    if query.shape != key.shape or query.shape != value.shape:
        why = "fewer heads of keys (enable_gqa)" if enable_gqa else "queries, keys and values of other shapes"
        raise UsageError(why)
    lead = (1,) * (4 - query.dim())
    tensors = {"q": query, "k": key, "v": value}
    return {name: x.reshape(*lead, *x.shape) for name, x in tensors.items()}, {"causal": is_causal}


CAPTURES = {"torch.nn.functional.scaled_dot_product_attention": call}
