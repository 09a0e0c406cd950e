"""The verbs of a device that runs kernels in this process: a launch has ended when it returns, and no
other process uses the device. Most verbs have nothing to do there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from evo.device.protocol import Clocks, LaunchReport, Region, Wait
from evo.errors import Unlaunchable
from evo.trial import Binary, LaunchConfig, Resources


class Reached:
    """A mark: all work before it has ended."""

    def reach(self) -> None:
        """It has been reached."""


class SynchronousDevice:
    """A base class. What derives from it has `name`, `gpu`, `schedules` and `load`."""

    torch_device: str = "cpu"
    driver_version: str = ""
    measures: bool = False
    launches_are_cheap: bool = False
    checks_accesses: bool = False
    usable: bool = True
    free_bytes: int | None = None
    clocks: Clocks = Clocks()

    def disturb(self, turn: int) -> None:
        """Nothing is disturbed."""

    def expect(self, instructions: float) -> None:
        """Nothing is counted."""

    def mark(self) -> Reached:
        return Reached()

    def finish(self) -> None:
        """All work has ended."""

    def reset_persisting_l2(self) -> None:
        """There is no cache."""

    def estimate_us(
        self, report: LaunchReport, resources: Resources, launch: LaunchConfig, nbytes: int
    ) -> float | None:
        """No estimate."""

    def entered(self) -> AbstractContextManager[object]:
        """Any thread may."""
        return nullcontext()

    def close(self) -> None:
        """Nothing is held."""

    def alone(self, wait: Wait = nullcontext) -> AbstractContextManager[object]:  # noqa: ARG002
        return nullcontext()

    def beside(self, wait: Wait = nullcontext) -> AbstractContextManager[object]:  # noqa: ARG002
        return nullcontext()

    def give_way(self, finish: Callable[[], None], wait: Wait = nullcontext) -> None:
        """No process waits."""


class SynchronousKernel(Protocol):
    """A base class. What derives from it has `binary` and `launch`."""

    @property
    def binary(self) -> Binary: ...

    def launch(
        self, launch: LaunchConfig, regions: Mapping[str, Region], schedule: str = "default"
    ) -> LaunchReport: ...

    @property
    def registers(self) -> int:
        """What ptxas said."""
        return self.binary.resources.registers

    @property
    def handles(self) -> tuple[int, int] | None:
        """There is no driver."""
        return None

    def ctas_resident(self, launch: LaunchConfig) -> int | None:  # noqa: ARG002
        """There is no driver to ask."""
        return None

    def start(
        self, launch: LaunchConfig, regions: Mapping[str, Region], schedule: str = "default"
    ) -> LaunchReport:
        """Has ended when it returns."""
        return self.launch(launch, regions, schedule)

    def write_constants(
        self,
        launch: LaunchConfig,
        regions: Mapping[str, Region],  # noqa: ARG002
    ) -> None:
        """Unlaunchable if `launch` has some: there is no constant memory."""
        if launch.constants:
            raise Unlaunchable("no constant memory", launch.constants[0].variable)

    def launch_end(
        self,
        launch: LaunchConfig,  # noqa: ARG002
        regions: Mapping[str, Region],  # noqa: ARG002
    ) -> LaunchReport | None:
        """None: grids are launched whole."""
        return None
