"""The CUDA driver through NVIDIA's Python bindings, which this file alone imports.

It says what the driver's answers and errors mean, and what GPUs this machine has.
"""

from __future__ import annotations

from typing import Any

from evo.errors import MachineError, UsageError
from evo.gpu import Gpu, known_gpu

PORTABLE_CLUSTER = 8
"""CTAs that a cluster may have on every GPU that has clusters."""
_TENSOR_CORE_FLOP = {(8, 0): 2048, (8, 6): 1024, (8, 9): 1024, (9, 0): 4096, (10, 0): 8192, (12, 0): 1024}
"""Dense fp16 FLOP a clock an SM, by compute capability: for GPUs that are not in the table by name."""
_L2_OVER_DRAM = 4.0
"""L2 over DRAM bandwidth of a GPU that is not in the table by name; a bound, so rather too high."""

STICKY = frozenset(
    {
        "CUDA_ERROR_ILLEGAL_ADDRESS",
        "CUDA_ERROR_LAUNCH_FAILED",
        "CUDA_ERROR_LAUNCH_TIMEOUT",
        "CUDA_ERROR_ASSERT",
        "CUDA_ERROR_HARDWARE_STACK_ERROR",
        "CUDA_ERROR_ILLEGAL_INSTRUCTION",
        "CUDA_ERROR_MISALIGNED_ADDRESS",
        "CUDA_ERROR_INVALID_ADDRESS_SPACE",
        "CUDA_ERROR_INVALID_PC",
        "CUDA_ERROR_CONTEXT_IS_DESTROYED",
        "CUDA_ERROR_ECC_UNCORRECTABLE",
        "CUDA_ERROR_EXTERNAL_DEVICE",
        "CUDA_ERROR_TENSOR_MEMORY_LEAK",
        "CUDA_ERROR_CONTAINED",
    }
)
"""Errors after which every further call in the context fails."""


def words_of(status: Any) -> str:
    """`CUDA_ERROR_ILLEGAL_ADDRESS` -> "illegal address"."""
    return str(status.name).removeprefix("CUDA_ERROR_").replace("_", " ").lower()


def gpu_names() -> list[str]:
    """The names of the GPUs that CUDA sees, by index; empty where there is no driver or no GPU."""
    try:
        driver = driver_api()
        count = ask(driver.cuDeviceGetCount())
        return [name_of(driver, ask(driver.cuDeviceGet(i))) for i in range(count)]
    except MachineError:
        return []


def gpu_at(index: int) -> Gpu:
    """Limits and rates of GPU number `index`: limits from the driver; rates from the table where it knows the
    GPU by name, else derived. UsageError if there is no such GPU, MachineError if there is none at all."""
    driver = driver_api()
    count = ask(driver.cuDeviceGetCount())
    if not 0 <= index < count:
        raise UsageError(f"there is no cuda:{index}", f"this machine has {count} CUDA device(s)")
    device = ask(driver.cuDeviceGet(index))

    def read(name: str) -> int:
        which = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(ask(driver.cuDeviceGetAttribute(which, device)))

    capability = (read("COMPUTE_CAPABILITY_MAJOR"), read("COMPUTE_CAPABILITY_MINOR"))
    sms, clock_ghz = read("MULTIPROCESSOR_COUNT"), read("CLOCK_RATE") / 1e6
    dram_gbps = 2 * read("MEMORY_CLOCK_RATE") * read("GLOBAL_MEMORY_BUS_WIDTH") / 8e6
    name = name_of(driver, device)
    known = known_gpu(name)
    tensor_tflops = _TENSOR_CORE_FLOP.get(capability, 8192) * sms * clock_ghz / 1e3
    return Gpu(
        name=known.name if known else name,
        arch=f"sm_{capability[0]}{capability[1]}" + ("a" if capability == (9, 0) else ""),
        sms=sms,
        smem_per_cta=read("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        smem_per_sm=read("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
        threads_per_sm=read("MAX_THREADS_PER_MULTIPROCESSOR"),
        ctas_per_sm=read("MAX_BLOCKS_PER_MULTIPROCESSOR"),
        registers_per_sm=read("MAX_REGISTERS_PER_MULTIPROCESSOR"),
        threads_per_cta=read("MAX_THREADS_PER_BLOCK"),
        max_cluster=PORTABLE_CLUSTER if read("CLUSTER_LAUNCH") else 1,
        clock_ghz=clock_ghz,
        dram_gbps=known.dram_gbps if known else dram_gbps,
        l2_gbps=known.l2_gbps if known else dram_gbps * _L2_OVER_DRAM,
        l2_bytes=read("L2_CACHE_SIZE"),
        tensor_tflops=known.tensor_tflops if known else tensor_tflops,
    )


def driver_version() -> str:
    """The newest CUDA that the driver serves, "13.0"."""
    number = ask(driver_api().cuDriverGetVersion())
    return f"{number // 1000}.{number % 1000 // 10}"


def uuid_at(index: int) -> str:
    """The UUID of GPU number `index`, as nvidia-smi writes it."""
    driver = driver_api()
    return uuid_of(driver, ask(driver.cuDeviceGet(index)))


def memory_at(index: int) -> int:
    """The bytes of memory of GPU number `index`."""
    driver = driver_api()
    return int(ask(driver.cuDeviceTotalMem(ask(driver.cuDeviceGet(index)))))


def uuid_of(driver: Any, device: Any) -> str:
    raw = bytes(ask(driver.cuDeviceGetUuid(device)).bytes)[:16].hex()
    return f"GPU-{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}"


def driver_api() -> Any:
    """`cuda.bindings.driver`, initialised. MachineError where there is no driver or no GPU."""
    hint = "run without a GPU: --device emulator"
    try:
        from cuda.bindings import driver

        (status,) = driver.cuInit(0)
    except (ImportError, RuntimeError, OSError) as error:
        raise MachineError(f"no NVIDIA driver: {str(error).splitlines()[0]}", hint) from error
    if status != driver.CUresult.CUDA_SUCCESS:
        raise MachineError(f"the NVIDIA driver does not start: {status.name}", hint)
    return driver


def ask(answer: tuple[Any, ...]) -> Any:
    """The value of a driver call that only fails on a broken machine."""
    status, *values = answer
    if int(status) != 0:
        raise MachineError(f"the NVIDIA driver says {status.name}", "see nvidia-smi and dmesg")
    return values[0] if len(values) == 1 else None if not values else tuple(values)


def name_of(driver: Any, device: Any) -> str:
    return str(ask(driver.cuDeviceGetName(128, device)).split(b"\0")[0].decode())
