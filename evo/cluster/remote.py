"""A process on one machine of a cluster that answers questions, for as long as it is asked.

Where the machine, or the way to it, is gone in the middle of a question, `Lost` says so: no answer of the
process counts that did not arrive. The next question goes to the same GPU, wherever it is found again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import TimeoutError as Late
from typing import Any
from uuid import uuid4

from distributed import Client, Future

from evo.cluster.site import Site, Wanted, site_of
from evo.cluster.worker import Answer, AnsweringJob, ask_there
from evo.cluster.workers import ABSENT_S, ANSWER_S, LOOK_S, SILENT_S, cancel, close, connected
from evo.errors import EvoError, MachineError

FIRST_S = 10.0
"""How long the GPU that is wanted is waited for, before another one of its model is taken."""


class Lost(EvoError):
    """The machine that was asked is gone, or not heard of."""


class Remote:
    """The process of `job` on a worker that `wanted` accepts, of the Dask scheduler at `address`. `gpu`: the
    id of the GPU that it is for, or ""; if that is not there it takes another one, once. `notice` hears which
    it is. `absent_s`, `silent_s`: as those of `ClusterWorkers`."""

    def __init__(
        self,
        address: str,
        job: AnsweringJob,
        wanted: Wanted,
        gpu: str,
        notice: Callable[[str], None],
        absent_s: float = ABSENT_S,
        silent_s: float = SILENT_S,
    ) -> None:
        self._address, self._job, self._wanted, self._notice = address, job, wanted, notice
        self._absent_s, self._silent_s = absent_s, silent_s
        self.gpu = gpu
        self._chosen = False
        self._client: Client | None = None
        self._told: list[Future] = []
        self._dead: dict[str, float] = {}
        """When the scheduler had heard last of workers that were lost, by their addresses."""

    def tell(self, method: str, *words: object) -> None:
        """Asks, and waits for nothing. What is lost is not asked again."""
        try:
            address, _ = self._place(0.0)
            self._told.append(self._submit(address, method, words))
        except (EvoError, OSError):
            return

    def ask(self, method: str, *words: object) -> Answer:
        """The answer. Lost where the machine is gone; MachineError where there is none that could answer."""
        seen: float | None
        address, seen = self._place(self._absent_s)
        future, since = self._submit(address, method, words), time.monotonic()
        while True:
            try:
                answer: Answer = future.result(timeout=LOOK_S)
            except (Late, TimeoutError):
                now = self._heard().get(address)
                seen, since = (seen, since) if now == seen else (now, time.monotonic())
                if now is None or time.monotonic() - since > self._silent_s:
                    cancel(future)
                    self._dead[address] = now or 0.0
                    raise Lost(f"{address} is not heard of any more") from None
            except EvoError:
                raise
            except Exception as error:
                self._leave()
                raise Lost(f"{address}: {type(error).__name__}: {error}") from error
            else:
                if answer.anew:
                    raise Lost(f"the process at {address} was started anew")
                return answer

    def close(self) -> None:
        """The process ends, and the connection."""
        if self._client is not None and self._chosen:
            try:
                address, _ = self._place(0.0)
                self._submit(address, "close", ()).result(timeout=ANSWER_S)
            except Exception:  # noqa: BLE001 - it ends by itself when it is not asked for a while
                self._leave()
        self._leave()

    def _submit(self, address: str, method: str, words: Sequence[object]) -> Future:
        assert self._client is not None
        name = f"evo-ask-{self._job.digest}-{method}-{uuid4().hex}"
        asked = self._job, self.gpu, method, tuple(words)
        return self._client.submit(ask_there, *asked, key=name, workers=[address], pure=False)

    def _place(self, patience_s: float) -> tuple[str, float]:
        """The address of the worker that has the GPU, and when it was heard of last."""
        began = time.monotonic()
        while True:
            sites = self._sites()
            having = [address for address, (site, _) in sites.items() if self.gpu in site.devices]
            waited_s = time.monotonic() - began
            if (
                not having
                and sites
                and not self._chosen
                and (not self.gpu or waited_s >= min(FIRST_S, patience_s))
            ):
                having = [next(iter(sites))]
                was, self.gpu = self.gpu, next(iter(sites[having[0]][0].devices))
                if was:
                    self._notice(f"{was} is not there: {self.gpu} takes its place")
            if having:
                self._chosen = True
                return having[0], sites[having[0]][1]
            if waited_s >= patience_s:
                hint = f"on a machine with that GPU: evo worker --scheduler {self._address}; then once more"
                raise MachineError(f"no worker at {self._address} has {self.gpu or 'a GPU'}", hint)
            time.sleep(LOOK_S)

    def _sites(self) -> dict[str, tuple[Site, float]]:
        """Usable workers with GPUs by address, and when each was heard of."""
        found = {}
        for address, said in self._workers().items():
            site, seen = site_of(said), float(said["last_seen"])
            alive = self._dead.get(address, -1.0) < seen
            if site is not None and site.devices and alive and not self._wanted.objection(site):
                found[address] = site, seen
        return found

    def _heard(self) -> dict[str, float]:
        return {address: float(said["last_seen"]) for address, said in self._workers().items()}

    def _workers(self) -> dict[str, Any]:
        """What the scheduler says of its workers; nothing where it does not answer."""
        try:
            self._client = self._client or connected(self._address, self._absent_s)
            found: dict[str, Any] = self._client.sync(self._client.scheduler.identity)["workers"]
        except EvoError:
            raise
        except Exception:  # noqa: BLE001 - whatever a lost connection raises
            self._leave()
            return {}
        return found

    def _leave(self) -> None:
        if self._client is not None:
            close(self._client)
            self._client = None
