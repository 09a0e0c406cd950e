"""Who uses a GPU now, among all processes of this machine: several beside each other, or one alone.

Gates of several candidates run beside each other, for most of a gate is the host's work; while one kernel
is timed nothing else runs. Both are locks of the operating system on files: however a process ends, it lets
go.

NVIDIA's Multi-Process Service is not used: under it the default of `flash_mma` took 2.3 % longer on an H200
that was otherwise empty, and a fault of one process would be the end of all.

Who waits to be alone waits for a case of a gate, not for all of it: a gate gives way between its cases.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from pathlib import Path


class Turns:
    """The turns of one GPU. A thread that has it alone may ask again, for either; one that has it beside
    others may ask for that again, and not for more."""

    def __init__(self, uuid: str, folder: Path | None = None) -> None:
        folder = folder or Path(tempfile.gettempdir())
        self._door, self._room = (folder / f"evo-{uuid}.{which}" for which in ("door", "lock"))
        self._held = threading.local()

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Beside others, while nobody is alone; waits for its turn."""
        if getattr(self._held, "how", None) is not None:
            yield
            return
        with self._turn(fcntl.LOCK_SH):
            yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Alone: waits until the others are done. Who comes later waits behind it."""
        held = getattr(self._held, "how", None)
        if held == fcntl.LOCK_SH:
            raise RuntimeError("who is on a GPU beside others cannot ask to be alone there: all would wait")
        if held is not None:
            yield
            return
        with self._turn(fcntl.LOCK_EX):
            yield

    def give_way(
        self, finish: Callable[[], None], wait: Callable[[], AbstractContextManager[object]] = nullcontext
    ) -> None:
        """Between two pieces of work beside others: if somebody waits to be alone, `finish` is called, which
        ends what was begun on the GPU, and they are let in; `wait` is entered for as long as that takes."""
        if getattr(self._held, "how", None) != fcntl.LOCK_SH:
            return
        door, room = self._held.files
        try:
            fcntl.flock(door, fcntl.LOCK_SH | fcntl.LOCK_NB)  # others who ask that are in nobody's way
        except BlockingIOError:
            finish()
            with wait():
                fcntl.flock(room, fcntl.LOCK_UN)
                _enter(door, room, fcntl.LOCK_SH)
        else:
            fcntl.flock(door, fcntl.LOCK_UN)

    @contextmanager
    def _turn(self, how: int) -> Iterator[None]:
        with _opened(self._door) as door, _opened(self._room) as room:
            _enter(door, room, how)
            self._held.how, self._held.files = how, (door, room)
            try:
                yield
            finally:
                self._held.how = self._held.files = None


def _enter(door: int, room: int, how: int) -> None:
    """Through the door, which is held by whoever waits to be alone: nobody slips past."""
    fcntl.flock(door, fcntl.LOCK_EX)
    fcntl.flock(room, how)
    fcntl.flock(door, fcntl.LOCK_UN)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    file = os.open(path, os.O_RDONLY | os.O_CREAT, 0o666)
    try:
        yield file
    finally:
        os.close(file)


@cache
def turns_of(uuid: str) -> Turns:
    """The turns of the GPU with that id, the same for all of a process."""
    return Turns(uuid)
