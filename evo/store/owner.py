"""Which process searches a study: it may be on another machine, or dead."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

STALE_S = 60.0
"""A study whose search has not been heard of for so long is free to be resumed from where its process cannot
be seen: from another machine, or another container of the same one."""


@dataclass(frozen=True)
class Owner:
    """A process, for as long as its machine is up: a process id alone is used again. `host`: the machine's
    name, and behind a space what tells its start and its namespace of process ids from others of that name.
    `started`: clock ticks from the start of the machine. Linux says these; elsewhere they are absent."""

    host: str
    pid: int
    started: int | None

    @classmethod
    def current(cls) -> Owner:
        """This process."""
        return cls(_here(), os.getpid(), _started(os.getpid()))

    def alive(self, heartbeat: float | None) -> bool:
        """Whether the process runs; of one that cannot be seen from here, whether its last `heartbeat` is
        fresh (Unix time in seconds)."""
        if self.host == _here():
            return psutil.pid_exists(self.pid) and self.started == _started(self.pid)
        return heartbeat is not None and time.time() - heartbeat < STALE_S

    def __str__(self) -> str:
        return f"{self.host.partition(' ')[0]} process {self.pid}"


def _here() -> str:
    name = socket.gethostname()
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return name
    return f"{name} {boot}/{namespace}"


def _started(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, IndexError):
        return None
