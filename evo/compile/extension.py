"""The compiled table of known calls (evo/launch), built once with the host's C++ compiler."""

from __future__ import annotations

import sysconfig
from collections.abc import Callable
from pathlib import Path

from evo.cache import Build, Cache
from evo.compile.ninja import build_shared_library
from evo.errors import MachineError
from evo.launch import SOURCES

LIMITED = "0x030B0000"
"""CPython 3.11: one library serves it and every later one."""


def build_table_library(cache: Path, progress: Callable[[Build], None] = lambda _: None) -> Path:
    """The library, in the cache. MachineError without a C++ compiler or Python's headers."""
    headers = Path(sysconfig.get_path("include"))
    if not (headers / "Python.h").is_file():
        raise MachineError(f"there is no {headers / 'Python.h'}", "apt-get install python3-dev (Debian)")
    flags = ["-std=c++20", "-O2", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti", "-Wl,--as-needed"]
    flags += [f"-DPy_LIMITED_API={LIMITED}", f"-I{headers}", f"-I{SOURCES[0].parent}"]
    first, *others = SOURCES
    return build_shared_library("evo_fast", [first], flags, Cache(cache), progress, headers=others)
