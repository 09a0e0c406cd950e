"""An entry point that the `cuda` device has loaded, by the driver API."""

from __future__ import annotations

import contextlib
import ctypes
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evo.device.arguments import scalar_bytes
from evo.device.constants import ConstantMemory
from evo.device.cuda_context import CudaContext
from evo.device.driver import STICKY, ask, words_of
from evo.device.protocol import LaunchReport, Region
from evo.device.tensor_map import tensor_map
from evo.errors import CandidateError, Crashed, MachineError, Unlaunchable
from evo.trial import Argument, Binary, BufferArg, LaunchConfig, ScalarArg


@dataclass(frozen=True)
class _Prepared:
    """What a launch hands to the driver: most launches are the one before once more."""

    launch: LaunchConfig
    regions: Mapping[str, Region]
    stream: int
    config: Any
    values: list[Any]
    pointers: Any
    address: int
    """Of the pointers, which point to the values."""


_STARTED = LaunchReport("default", 0.0)


class CudaKernel:
    """A loaded entry point; unloaded when it is not referenced any more."""

    def __init__(self, device: CudaContext, binary: Binary) -> None:
        self.device = device
        self._binary = binary
        self._module: Any = None
        self._last: _Prepared | None = None
        self._configured: tuple[tuple[object, ...], Any] | None = None
        driver = device.driver
        status, module = driver.cuModuleLoadData(binary.cubin)
        if int(status):
            raise self._refused(status, "not loadable")
        self._module = module
        status, self._function = driver.cuModuleGetFunction(module, binary.entry.encode())
        if int(status):
            raise Unlaunchable("no such entry", f"{binary.entry}: {status.name}")
        self._constants = ConstantMemory(self._variable)

    @property
    def binary(self) -> Binary:
        return self._binary

    @property
    def handles(self) -> tuple[int, int]:
        return int(self._function), self.device.context

    def _refused(self, status: Any, reason: str) -> CandidateError | MachineError:
        """What an error of a call that does not wait means."""
        if status.name in STICKY:
            self.device.usable = False
            return Crashed(words_of(status), f"{status.name}: the CUDA context is lost")
        if status.name == "CUDA_ERROR_OUT_OF_MEMORY":
            return MachineError("the GPU is out of memory", "does another process use it? see nvidia-smi")
        return Unlaunchable(reason, f"the driver says {status.name}")

    def attribute(self, name: str) -> int:
        """A function attribute by its name in the driver API: "NUM_REGS", "LOCAL_SIZE_BYTES" …"""
        which = getattr(self.device.driver.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
        return int(ask(self.device.driver.cuFuncGetAttribute(which, self._function)))

    def grant(self, launch: LaunchConfig) -> None:
        """Ask the driver for all that `launch` needs; Unlaunchable if it can never be granted."""
        driver, gpu = self.device.driver, self.device.gpu
        smem = launch.smem_bytes + self.attribute("SHARED_SIZE_BYTES")
        if smem > gpu.smem_per_cta:
            raise Unlaunchable("shared memory", f"{smem} bytes a CTA, {gpu.name} has {gpu.smem_per_cta}")
        most = self.attribute("MAX_THREADS_PER_BLOCK")
        if launch.threads > most:
            raise Unlaunchable("block size", f"{launch.threads} threads a CTA, this kernel allows {most}")
        which = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        (status,) = driver.cuFuncSetAttribute(self._function, which, launch.smem_bytes)
        if int(status):
            raise self._refused(status, "shared memory")
        if launch.cluster == (1, 1, 1):
            resident = self.ctas_resident(launch) * gpu.sms
            if resident < 1:
                raise Unlaunchable("resources", f"{launch.threads} threads and {smem} bytes fit no SM")
        else:
            resident = self.clusters_resident(launch) * math.prod(launch.cluster)
            if resident < 1:
                raise Unlaunchable("cluster size", f"no cluster of {launch.cluster} CTAs fits {gpu.name}")
        if launch.cooperative and launch.ctas > resident:
            raise Unlaunchable(
                "cooperative launch", f"{launch.ctas} CTAs, {gpu.name} holds {resident} at once"
            )

    @property
    def registers(self) -> int:
        return self.attribute("NUM_REGS")

    def ctas_resident(self, launch: LaunchConfig) -> int:
        occupancy = self.device.driver.cuOccupancyMaxActiveBlocksPerMultiprocessor
        return int(ask(occupancy(self._function, launch.threads, launch.smem_bytes)))

    def clusters_resident(self, launch: LaunchConfig) -> int:
        """Clusters of `launch` that the GPU holds at once; Unlaunchable if the driver refuses their size."""
        occupancy = self.device.driver.cuOccupancyMaxActiveClusters
        status, count = occupancy(self._function, self._new_config(launch, self.device.stream))
        if int(status):
            raise self._refused(status, "cluster size")
        return int(count)

    def _config(self, launch: LaunchConfig, stream: int) -> Any:
        """How the driver is asked for a launch: most differ from the one before in the grid alone."""
        rest = launch.block, launch.smem_bytes, launch.cluster, launch.cooperative, stream
        if self._configured is None or self._configured[0] != rest:
            self._configured = rest, self._new_config(launch, stream)
        config = self._configured[1]
        config.gridDimX, config.gridDimY, config.gridDimZ = launch.grid
        return config

    def _new_config(self, launch: LaunchConfig, stream: int) -> Any:
        driver = self.device.driver
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = launch.grid
        config.blockDimX, config.blockDimY, config.blockDimZ = launch.block
        config.sharedMemBytes = launch.smem_bytes
        config.hStream = driver.CUstream(stream)
        attributes = []
        if launch.cluster != (1, 1, 1):
            attribute = driver.CUlaunchAttribute()
            attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            size = attribute.value.clusterDim
            size.x, size.y, size.z = launch.cluster
            attributes.append(attribute)
        if launch.cooperative:
            attribute = driver.CUlaunchAttribute()
            attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
            attribute.value.cooperative = 1
            attributes.append(attribute)
        if attributes:
            config.attrs = attributes
            config.numAttrs = len(attributes)
        return config

    def launch(
        self, launch: LaunchConfig, regions: Mapping[str, Region], schedule: str = "default"
    ) -> LaunchReport:
        """Run once on torch's current stream and wait. Unlaunchable if refused; Crashed if it dies."""
        begin = time.perf_counter()
        self.start(launch, regions)
        driver = self.device.driver
        self.device.check(driver.cuStreamSynchronize(driver.CUstream(self.device.stream))[0])
        return LaunchReport(schedule, time.perf_counter() - begin)

    def start(
        self,
        launch: LaunchConfig,
        regions: Mapping[str, Region],
        schedule: str = "default",  # noqa: ARG002 - there is one
    ) -> LaunchReport:
        """Launch on torch's current stream without waiting. Unlaunchable if refused."""
        if launch.constants:
            self.write_constants(launch, regions)
        stream, last = self.device.stream, self._last
        if last is None or not (last.launch is launch and last.regions is regions and last.stream == stream):
            last = self._last = self._prepared(launch, regions, stream)
        (status,) = self.device.driver.cuLaunchKernelEx(last.config, self._function, last.address, 0)
        if int(status):
            raise self._refused(status, words_of(status))
        return _STARTED

    def write_constants(self, launch: LaunchConfig, regions: Mapping[str, Region]) -> None:
        driver, stream = self.device.driver, self.device.stream
        on = driver.CUstream(stream)
        for place, source in self._constants.places(launch, regions):
            steps = [driver.cuMemcpyDtoDAsync(place.address, source.address, source.nbytes, on)]
            if place.nbytes > source.nbytes:
                end, rest = place.address + source.nbytes, place.nbytes - source.nbytes
                steps.append(driver.cuMemsetD8Async(end, 0, rest, on))
            for (status,) in steps:
                if int(status):
                    raise self._refused(status, words_of(status))

    def _variable(self, name: str) -> tuple[int, int] | None:
        """Address and bytes of a variable of the module; None where it has none of that name."""
        status, address, nbytes = self.device.driver.cuModuleGetGlobal(self._module, name.encode())
        if status.name == "CUDA_ERROR_NOT_FOUND":
            return None
        if int(status):
            raise self._refused(status, words_of(status))
        return int(address), int(nbytes)

    def launch_end(self, launch: LaunchConfig, regions: Mapping[str, Region]) -> None:
        """None: a grid is launched whole."""

    def _prepared(self, launch: LaunchConfig, regions: Mapping[str, Region], stream: int) -> _Prepared:
        values = [self._argument(arg, regions) for arg in launch.args]
        pointers = (ctypes.c_void_p * max(1, len(values)))(*[ctypes.addressof(value) for value in values])
        config, address = self._config(launch, stream), ctypes.addressof(pointers)
        return _Prepared(launch, regions, stream, config, values, pointers, address)

    def _argument(self, arg: Argument, regions: Mapping[str, Region]) -> Any:
        """A ctypes object with the bytes of a kernel argument."""
        if isinstance(arg, ScalarArg):
            raw = scalar_bytes(arg)
            return ctypes.create_string_buffer(raw, len(raw))
        region = regions[arg.buffer]
        if isinstance(arg, BufferArg):
            return ctypes.c_uint64(region.address)
        return tensor_map(self.device.driver, arg, region)

    def __del__(self) -> None:
        if self._module is not None and self.device.usable:
            with contextlib.suppress(RuntimeError, TypeError):  # bindings go first at exit
                self.device.driver.cuModuleUnload(self._module)
