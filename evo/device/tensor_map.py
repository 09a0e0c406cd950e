"""TMA tensor maps, as the driver encodes them."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from evo.device.protocol import Region
from evo.dtype import dtype_named
from evo.errors import Unlaunchable
from evo.trial import TensorMapArg

NBYTES, ALIGNMENT = 128, 64


@cache
def _encode_tiled() -> Any:
    """Through ctypes: the bindings' own CUtensorMap is a Python object, which need not lie on the 64 bytes
    that the driver wants."""
    return ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled


def tensor_map(driver: Any, arg: TensorMapArg, region: Region) -> Any:
    """A ctypes object with the bytes of a CUtensorMap over `region`, at an aligned address. Unlaunchable if
    the driver refuses it."""
    name = dtype_named(arg.dtype).tensor_map
    element = getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{name}")
    modes = driver.CUtensorMapSwizzle
    swizzle = {
        0: modes.CU_TENSOR_MAP_SWIZZLE_NONE,
        32: modes.CU_TENSOR_MAP_SWIZZLE_32B,
        64: modes.CU_TENSOR_MAP_SWIZZLE_64B,
        128: modes.CU_TENSOR_MAP_SWIZZLE_128B,
    }[arg.swizzle]
    rank = len(arg.shape)
    room = ctypes.create_string_buffer(NBYTES + ALIGNMENT)
    offset = -ctypes.addressof(room) % ALIGNMENT
    encoded = (ctypes.c_char * NBYTES).from_buffer(room, offset)  # keeps `room` alive
    status = _encode_tiled()(
        ctypes.byref(encoded),
        ctypes.c_int(int(element)),
        ctypes.c_uint32(rank),
        ctypes.c_void_p(region.address),
        (ctypes.c_uint64 * rank)(*arg.shape),
        (ctypes.c_uint64 * max(1, rank - 1))(*arg.strides),
        (ctypes.c_uint32 * rank)(*arg.box),
        (ctypes.c_uint32 * rank)(*[1] * rank),
        ctypes.c_int(int(driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE)),
        ctypes.c_int(int(swizzle)),
        ctypes.c_int(int(driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B)),
        ctypes.c_int(int(driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)),
    )
    if status:
        name = driver.CUresult(status).name
        raise Unlaunchable("tensor map", f"{name} for {arg} over {region.nbytes} bytes")
    return encoded
