"""What NVML says of one GPU: clocks, temperature, power, and which processes compute on it."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from evo.device.protocol import Clocks


class Nvml(Clocks):
    """What NVML says of one GPU; silent where it is absent or locked (containers, MIG)."""

    def __init__(self, uuid: str) -> None:
        import pynvml

        self._nvml: Any = pynvml
        self._handle: Any = None
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)

    def _read(self, name: str, *args: Any) -> float | None:
        try:
            return float(getattr(self._nvml, name)(self._handle, *args))
        except self._nvml.NVMLError:
            return None

    def readings(self) -> dict[str, float]:
        if self._handle is None:
            return {}
        nvml = self._nvml
        power = self._read("nvmlDeviceGetPowerUsage")
        reasons = self._read("nvmlDeviceGetCurrentClocksEventReasons")
        slowed = (
            nvml.nvmlClocksEventReasonSwThermalSlowdown
            | nvml.nvmlClocksThrottleReasonHwSlowdown
            | nvml.nvmlClocksThrottleReasonHwThermalSlowdown
            | nvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown
        )
        try:
            busy: float | None = float(nvml.nvmlDeviceGetUtilizationRates(self._handle).gpu)
        except nvml.NVMLError:
            busy = None
        readings = {
            "busy_percent": busy,
            "sm_mhz": self._read("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
            "memory_mhz": self._read("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
            "temperature_c": self._read("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
            "power_w": None if power is None else power / 1000,
            "throttled": None if reasons is None else float(bool(int(reasons) & slowed)),
        }
        return {name: value for name, value in readings.items() if value is not None}

    def sm_mhz(self) -> float | None:
        return self._read("nvmlDeviceGetClockInfo", self._nvml.NVML_CLOCK_SM) if self._handle else None

    def other_processes(self) -> tuple[int, ...]:
        if self._handle is None:
            return ()
        try:
            found = self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle)
        except self._nvml.NVMLError:
            return ()
        return tuple(sorted({int(p.pid) for p in found} - {os.getpid()}))

    def close(self) -> None:
        if self._handle is not None:
            self._handle = None
            with contextlib.suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()
