"""CUDA source -> cubin + PTX + what ptxas says of it, cached by content. By NVRTC, or by nvcc.

Measured on a 60-line mma.sync attention kernel (sm_89, one core, CUDA 13.0.88): NVRTC gives cubin, PTX and
ptxas's report from one call in 0.20 s (ptxas: 0.09 s of it); nvcc and ptxas take 0.48 s together. The
headers (cuda_fp16, mma) cost 10 to 30 ms, so precompiled headers would not pay.

What one needs of a kernel is kept, each need in an entry of its own: a search on a GPU takes its cubin, one
on the emulator its PTX, a person both. Lines of the source are named where there is PTX; a cubin alone has
none, which changes no instruction and makes it 40 to 47 % smaller.

The first of these that works compiles:

1. the toolkit that was asked for (`--nvcc`, CUDA_HOME), by its NVRTC if it has one, else by its nvcc;
2. the NVRTC of the toolkit on PATH, then that of NVIDIA's wheels (`nvidia/cu13` in site-packages);
3. the nvcc on PATH, then that of the wheels.

Compilers run in processes that are killed at a deadline, NVRTC at one of CPU time: Uncompilable("compile
timeout").
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, Self

from evo.cache import Cache
from evo.compile.built import LINES, Backend, Wanted
from evo.compile.nvcc import NvccCommands
from evo.compile.nvrtc_pool import NvrtcPool
from evo.compile.packing import DAMAGED, READING, unpacked
from evo.compile.ptxas import first_errors
from evo.compile.toolkit import Toolkit, toolkits
from evo.errors import MachineError, Uncompilable
from evo.trial import Binary, digest_of, without_provenance

OPTIONS = ("-std=c++17",)
"""What every candidate is compiled with, besides its architecture and, where there is PTX, LINES."""
OLDEST = (12, 4)
"""Releases below are passed over unless they are asked for by name."""
PRUNE_EVERY = 1000
"""Own builds between two looks at the size of the cache."""
Part = Literal["cubin", "ptx"]
PARTS: tuple[Part, ...] = ("cubin", "ptx")


def find_compiler(
    nvcc: Path | None,
    cache: Cache,
    *,
    timeout_s: float = 60.0,
    parts: Sequence[Part] = PARTS,
    background: bool = False,
) -> Compiler:
    """The best compiler of this machine; `nvcc` (from --nvcc or CUDA_HOME) is taken without looking further.
    Its binaries have these `parts`. In the `background` NVRTC gets only what of the cores others leave,
    unless they leave next to nothing.

    Raises MachineError where there is none, or where the one asked for does not work.
    """
    known = toolkits(nvcc)
    choices: list[tuple[Toolkit, Literal["nvrtc", "nvcc"]]] = []
    choices += [(kit, "nvrtc") for kit in known if kit.nvrtc]
    choices += [(kit, "nvcc") for kit in known if kit.nvcc]
    if nvcc is not None:
        choices = [choice for choice in choices if choice[0] is known[0]]
    problems = []
    for kit, tool in choices:
        try:
            seen = _Seen(cache, kit) if tool == "nvrtc" else None
            compiler = Compiler(
                kit,
                tool,
                cache,
                timeout_s=timeout_s,
                parts=parts,
                background=background,
                version=seen.version if seen else None,
            )
            if seen:
                seen.keep(compiler.version)
        except MachineError as error:
            problems.append(f"{tool} ({kit.origin}): {error.message}")
            continue
        if nvcc is not None or compiler.release >= OLDEST:
            return compiler
        problems.append(f"{compiler.version} ({kit.origin}) is older than {OLDEST[0]}.{OLDEST[1]}")
        compiler.close()
    raise MachineError(
        "no CUDA compiler found" + "".join(f"; {p}" for p in problems),
        "pip install nvidia-cuda-nvrtc nvidia-cuda-runtime nvidia-cuda-cccl (CUDA 13.0), or give --nvcc PATH",
    )


class _Seen:
    """What the cache knows of an NVRTC that has compiled here: as long as its files stay what they are, it
    need not show again that it works, which takes a process and a quarter of a second."""

    def __init__(self, cache: Cache, kit: Toolkit) -> None:
        self._cache = cache
        self._key = digest_of("nvrtc", kit.fingerprint)
        said = cache.read(self._key) or b""
        self.version = said.decode() if re.fullmatch(rb"nvrtc \d+\.\d+[\d.]*", said) else None

    def keep(self, version: str) -> None:
        if self.version is None:
            with suppress(OSError):  # a cache may be read-only
                self._cache.write(self._key, version.encode())


class Compiler:
    """Compiles candidates; safe to use from several threads at once. `version` ("nvrtc 13.0.88") is part of
    every key; where it is given, the compiler is known to work. Binaries have these `parts`, and nothing else
    of them is kept."""

    def __init__(
        self,
        toolkit: Toolkit,
        tool: Literal["nvrtc", "nvcc"],
        cache: Cache,
        *,
        timeout_s: float = 60.0,
        parts: Sequence[Part] = PARTS,
        background: bool = False,
        version: str | None = None,
    ) -> None:
        self.toolkit = toolkit
        self.tool = tool
        self.cache = cache
        self.timeout_s = timeout_s
        self.parts = frozenset(parts)
        self.options = (*OPTIONS, *((LINES,) if "ptx" in self.parts else ()))
        self._backend: Backend
        if tool == "nvrtc":
            self._backend = NvrtcPool(toolkit, self.options, background)
        else:
            self._backend = NvccCommands(toolkit, self.options)
        self._builds = 0
        self.version = version or self._probe()

    @property
    def release(self) -> tuple[int, int]:
        """(13, 0)"""
        major, minor = self.version.split()[1].split(".")[:2]
        return int(major), int(minor)

    def _probe(self) -> str:
        """Compile next to nothing, with a header: does it work, and what is its full version?"""
        source = '#include <cuda_fp16.h>\nextern "C" __global__ void probe(__half* x) { x[0] = x[1]; }\n'
        try:
            built = self._backend.build(source, "sm_80", self.timeout_s)
        except Uncompilable as error:
            self.close()
            raise MachineError(f"{self.tool} does not work: {error.reason} {error.detail}") from error
        said = re.search(rb"release \d+\.\d+, V(\d+\.\d+[\d.]*)", built.ptx)
        if not built.ok or not said:
            self.close()
            raise MachineError(f"{self.tool} does not work: {first_errors(built.log) or 'it says nothing'}")
        return f"{self.tool} {said[1].decode()}"

    def key(self, source: str, entry: str, arch: str) -> str:
        """The cache key: equal keys are the same binary, with the same parts. Sources that differ in their
        provenance alone have the same."""
        text, options, parts = without_provenance(source), list(self.options), sorted(self.parts)
        return digest_of(READING, text, entry, arch, options, parts, self.version)

    def compile(self, source: str, entry: str, arch: str) -> Binary:
        """The binary of `source` for `arch` ("sm_89", "sm_90a"), from the cache if it was built before.

        Raises Uncompilable with a short reason; `detail` has the compiler's first errors with their lines.
        """
        key = self.key(source, entry, arch)
        cached = self._load(key)
        return cached or unpacked(self._build(key, source, entry, arch))

    def compile_ahead(self, source: str, entry: str, arch: str) -> None:
        """Has the cache keep the binary, and raises what `compile` raises."""
        key = self.key(source, entry, arch)
        if self.cache.read(key) is None:
            self._build(key, source, entry, arch)

    def compile_many(
        self, requests: Sequence[tuple[str, str, str]], jobs: int
    ) -> list[Binary | Uncompilable]:
        """`compile` for many (source, entry, arch) at once on `jobs` cores; failures are values in their
        places. nvcc runs under ninja, NVRTC in `jobs` processes."""
        keys = [self.key(*request) for request in requests]
        done: dict[str, Binary | Uncompilable] = {}
        missing: dict[str, tuple[str, Wanted]] = {}
        for key, (source, entry, arch) in zip(keys, requests, strict=True):
            cached = self._load(key)
            if cached is not None:
                done[key] = cached
            else:
                missing[key] = source, self._wanted(entry, arch)
        results = self._backend.pack_many([*missing.values()], self.timeout_s, jobs)
        for key, result in zip(missing, results, strict=True):
            done[key] = result if isinstance(result, Uncompilable) else unpacked(self._keep(key, result))
        return [done[key] for key in keys]

    def close(self) -> None:
        """End the compiler's processes."""
        self._backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wanted(self, entry: str, arch: str) -> Wanted:
        return Wanted(entry, arch, self.version, tuple(sorted(self.parts)))

    def _load(self, key: str) -> Binary | None:
        """The cached binary; a damaged entry is deleted."""
        try:
            entry = self.cache.read(key)
            return None if entry is None else unpacked(entry)
        except (OSError, *DAMAGED):
            self.cache.delete(key)
            return None

    def _build(self, key: str, source: str, entry: str, arch: str) -> bytes:
        return self._keep(key, self._backend.pack(source, self._wanted(entry, arch), self.timeout_s))

    def _keep(self, key: str, entry: bytes) -> bytes:
        try:
            self.cache.write(key, entry)
        except OSError as error:
            raise MachineError(
                f"cannot write to the cache {self.cache.root}: {error.strerror}",
                "free disk space, or move the cache",
            ) from error
        self._builds += 1
        if self._builds % PRUNE_EVERY == 0:
            self.cache.prune()
        return entry
