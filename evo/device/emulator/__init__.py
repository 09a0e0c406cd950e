"""The `emulator` device: executes the compiled PTX on the CPU, checks every access, and counts the work."""

from evo.device.emulator.device import (
    EmulatorDevice,
    EmulatorKernel,
    built_interpreter,
    cpu_instructions,
    load_interpreter,
    place_of,
    runs_on,
    schedule_order,
    verdict,
)

__all__ = [
    "EmulatorDevice",
    "EmulatorKernel",
    "built_interpreter",
    "cpu_instructions",
    "load_interpreter",
    "place_of",
    "runs_on",
    "schedule_order",
    "verdict",
]
