"""Processes that are forked from one which has imported torch: they begin in milliseconds, not in seconds.

    parent                            server                       child
    Forked() ── three descriptors ──> fork ──────────────────────> becomes what the parent is now,
             ──────────── what the parent is now ────────────────> then serve(…), see evo.child
             <── pid, pidfd, at last its status ── waitpid

For what uses no GPU: a driver does not survive a fork, and what evaluates on a GPU starts it while torch is
imported. The server has one thread, and ends with its parent; its children end with it. A child has the
environment, the folder, the cores and the limits of the parent at that time; what the server imported has
read its environment before. (The fork server of `multiprocessing` runs the parent's script again in each
child, unless the script guards itself against that.)
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import math
import os
import pickle
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, MutableMapping, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from pathlib import Path
from typing import NamedTuple, NoReturn, cast

from evo.child import EVALUATES, FILE_LIMIT, Spare, serve

IMPORTED = ("torch", "evo.evaluate.evaluator", "evo.evaluate.evaluating")
"""Modules of the server. What is missing is told by the child, which imports it again."""
LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]
LOOK_S = 0.1
"""How often a thread that waits for a child's end looks whether another one has heard of it."""
_NUMBER = struct.Struct("!i")
_START = """import sys
sys.path[:] = dict.fromkeys(sys.argv[2:] + sys.path)
from evo.fork_server import run
run(int(sys.argv[1]))"""


class _Words(NamedTuple):
    """What a child takes over from the parent, and what `serve` is told."""

    env: Mapping[str, str]
    folder: str
    path: Sequence[str]
    cores: Sequence[int]
    priority: int
    limits: Mapping[int, tuple[int, int]]
    file_bytes: int
    first: str


class Forked(Spare):
    """A `Spare` of the server, which is started where there is none."""

    def __init__(self, first: tuple[str, str] | None = None, *, env: Mapping[str, str] | None = None) -> None:
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as its child
        self.connection, theirs = Pipe()
        said, saying = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        words = pickle.dumps(_words({**os.environ, **(env or {})}, " ".join(first or ())))
        with theirs, saying:
            _ask([theirs.fileno(), self.log.fileno(), saying.fileno()])
        self.process = cast("subprocess.Popen[bytes]", _Process(said))
        with contextlib.suppress(OSError):  # it died already
            self.connection.send_bytes(words)


def _words(env: Mapping[str, str], first: str) -> _Words:
    folder = "/"
    with contextlib.suppress(OSError):  # it may be gone
        folder = str(Path.cwd())
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    limits = {which: resource.getrlimit(which) for which in LIMITS}
    priority = os.getpriority(os.PRIO_PROCESS, 0)
    return _Words(env, folder, tuple(sys.path), cores, priority, limits, FILE_LIMIT, first)


def can_fork() -> bool:
    """Whether this system has what the server needs: Linux 5.3 or newer."""
    try:
        myself = os.pidfd_open(os.getpid())
        try:
            signal.pidfd_send_signal(myself, 0)  # a container may forbid one of the two
        finally:
            os.close(myself)
    except (AttributeError, OSError):
        return False
    return True


class _Process:
    """A child of the server, with what of a Popen a `Child` uses. `said`: what the server says of it."""

    def __init__(self, said: socket.socket) -> None:
        self.returncode: int | None = None
        self._said = said
        self._pid: tuple[int, int] | None = None
        """And a descriptor that means this process for ever."""
        self._lock = threading.Lock()

    @property
    def pid(self) -> int:
        """Waits until it is forked; -1 where it never was."""
        while self._pid is None and self.poll() is None:
            self._something_is_said(LOOK_S)
        return self._pid[0] if self._pid else -1

    def poll(self) -> int | None:
        with self._lock:
            while self.returncode is None and self._something_is_said(0.0):
                self._hear()
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        end = time.monotonic() + (math.inf if timeout is None else timeout)
        while (status := self.poll()) is None:
            if time.monotonic() >= end:
                raise subprocess.TimeoutExpired("a child", timeout or 0.0)
            self._something_is_said(min(LOOK_S, end - time.monotonic()))
        return status

    def kill(self) -> None:
        """Ends it. One that is not forked yet never will be."""
        if self.poll() is not None:
            return
        with self._lock:
            if self._pid is None:
                self._end(-signal.SIGKILL)
            else:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._pid[1], signal.SIGKILL)

    def _something_is_said(self, timeout: float) -> bool:
        try:
            return bool(wait_for([self._said], timeout))
        except (OSError, ValueError):  # another thread has heard of its end
            return True

    def _hear(self) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._said, _NUMBER.size, 1)
        except OSError:
            data, descriptors = b"", []
        if not data:
            self._end(-signal.SIGKILL)  # with the server
        elif descriptors:
            self._pid = _NUMBER.unpack(data)[0], descriptors[0]
        else:
            self._end(_NUMBER.unpack(data)[0])

    def _end(self, status: int) -> None:
        self.returncode = status
        self._said.close()
        if self._pid is not None:
            os.close(self._pid[1])


