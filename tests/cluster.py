"""A Dask scheduler and workers as processes of their own; what the workers evaluate is the landscape.

Run as a program (ADDRESS NAME KIND VERSION), it is such a worker. KIND: "evaluates", or "compiles".
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
from command import EVO
from distributed import Client
from finals import SimulatedSpec
from landscape import LandscapeSpec

from evo.cache import default_folder
from evo.cluster.job import Compiled, Compiling
from evo.cluster.site import Site, Wanted
from evo.cluster.worker import serve
from evo.confirm.remote_worker import needed
from evo.confirm.worker import WorkerProcess
from evo.evaluate.evaluating import Builds
from evo.evaluate.pool import Spec
from evo.gpu import KNOWN_GPUS
from evo.trial import Candidate

WANTED = Wanted("L4", True, {"evo": "1"})


class Signs:
    """Compiled code is the id of the process that compiled."""

    def __call__(self, candidate: Candidate) -> Compiled:
        return Compiled({candidate.digest: str(os.getpid()).encode()}, None, 0.001)

    def close(self) -> None: ...


@dataclass(frozen=True)
class LandscapeJob:
    """Compiles next to nothing, and evaluates the landscape; each candidate takes `seconds`."""

    seconds: float = 0.0
    digest: str = "landscape"

    def compiling(self, cache: Path, nvcc: Path | None) -> Compiling:  # noqa: ARG002
        return Signs()

    def at(
        self,
        devices: Mapping[str, str],
        cache: Path,  # noqa: ARG002
        nvcc: Path | None,  # noqa: ARG002
    ) -> tuple[Spec, dict[str, Builds]]:
        spec = LandscapeSpec(self.seconds)
        return spec, dict.fromkeys(devices, spec)


@dataclass(frozen=True)
class LandscapeConfirmation:
    """A confirm worker's process that holds rounds of the landscape."""

    digest: str = "confirmation"
    frees: str = "landscape"
    beside: tuple[str, ...] = ("expect",)

    def answering(self, device: str, cache: Path, nvcc: Path | None) -> WorkerProcess:  # noqa: ARG002
        return WorkerProcess(SimulatedSpec(0.0))

    def needs(self, method: str, words: Sequence[Any]) -> Sequence[str]:
        return needed(method, words)


def free_port() -> int:
    """One that nobody listens at, and that no connection of this machine is given meanwhile: those are taken
    from 32768 on."""
    while True:
        with socket.socket() as found, suppress(OSError):
            port = random.SystemRandom().randrange(10_000, 32_000)
            found.bind(("127.0.0.1", port))
            return port


def kill(process: subprocess.Popen[bytes]) -> None:
    """A worker with the evaluators that it has, as when its machine dies."""
    with suppress(psutil.NoSuchProcess):
        for one in psutil.Process(process.pid).children(recursive=True):
            one.kill()
    process.kill()
    process.wait()


class Cluster:
    """A scheduler, and the workers that were started."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port = free_port()
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self.scheduler = self._scheduler()

    def _scheduler(self) -> subprocess.Popen[bytes]:
        words = ["--host", "127.0.0.1", "--port", str(self.port), "--no-dashboard", "--no-jupyter",
                 "--dashboard-address", "127.0.0.1:0"]  # fmt: skip
        return self._started(["-m", "distributed.cli.dask_scheduler", *words])

    def _started(self, words: list[str]) -> subprocess.Popen[bytes]:
        here = Path(__file__).parent
        found = os.pathsep.join([str(here.parent), str(here), *filter(None, [os.environ.get("PYTHONPATH")])])
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, *words],
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": found},
                cwd=self._folder,
            )

    def start(self, name: str, kind: str = "evaluates", version: str = "1", through: str = "") -> None:
        """Starts a worker; `through`: the address that it knows the scheduler by."""
        words = [through or self.address, name, kind, version, str(self._folder / f"cache-{name}")]
        self.workers[name] = self._started([str(Path(__file__)), *words])

    def await_workers(self, count: int) -> None:
        """Waits until so many are there."""
        with Client(self.address, set_as_default=False) as client:
            client.wait_for_workers(count, timeout=120)

    def kill(self, name: str) -> None:
        kill(self.workers.pop(name))

    def stop(self, name: str) -> None:
        """The worker hangs: all of its process stands still."""
        self.workers[name].send_signal(signal.SIGSTOP)

    def restart_scheduler(self, down_s: float) -> None:
        self.scheduler.kill()
        self.scheduler.wait()
        time.sleep(down_s)
        self.scheduler = self._scheduler()

    def close(self) -> None:
        """Workers are asked to end, as by Ctrl-C; those that cannot are killed."""
        for worker in self.workers.values():
            worker.send_signal(signal.SIGINT)
        end = time.monotonic() + 20
        for worker in self.workers.values():
            with suppress(subprocess.TimeoutExpired):
                worker.wait(max(0.0, end - time.monotonic()))
            kill(worker)
        self.scheduler.kill()
        self.scheduler.wait()


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    made = Cluster(folder)
    try:
        yield made
    except BaseException:
        print((folder / "log").read_text()[-5000:])
        raise
    finally:
        made.close()


@contextmanager
def worker_of_evo(made: Cluster, folder: Path, *words: str) -> Iterator[None]:
    """`evo worker` at the scheduler of the cluster."""
    command = [*EVO, "worker", "--scheduler", made.address, "--cache", str(default_folder()), *words]
    with (folder / "worker.log").open("wb") as log:
        worker = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
    try:
        yield
    finally:
        kill(worker)


class Network:
    """What lies between workers and the scheduler: a cable that can be cut."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._cut = False
        self._pairs: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                if self._cut:
                    near.close()
                    continue
                far = socket.create_connection(("127.0.0.1", self._port))
                self._pairs += [near, far]
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    def _carry(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while content := one.recv(1 << 16):
                other.sendall(content)
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        one.close()  # the other way closes the other end

    def cut(self, seconds: float) -> None:
        """Nothing passes for so long."""
        self._cut = True
        for one in self._pairs:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        time.sleep(seconds)
        self._pairs, self._cut = [], False

    def close(self) -> None:
        self._listener.close()
        for one in self._pairs:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


def main(words: list[str]) -> None:
    address, name, kind, version, cache = words
    Path(cache).mkdir(exist_ok=True, mode=0o700)
    evaluates = kind == "evaluates"
    site = Site(
        name,
        {"": "emulator"} if evaluates else {},
        asdict(KNOWN_GPUS["L4"]) if evaluates else None,
        1 if evaluates else 0,
        0 if evaluates else 2,
        {"evo": version},
        cache,
    )
    serve(address, site, lambda text: print(text, flush=True))


if __name__ == "__main__":
    main(sys.argv[1:])
