"""Scratch memory of a launch, its workspaces. Nothing here imports evo.

What may hold anything is allocated by torch for each call: torch gives it away again only when the stream is
done with it. What must be zero is kept for each stream: every kernel leaves it zero again, and launches of
one stream follow each other. It is the driver's memory, for torch may hand its own to a graph's pool. A CUDA
graph, which may run beside any stream, gets memory of its own, and sets it to zero by itself."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from .driver import zeros
from .plans import Output

LEAST_BYTES = 4096
_NOTHING = 0, 0
_KEPT: dict[tuple[int, int, int], tuple[int, int]] = {}
"""By GPU, stream and place: how many bytes there are, and where. What became too small stays: a kernel may
still use it."""
_LOCK = threading.Lock()


def makers(workspaces: Sequence[Mapping[str, Any]], device: Any) -> list[Output]:
    """What makes the workspaces of a launch on `device`, for a plan or for `made`."""
    device, found = torch.device(device), []
    for at, one in enumerate(workspaces):
        nbytes = max(1, one["nbytes"])
        if one["zeroed"]:
            found.append(Output(-1, -1, {"nbytes": nbytes, "device": device, "place": at}, zeroed))
        else:
            found.append(Output(-1, -1, {"size": (nbytes,), "dtype": torch.uint8, "device": device}))
    return found


def made(workspaces: Sequence[Mapping[str, Any]], device: Any) -> dict[str, Any]:
    """The workspaces by name, each a tensor or an address, for torch's current stream of `device`; they are
    to live until the launch."""
    pairs = zip(workspaces, makers(workspaces, device), strict=True)
    return {space["name"]: (one.make or torch.empty)(**one.empty) for space, one in pairs}


def address_of(memory: Any) -> int:
    """Of a tensor, or of what is an address."""
    return memory if isinstance(memory, int) else int(memory.data_ptr())


def zeroed(nbytes: int, device: torch.device, place: int) -> Any:
    """Memory of zeros for a launch on torch's current stream of the GPU `device`, which leaves it zero: an
    address; while a graph is captured, a tensor. Workspaces of one launch have different `place`s. Refused
    where there is no more."""
    if _capturing(device):
        return torch.zeros(nbytes, dtype=torch.uint8, device=device)
    stream = torch.cuda.current_stream(device)
    key = stream.device_index, stream.cuda_stream, place
    found = _KEPT.get(key, _NOTHING)
    if found[0] < nbytes:
        with _LOCK:
            found = _KEPT.get(key, _NOTHING)
            if found[0] < nbytes:
                wanted = max(LEAST_BYTES, 1 << (nbytes - 1).bit_length())
                found = _KEPT[key] = wanted, zeros(key[0], wanted, key[1])
    return found[1]


def _capturing(device: torch.device) -> bool:
    if device.index == torch.cuda.current_device():
        return bool(torch.cuda.is_current_stream_capturing())
    with torch.cuda.device(device):
        return bool(torch.cuda.is_current_stream_capturing())
