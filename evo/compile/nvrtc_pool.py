"""NVRTC in processes that may be killed: as many as there are threads that compile at once."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from evo.child import Child, ChildError
from evo.compile.built import Built, Wanted
from evo.compile.standard_headers import HEADERS, PRELUDE
from evo.compile.toolkit import Toolkit
from evo.errors import Crashed, Hung, Uncompilable

PATIENCE = 20
"""A compilation that waits for a core may take so many times the CPU time that it is given."""
CROWDED = 10
"""One in the background that took so many times its CPU time is the last: other programs leave no cores."""
PROGRAM = Path(__file__).with_name("nvrtc.py")


class NvrtcPool:
    """Compiles with the NVRTC of a toolkit. In the `background` its processes get only what of the cores
    others leave, unless they leave next to nothing."""

    def __init__(self, toolkit: Toolkit, options: Sequence[str], background: bool) -> None:
        self._toolkit = toolkit
        self._background = background
        includes = [f"-I{folder}" for folder in toolkit.includes]
        self._options = [*options, "--ptxas-options=-v", f"--pre-include={PRELUDE}", *includes]
        self._idle: list[_NvrtcProcess] = []
        self._busy: set[_NvrtcProcess] = set()
        self._lock = threading.Lock()
        self._closed = False

    def build(self, source: str, arch: str, timeout_s: float) -> Built:
        return Built(*self._ask(source, arch, timeout_s, None))

    def pack(self, source: str, wanted: Wanted, timeout_s: float) -> bytes:
        entry: bytes = self._ask(source, wanted.arch, timeout_s, wanted)
        return entry

    def _ask(self, source: str, arch: str, timeout_s: float, wanted: Wanted | None) -> Any:
        child = self._take()
        healthy = False
        try:
            begin = time.monotonic()
            made, cpu_s = child.compile(source, [f"-arch={arch}", *self._options], timeout_s, wanted)
            if time.monotonic() - begin > CROWDED * max(0.1, cpu_s):
                self._background = False
            healthy = True
        except Uncompilable:
            healthy = not child.dead
            raise
        finally:
            self._give_back(child, healthy)
        return made

    def _give_back(self, child: _NvrtcProcess, healthy: bool) -> None:
        with self._lock:
            self._busy.discard(child)
            if healthy and not self._closed:
                self._idle.append(child)
                return
        child.close()

    def _take(self) -> _NvrtcProcess:
        with self._lock:
            if self._closed:
                raise Uncompilable("compiler closed")
            child = self._idle.pop() if self._idle else None
            if child is not None and (child.dead or child.background != self._background):
                child.close()
                child = None
            child = child or _NvrtcProcess(self._toolkit, self._background)
            self._busy.add(child)
            return child

    def pack_many(
        self, sources: Sequence[tuple[str, Wanted]], timeout_s: float, jobs: int
    ) -> list[bytes | Uncompilable]:
        def one(request: tuple[str, Wanted]) -> bytes | Uncompilable:
            try:
                return self.pack(*request, timeout_s)
            except Uncompilable as error:
                return error

        with ThreadPoolExecutor(max(1, jobs)) as threads:
            return list(threads.map(one, sources))

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            for child in self._busy:
                child.kill()  # the thread that waits for it gets an error
        for child in idle:
            child.close()


class _NvrtcProcess(Child):
    """One process that runs `nvrtc.py`."""

    def __init__(self, toolkit: Toolkit, background: bool) -> None:
        libraries = (str(toolkit.nvrtc), str(toolkit.builtins or ""))
        super().__init__(PROGRAM, (*libraries, background, HEADERS))
        self.background = background

    def compile(
        self, source: str, options: list[str], timeout_s: float, wanted: Wanted | None
    ) -> tuple[Any, float]:
        """What NVRTC made, packed if it is known what is `wanted` of it, and the seconds of CPU time that it
        took. Uncompilable if these are more than `timeout_s`, if the compiler dies of the source, or by what
        packing it finds."""
        plain = None if wanted is None else tuple(wanted)
        deadline = PATIENCE * timeout_s
        try:
            made, cpu_s = self.ask("compile", source, options, timeout_s, plain, deadline=deadline)
        except Hung as late:
            raise Uncompilable("compile timeout", late.detail) from late
        except Crashed as error:
            if self.status == -signal.SIGPROF:
                spent = f"not done after {timeout_s:g} s of CPU time"
                raise Uncompilable("compile timeout", spent) from error
            raise Uncompilable("compiler crashed", str(error)) from error
        except ChildError as error:
            self.close()
            raise Uncompilable("compiler crashed", str(error).strip().splitlines()[-1]) from error
        return made, cpu_s
