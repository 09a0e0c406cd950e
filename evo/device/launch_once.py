"""A launch in a process of its own, for a tool that watches one: compute-sanitizer, Nsight Compute.

    python -m evo.device.launch_once REQUEST

REQUEST is a pickled `Request`. Each buffer is an allocation of the driver's, as large as the buffer and no
larger, so that what lies beside it belongs to no buffer; outputs and scratch are left uninitialised.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from evo.device.protocol import Region
from evo.task import Task
from evo.trial import Binary, LaunchConfig, Problem


@dataclass(frozen=True)
class Request:
    """A launch on the GPU `device` ("cuda:0"), so many `times`: `contents` has the bytes of each buffer that
    the kernel may read, `sizes` the bytes of each one that it must write first."""

    device: str
    binary: Binary
    launch: LaunchConfig
    contents: Mapping[str, bytes]
    sizes: Mapping[str, int]
    times: int = 1

    @classmethod
    def of(
        cls,
        device: str,
        binary: Binary,
        launch: LaunchConfig,
        task: Task,
        problem: Problem,
        *,
        seed: int = 0,
        times: int = 1,
    ) -> Request:
        """A launch on fresh plain inputs of the task."""
        import torch

        inputs = task.inputs(problem, task.families.plain, seed, "cpu")
        contents = {n: t.contiguous().view(torch.uint8).numpy().tobytes() for n, t in inputs.items()}
        contents |= {w.name: bytes(w.nbytes) for w in launch.workspaces if w.zeroed}
        sizes = {b.name: b.nbytes for b in task.buffers(problem) if not b.read}
        sizes |= {w.name: w.nbytes for w in launch.workspaces if not w.zeroed}
        return cls(device, binary, launch, contents, sizes, times)

    def write(self, path: Path) -> list[str]:
        """Keeps it in a file, and says by which words a process carries it out."""
        path.write_bytes(pickle.dumps(self))
        return [sys.executable, "-m", __name__, str(path)]


def run(request: Request) -> None:
    """Launches and waits. Raises what the device raises."""
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
    for _ in range(request.times):
        kernel.launch(request.launch, regions)


if __name__ == "__main__":
    run(pickle.loads(Path(sys.argv[1]).read_bytes()))
