"""Scratch memory of a launch, its workspaces. Nothing here imports evo.

What may hold anything is allocated by torch for each call: torch gives it away again only when the stream
is done with it. What must be zero is set to zero once and kept, for every kernel leaves it zero again.
Launches of one stream follow each other, and so each stream has memory of its own. A CUDA graph may run
beside any stream: it has its own for each stream that it captures, until it is gone; nothing in the graph
sets it to zero. It is the driver's memory, for torch may hand its own to a graph's pool."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch

from .driver import capture_of, post_when_gone, zeros
from .plans import Output

LEAST_BYTES = 4096
_SEMAPHORE_BYTES = 64
"""More than a sem_t has."""
_LOCK = threading.Lock()


@dataclass(frozen=True)
class _Block:
    """Memory of a GPU, and a semaphore that is posted when the graph that it is for is gone. What became too
    small stays: a kernel may still use it."""

    device: int
    nbytes: int
    address: int
    gone: int


_Key = tuple[int, int, int, int]
"""GPU, stream, capture (0: none) and place."""
_KEPT: dict[_Key, _Block] = {}
_OF_GRAPHS: list[tuple[_Key, _Block]] = []
_FREE: list[_Block] = []


def makers(workspaces: Sequence[Mapping[str, Any]], device: Any) -> list[Output]:
    """What makes the workspaces of a launch on `device`, for a plan or for `made`."""
    device, found = torch.device(device), []
    for at, one in enumerate(workspaces):
        nbytes = max(1, one["nbytes"])
        if one["zeroed"]:
            found.append(Output(-1, {}, partial(zeroed, device=device.index or 0, nbytes=nbytes, place=at)))
        else:
            found.append(Output(-1, {"size": (nbytes,), "dtype": torch.uint8, "device": device}))
    return found


def made(workspaces: Sequence[Mapping[str, Any]], device: Any) -> dict[str, Any]:
    """The workspaces by name, each a tensor or an address, for torch's current stream of `device`; they are
    to live until the launch."""
    found: dict[str, Any] = {}
    for space, one in zip(workspaces, makers(workspaces, device), strict=True):
        if one.kept is None:
            found[space["name"]] = torch.empty(**one.empty)
        else:
            stream = torch.cuda.current_stream(device).cuda_stream
            found[space["name"]] = one.kept(stream, capture_of(stream))
    return found


def address_of(memory: Any) -> int:
    """Of a tensor, or of what is an address."""
    return memory if isinstance(memory, int) else int(memory.data_ptr())


def zeroed(stream: int, capture: int, *, device: int, nbytes: int, place: int) -> int:
    """The address of zeros on GPU `device` for launches on `stream`, or for those that `capture` makes of
    them; each leaves them zero. Workspaces of one launch have different `place`s. Refused where there is no
    more."""
    key = device, stream, capture, place
    with _LOCK:
        found = _KEPT.get(key)
        if found is None or found.nbytes < nbytes:
            found = _KEPT[key] = _for_graph(key, nbytes) if capture else _fresh(device, nbytes)
    return found.address


def _for_graph(key: _Key, nbytes: int) -> _Block:
    """What an earlier graph had, or fresh."""
    device, stream, *_ = key
    _collect()
    fitting = (one for one in _FREE if one.device == device and one.nbytes >= nbytes)
    block = min(fitting, key=lambda one: one.nbytes, default=None)
    if block is None:
        block = _fresh(device, nbytes)
    else:
        _FREE.remove(block)
    post_when_gone(stream, block.gone)
    _OF_GRAPHS.append((key, block))
    return block


def _collect() -> None:
    """Frees what graphs had that are gone."""
    for key, block in list(_OF_GRAPHS):
        if _libc().sem_trywait(block.gone) == 0:
            _OF_GRAPHS.remove((key, block))
            _FREE.append(block)
            if _KEPT.get(key) is block:
                del _KEPT[key]


def _fresh(device: int, nbytes: int) -> _Block:
    wanted = max(LEAST_BYTES, 1 << (nbytes - 1).bit_length())
    gone = _libc().calloc(1, _SEMAPHORE_BYTES)  # never freed: the driver may post it when Python has ended
    _libc().sem_init(gone, 0, 0)
    return _Block(device, wanted, zeros(device, wanted), gone)


@cache
def _libc() -> Any:
    found = ctypes.CDLL(None)
    found.calloc.restype = ctypes.c_void_p
    found.calloc.argtypes = (ctypes.c_size_t, ctypes.c_size_t)
    found.sem_trywait.argtypes = (ctypes.c_void_p,)
    found.sem_init.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_uint)
    return found
