"""The workers of a search on a cluster: submits candidates, takes in trials, and survives what may happen.

A trial is known by its number: it is given out once, whichever worker evaluates it and however often one is
lost over it. A worker that dies is replaced by another one (Dask does that); one that hangs is dropped; where
the scheduler is gone, it is looked for, and all that was under way is given out again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Self
from uuid import uuid4

from distributed import Client, Future
from distributed.scheduler import KilledWorker

from evo.cluster.job import Job
from evo.cluster.site import Site, Wanted, gpus_of, site_of
from evo.cluster.worker import compile_there, evaluate_there
from evo.errors import Crashed, EvoError, MachineError
from evo.evaluate import failed
from evo.evaluate.supervised import AT_HAND
from evo.trial import Candidate, Trial

ANSWER_S = 10.0
"""How long the scheduler may take to answer a question."""
FETCH_S = 5.0
"""How long a trial that has ended may be on its way here."""
LOOK_S = 1.0
"""Seconds between two looks at the workers."""
SILENT_S = 20.0
"""A worker that was not heard of for so long hangs: it tells of itself every second."""
ABSENT_S = 300.0
"""How long a search waits for a scheduler, or for a worker that it can use."""


@dataclass
class _Asked:
    """A candidate that is under way. `gpu`: the one that it is for; None: any."""

    number: int
    candidate: Candidate
    earlier: int
    gpu: str | None
    epoch: int = 0
    """Of the connection over which it was submitted last."""
    future: Future | None = None
    failures: int = 0
    addresses: frozenset[str] = frozenset()
    """Of the workers that may evaluate it."""
    compilers: frozenset[str] = frozenset()
    """Of those that may compile it; none: its evaluator does."""


class ClusterWorkers:
    """Evaluates candidates on the workers of the Dask scheduler at `address`, those that `wanted` accepts.

    `notice` hears which workers are not used and why, and when the scheduler is gone. `absent_s`: how long it
    waits for the scheduler and for workers; after that, MachineError. `silent_s`: how long a worker may not
    be heard of."""

    def __init__(
        self,
        address: str,
        job: Job,
        wanted: Wanted,
        notice: Callable[[str], None],
        absent_s: float = ABSENT_S,
        silent_s: float = SILENT_S,
    ) -> None:
        self._address, self._job, self._wanted, self._notice = address, job, wanted, notice
        self._absent_s, self._silent_s = absent_s, silent_s
        self._own = uuid4().hex
        """In the names of tasks: a scheduler may know those of other searches."""
        self._under_way: dict[int, _Asked] = {}
        self._ended: SimpleQueue[tuple[int, int, Future]] = SimpleQueue()
        self._epoch = 0
        self._sites: dict[str, Site] = {}
        """Usable workers by address."""
        self._refused: set[str] = set()
        self._broken: set[str] = set()
        """Addresses of workers that cannot evaluate."""
        self._looked = float("-inf")
        self._without: float | None = None
        """Since when there is no worker that evaluates."""
        self._heard: dict[str, tuple[float, float]] = {}
        """When the scheduler heard of each worker last, by its clock, and since when it says so, by ours."""
        self.gpus: Sequence[str] = ()
        """The ids of all GPUs that evaluate, or did."""
        self._client = connected(address, absent_s)
        try:
            self._await_workers()
        except BaseException:
            self.close()
            raise

    # ---- as the search sees it

    @property
    def capacity(self) -> int:
        """As a pool with as many compilers and evaluators: a few more than they take, so that none waits."""
        compilers = sum(site.compilers for site in self._sites.values())
        slots = sum(site.slots for site in self._sites.values())
        return compilers + max(1, compilers // 4) + slots * AT_HAND

    @property
    def idle(self) -> int:
        """0: which evaluator is idle is known on its own machine only."""
        return 0

    def submit(self, number: int, candidate: Candidate) -> None:
        self._submit(_Asked(number, candidate, 0, None))

    def remeasure(self, number: int, candidate: Candidate, earlier: int) -> None:
        self._submit(_Asked(number, candidate, earlier, None))

    def remeasure_on(self, gpu: str, number: int, candidate: Candidate, earlier: int) -> None:
        self._submit(_Asked(number, candidate, earlier, gpu))

    def wait(self, timeout: float) -> list[tuple[int, Trial]]:
        end = time.monotonic() + timeout
        found: list[tuple[int, Trial]] = []
        while True:
            self._look()
            found += self._collect(max(0.0, min(LOOK_S, end - time.monotonic())) if not found else 0.0)
            if found or time.monotonic() >= end:
                return found

    def activity(self) -> list[str]:
        """What each worker can do, and how much is under way."""
        lines = [f"{s.name}: {', '.join(s.devices.values()) or 'compiles'}" for s in self._sites.values()]
        return [*lines, f"{len(self._under_way)} candidates under way"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._epoch += 1
        for one in self._under_way.values():
            cancel(one.future)
        self._under_way.clear()
        close(self._client)

    # ---- one candidate

    def _submit(self, asked: _Asked) -> None:
        """Has a candidate compiled and evaluated by workers that are usable now."""
        self._under_way[asked.number] = asked
        asked.epoch = self._epoch
        evaluators = [
            a for a, s in self._sites.items() if s.devices and (asked.gpu is None or asked.gpu in s.devices)
        ]
        compilers = [address for address, site in self._sites.items() if site.compilers]
        asked.addresses, asked.compilers = frozenset(evaluators), frozenset(compilers)
        if not evaluators:
            asked.future = None
            return  # `_look` tries again when a worker is there
        try:
            compiled = None
            if compilers and not asked.earlier:
                key = f"evo-compile-{self._job.digest}-{asked.candidate.digest}-{asked.failures}"
                compiled = self._client.submit(
                    compile_there,
                    self._job,
                    asked.candidate,
                    key=key,
                    workers=compilers,
                    resources={"COMPILE": 1},
                )
            asked.future = self._client.submit(
                evaluate_there,
                self._job,
                asked.candidate,
                asked.earlier,
                asked.gpu,
                compiled,
                key=f"evo-{self._own}-{asked.number}-{self._epoch}-{asked.failures}",
                workers=evaluators,
                resources={"EVALUATE": 1},
                pure=False,
            )
        except Exception as error:  # noqa: BLE001 - the connection is gone: `_look` sees to it
            logging.getLogger(__name__).debug("not submitted: %s", error)
            asked.future = None
            return
        epoch, number = self._epoch, asked.number
        asked.future.add_done_callback(lambda future: self._ended.put((epoch, number, future)))

    def _collect(self, timeout: float) -> list[tuple[int, Trial]]:
        """The trials that have arrived; what failed for another reason than its candidate is asked again."""
        found: list[tuple[int, Trial]] = []
        ended: list[tuple[int, int, Future]] = []
        try:
            if timeout:
                ended.append(self._ended.get(timeout=timeout))
            while True:
                ended.append(self._ended.get_nowait())
        except Empty:
            pass
        for epoch, number, future in ended:
            asked = self._under_way.get(number)
            if asked is None or epoch != self._epoch or future is not asked.future:
                continue  # of a connection that is gone, or given out already
            trial = self._trial_of(asked, future)
            if trial is None:
                asked.failures += 1
                self._submit(asked)
            else:
                del self._under_way[number]
                found.append((number, trial))
        return found

    def _trial_of(self, asked: _Asked, future: Future) -> Trial | None:
        """What became of a candidate; None where it must be tried again."""
        if future.status == "finished":
            try:
                trial: Trial = future.result(timeout=FETCH_S)
            except Exception as lost:  # noqa: BLE001 - the worker that has it is gone by now
                logging.getLogger(__name__).debug("not fetched: %s", lost)
                return None
            return trial
        if future.status != "error":  # cancelled or lost, with the scheduler
            return None
        error: Any = future.exception(timeout=ANSWER_S)
        if isinstance(error, KilledWorker):
            reason = Crashed("killed its worker", f"{error}: the worker died over it again and again")
            return failed(asked.candidate, reason, seconds={})
        if isinstance(error, MachineError):
            self._drop(error)
            return None
        raise error

    def _drop(self, error: EvoError) -> None:
        """A worker says that its machine is broken. Raises it where there is no other worker."""
        where = [a for a, s in self._sites.items() if f"(worker {s.name})" in error.message]
        for address in where:
            self._broken.add(address)
            site = self._sites.pop(address, None)
            if site is not None:
                self._notice(f"{error.message}: it is not used any more")
        if not where or not any(site.devices for site in self._sites.values()):
            raise error

    # ---- the workers

    def _look(self, at_once: bool = False) -> None:
        """Sees which workers there are; drops those that hang; finds the scheduler again where it is gone."""
        if not at_once and time.monotonic() < self._looked + LOOK_S:
            return
        if self._client.status != "running":
            self._reconnect()
        try:
            workers = self._client.sync(self._client.scheduler.identity)["workers"]
        except Exception:  # noqa: BLE001 - whatever a lost connection raises
            self._reconnect()
            return
        self._looked = time.monotonic()
        silent = self._silent({address: one["last_seen"] for address, one in workers.items()})
        self._sites = {}
        for address, announced in workers.items():
            if address not in silent | self._broken:
                self._take(address, announced)
        for address in silent:
            self._evict(address, str(workers[address]["name"]))
        self._count_evaluators()
        self.gpus = tuple(dict.fromkeys((*self.gpus, *gpus_of(list(self._sites.values())))))
        for one in list(self._under_way.values()):
            there = self._sites.keys()
            if not one.addresses & there or (one.compilers and not one.compilers & there):  # all are gone
                cancel(one.future)
                one.failures += one.future is not None
                self._submit(one)

    def _silent(self, seen: Mapping[str, float]) -> set[str]:
        """Workers that the scheduler has not heard of for long, by when it heard of each: its own clock."""
        now, known = time.monotonic(), self._heard
        self._heard = {
            address: (when, known[address][1] if address in known and known[address][0] == when else now)
            for address, when in seen.items()
        }
        newest = max((since for _, since in self._heard.values()), default=now)
        # where none is heard of it may be the scheduler that is busy
        return {
            address
            for address, (_, since) in self._heard.items()
            if newest - since > self._silent_s or now - since > 3 * self._silent_s
        }

    def _take(self, address: str, announced: Any) -> None:
        site = site_of(announced)
        objection = "it is no worker of evo" if site is None else self._wanted.objection(site)
        if site is not None and not objection:
            self._sites[address] = site
        elif (said := f"worker {announced['name']} is not used: {objection}") not in self._refused:
            self._refused.add(said)
            self._notice(said)

    def _evict(self, address: str, name: str) -> None:
        """Has the scheduler give to others what a worker has that hangs."""
        self._notice(f"worker {name} hangs: what it had is given to others")

        async def remove(dask_scheduler: Any = None) -> None:
            await dask_scheduler.remove_worker(address=address, stimulus_id="evo-silent", expected=True)

        self._client.run_on_scheduler(remove)

    def _count_evaluators(self) -> None:
        """MachineError where no worker has evaluated for a long time."""
        if any(site.devices for site in self._sites.values()):
            self._without = None
            return
        self._without = self._without or time.monotonic()
        if time.monotonic() - self._without > self._absent_s:
            refused = "; ".join(sorted(self._refused)) or "none is there"
            hint = f"on a machine with such a device: evo worker --scheduler {self._address}; then resume"
            raise MachineError(f"no worker at {self._address} evaluates: {refused}", hint)

    def _await_workers(self) -> None:
        while not any(site.devices for site in self._sites.values()):
            self._look(at_once=True)
            time.sleep(0.1)

    def _reconnect(self) -> None:
        """Another connection, over which all that is under way is submitted again."""
        self._notice(
            f"the scheduler {self._address} does not answer; looking for it up to {self._absent_s:.0f} s"
        )
        close(self._client)
        self._epoch += 1
        self._client = connected(self._address, self._absent_s)
        self._sites = {}
        for one in self._under_way.values():
            one.future = None  # `_look` submits it when a worker is there
        self._look(at_once=True)


def connected(address: str, absent_s: float) -> Client:
    """A connection to the scheduler; MachineError where it does not answer for so long."""
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    end = time.monotonic() + absent_s
    while True:
        try:
            return Client(address, set_as_default=False, timeout=ANSWER_S)
        except (OSError, ValueError) as error:
            if isinstance(error, ValueError) or time.monotonic() > end:
                hint = "start one: dask scheduler; its address is as in tcp://host:8786"
                raise MachineError(f"no scheduler answers at {address}", hint) from error
            time.sleep(1.0)


def close(client: Client) -> None:
    try:
        client.close(timeout=2)
    except Exception as error:  # noqa: BLE001 - it is gone already
        logging.getLogger(__name__).debug("not closed: %s", error)


def cancel(future: Future | None) -> None:
    try:
        if future is not None:
            future.cancel()
    except Exception as error:  # noqa: BLE001 - it is gone already
        logging.getLogger(__name__).debug("not cancelled: %s", error)
