"""What a worker of a cluster is like: what it announces, and why a search does not use it."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from evo.cache import Cache
from evo.compile import find_compiler
from evo.cores import evaluators_on_a_gpu, usable_cores
from evo.device.open import choose_device, choose_gpus, gpu_id, is_gpu, require_one_model
from evo.errors import MachineError
from evo.gpu import Gpu
from evo.version import __version__

PACKAGES = ("torch", "numpy", "distributed")
COMPILER = "compiler"


@dataclass(frozen=True)
class Site:
    """A worker's machine as it announces itself. `devices` evaluate ("cuda:0", "emulator"), by the ids of
    their GPUs; none where it compiles only. `gpu` is what they are, or stand for; `slots` is how many
    candidates it takes at once, `compilers` how many it compiles."""

    name: str
    devices: Mapping[str, str]
    gpu: Mapping[str, Any] | None
    slots: int
    compilers: int
    versions: Mapping[str, str]
    cache: str = ""
    nvcc: str = ""

    @property
    def model(self) -> Gpu | None:
        return Gpu(**self.gpu) if self.gpu else None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Wanted:
    """What all workers of a search must agree on. `gpu`: the name of the study's GPU."""

    gpu: str
    emulated: bool
    versions: Mapping[str, str]
    driver: list[str] = field(default_factory=list)
    """That of the first GPU worker that was taken."""

    def objection(self, site: Site) -> str:
        """Why the worker is not used, by name and version; "" where it is."""
        for name, wanted in self.versions.items():
            found = site.versions.get(name, "none")
            if found != wanted:
                return f"it has {name} {found}, and the search {wanted}"
        if not site.devices or site.gpu is None:
            return ""
        if self.emulated != all(not is_gpu(device) for device in site.devices.values()):
            return "it has a GPU, and the search is on the emulator" if self.emulated else "it emulates a GPU"
        if site.gpu["name"] != self.gpu:
            return f"its GPU is {site.gpu['name']}, and the study's {self.gpu}"
        driver = site.versions.get("driver", "")
        if driver and not self.driver:
            self.driver.append(driver)
        if driver and driver != self.driver[0]:
            return f"it has driver {driver}, and the others {self.driver[0]}"
        return ""


def site_here(
    name: str,
    device: str,
    gpu: str | None,
    gpus: str | None,
    workers: int | None,
    cache: Path,
    nvcc: Path | None,
) -> Site:
    """This machine as a worker. `device`: "auto", "cuda", "emulator", or "none": it compiles for others.
    MachineError where it has no compiler, or not the GPUs that it is asked for."""
    cores = workers or usable_cores()
    devices: dict[str, str] = {}
    model, slots = None, 0
    if device != "none":
        chosen, model = choose_device(device, gpu, None)
        named = choose_gpus(gpus, chosen) or (chosen,)
        require_one_model(named)
        devices = {gpu_id(one): one for one in named}
        each = max(1, cores // len(named))
        slots = len(named) * (evaluators_on_a_gpu(each) if is_gpu(chosen) else each)
    versions = versions_here(cache, nvcc)
    if any(is_gpu(one) for one in devices.values()):
        from evo.device.driver import driver_version

        versions["driver"] = driver_version()
    about = asdict(model) if model else None
    return Site(name, devices, about, slots, cores, versions, str(cache), str(nvcc or ""))


def versions_here(cache: Path, nvcc: Path | None) -> dict[str, str]:
    """What must be the same on all machines of a search: names and versions. MachineError where this one has
    no compiler."""
    found = {"evo": __version__, "python": ".".join(platform.python_version_tuple()[:2])}
    for package in PACKAGES:
        try:
            found[package] = version(package).partition("+")[0]
        except PackageNotFoundError:
            found[package] = "none"
    with find_compiler(nvcc, Cache(cache)) as compiler:
        found[COMPILER] = compiler.version
    return found


def site_of(announced: Mapping[str, Any]) -> Site | None:
    """The site of a worker as the scheduler tells of it; None where it is no worker of evo."""
    said = announced.get("evo")
    if not isinstance(said, Mapping):
        return None
    try:
        return Site(**said)
    except TypeError as error:
        raise MachineError(
            f"worker {announced.get('name')} announces itself otherwise: {error}", ""
        ) from error


def gpus_of(sites: Sequence[Site]) -> tuple[str, ...]:
    """The ids of all GPUs, in the order of their workers."""
    return tuple(dict.fromkeys(gpu for site in sites for gpu in site.devices))
