"""Where kernels run: what the engine asks of a device, whichever it is.

There are two: `cuda` is a real GPU, `emulator` runs the compiled PTX on the CPU. Open one with
`evo.device.open.open_device`. Nothing outside this folder asks which of them it has: where they differ, a
property says what the device is like (`measures`, `launches_are_cheap`, `checks_accesses`), and a verb that
one of them has no use for does nothing there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from evo.gpu import Gpu
from evo.trial import Binary, LaunchConfig, Resources

Wait = Callable[[], AbstractContextManager[object]]
"""Makes what is entered for as long as a lock is waited for."""


@dataclass(frozen=True)
class Region:
    """A buffer that a launch may touch: `nbytes` bytes from `address` (a device pointer on `cuda`, a host
    pointer on `emulator`). Its maker keeps it alive, and the guard zones around it."""

    name: str
    address: int
    nbytes: int
    writable: bool
    initialised: bool = True


@dataclass(frozen=True)
class LaunchReport:
    """What a device can say of a launch. `counters` (dynamic, of the whole grid) and `coverage` (share of
    static instructions that ran) come from the emulator; empty on `cuda`."""

    schedule: str
    seconds: float
    counters: Mapping[str, float] = field(default_factory=dict)
    coverage: float | None = None


class Kernel(Protocol):
    """A loaded entry point."""

    @property
    def binary(self) -> Binary: ...

    @property
    def registers(self) -> int:
        """Registers a thread: of the loaded code on a GPU, else what ptxas said."""
        ...

    @property
    def handles(self) -> tuple[int, int] | None:
        """The driver's CUfunction and CUcontext; None where there is no driver."""
        ...

    def ctas_resident(self, launch: LaunchConfig) -> int | None:
        """CTAs of `launch` that an SM holds at once, as the driver says; None where there is no driver."""
        ...

    def launch(
        self, launch: LaunchConfig, regions: Mapping[str, Region], schedule: str = "default"
    ) -> LaunchReport:
        """Run once and wait. `regions` has every buffer and workspace that `launch` names. Its constants are
        written first.

        Raises Unlaunchable (refused), Red (bad access, race, deadlock: emulator), Hung (over the
        instruction budget: emulator), Crashed (the CUDA context is gone: cuda)."""
        ...

    def start(
        self, launch: LaunchConfig, regions: Mapping[str, Region], schedule: str = "default"
    ) -> LaunchReport:
        """Like `launch`, on torch's current stream and without waiting, where the device can do that:
        `Device.finish` tells how it ended. The stream may be one that is being captured into a graph, which
        then copies the constants, too."""
        ...

    def write_constants(self, launch: LaunchConfig, regions: Mapping[str, Region]) -> None:
        """Copies the constants of `launch` into the module's variables, on torch's current stream where the
        device has one. They stay there for launches that name none. Unlaunchable where one is not there, or
        is too small."""
        ...

    def launch_end(self, launch: LaunchConfig, regions: Mapping[str, Region]) -> LaunchReport | None:
        """Like `launch`, but of the grid only the last CTA runs, or the last cluster. None where the device
        launches whole grids alone."""
        ...


class Mark(Protocol):
    """A point in the work that was started on a device."""

    def reach(self) -> None:
        """Wait until the work before it is done; Crashed if the CUDA context is dead by then."""
        ...


class Clocks:
    """What a device says of its clocks and of other processes on it. This one, of a device without any, says
    nothing; that of a GPU is NVML."""

    def readings(self) -> dict[str, float]:
        """`sm_mhz`, `memory_mhz`, `temperature_c`, `power_w`, `throttled` (0, 1) and `busy_percent` (of the
        last sample period, up to a second, a kernel was running), as far as they are known."""
        return {}

    def sm_mhz(self) -> float | None:
        """The SM clock now: the cheapest reading."""
        return None

    def other_processes(self) -> tuple[int, ...]:
        """Process ids of others that compute on this device, as far as they are known."""
        return ()


class Device(Protocol):
    """Loads and launches binaries. Not for several threads, but for the lock."""

    # ---- what it is like

    @property
    def name(self) -> str:
        """For a person: "NVIDIA H200", "emulator (H200)"."""
        ...

    @property
    def gpu(self) -> Gpu:
        """Limits and rates: read off the driver, or of the GPU that the emulator stands for."""
        ...

    @property
    def torch_device(self) -> str:
        """Where buffers for this device are allocated: "cuda:0" or "cpu"."""
        ...

    @property
    def driver_version(self) -> str:
        """The newest CUDA that the driver serves, "13.0"; "" where there is no driver."""
        ...

    @property
    def schedules(self) -> tuple[str, ...]:
        """Names of the schedules that a launch takes; the first is the default, the others are the
        worst legal orders of events."""
        ...

    @property
    def measures(self) -> bool:
        """Whether times are measured here: work is captured into CUDA graphs of torch and timed between
        events. Else a time is what `estimate_us` says."""
        ...

    @property
    def launches_are_cheap(self) -> bool:
        """Whether a launch takes microseconds, so that it is repeated rather than looked at closely."""
        ...

    @property
    def checks_accesses(self) -> bool:
        """Whether every access of a launch is checked: a race or a read out of bounds is seen, whatever it
        does to the outputs."""
        ...

    @property
    def clocks(self) -> Clocks: ...

    @property
    def free_bytes(self) -> int | None:
        """Memory that buffers may take now. None where it is the host's: nothing is planned there."""
        ...

    @property
    def usable(self) -> bool:
        """Whether it still works: after a kernel killed the CUDA context only a new process helps."""
        ...

    # ---- work

    def load(self, binary: Binary, launch: LaunchConfig) -> Kernel:
        """Raises Unlaunchable if the kernel cannot be loaded or `launch` can never be granted."""
        ...

    def disturb(self, turn: int) -> None:
        """Makes hard for the next launch what a GPU makes hard now and then: shared memory is full of NaNs,
        and in odd turns the memory is busy with something else."""
        ...

    def expect(self, instructions: float) -> None:
        """The next launches should need about so many warp instructions: where they are counted, one that
        needs many times as many is a runaway. 0: not known."""
        ...

    def mark(self) -> Mark:
        """A point in the work that was started so far."""
        ...

    def finish(self) -> None:
        """Wait for all work; Crashed if some of it killed the CUDA context."""
        ...

    def reset_persisting_l2(self) -> None:
        """Makes lines that were told to stay in the L2 cache ordinary ones again."""
        ...

    def estimate_us(
        self, report: LaunchReport, resources: Resources, launch: LaunchConfig, nbytes: int
    ) -> float | None:
        """An estimate of the time of one launch, from its report; `nbytes` is the task's compulsory traffic.
        None where times are measured."""
        ...

    def entered(self) -> AbstractContextManager[object]:
        """Inside, this thread may load and start, whichever thread opened the device and whichever GPU is
        torch's current one."""
        ...

    def close(self) -> None:
        """Give back what is held on the device."""
        ...

    # ---- the lock, which all processes of this machine share

    def alone(self, wait: Wait = ...) -> AbstractContextManager[object]:
        """No other process has the device meanwhile; `wait` is entered while it waits."""
        ...

    def beside(self, wait: Wait = ...) -> AbstractContextManager[object]:
        """Others may have it too, but none has it alone."""
        ...

    def give_way(self, finish: Callable[[], None], wait: Wait = ...) -> None:
        """Between two pieces of work beside others: if a process waits to be alone, `finish` is called, which
        ends the work that was begun, and that process is let in; `wait` is entered meanwhile."""
        ...
