"""A small program of its own: compiles CUDA C++ with NVRTC, in a process that may be killed.

NVRTC cannot be interrupted, and a compiler may crash: `evo.compile.nvcc` therefore
talks to it through this process.
Run as `python -I -S nvrtc.py LIBRARY BUILTINS FD [background]`; it needs the standard library alone, so it
starts fast. In the background it gets only what of the cores others leave.

Requests and answers are pickled tuples over the connection `FD`:
`(source: str, options: list[str], limit_s: float)` ->
`((ok: bool, log: str, ptx: bytes, cubin: bytes), cpu_s: float)`. A compilation that takes more than `limit_s`
seconds of CPU time ends the process by SIGPROF: how long it waited for a core is not its source's fault.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
import threading
import time
from multiprocessing.connection import Connection

ADDRESS_SPACE_LIMIT = 8 << 30
"""Bytes of address space: a source that makes the compiler eat memory ends this process, not the machine."""


class NvrtcError(Exception):
    """A call into NVRTC failed for another reason than the source."""


class Nvrtc:
    """The few functions of libnvrtc that are needed, by ctypes."""

    def __init__(self, library: str, builtins: str) -> None:
        if builtins:  # libnvrtc looks its builtins up by bare name: find them already loaded
            ctypes.CDLL(builtins, mode=ctypes.RTLD_GLOBAL)
        self._lib = ctypes.CDLL(library)
        self._lib.nvrtcGetErrorString.restype = ctypes.c_char_p

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

    def compile(self, source: str, options: list[str]) -> tuple[bool, str, bytes, bytes]:
        """`(ok, log, ptx, cubin)`: with a real architecture (`sm_*`) one compilation gives both."""
        program = ctypes.c_void_p()
        self._call(
            "nvrtcCreateProgram", ctypes.byref(program), source.encode(), b"candidate.cu", 0, None, None
        )
        try:
            flags = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
            failed = self._lib.nvrtcCompileProgram(program, len(options), flags)
            log = self._read(program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog")
            text = log.rstrip(b"\0").decode(errors="replace")
            if failed:
                return False, text or self._lib.nvrtcGetErrorString(failed).decode(), b"", b""
            ptx = self._read(program, "nvrtcGetPTXSize", "nvrtcGetPTX").rstrip(b"\0")
            return True, text, ptx, self._read(program, "nvrtcGetCUBINSize", "nvrtcGetCUBIN")
        finally:
            self._call("nvrtcDestroyProgram", ctypes.byref(program))


def end_with(parent: int) -> None:
    """End this process soon after `parent` did, even in the middle of a compilation. (The parent-death signal
    of Linux would do, but it comes when the *thread* that started this process ends.)"""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def serve(library: str, builtins: str, fd: int, background: bool) -> None:
    """Answer requests until the other side closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    end_with(os.getppid())
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_LIMIT, ADDRESS_SPACE_LIMIT))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if background:
        with contextlib.suppress(OSError):  # forbidden in some containers
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    nvrtc = Nvrtc(library, builtins)
    with Connection(fd) as connection, contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            source, options, limit_s = connection.recv()
            began = time.process_time()
            signal.setitimer(signal.ITIMER_PROF, limit_s)
            built = nvrtc.compile(source, options)
            signal.setitimer(signal.ITIMER_PROF, 0)
            connection.send((built, time.process_time() - began))


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:] == ["background"])
