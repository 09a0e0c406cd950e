"""Which device is meant: the GPU at hand, or the emulator that stands for one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from evo.device.protocol import Device
from evo.errors import MachineError, UnknownName, UsageError
from evo.gpu import KNOWN_GPUS, Gpu, Limits, known_gpu, target

if TYPE_CHECKING:
    from evo.compile import Compiler, Part

DEFAULT_GPU = "L4"
"""The GPU that the emulator stands for unless told otherwise."""


def choose_device(asked: str, gpu: str | None, target_name: str | None) -> tuple[str, Gpu]:
    """The device ("cuda:0", "emulator") that `asked` (also "auto", "cuda") means, and its GPU.

    The emulator stands for `gpu`, else for the GPU of the target, else for an L4.
    """
    if target_name is not None:
        target(target_name)  # a wrong name is wrong on every device
    if asked == "auto":
        asked = "emulator" if gpu is not None or not _gpu_names() else "cuda:0"
    if asked == "emulator":
        name = gpu or (None if target_name is None else target(target_name).name) or DEFAULT_GPU
        chosen = gpu_named(name)
    elif match := re.fullmatch(r"cuda(?::(\d+))?", asked):
        if gpu is not None:
            hint = "--device emulator --gpu L4"
            raise UsageError("--gpu is for the emulator; on a real GPU use --target", hint)
        asked = f"cuda:{match[1] or 0}"
        chosen = real_gpu(asked)
    else:
        raise UsageError(f"unknown device: {asked}", "auto, cuda:0 (or another number) or emulator")
    if target_name is not None and not Limits.of(chosen).allows(target_name):
        hint = "choose a target that is no newer than the GPU"
        raise UsageError(f"{chosen.name} ({chosen.arch}) cannot run code for {target_name}", hint)
    return asked, chosen


def gpu_named(name: str) -> Gpu:
    """The known GPU of that name, however it is capitalised, or of a driver's name for it ("NVIDIA H200");
    UnknownName if there is none."""
    if found := known_gpu(name):
        return found
    raise UnknownName.among("gpu", name, list(KNOWN_GPUS))


def real_gpu(device: str) -> Gpu:
    """The GPU of "cuda:N"; MachineError where there is none at all, UsageError where N is too large."""
    from evo.device.driver import gpu_at

    return gpu_at(int(device.removeprefix("cuda:")))


def choose_gpus(asked: str | None, device: str) -> tuple[str, ...]:
    """The devices that `--gpus` means, "all" or "0,1": of the kind of `device` ("cuda:0", "emulator"), which
    is the first of them where it is a GPU; () where nothing is asked. On the emulator each number is one
    more emulated GPU. UsageError for what is malformed, MachineError where there is no such GPU."""
    if asked is None:
        return ()
    hint = "--gpus all, or numbers as nvidia-smi has them: --gpus 0,1"
    if asked.strip() == "all":
        if not is_gpu(device):
            raise UsageError("the emulator has as many GPUs as it is told", "--gpus 0,1")
        return tuple(f"cuda:{number}" for number in range(len(_gpu_names())))
    if not re.fullmatch(r"\d{1,3}(,\d{1,3})*", asked.replace(" ", "")):
        raise UsageError(f"malformed list of GPUs: {asked!r}", hint)
    numbers = [int(number) for number in asked.split(",")]
    if len(set(numbers)) < len(numbers):
        raise UsageError(f"a GPU is named twice: {asked}", hint)
    return tuple(f"{'cuda' if is_gpu(device) else 'emulator'}:{number}" for number in numbers)


def require_one_model(devices: Sequence[str]) -> None:
    """UsageError where GPUs are of several models: their times say nothing of each other."""
    models = {device: real_gpu(device).name for device in devices if is_gpu(device)}
    if len(set(models.values())) > 1:
        listed = ", ".join(f"{device} is {name}" for device, name in models.items())
        raise UsageError(
            f"GPUs of several models cannot share a study: {listed}",
            "evo search --gpus all makes a study for each model, and searches them at the same time",
        )


def gpu_id(device: str) -> str:
    """What tells a GPU from all others, on this machine and elsewhere: the UUID of "cuda:0". An emulated one
    is known by its name ("emulator:1"); "" for "emulator", of which there is no other."""
    if not is_gpu(device):
        return "" if device == "emulator" else device
    from evo.device.driver import uuid_at

    return uuid_at(int(device.removeprefix("cuda:")))


def memory_of(device: str) -> int:
    """The bytes of memory of a GPU, "cuda:0"."""
    from evo.device.driver import memory_at

    return memory_at(int(device.removeprefix("cuda:")))


def gpu_that_runs(needs: str) -> Gpu:
    """What the emulator stands for by default if code for `needs` ("sm_90a") runs there, else the GPU of
    that target."""
    default = gpu_named(DEFAULT_GPU)
    return default if Limits.of(default).allows(needs) else target(needs)


def _gpu_names() -> list[str]:
    from evo.device.driver import gpu_names

    return gpu_names()


def is_gpu(device: str) -> bool:
    """Whether "cuda:0" or "emulator" means a real GPU."""
    return device.startswith("cuda")


def is_emulator(device: str) -> bool:
    """Whether "emulator" or "emulator:1" means the emulator, whose times are estimates."""
    return device.startswith("emulator")


def part_for(device: str) -> Part:
    """What of a compiled kernel the device runs: a GPU the cubin, the emulator the PTX."""
    return "cubin" if is_gpu(device) else "ptx"


def prepare_device(device: str, cache: Path) -> None:
    """Makes what every process that opens the device needs and one should make first: the emulator is built.
    MachineError where something is missing."""
    if not is_gpu(device):
        from evo.device.emulator import load_interpreter

        load_interpreter(cache)


def start_device(asked: str) -> None:
    """Makes the primary context of the GPU that `asked` means, so that opening it later takes less; of
    "auto" where there is one GPU. Any trouble is left to `open_device`."""
    from evo.device.driver import ask, driver_api

    if asked != "auto" and not is_gpu(asked):
        return
    with suppress(MachineError, ValueError):
        driver = driver_api()
        if asked != "auto" or ask(driver.cuDeviceGetCount()) == 1:
            device = ask(driver.cuDeviceGet(int(asked.partition(":")[2] or 0)))
            ask(driver.cuDevicePrimaryCtxRetain(device))


def open_device(device: str, gpu: Gpu, *, cache: Path, compiler: Compiler | None = None) -> Device:
    """The device of that name, "cuda:0" or "emulator", which stands for `gpu`. A GPU needs the `compiler` to
    disturb what it launches; the emulator is kept in `cache`. MachineError where it cannot be used."""
    if is_gpu(device):
        from evo.device.cuda import CudaDevice

        return CudaDevice(int(device.removeprefix("cuda:")), compiler)
    from evo.device.emulator import EmulatorDevice

    return EmulatorDevice(gpu, cache=cache)
