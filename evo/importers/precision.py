"""Running other people's torch code in fp64: casts and constants of it may not throw precision away."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

NARROWER = (torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16)
"""Methods that make a tensor of a narrower type."""


class _Wide(TorchFunctionMode):  # type: ignore[misc]
    """Makes every cast to a narrower floating-point type one to `floor`."""

    def __init__(self, floor: torch.dtype) -> None:
        super().__init__()
        self.floor = floor

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = {name: self._wide(value) for name, value in (kwargs or {}).items()}
        if func in NARROWER:
            return args[0].to(self.floor)
        return func(*(self._wide(value) for value in args), **named)

    def _wide(self, value: Any) -> Any:
        narrow = isinstance(value, torch.dtype) and value.is_floating_point
        return self.floor if narrow and value.itemsize < self.floor.itemsize else value


@contextmanager
def at_least(inputs: Sequence[torch.Tensor]) -> Iterator[None]:
    """Computes in the widest floating-point type of `inputs` where that is fp32 or fp64."""
    floating = [x.dtype for x in inputs if x.is_floating_point()]
    floor = max(floating, key=lambda dtype: dtype.itemsize, default=torch.float32)
    if floor.itemsize < torch.float32.itemsize:
        yield
        return
    before = torch.get_default_dtype()
    torch.set_default_dtype(floor)
    try:
        with _Wide(floor):
            yield
    finally:
        torch.set_default_dtype(before)
