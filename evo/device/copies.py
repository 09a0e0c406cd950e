"""Copies of bytes within a device's memory, by addresses: torch takes the host twice as long to start one."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from evo.device.driver import driver_api, words_of

Copy = Callable[[int, int, int], object]
"""Copies to an address, from one, so many bytes."""


def copier(torch_device: str) -> Copy:
    """Copies within the memory of "cpu" or "cuda:0". On a GPU a copy is begun on torch's current stream and
    not waited for; RuntimeError, as of torch, where the context is lost."""
    if torch_device == "cpu":
        return ctypes.memmove
    import torch

    start, index = driver_api().cuMemcpyDtoDAsync, torch.device(torch_device).index
    stream_of = torch._C._cuda_getCurrentRawStream

    def copy(to: int, source: int, nbytes: int) -> None:
        (status,) = start(to, source, nbytes, stream_of(index))
        if int(status):
            raise RuntimeError(f"a copy failed: {words_of(status)}")

    return copy