# --- the parent's server -----------------------------------------------------------------------------------


class _Server(NamedTuple):
    owner: int
    process: subprocess.Popen[bytes]
    asked: socket.socket


_servers: list[_Server] = []
"""The one of this process, if it has any."""
_asking = threading.Lock()


def server_pid() -> int | None:
    """The process id of this process's server; None where it has none."""
    running = [one for one in _servers if one.owner == os.getpid() and one.process.poll() is None]
    return running[0].process.pid if running else None


def _ask(descriptors: Sequence[int]) -> None:
    """Sends a request to the server; to a new one where there is none any more."""
    with _asking:
        if server_pid() is None:
            _start()
        try:
            socket.send_fds(_servers[0].asked, [b"."], list(descriptors))
        except OSError:
            _start()
            socket.send_fds(_servers[0].asked, [b"."], list(descriptors))


def _start() -> None:
    for old in _servers:
        old.asked.close()
    asked, theirs = socket.socketpair()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # as in `Spare`
    try:
        process = subprocess.Popen(
            [sys.executable, "-u", "-P", "-c", _START, str(theirs.fileno()), *sys.path],
            pass_fds=[theirs.fileno()],
            env={**os.environ, **EVALUATES},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        theirs.close()
    if not _servers:
        atexit.register(_end)
    _servers[:] = [_Server(os.getpid(), process, asked)]


def _end() -> None:
    for one in _servers:
        if one.owner == os.getpid():
            one.asked.close()
            one.process.kill()
            one.process.wait()


# --- in the server -----------------------------------------------------------------------------------------


def run(descriptor: int) -> NoReturn:
    """The life of the server: import, then fork for each request until the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    gc.disable()
    for module in IMPORTED:
        with contextlib.suppress(Exception):
            importlib.import_module(module)
    gc.freeze()  # children share what a collection would write to
    asked = socket.socket(fileno=descriptor)
    reaped, reaping = os.pipe()
    for end in (reaped, reaping):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(reaping, warn_on_full_buffer=False)
    children: dict[int, socket.socket] = {}
    while True:
        readable = wait_for([asked.fileno(), reaped])
        if reaped in readable:
            os.read(reaped, 4096)
            _reap(children)
        if asked.fileno() in readable:
            request, descriptors, _, _ = socket.recv_fds(asked, 1, 3)
            if not request:
                os._exit(0)
            _fork(descriptors, children, [asked.fileno(), reaped, reaping])


def _reap(children: dict[int, socket.socket]) -> None:
    """Says of each child that has ended how it did."""
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        with children.pop(pid) as saying, contextlib.suppress(OSError):
            saying.send(_NUMBER.pack(os.waitstatus_to_exitcode(status)))


def _fork(descriptors: Sequence[int], children: dict[int, socket.socket], mine: Sequence[int]) -> None:
    connection, log, saying = descriptors
    said, server = socket.socket(fileno=saying), os.getpid()
    try:
        if wait_for([said], 0.0):  # the other end is closed: it was given up
            raise BrokenPipeError
        pid = os.fork()
    except OSError:  # also where there is no room for one more
        said.close()
    else:
        if not pid:
            for end in (*mine, *(other.fileno() for other in children.values()), saying):
                os.close(end)
            _become(connection, log, server)
        children[pid] = said
        with contextlib.suppress(OSError):
            pidfd = os.pidfd_open(pid)
            socket.send_fds(said, [_NUMBER.pack(pid)], [pidfd])
            os.close(pidfd)
    os.close(connection)
    os.close(log)


def _become(connection: int, log: int, server: int) -> NoReturn:
    """The child's life, in the child."""
    try:
        words: _Words = pickle.loads(_words_of(connection))
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        _replace(os.environ, words.env)
        sys.path[:] = words.path
        importlib.invalidate_caches()
        with contextlib.suppress(OSError):
            os.chdir(words.folder)
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, words.priority)
        if words.cores:
            os.sched_setaffinity(0, words.cores)
        for which, limits in words.limits.items():
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(which, limits)
        serve(connection, server, words.file_bytes, words.first)
    finally:
        os._exit(1)


def _words_of(connection: int) -> bytes:
    """The first message; the descriptor stays open."""
    heard = Connection(os.dup(connection))
    with heard:
        return heard.recv_bytes()


def _replace(all_of_them: MutableMapping[str, str], by: Mapping[str, str]) -> None:
    all_of_them.clear()
    all_of_them.update(by)
