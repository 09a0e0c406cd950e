"""NVIDIA's driver by ctypes, as far as an exported folder needs it: cubins are loaded into torch's context,
and launched on its streams. Nothing here imports evo."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

from .fast import Loaded
from .plans import map_bytes, scalar_bytes

_SMEM = 8
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"""
_CLUSTER, _COOPERATIVE = 4, 2
"""CUlaunchAttributeID"""
_RELAXED = 2
"""CUstreamCaptureMode"""
_NON_BLOCKING = 1
"""CUstream_flags"""
_NO_SYNC, _MOVE = 1, 1
"""CUuserObject_flags, CUuserObjectRetain_flags"""
_WORDS = 18
"""32-bit words of a CUlaunchAttribute: its number, one that is not used, and 64 bytes."""


class Refused(RuntimeError):
    """The driver says no; its word for it."""


class _Config(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("smem_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attributes_count", ctypes.c_uint),
    )


class _Module:
    """A loaded cubin. It stays until the process ends: its context may go first."""

    def __init__(self, handle: ctypes.c_void_p) -> None:
        self.handle = handle


@cache
def library() -> Any:
    """The driver; OSError where there is none."""
    found = ctypes.CDLL("libcuda.so.1")
    _ask(found, found.cuInit(0))
    return found


def load(index: int, cubin: bytes, entry: str, smem_bytes: int) -> Loaded:
    """The kernel `entry` of a cubin in torch's context of GPU `index`, granted so much shared memory. Refused
    where the driver does not take it."""
    lib, module, function = library(), ctypes.c_void_p(), ctypes.c_void_p()
    with _entered(lib, index) as context:
        _ask(lib, lib.cuModuleLoadData(ctypes.byref(module), cubin))
        _ask(lib, lib.cuModuleGetFunction(ctypes.byref(function), module, entry.encode()))
        _ask(lib, lib.cuFuncSetAttribute(function, _SMEM, ctypes.c_int(smem_bytes)))
    return Loaded(_Module(module), function.value or 0, context)


def zeros(index: int, nbytes: int) -> int:
    """The address of fresh memory of GPU `index`, which is zero. It stays until the process ends. Refused
    where there is no more."""
    lib, address, stream, mode = library(), ctypes.c_uint64(), ctypes.c_void_p(), ctypes.c_int(_RELAXED)
    with _entered(lib, index):
        # this thread or another one may capture a graph, which these calls would spoil otherwise
        _ask(lib, lib.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode)))
        try:
            _ask(lib, lib.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(nbytes)))
            _ask(lib, lib.cuStreamCreate(ctypes.byref(stream), _NON_BLOCKING))
            _ask(lib, lib.cuMemsetD8Async(address, ctypes.c_ubyte(0), ctypes.c_size_t(nbytes), stream))
            _ask(lib, lib.cuStreamSynchronize(stream))
            _ask(lib, lib.cuStreamDestroy_v2(stream))
        finally:
            lib.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
    return address.value


def capture_of(stream: int) -> int:
    """The number of the capture that is under way on a stream; 0 where none is."""
    return _capture(stream)[0]


def post_when_gone(stream: int, semaphore: int) -> None:
    """The semaphore at that address is posted when the graph that captures `stream` is gone, and all that was
    made of it."""
    lib, held = library(), ctypes.c_void_p()
    graph = _capture(stream)[1]
    post = ctypes.cast(ctypes.CDLL(None).sem_post, ctypes.c_void_p)
    made = lib.cuUserObjectCreate(ctypes.byref(held), ctypes.c_void_p(semaphore), post, 1, _NO_SYNC)
    _ask(lib, made)
    _ask(lib, lib.cuGraphRetainUserObject(graph, held, 1, _MOVE))


