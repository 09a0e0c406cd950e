"""Where this machine's compilers and NVIDIA's tools lie: those asked for, those on PATH, those of wheels."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from evo.errors import MachineError


@dataclass(frozen=True)
class Toolkit:
    """One place where CUDA compilers lie. `origin` says how it was found ("--nvcc", "PATH", "wheels")."""

    root: Path
    origin: str
    nvcc: Path | None
    nvrtc: Path | None

    @property
    def includes(self) -> tuple[Path, ...]:
        """Folders of <cuda_fp16.h>, <mma.h> and <cuda/std/...>."""
        return tuple(p for p in (self.root / "include", self.root / "include" / "cccl") if p.is_dir())

    @property
    def ptxas(self) -> Path | None:
        """The assembler of PTX."""
        beside = [self.nvcc.with_name("ptxas")] if self.nvcc else []
        return next((p for p in (self.root / "bin" / "ptxas", *beside) if p.is_file()), None)

    @property
    def builtins(self) -> Path | None:
        """The library that NVRTC loads by bare name."""
        found = sorted(self.nvrtc.parent.glob("libnvrtc-builtins.so.*")) if self.nvrtc else []
        return found[0] if found else None

    @property
    def fingerprint(self) -> list[tuple[str, int, int]]:
        """Path, bytes and time of change of each file that NVRTC needs to work."""
        headers = [folder / "cuda_fp16.h" for folder in self.includes]
        files = [f for f in (self.nvrtc, self.builtins, *headers) if f is not None and f.is_file()]
        return [(str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in files]


def toolkits(asked: Path | None = None) -> list[Toolkit]:
    """Every toolkit of this machine, the preferred first; `asked` is a path to an nvcc or a CUDA_HOME."""
    found = []
    if asked is not None:
        found.append(_toolkit_asked(asked))
    if on_path := shutil.which("nvcc"):
        found.append(_toolkit_of(Path(on_path), "PATH"))
    found.extend(_toolkits_in_wheels())
    return found


def find_tool(name: str, home: Path | None = None) -> Path | None:
    """A tool of NVIDIA's (ncu, compute-sanitizer, nvdisasm …): on PATH, below the toolkit `home`, below those
    of the wheels, or where NVIDIA's packages put it."""
    if found := shutil.which(name):
        return Path(found)
    roots = [*([home] if home else []), *(kit.root for kit in _toolkits_in_wheels()), Path("/usr/local/cuda")]
    packages = Path("/opt/nvidia")
    folders = [root / "bin" for root in roots]
    folders += [packages / name, *sorted(packages.glob("nsight-compute/*"), reverse=True)]  # newest first
    return next((folder / name for folder in folders if (folder / name).is_file()), None)


def host_compiler() -> Path:
    """The compiler of C++. MachineError where there is none."""
    for name in ("g++", "clang++", "c++"):
        if found := shutil.which(name):
            return Path(found)
    raise MachineError(
        "no C++ compiler: no g++ and no clang++ on PATH",
        "install one for the emulator: apt-get install g++ (Debian), dnf install gcc-c++ (Fedora)",
    )


def _toolkit_asked(asked: Path) -> Toolkit:
    nvcc = asked / "bin" / "nvcc" if asked.is_dir() else asked
    if not nvcc.is_file() or not os.access(nvcc, os.X_OK):
        raise MachineError(
            f"no CUDA compiler at {asked}", "give the path of an nvcc, or of a folder with bin/nvcc"
        )
    return _toolkit_of(nvcc, "--nvcc")


def _toolkit_of(nvcc: Path, origin: str) -> Toolkit:
    """The toolkit that an nvcc belongs to; it may be a link or a script that calls another. Called by a link
    from elsewhere, nvcc does not find its own headers."""
    real = nvcc.resolve()
    root = real.parent.parent
    if (root / "include" / "cuda_fp16.h").is_file():
        nvcc = real if real.name.startswith("nvcc") else nvcc  # a link to ccache is what it is called
    else:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            command = [str(nvcc), "--dryrun", "-ptx", "x.cu"]
            said = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
            if here := re.search(r"_HERE_=(.+)", said.stderr):
                root = Path(here[1].strip()).resolve().parent
    return Toolkit(root, origin, nvcc, _nvrtc_below(root))


def _toolkits_in_wheels() -> list[Toolkit]:
    spec = importlib.util.find_spec("nvidia")
    roots = (
        [r for p in (spec.submodule_search_locations or ()) for r in Path(p).glob("cu[0-9]*")] if spec else []
    )
    found = []
    for root in sorted(roots, key=lambda r: r.name, reverse=True):
        nvcc = root / "bin" / "nvcc"
        found.append(Toolkit(root, "wheels", nvcc if nvcc.is_file() else None, _nvrtc_below(root)))
    return found


def _nvrtc_below(root: Path) -> Path | None:
    for folder in (root / "lib64", root / "lib", root / "targets" / "x86_64-linux" / "lib"):
        if found := sorted(folder.glob("libnvrtc.so.[0-9]*")):
            return found[0]
    return None
