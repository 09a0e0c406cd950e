"""What comes out of a compiler, and what Compiler asks of NVRTC and of nvcc alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from evo.errors import Uncompilable

LINES = "-lineinfo"
"""The option that names lines of the source in what is compiled."""


@dataclass(frozen=True)
class Built:
    """What came out of a compiler: `ptx` and `cubin` are empty unless `ok`."""

    ok: bool
    log: str
    ptx: bytes = b""
    cubin: bytes = b""


class Wanted(NamedTuple):
    """What is wanted of a source: the binary of its kernel `entry` for `arch`, with those `parts`, made by
    the compiler of that `version`."""

    entry: str
    arch: str
    version: str
    parts: tuple[str, ...]


class Backend(Protocol):
    """Runs a compiler, for several threads at once."""

    def build(self, source: str, arch: str, timeout_s: float) -> Built:
        """Uncompilable("compile timeout") where it takes longer; Uncompilable where the compiler dies."""
        ...

    def pack(self, source: str, wanted: Wanted, timeout_s: float) -> bytes:
        """What the cache keeps of a binary (evo.compile.packing); Uncompilable with the reason too where the
        compiler says no."""
        ...

    def pack_many(
        self, sources: Sequence[tuple[str, Wanted]], timeout_s: float, jobs: int
    ) -> list[bytes | Uncompilable]:
        """`pack` for many, `jobs` at a time."""
        ...

    def close(self) -> None:
        """Ends its processes, and what other threads wait for."""
        ...
