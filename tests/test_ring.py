"""The order in which a producer takes tiles of keys (attention/include/ring.cuh), on the emulator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from evo.cache import Cache
from evo.compile import find_compiler
from evo.device import Region
from evo.device.emulator import EmulatorDevice
from evo.errors import MachineError
from evo.gpu import target
from evo.template.include import Includes
from evo.trial import BufferArg, LaunchConfig

MOST = 70
"""Tiles without a mask."""
SOURCE = f"""#include "ring.cuh"
extern "C" __global__ void taken(int* halving, int* ascending) {{
    evo::TileOrder<true> first(threadIdx.x);
    evo::TileOrder<false> second(threadIdx.x);
    for (int i = 0; i < {MOST + 2}; ++i) {{
        halving[threadIdx.x * {MOST + 2} + i] = first.next();
        ascending[threadIdx.x * {MOST + 2} + i] = second.next();
    }}
}}
"""


def halves(whole: int) -> list[int]:
    """The first tile, the last one, and then the odd multiples of ever smaller powers of two."""
    between = range(1, whole - 1)
    powers = [2**n for n in reversed(range(whole.bit_length()))]
    return [*range(min(whole, 1)), *range(1, whole)[-1:]] + [
        tile for power in powers for tile in between if tile % power == 0 and tile // power % 2
    ]


@pytest.mark.nvcc
def test_tiles_without_a_mask_are_taken_in_halves_and_the_others_as_they_come(tmp_path: Path) -> None:
    try:
        compiler = find_compiler(None, Cache(tmp_path))
        device = EmulatorDevice(target("sm_90a"))
    except MachineError as error:
        pytest.skip(str(error))
    (path := tmp_path / "taken.cu").write_text(SOURCE)
    source = Includes("attention", ()).paste(SOURCE, path)
    with compiler:
        binary = compiler.compile(source, "taken", "sm_90a")
    launch = LaunchConfig((1, 1, 1), (MOST, 1, 1), 0, (BufferArg("halving"), BufferArg("ascending")))
    found = {name: np.full((MOST, MOST + 2), -1, np.int32) for name in ("halving", "ascending")}
    regions = {
        name: Region(name, rows.ctypes.data, rows.nbytes, writable=True, initialised=False)
        for name, rows in found.items()
    }
    device.load(binary, launch).launch(launch, regions)
    for whole in range(MOST):
        assert found["halving"][whole].tolist() == [*halves(whole), *range(whole, MOST + 2)], whole
        assert found["ascending"][whole].tolist() == [*range(MOST + 2)]
