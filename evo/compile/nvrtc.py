"""A small program of its own: compiles CUDA C++ with NVRTC, in a process that may be killed.

NVRTC cannot be interrupted, and a compiler may crash: `evo.compile.nvrtc_pool` therefore asks it through an
`evo.child.Child`. That takes this file for its program, not a name of the package `evo.compile`: the process
then starts with the standard library alone, in half the time.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import threading
import time
from importlib import import_module
from typing import Any

ADDRESS_SPACE_LIMIT = 8 << 30
"""Bytes of address space: a source that makes the compiler eat memory ends this process, not the machine."""


class NvrtcError(Exception):
    """A call into NVRTC failed for another reason than the source."""


class Nvrtc:
    """The few functions of libnvrtc that are needed, by ctypes. `spec`: the library, that of its builtins (or
    ""), whether to compile in the background (with what of the cores others leave), and the texts of headers
    by their names."""

    def __init__(self, spec: tuple[str, str, bool, dict[str, str]], _report: object) -> None:
        library, builtins, background, headers = spec
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_LIMIT, ADDRESS_SPACE_LIMIT))
        if background:
            with contextlib.suppress(OSError):  # forbidden in some containers
                os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        # what packs a binary takes 0.1 s to import: while NVRTC compiles the first one
        threading.Thread(target=import_module, args=("evo.compile.packing",), daemon=True).start()
        if builtins:  # libnvrtc looks its builtins up by bare name: find them already loaded
            ctypes.CDLL(builtins, mode=ctypes.RTLD_GLOBAL)
        self._lib = ctypes.CDLL(library)
        self._lib.nvrtcGetErrorString.restype = ctypes.c_char_p
        texts = ctypes.c_char_p * len(headers)
        self._headers = (
            len(headers),
            texts(*map(str.encode, headers.values())),
            texts(*map(str.encode, headers)),
        )

    def _call(self, name: str, *args: object) -> None:
        status = getattr(self._lib, name)(*args)
        if status:
            raise NvrtcError(f"{name}: {self._lib.nvrtcGetErrorString(status).decode()}")

    def _read(self, program: ctypes.c_void_p, size: str, get: str) -> bytes:
        """What NVRTC hands out as a size and a text of that size."""
        length = ctypes.c_size_t()
        self._call(size, program, ctypes.byref(length))
        text = ctypes.create_string_buffer(length.value)
        self._call(get, program, text)
        return text.raw

    def compile(
        self, source: str, options: list[str], limit_s: float, wanted: tuple[Any, ...] | None
    ) -> tuple[Any, float]:
        """`(ok, log, ptx, cubin)`, or packed what is `wanted` of it, and the seconds of CPU time. A
        compilation that takes more than `limit_s` of these ends the process by SIGPROF: how long it waited
        for a core is not its source's fault."""
        began, since = time.process_time(), time.perf_counter()
        signal.setitimer(signal.ITIMER_PROF, limit_s)
        made: Any = self._compile(source, options)
        signal.setitimer(signal.ITIMER_PROF, 0)
        cpu_s, seconds = time.process_time() - began, time.perf_counter() - since
        if wanted is not None:
            from evo.compile.built import Built, Wanted
            from evo.compile.packing import packed

            made = packed(Built(*made), Wanted(*wanted), seconds)
        return made, cpu_s

    def _compile(self, source: str, options: list[str]) -> tuple[bool, str, bytes, bytes]:
        """With a real architecture (`sm_*`) one compilation gives PTX and cubin."""
        program = ctypes.c_void_p()
        named = (ctypes.byref(program), source.encode(), b"candidate.cu")
        self._call("nvrtcCreateProgram", *named, *self._headers)
        try:
            flags = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
            failed = self._lib.nvrtcCompileProgram(program, len(options), flags)
            log = self._read(program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog")
            text = log.replace(b"\0", b"").decode(errors="replace")  # one ends what each tool says
            if failed:
                return False, text or self._lib.nvrtcGetErrorString(failed).decode(), b"", b""
            ptx = self._read(program, "nvrtcGetPTXSize", "nvrtcGetPTX").rstrip(b"\0")
            return True, text, ptx, self._read(program, "nvrtcGetCUBINSize", "nvrtcGetCUBIN")
        finally:
            self._call("nvrtcDestroyProgram", ctypes.byref(program))


program = Nvrtc
