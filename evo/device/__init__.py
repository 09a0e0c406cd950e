"""Where kernels run: `cuda` is a real GPU, `emulator` executes compiled PTX on the CPU."""

from evo.device.protocol import Device, Kernel, LaunchReport, Region

__all__ = ["Device", "Kernel", "LaunchReport", "Region"]
