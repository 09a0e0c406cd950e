"""What comes out of a compiler, and what Compiler asks of NVRTC and of nvcc alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

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


class Backend(Protocol):
    """Runs a compiler, for several threads at once."""

    def build(self, source: str, arch: str, timeout_s: float) -> Built:
        """Uncompilable("compile timeout") where it takes longer; Uncompilable where the compiler dies."""
        ...

    def build_many(
        self, sources: Sequence[tuple[str, str]], timeout_s: float, jobs: int
    ) -> list[tuple[Built | Uncompilable, float]]:
        """`build` for many (source, arch), `jobs` at a time; each with the seconds that it took."""
        ...

    def close(self) -> None:
        """Ends its processes, and what other threads wait for."""
        ...
