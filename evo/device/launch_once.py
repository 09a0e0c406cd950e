"""One launch in a process of its own, on exact allocations: what compute-sanitizer watches.

    python -m evo.device.launch_once REQUEST

REQUEST is a pickled `Request`. Each buffer is an allocation of the driver's, as large as the buffer and no
larger, so that whatever lies beside it is nobody's; outputs and scratch are left uninitialised.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from evo.device import Region
from evo.trial import Binary, LaunchConfig


@dataclass(frozen=True)
class Request:
    """A launch on the GPU `device` ("cuda:0"): `contents` has the bytes of each buffer that the kernel may
    read, `sizes` the bytes of each one that it must write first."""

    device: str
    binary: Binary
    launch: LaunchConfig
    contents: Mapping[str, bytes]
    sizes: Mapping[str, int]


def run(request: Request) -> None:
    """Launches once and waits. Raises what the device raises."""
    from evo.device.cuda import CudaDevice

    device = CudaDevice(int(request.device.removeprefix("cuda:")))
    driver = device.driver
    regions = {}
    for name, nbytes in {**{n: len(b) for n, b in request.contents.items()}, **request.sizes}.items():
        status, address = driver.cuMemAlloc(nbytes)
        device.check(status)
        if name in request.contents:
            device.check(driver.cuMemcpyHtoD(address, request.contents[name], nbytes)[0])
        regions[name] = Region(name, int(address), nbytes, writable=True)
    kernel = device.load(request.binary, request.launch)
    kernel.launch(request.launch, regions)


if __name__ == "__main__":
    run(pickle.loads(Path(sys.argv[1]).read_bytes()))