def _capture(stream: int) -> tuple[int, ctypes.c_void_p]:
    """As `capture_of`, and the graph."""
    lib, active, number, graph = library(), ctypes.c_int(), ctypes.c_uint64(), ctypes.c_void_p()
    status = lib.cuStreamGetCaptureInfo_v2(
        ctypes.c_void_p(stream), ctypes.byref(active), ctypes.byref(number), ctypes.byref(graph), None, None
    )
    _ask(lib, status)
    return (number.value if active.value else 0), graph


@contextmanager
def _entered(lib: Any, index: int) -> Iterator[int]:
    """With torch's context of GPU `index`."""
    device, context, before = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
    _ask(lib, lib.cuDeviceGet(ctypes.byref(device), index))
    _ask(lib, lib.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    _ask(lib, lib.cuCtxPushCurrent_v2(context))
    try:
        yield context.value or 0
    finally:
        lib.cuCtxPopCurrent_v2(ctypes.byref(before))


def launch(loaded: Loaded, said: Mapping[str, Any], addresses: Mapping[str, int], stream: int) -> None:
    """Launches on a stream, without the compiled table. Refused where the driver does not take it."""
    lib, kept = library(), [_argument(arg, addresses) for arg in said["args"]]
    pointers = (ctypes.c_void_p * max(1, len(kept)))(*map(ctypes.addressof, kept))
    attributes = (ctypes.c_uint * (2 * _WORDS))()
    count = 0
    if tuple(said["cluster"]) != (1, 1, 1):
        attributes[0], attributes[2:5] = _CLUSTER, list(said["cluster"])
        count = 1
    if said.get("cooperative"):
        attributes[_WORDS * count], attributes[_WORDS * count + 2] = _COOPERATIVE, 1
        count += 1
    config = _Config(
        (ctypes.c_uint * 3)(*said["grid"]),
        (ctypes.c_uint * 3)(*said["block"]),
        said["smem_bytes"],
        stream,
        ctypes.addressof(attributes),
        count,
    )
    before = ctypes.c_void_p()
    _ask(lib, lib.cuCtxPushCurrent_v2(ctypes.c_void_p(loaded.context)))
    try:
        function = ctypes.c_void_p(loaded.function)
        _ask(lib, lib.cuLaunchKernelEx(ctypes.byref(config), function, pointers, None))
    finally:
        lib.cuCtxPopCurrent_v2(ctypes.byref(before))


def _argument(arg: Mapping[str, Any], addresses: Mapping[str, int]) -> Any:
    """A ctypes object with the bytes of a kernel argument."""
    if arg["kind"] == "scalar":
        raw = scalar_bytes(arg["value"], arg["type"])
        return ctypes.create_string_buffer(raw, len(raw))
    if arg["kind"] == "buffer":
        return ctypes.c_uint64(addresses[arg["buffer"]])
    return _tensor_map(map_bytes(arg), addresses[arg["buffer"]])


def _tensor_map(packed: bytes, address: int) -> Any:
    """A CUtensorMap, at 64 bytes. `packed` is as `map_bytes` gives it."""
    room = ctypes.create_string_buffer(128 + 64)
    encoded = (ctypes.c_char * 128).from_buffer(room, -ctypes.addressof(room) % 64)  # keeps `room` alive
    raw = ctypes.create_string_buffer(packed, len(packed))
    at = ctypes.addressof(raw)
    dtype, rank, swizzle, promotion = (ctypes.c_uint * 4).from_buffer(raw)
    shape, strides, box, steps = (ctypes.c_void_p(at + offset) for offset in (16, 56, 96, 116))
    lib = library()
    status = lib.cuTensorMapEncodeTiled(
        ctypes.byref(encoded), dtype, rank, ctypes.c_void_p(address), shape, strides, box, steps,
        0, swizzle, promotion, 0,
    )  # fmt: skip
    _ask(lib, status)
    return encoded


def _ask(lib: Any, status: int) -> None:
    if status:
        name = ctypes.c_char_p()
        lib.cuGetErrorName(status, ctypes.byref(name))
        raise Refused(f"the driver says {(name.value or b'?').decode()}")
