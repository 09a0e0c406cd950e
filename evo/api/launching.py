"""Kernels in this process: compiled, loaded once on each device, and started on torch's current stream."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from functools import cache as once
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evo.cache import Cache
from evo.compile import find_compiler
from evo.device import Kernel, Region
from evo.device.open import is_gpu, open_device, part_for, prepare_device
from evo.errors import UsageError
from evo.gpu import Gpu
from evo.task import BufferSpec
from evo.trial import Candidate, LaunchConfig

if TYPE_CHECKING:
    from torch import Tensor

_OPENING = threading.Lock()


def launcher_at(place: str, gpu: Gpu, cache: Path, nvcc: Path | None) -> Launcher:
    """This process's launcher on "cuda:0" or on "emulator", which stands for `gpu`. MachineError where that
    device cannot be used."""
    with _OPENING:
        return _opened(place, gpu, cache, nvcc)


@once
def _opened(place: str, gpu: Gpu, cache: Path, nvcc: Path | None) -> Launcher:
    return Launcher(place, gpu, cache, nvcc)


class Launcher:
    """A device of this process, and the kernels that are loaded on it. For many threads."""

    def __init__(self, place: str, gpu: Gpu, cache: Path, nvcc: Path | None) -> None:
        self.place, self.gpu = place, gpu
        self._cache, self._nvcc = cache, nvcc
        self._lock = threading.RLock()
        self._loaded: dict[tuple[object, ...], Kernel] = {}
        prepare_device(place, cache)
        current = _current(place)
        self._device = open_device(place, gpu, cache=cache)
        _make_current(current)

    def load(self, candidate: Candidate) -> Kernel:
        """The candidate's kernel; the same one for all problems with the same code. UsageError while a CUDA
        graph is captured, if it is not loaded yet; MachineError without a compiler; CandidateError where
        compiler or driver refuse it."""
        launch = candidate.launch
        granted = (launch.block, launch.smem_bytes, launch.cluster, launch.ctas * launch.cooperative)
        key = (candidate.entry, candidate.source, *granted)
        with self._lock:
            if key not in self._loaded:
                self._refuse_capture()
                parts = (part_for(self.place),)
                with find_compiler(self._nvcc, Cache(self._cache), parts=parts) as compiler:
                    binary = compiler.compile(candidate.source, candidate.entry, self.gpu.arch)
                with self._device.entered():
                    self._loaded[key] = self._device.load(binary, launch)
            return self._loaded[key]

    def start(
        self,
        kernel: Kernel,
        launch: LaunchConfig,
        specs: Sequence[BufferSpec],
        tensors: Mapping[str, Tensor],
        given: Collection[str],
    ) -> None:
        """Starts it on torch's current stream of the device; the emulator waits. `tensors` has every buffer
        of `specs`, contiguous; `given` are those with a content. Workspaces are allocated."""
        regions = {
            spec.name: Region(
                spec.name,
                tensors[spec.name].data_ptr(),
                spec.nbytes,
                spec.written,
                initialised=spec.read or spec.name in given,
            )
            for spec in specs
        }
        scratch = self._workspaces(launch)  # lives until the launch
        for space in launch.workspaces:
            memory = scratch[space.name]
            address = memory if isinstance(memory, int) else memory.data_ptr()
            regions[space.name] = Region(space.name, address, space.nbytes, True, space.zeroed)
        with self._lock, self._device.entered():
            kernel.start(launch, regions)

    def _workspaces(self, launch: LaunchConfig) -> dict[str, Any]:
        """Each a tensor or an address."""
        if not launch.workspaces:
            return {}
        import torch

        from evo.launch.scratch import made

        on = self._device.torch_device
        if is_gpu(self.place):
            return made([asdict(space) for space in launch.workspaces], on)
        sizes = {space.name: max(1, space.nbytes) for space in launch.workspaces}
        return {name: torch.zeros(size, dtype=torch.uint8, device=on) for name, size in sizes.items()}

    def _refuse_capture(self) -> None:
        import torch

        if is_gpu(self.place) and torch.cuda.is_current_stream_capturing():
            raise UsageError(
                "a kernel cannot be loaded while a CUDA graph is captured",
                "call it once with such tensors before the capture",
            )


def _current(place: str) -> int | None:
    """torch's current GPU, which opening another one changes."""
    import torch

    return int(torch.cuda.current_device()) if is_gpu(place) else None


def _make_current(index: int | None) -> None:
    import torch

    if index is not None:
        torch.cuda.set_device(index)
