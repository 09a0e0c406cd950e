"""Inputs that are made smaller until no output overflows, or drawn nearer to 1 where a task wants it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from evo.task.tensors import FAR, Tensors

if TYPE_CHECKING:  # importing torch takes seconds: only what computes imports it
    import torch
    from torch import Tensor

ROUNDS = ((1, 2.0**-8), (6, 2.0**-4))
"""How often inputs are made smaller, and by how much at most each time; and inputs of the family `huge`."""

SAME = 2.0**-8
"""Outputs of fp32 and of fp64 are the same if no element differs by more than this part of the largest."""
Computed = Callable[[Tensors, str], Iterable[Tensors]]
"""The outputs of inputs (by parts) where floating-point ones are in fp32 or fp64, as the name says."""


def nearer(far: Tensors, free: Sequence[str], family: str) -> dict[str, Tensor]:
    """Inputs that were drawn far, as they are otherwise."""
    import torch

    found = dict(far)
    for name in free:
        x = far[name]
        if x.is_floating_point() and x.dtype != torch.float16:
            found[name] = x * (1 / FAR[family])
        elif _halved(x) and family == "huge":
            found[name] = (x.long() // 2).to(x.dtype)
    return found


def _halved(x: Tensor) -> bool:
    return not x.is_floating_point() and 1 < x.element_size() < 8


def within_reach(far: Tensors, near: Tensors, computed: Computed) -> dict[str, Tensor]:
    """The inputs `far`, or those that are `near` where the task does not reach so far: what it computes in
    fp32 is not what it computes in fp64, as squares overflow; integers wrap around, or hang on how large a
    number is, as one that was a float does. Does not wait for a GPU."""
    import torch

    moved = [name for name, x in far.items() if x is not near[name]]
    whole = [name for name in moved if not far[name].is_floating_point()]
    wide = {**far, **{name: far[name].long() for name in whole}}
    scaled = {**near, **{name: far[name] for name in whole}}
    held = []
    for narrow, exact, other in zip(
        computed(far, "fp32"), computed(wide, "fp64"), computed(scaled, "fp32"), strict=True
    ):
        for name, x in narrow.items():
            if x.is_floating_point():
                apart = (x.double() - exact[name]).abs().amax()
                held.append(apart <= exact[name].abs().amax() * SAME)
                continue
            if whole:
                held.append((x.long() == exact[name].long()).all())
            if len(moved) > len(whole):
                held.append((x.long() == other[name].long()).all())
    reached = torch.stack(held).all()
    chosen = {name: far[name].long() if name in whole else far[name] for name in moved}
    return {
        **far,
        **{name: x.where(reached, near[name].to(x.dtype)).to(far[name].dtype) for name, x in chosen.items()},
    }


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
