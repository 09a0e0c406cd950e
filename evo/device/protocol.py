"""Where kernels run: the Device protocol. `cuda` is a real GPU, `emulator` runs compiled PTX on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from evo.gpu import Gpu
from evo.trial import Binary, LaunchConfig


@dataclass(frozen=True)
class Region:
    """A buffer that a launch may touch: `nbytes` bytes from `address` (a device pointer on `cuda`, a host
    pointer on `emulator`). Whoever made it keeps it alive; guard zones around it belong to them too."""

    name: str
    address: int
    nbytes: int
    writable: bool
    initialised: bool = True


@dataclass(frozen=True)
class LaunchReport:
    """What a device can say of a launch that ended well. `counters` (dynamic, of the whole grid) and
    `coverage` (share of static instructions that ran) come from the emulator; empty on `cuda`."""

    schedule: str
    seconds: float
    counters: Mapping[str, float] = field(default_factory=dict)
    coverage: float | None = None


class Kernel(Protocol):
    """A loaded entry point."""

    @property
    def binary(self) -> Binary: ...

    def launch(
        self, launch: LaunchConfig, regions: Mapping[str, Region], schedule: str = "default"
    ) -> LaunchReport:
        """Run once and wait. `regions` has every buffer and workspace that `launch` names.

        Raises Unlaunchable (refused), Red (bad access, race, deadlock: emulator), Hung (over the
        instruction budget: emulator), Crashed (the CUDA context is gone: cuda)."""
        ...


class Device(Protocol):
    """Loads and launches binaries."""

    @property
    def name(self) -> str:
        """For a person: "NVIDIA H200", "emulator (H200)"."""
        ...

    @property
    def kind(self) -> Literal["cuda", "emulator"]: ...

    @property
    def gpu(self) -> Gpu:
        """Limits and rates: read off the driver, or of the GPU that the emulator stands for."""
        ...

    @property
    def torch_device(self) -> str:
        """Where buffers for this device are allocated: "cuda:0" or "cpu"."""
        ...

    @property
    def schedules(self) -> tuple[str, ...]:
        """Names of the schedules that `launch` takes; the first is the default, the others hostile, but
        legal."""
        ...

    def load(self, binary: Binary, launch: LaunchConfig) -> Kernel:
        """Raises Unlaunchable if the kernel cannot be loaded or `launch` can never be granted."""
        ...

    def close(self) -> None: ...
