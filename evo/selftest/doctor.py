"""What this machine can do for a search, and what to do about the rest: one check a line, none of them fatal.

Each check looks for one thing, says what it found, and where something is missing or broken, what to do.
Nothing is imported or started before its check runs: a broken CUDA installation must not break `evo doctor`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import cache_from_source, find_spec
from pathlib import Path
from typing import Literal

from evo.cores import usable_cores
from evo.errors import EvoError

Status = Literal["works", "absent", "broken"]


@dataclass(frozen=True)
class Finding:
    """What one check came to: `found` says what is there, `advice` what to do unless it works."""

    check: str
    status: Status
    found: str
    advice: str = ""


@dataclass(frozen=True)
class Places:
    """Where to look: the same choices that a search would be given."""

    database: str
    cache: Path
    nvcc: Path | None = None
    cuda_home: Path | None = None


def examine(places: Places) -> list[Finding]:
    """Every check, in the order in which a search needs its subject."""
    checks: tuple[Callable[[], Finding], ...] = (
        _python,
        lambda: _compiler(places),
        _host_compiler,
        _gpu,
        _torch,
        _byte_code,
        _cluster,
        lambda: _tool(places, "ncu", "nsight-compute", "evo can then say what limits a kernel"),
        lambda: _tool(places, "compute-sanitizer", "it", "finalists can then be checked by it too"),
        lambda: _database(places.database),
        lambda: _cache(places.cache),
    )
    return [check() for check in checks]


def can_search(findings: Iterable[Finding]) -> bool:
    """Whether a search can run here: compiler, database, cache, and a GPU or what builds the emulator."""
    works = {finding.check for finding in findings if finding.status == "works"}
    return {"compiler", "database", "cache"} <= works and bool({"gpu", "host compiler"} & works)


def _python() -> Finding:
    found = f"Python {sys.version.split()[0]} on {usable_cores()} cores"
    return Finding("python", "works", found)


def _compiler(places: Places) -> Finding:
    from evo.cache import Cache
    from evo.compile import find_compiler

    try:
        compiler = find_compiler(places.nvcc, Cache(places.cache))
    except EvoError as error:
        return Finding("compiler", "absent", error.message, error.hint)
    compiler.close()
    return Finding("compiler", "works", f"{compiler.version} ({compiler.toolkit.origin})")


def _host_compiler() -> Finding:
    """The C++ compiler that builds the emulator, once."""
    from evo.compile import host_compiler

    try:
        path = host_compiler()
    except EvoError as error:
        return Finding("host compiler", "absent", error.message, error.hint)
    return Finding("host compiler", "works", _first_line([path.name, "--version"]))


def _gpu() -> Finding:
    """The GPU through NVML: names, memory, driver, and the limits that prune a space."""
    try:
        import pynvml
    except ImportError as error:
        return Finding(
            "gpu", "absent", str(error), "pip install nvidia-ml-py; without a GPU use --device emulator"
        )
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        found = f"no NVIDIA driver answers ({error})"
        return Finding("gpu", "absent", found, "searches run on the emulator; their times are estimates")
    try:
        driver = pynvml.nvmlSystemGetDriverVersion()
        names = [_gpu_text(pynvml.nvmlDeviceGetHandleByIndex(i)) for i in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError as error:
        return Finding("gpu", "broken", str(error), "see whether nvidia-smi works; a reboot mends most of it")
    finally:
        pynvml.nvmlShutdown()
    if not names:
        return Finding("gpu", "absent", f"driver {driver}, but no GPU", "searches run on the emulator")
    several = "; --gpus all searches on all of them" if len(names) > 1 else ""
    if len(set(names)) > 1:
        several += ", with a study for each model"
    return Finding("gpu", "works", f"{'; '.join(names)}; driver {driver}{several}")


def _gpu_text(handle: object) -> str:
    import pynvml

    from evo.gpu import known_gpu

    name = str(pynvml.nvmlDeviceGetName(handle))
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle).total / 2**30
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    gpu = known_gpu(name)
    limits = f", {gpu.smem_per_cta // 1024} KB shared memory a CTA" if gpu else ""
    return f"{name} (sm_{major}{minor}, {memory:.0f} GiB{limits})"


def _torch() -> Finding:
    """Whether torch sees the GPU; without one, torch on the CPU is all that the emulator needs."""
    import torch

    if torch.cuda.is_available():
        return Finding(
            "torch", "works", f"torch {torch.__version__}, sees {torch.cuda.device_count()} GPU(s)"
        )
    if shutil.which("nvidia-smi"):
        advice = "install a torch built for CUDA whose version the driver supports"
        return Finding(
            "torch", "broken", f"torch {torch.__version__} sees no GPU, though a driver is here", advice
        )
    return Finding("torch", "works", f"torch {torch.__version__}, CPU only: enough for the emulator")


IMPORTED = ("torch", "evo", "numpy", "sqlalchemy", "optuna")
"""Packages that the processes of a search import: together they take longest."""


def _byte_code() -> Finding:
    """Whether their modules are compiled. Some installers leave that to the first import, and where
    PYTHONDONTWRITEBYTECODE is set, as in many containers, it is done again in every process."""
    places = {name: Path(spec.origin) for name in IMPORTED if (spec := find_spec(name)) and spec.origin}
    missing = [name for name, place in places.items() if not Path(cache_from_source(place)).is_file()]
    if not missing:
        return Finding("byte code", "works", f"modules of {', '.join(places)} are compiled")
    found = f"modules of {', '.join(missing)} are not compiled: each process takes seconds more to start"
    folders = " ".join(str(places[name].parent) for name in missing)
    return Finding("byte code", "absent", found, f"python -m compileall -q {folders}")


def _cluster() -> Finding:
    """What --scheduler, --slurm and `evo worker` need."""
    try:
        known = [f"{name} {version(name)}" for name in ("distributed", "dask-jobqueue")]
    except PackageNotFoundError as error:
        advice = "optional: pip install 'evo-kernels[cluster]'; searches can then use other machines"
        return Finding("cluster", "absent", f"{error.name} is not installed", advice)
    return Finding("cluster", "works", ", ".join(known))


def _tool(places: Places, name: str, package: str, gain: str) -> Finding:
    from evo.compile import find_tool

    path = find_tool(name, places.cuda_home)
    if path is None:
        advice = f"optional: install {package} (NVIDIA's CUDA toolkit has it); {gain}"
        return Finding(name, "absent", "neither on PATH nor below CUDA_HOME", advice)
    command = [str(path), "--version"]
    try:
        text = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return Finding(name, "broken", f"{path}: {error}", f"reinstall {package}")
    found = re.search(r"\d+\.\d+[\d.]*", text)
    return Finding(name, "works", f"{path} {found[0] if found else ''}".rstrip())


def _database(database: str) -> Finding:
    """An absent SQLite file is not made: it is enough that a search could make it."""
    from evo.store import Store

    if "://" not in database and not Path(database).exists():
        above = next(folder for folder in Path(database).resolve().parents if folder.exists())
        if above.is_dir() and os.access(above, os.W_OK):
            return Finding("database", "works", f"{database}: none yet, the first search makes it")
        advice = "choose another with --database or EVO_DATABASE"
        return Finding("database", "broken", f"{database}: cannot be made below {above}", advice)
    try:
        with Store(database, create=False) as store:
            count = len(store.studies())
    except EvoError as error:
        return Finding("database", "broken", error.message, error.hint)
    return Finding("database", "works", f"{store.name}: {count} {'study' if count == 1 else 'studies'}")


def _cache(cache: Path) -> Finding:
    advice = "choose another folder with --cache or EVO_CACHE"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=cache):
            free = shutil.disk_usage(cache).free / 2**30
    except OSError as error:
        return Finding("cache", "broken", f"{cache}: {error.strerror}", advice)
    if free < 1:
        return Finding("cache", "broken", f"{cache}: only {free:.1f} GiB free", advice)
    return Finding("cache", "works", f"{cache}, {free:.0f} GiB free")


def _first_line(command: list[str]) -> str:
    try:
        text = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return f"{command[0]}: {error}"
    return text.splitlines()[0] if text else command[0]
