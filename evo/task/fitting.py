"""Inputs that are made smaller until no output overflows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from evo.task.tensors import Tensors

if TYPE_CHECKING:  # importing torch takes seconds: only what computes imports it
    import torch
    from torch import Tensor

ROUNDS = ((1, 2.0**-8), (6, 2.0**-4))
"""How often inputs are made smaller, and by how much at most each time; and inputs of the family `huge`."""


def fitted(
    inputs: dict[str, Tensor],
    computed: Callable[[Tensors], Iterable[Tensors]],
    bound: Mapping[str, torch.dtype],
    free: Sequence[str],
    huge: bool,
) -> dict[str, Tensor]:
    """The inputs, of which the `free` ones are smaller by a power of two where an output that is `bound` is
    above half of the largest number of that type. `computed` gives the outputs (fp32, by parts). Does not
    wait for a GPU."""
    times, least = ROUNDS[huge]
    for _ in range(times):
        factor = _factor(computed(inputs), bound, least)
        if factor is None or (not factor.is_cuda and factor == 1):
            break
        inputs = {
            name: x * factor.to(x.dtype) if name in free and x.is_floating_point() else x
            for name, x in inputs.items()
        }
    return inputs


def _factor(outputs: Iterable[Tensors], bound: Mapping[str, torch.dtype], least: float) -> Tensor | None:
    """What inputs are to be multiplied by, were outputs proportional to them; None where none is bound."""
    import torch

    shares = [
        torch.finfo(bound[name]).max / 2 / x.abs().amax().nan_to_num(math.inf, math.inf).double()
        for part in outputs
        for name, x in part.items()
        if name in bound and x.numel()
    ]
    return torch.stack(shares).min().clamp(least, 1.0).log2().floor().exp2() if shares else None
