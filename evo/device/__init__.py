"""Where kernels run: `cuda` is a real GPU, `emulator` executes compiled PTX on the CPU."""

from evo.device.copies import Copy, copier
from evo.device.protocol import Clocks, Device, Kernel, LaunchReport, Mark, Region

__all__ = ["Clocks", "Copy", "Device", "Kernel", "LaunchReport", "Mark", "Region", "copier"]
