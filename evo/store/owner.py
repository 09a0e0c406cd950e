"""Which process searches a study: it may be on another machine, or dead."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

STALE_S = 60.0
"""A study whose search has not been heard of for so long is free to be resumed from another machine."""


@dataclass(frozen=True)
class Owner:
    """A process, for as long as its machine is up: a process id alone is used again. `started`: clock ticks
    from the start of the machine, None where the operating system does not say it (Linux does)."""

    host: str
    pid: int
    started: int | None

    @classmethod
    def current(cls) -> Owner:
        """This process."""
        return cls(socket.gethostname(), os.getpid(), _started(os.getpid()))

    def alive(self, heartbeat: float | None) -> bool:
        """Whether the process runs; of one on another machine, whether its last `heartbeat` is fresh (Unix
        time in seconds)."""
        if self.host == socket.gethostname():
            return psutil.pid_exists(self.pid) and self.started == _started(self.pid)
        return heartbeat is not None and time.time() - heartbeat < STALE_S

    def __str__(self) -> str:
        return f"{self.host} process {self.pid}"


def _started(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, IndexError):
        return None
