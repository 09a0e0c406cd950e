"""A worker of a cluster: a Dask worker around a pool of evaluators, which may hang or die without it.

    scheduler ── compile(job, candidate) ──> this process, as many at once as it has cores to spare
              ── evaluate(job, …) ─────────> the pool: evaluators in processes of their own

Where the scheduler goes away, the worker looks for it until it is back.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar

from distributed import Worker, get_worker

from evo.cluster.job import Compiled, Compiling, Job, keep
from evo.cluster.site import Site
from evo.errors import EvoError, MachineError
from evo.evaluate.pool import Pool
from evo.evaluate.supervised import AT_HAND
from evo.trial import Candidate, Trial

LOOK_S = 0.5
"""How often a pool that is asked for nothing looks at its processes."""
AGAIN_S = 2.0
"""Seconds between two attempts to reach the scheduler."""
JOBS_KEPT = 2
"""Studies whose evaluators stay while other studies are evaluated."""
UNASKED_S = 120.0
"""A process that answers questions ends when it was not asked for so long."""
END_S = 30.0
"""How long evaluators may take to end."""


class Closes(Protocol):
    def close(self) -> None: ...


Kept = TypeVar("Kept", bound=Closes)


@dataclass(frozen=True)
class Answer:
    """What a process said: a value, or the error that it raised. `loaded`: what it has loaded by now. `anew`:
    it is another process than the one that the question is for, and was not asked."""

    value: Any = None
    error: EvoError | None = None
    loaded: tuple[str, ...] = ()
    anew: bool = False


class Answers(Closes, Protocol):
    """What answers: its methods, by name."""

    @property
    def loaded(self) -> Sequence[str]: ...


class AnsweringJob(Protocol):
    """Picklable; what a process of its own answers, on one GPU."""

    @property
    def digest(self) -> str:
        """Equal for equal jobs."""
        ...

    @property
    def beside(self) -> Sequence[str]:
        """The methods that may be asked while evaluators are at work."""
        ...

    @property
    def frees(self) -> str:
        """The digest of the job whose evaluators on that machine end before anything is asked."""
        ...

    def answering(self, device: str, cache: Path, nvcc: Path | None) -> Answers:
        """The process, started with the first question."""
        ...

    def needs(self, method: str, words: Sequence[Any]) -> Sequence[str]:
        """What must be loaded for a question."""
        ...


class Bench:
    """The pool of one job, driven by a thread of its own; `evaluate` may be called from any thread."""

    def __init__(self, job: Job, site: Site) -> None:
        self._spec, self._groups = job.at(
            site.devices, Path(site.cache), Path(site.nvcc) if site.nvcc else None
        )
        self._slots, self._name = site.slots, site.name
        self._asked: SimpleQueue[tuple[str | None, Candidate, int, Future[Trial]]] = SimpleQueue()
        self._pool: Pool | None = None
        self._over = False
        self._lock = threading.Lock()
        self.waiting = 0
        """Candidates whose answers are waited for."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def evaluate(self, candidate: Candidate, earlier: int, gpu: str | None) -> Trial:
        """The candidate's trial; MachineError where this machine cannot evaluate any, or no more."""
        answer: Future[Trial] = Future()
        with self._lock:
            if self._over:
                raise MachineError(f"its evaluators have ended (worker {self._name})", "")
            self.waiting += 1
            self._asked.put((gpu, candidate, earlier, answer))
        if self._pool is not None:
            self._pool.wake()
        try:
            return answer.result()
        finally:
            with self._lock:
                self.waiting -= 1

    def close(self) -> None:
        with self._lock:
            self._over = True

    def end(self) -> None:
        """Closes, and waits until the evaluators have ended."""
        self.close()
        self._thread.join(END_S)

    def _run(self) -> None:
        answers: dict[int, Future[Trial]] = {}
        number = 0
        while not self._over:
            try:
                self._pool = self._pool or Pool(self._spec, self._slots, groups=self._groups)
                with suppress(Empty):
                    while True:
                        gpu, candidate, earlier, answer = self._asked.get_nowait()
                        number += 1
                        answers[number] = answer
                        if gpu is not None:
                            self._pool.remeasure_on(gpu, number, candidate, earlier)
                        elif earlier:
                            self._pool.remeasure(number, candidate, earlier)
                        else:
                            self._pool.submit(number, candidate)
                for ended, trial in self._pool.wait(LOOK_S):
                    answers.pop(ended).set_result(trial)
            except Exception as error:  # noqa: BLE001 - the search hears of it
                self._fail(answers, error)
        if self._pool is not None:
            self._pool.close()
        with suppress(Empty):
            while True:
                number += 1
                answers[number] = self._asked.get_nowait()[3]
        for answer in answers.values():
            answer.set_exception(MachineError(f"its evaluators have ended (worker {self._name})", ""))

    def _fail(self, answers: dict[int, Future[Trial]], error: Exception) -> None:
        """All that wait hear of it; the next question is for another pool."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        if not answers:  # the pool could not be made: the next question must hear of it
            answers[0] = self._asked.get()[3]
        what, hint = (error.message, error.hint) if isinstance(error, EvoError) else (repr(error), "")
        told = MachineError(f"{what} (worker {self._name})", hint)
        for answer in answers.values():
            answer.set_exception(told)
        answers.clear()


class Benches:
    """The benches of a worker by job; the last few are kept."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self._evaluating: dict[str, Bench] = {}
        self._compiling: dict[str, Compiling] = {}
        self._lock = threading.Lock()
        self._answering: tuple[str, Answers] | None = None
        """The process that answers questions, and the digest of its job."""
        self._asking = threading.Lock()
        self._timer: threading.Timer | None = None

    def evaluating(self, job: Job) -> Bench:
        return self._last(self._evaluating, job, lambda: Bench(job, self.site))

    def compiling(self, job: Job) -> Compiling:
        nvcc = Path(self.site.nvcc) if self.site.nvcc else None
        return self._last(self._compiling, job, lambda: job.compiling(Path(self.site.cache), nvcc))

    def _last(self, known: dict[str, Kept], job: Job, make: Callable[[], Kept]) -> Kept:
        """What was made for the job; of other jobs, only the last ones stay."""
        with self._lock:
            found = known.pop(job.digest, None) or make()
            known[job.digest] = found
            idle = [digest for digest, one in known.items() if not getattr(one, "waiting", 0)]
            for digest in idle[: max(0, len(known) - JOBS_KEPT)]:
                if digest != job.digest:
                    known.pop(digest).close()
            return found

    def ask(self, job: AnsweringJob, gpu: str, method: str, words: Sequence[Any]) -> Answer:
        """What the process of a job answers; one question at a time."""
        with self._asking:
            if self._timer is not None:
                self._timer.cancel()
            try:
                return self._answer(job, gpu, method, words)
            finally:
                self._timer = threading.Timer(UNASKED_S, self.end_answering)
                self._timer.daemon = True
                self._timer.start()

    def _answer(self, job: AnsweringJob, gpu: str, method: str, words: Sequence[Any]) -> Answer:
        of, process = self._answering or ("", None)
        if process is not None and (of != job.digest or method == "close"):
            process.close()
            self._answering = process = None
        if method == "close":
            return Answer()
        if process is None:
            nvcc = Path(self.site.nvcc) if self.site.nvcc else None
            process = job.answering(self.site.devices[gpu], Path(self.site.cache), nvcc)
            self._answering = job.digest, process
        if not set(job.needs(method, words)) <= set(process.loaded):
            return Answer(loaded=tuple(process.loaded), anew=True)
        if method not in job.beside:
            self._free(job.frees)
        try:
            return Answer(getattr(process, method)(*words), loaded=tuple(process.loaded))
        except EvoError as error:
            return Answer(error=error, loaded=tuple(process.loaded))

    def _free(self, digest: str) -> None:
        """Evaluators of that job end: a GPU must be free of them."""
        with self._lock:
            bench = self._evaluating.pop(digest, None)
        if bench is not None:
            bench.end()

    def end_answering(self) -> None:
        """Ends the process that answers."""
        with self._asking:
            if self._answering is not None:
                self._answering[1].close()
                self._answering = None

    def close(self) -> None:
        self.end_answering()
        for bench in self._evaluating.values():
            bench.close()
        for tools in self._compiling.values():
            tools.close()


