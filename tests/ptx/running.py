"""Launching things on the emulator from numpy arrays."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache as once

import numpy as np
import numpy.typing as npt

from evo.device import Region
from evo.device.emulator import EmulatorDevice, EmulatorKernel
from evo.gpu import KNOWN_GPUS
from evo.trial import Binary, Resources
from ptx.programs import Program

Array = npt.NDArray[np.generic]

COPY = """
.reg .b32 %t, %c, %n, %v; .reg .b64 %in, %out, %i;
ld.param.u64 %in, [in]; ld.param.u64 %out, [out];
mov.u32 %t, %tid.x; mov.u32 %c, %ctaid.x; mov.u32 %n, %ntid.x;
mad.lo.u32 %t, %c, %n, %t; mul.wide.u32 %i, %t, 4; add.u64 %in, %in, %i; add.u64 %out, %out, %i;
"""
"""Start of a kernel k(in, out): %t is the thread's number in the grid, %in and %out point to its word, %v is free."""


@once
def h200() -> EmulatorDevice:
    """An emulated H200 with all checks."""
    return EmulatorDevice(KNOWN_GPUS["H200"])


def binary_of(ptx: str, entry: str = "k", arch: str = "sm_90a", registers: int = 0) -> Binary:
    """PTX that no ptxas has seen, as a binary; without `registers` nobody knows how many it takes."""
    return Binary(b"", ptx, entry, arch, "none", Resources(registers, 0, 0, 0), "", 0.0)


def aligned(nbytes: int, fill: int = 0, offset: int = 0) -> npt.NDArray[np.uint8]:
    """Memory at a multiple of 256 bytes (plus `offset`), as cudaMalloc gives."""
    raw = np.full(nbytes + 512, fill, np.uint8)
    start = -raw.ctypes.data % 256 + offset
    return raw[start : start + nbytes]


def regions_of(
    arrays: Mapping[str, Array], writable: tuple[str, ...] = ("out", "o"), initialised: bool = False
) -> dict[str, Region]:
    """Regions over arrays; those in `writable` may be written and, unless `initialised`, not be read before."""
    return {
        name: Region(name, a.ctypes.data, a.nbytes, name in writable, initialised or name not in writable)
        for name, a in arrays.items()
    }


def answer(program: Program, schedule: str = "eager", device: EmulatorDevice | None = None) -> bytes:
    """What the emulator computes for a conformance program; Red and the others pass through."""
    kernel = EmulatorKernel(device or h200(), binary_of(program.ptx))
    source = aligned(max(16, len(program.input)))
    source[: len(program.input)] = np.frombuffer(program.input, np.uint8)
    result = aligned(program.out_nbytes)
    # a GPU's output was cleared before the launch; lanes that nothing writes are compared too
    regions = regions_of({"in": source, "out": result}, initialised=True)
    kernel.launch(program.launch, regions, schedule)
    return result.tobytes()
