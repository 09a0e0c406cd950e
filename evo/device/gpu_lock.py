"""The lock of a GPU, among all processes of this machine: several use it beside each other, or one alone.

Gates of several candidates run beside each other, for most of a gate is the host's work; while one kernel
is timed nothing else runs. It is a readers-writer lock on files of the operating system: however a process
ends, it lets go.

NVIDIA's Multi-Process Service is not used: under it the default of `flash_mma` took 2.3 % longer on an H200
that was otherwise empty, and a fault of one process would be the end of all.

A process that waits to be alone waits for a case of a gate, not for all of it: a gate gives way between its
cases.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path

from evo.device.protocol import Wait


class GpuLock:
    """The lock of one GPU: shared ("beside") or exclusive ("alone"). A thread that holds it exclusively may
    ask again, for either; one that shares it may ask for that again, and not for more. `wait` is entered
    while it waits for others."""

    def __init__(self, uuid: str, folder: Path | None = None) -> None:
        folder = folder or Path(tempfile.gettempdir())
        self._queue, self._lock = (folder / f"evo-{uuid}.{which}" for which in ("queue", "lock"))
        self._held = threading.local()

    @contextmanager
    def beside(self, wait: Wait = nullcontext) -> Iterator[None]:
        """Shared, while no process is alone."""
        if getattr(self._held, "how", None) is not None:
            yield
            return
        with self._acquired(fcntl.LOCK_SH, wait):
            yield

    @contextmanager
    def alone(self, wait: Wait = nullcontext) -> Iterator[None]:
        """Holds the lock exclusively. Waits until the other processes are done; those that come later wait
        until this one is."""
        held = getattr(self._held, "how", None)
        if held == fcntl.LOCK_SH:
            raise RuntimeError("a thread that shares a GPU cannot ask to be alone there: all would wait")
        if held is not None:
            yield
            return
        with self._acquired(fcntl.LOCK_EX, wait):
            yield

    def give_way(self, finish: Callable[[], None], wait: Wait = nullcontext) -> None:
        """Between two pieces of work beside others: if a process waits to be alone, `finish` is called, which
        ends what was begun on the GPU, and that process is let in; `wait` is entered meanwhile."""
        if getattr(self._held, "how", None) != fcntl.LOCK_SH:
            return
        queue, lock = self._held.files
        try:
            fcntl.flock(queue, fcntl.LOCK_SH | fcntl.LOCK_NB)  # others that ask this are in no one's way
        except BlockingIOError:
            finish()
            with wait():
                fcntl.flock(lock, fcntl.LOCK_UN)
                _acquire(queue, lock, fcntl.LOCK_SH)
        else:
            fcntl.flock(queue, fcntl.LOCK_UN)

    @contextmanager
    def _acquired(self, how: int, wait: Wait) -> Iterator[None]:
        with _opened(self._queue) as queue, _opened(self._lock) as lock:
            with wait():
                _acquire(queue, lock, how)
            self._held.how, self._held.files = how, (queue, lock)
            try:
                yield
            finally:
                self._held.how = self._held.files = None
                fcntl.flock(lock, fcntl.LOCK_UN)  # closing is not enough: a fork of us may have the file open


def _acquire(queue: int, lock: int, how: int) -> None:
    """A process holds the queue while it waits for the lock: none slips past."""
    fcntl.flock(queue, fcntl.LOCK_EX)
    fcntl.flock(lock, how)
    fcntl.flock(queue, fcntl.LOCK_UN)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    file = os.open(path, os.O_RDONLY | os.O_CREAT, 0o666)
    try:
        yield file
    finally:
        os.close(file)


@cache
def lock_of(uuid: str) -> GpuLock:
    """The lock of the GPU with that id, the same for all of a process."""
    return GpuLock(uuid)