def compile_there(job: Job, candidate: Candidate) -> Compiled:
    """A task: compiles a candidate on the worker that it runs on."""
    return _benches().compiling(job)(candidate)


def evaluate_there(
    job: Job, candidate: Candidate, earlier: int, gpu: str | None, compiled: Compiled | None
) -> Trial:
    """A task: evaluates a candidate on the worker that it runs on, one of its GPUs if `gpu` names it."""
    benches = _benches()
    if compiled is not None:
        if compiled.trial is not None:
            return compiled.trial
        keep(compiled, Path(benches.site.cache))
    trial = benches.evaluating(job).evaluate(candidate, earlier, gpu)
    ahead = {"ahead": compiled.seconds} if compiled else {}
    return replace(trial, seconds={**ahead, **trial.seconds})


def ask_there(job: AnsweringJob, gpu: str, method: str, words: Sequence[Any]) -> Answer:
    """A task: asks the process of a job on the worker that it runs on."""
    return _benches().ask(job, gpu, method, words)


def _benches() -> Benches:
    found: Benches = get_worker().evo_benches
    return found


def serve(address: str, site: Site, notice: Callable[[str], None]) -> None:
    """Works for the scheduler at `address` until this process is ended."""
    logging.getLogger("distributed").setLevel(logging.ERROR)
    benches = Benches(site)
    try:
        asyncio.run(_serve(address, benches, notice))
    finally:
        benches.close()


async def _serve(address: str, benches: Benches, notice: Callable[[str], None]) -> None:
    site, said = benches.site, False
    while True:
        resources = {"EVALUATE": float(site.slots * AT_HAND), "COMPILE": float(site.compilers)}
        worker = Worker(
            address,
            name=site.name,
            nthreads=site.slots * AT_HAND + site.compilers,
            resources={name: count for name, count in resources.items() if count},
            startup_information={"evo": lambda _: site.to_json()},
            dashboard=False,
            memory_limit=0,
        )
        worker.evo_benches = benches
        try:
            async with worker:
                notice(f"worker {site.name} works for {address}: {_can(site)}")
                said = False
                await worker.finished()
        except (TimeoutError, OSError) as error:
            if not said:
                notice(
                    f"{address} does not answer ({type(error).__name__}); looking for it every {AGAIN_S:g} s"
                )
                said = True
        await asyncio.sleep(AGAIN_S)


def _can(site: Site) -> str:
    """What a worker can do, in words."""
    what = ", ".join(site.devices.values())
    name = site.gpu["name"] if site.gpu else ""
    evaluates = f"evaluates on {what} ({name}), " if what else ""
    return f"{evaluates}compiles {site.compilers} at once"
