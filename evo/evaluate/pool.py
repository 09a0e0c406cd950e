"""Evaluates many candidates, each in a process that may die: a hang is HUNG, a death CRASHED, and on it goes.

    search ── submit ──> compile ahead (threads, each with a compiler process)   only before a GPU
                             └── ready ──> evaluators (processes)  few a GPU; many on the emulator
    search <── wait ───────────────────────────┘

Each evaluator has the next candidate at hand while it works on one, so that it need not wait for the
strategy. One that is idle all the same may get a candidate that was evaluated before (`remeasure`), whose
code is compiled. The pool supervises (deadlines, deaths, new processes) in `wait`, which the search calls all
the time. Another kind of pool, say of a cluster, has the same methods.

A pool knows nothing of kernels: what its processes do is in the `Spec`. To what they say of a trial's seconds
it adds `ahead` (compiled ahead of the evaluator) and `idle` (how long the evaluator had waited for it).
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import Pipe
from multiprocessing.connection import wait as wait_for
from typing import Protocol, Self

from evo.child import ONE_THREAD, START_LIMIT_S, Child, Said, Spare
from evo.errors import Crashed, Hung, MachineError
from evo.evaluate import failed
from evo.evaluate.evaluating import Evaluates, Evaluating
from evo.trial import Candidate, Trial

DEADLINE_S = 60.0
"""How long a candidate may take, compiling included; while it waits for others on its GPU, nothing counts."""
STARTS = 3
"""Starts without a single candidate evaluated after which the machine is held to be broken."""
AT_HAND = 2
"""Candidates that an evaluator holds: one under way, one to go on with."""
FIRST_ALONE_S = 2.0
"""How long the other evaluators of a GPU wait for the first one to be done with its first candidate."""
SWITCH_S = 0.0002
"""How soon a thread that compiles ahead lets the strategy go on, which gives way at each of its many array
operations: at Python's 5 ms a model's arithmetic took 1.4 times as long beside two such threads."""
WAITING_STAGE = "turn"
"""The stage in which a candidate waits for others: a hang of one of those is not its own."""


class Precompiles(Protocol):
    """Compiles ahead, from several threads at once."""

    def __call__(self, candidate: Candidate) -> Trial | None:
        """The candidate's Trial if it ends here, else None: then an evaluator goes on."""
        ...

    def close(self) -> None: ...


class Spec(Protocol):
    """Picklable; what a pool needs to know of its work."""

    def prepare(self) -> None:
        """Done once, before the processes start; MachineError if they could not work."""
        ...

    def evaluators(self, workers: int) -> int:
        """How many processes evaluate."""
        ...

    def precompiler(self, workers: int) -> Precompiles | None: ...

    def build(self) -> Evaluates: ...


@dataclass
class _Job:
    """A candidate on its way. `since`: when its present stage began (time.monotonic)."""

    number: int
    candidate: Candidate
    stage: str = "waiting"
    since: float = field(default_factory=time.monotonic)
    trial: Trial | None = None
    """How it ended, if it did before it came to an evaluator."""
    ahead_s: float | None = None
    """Seconds that it was compiled ahead of the evaluator."""
    earlier: int = 0
    """How often it was evaluated before."""

    def __str__(self) -> str:
        what = f"#{self.number} {self.candidate.template}{' again' if self.earlier else ''}"
        return f"{what}: {self.stage} {time.monotonic() - self.since:.1f} s"


class Pool:
    """`workers` candidates at a time. With one worker everything happens strictly in the order of submission.

    `submit` and `wait` raise what is not a candidate's fault: MachineError and other EvoErrors of a worker,
    and ChildError. Afterwards, as after Ctrl-C, `close` ends every process.

    `deadline_s`: how long a candidate may take. `start_s`: how long an evaluator may take to start, and to
    begin with a candidate.
    """

    def __init__(
        self,
        spec: Spec,
        workers: int,
        deadline_s: float = DEADLINE_S,
        start_s: float = START_LIMIT_S,
        spare: Spare | None = None,
    ) -> None:
        self.workers = max(1, workers)
        self.deadline_s = deadline_s
        spec.prepare()
        self._compiling: dict[Future[Trial | None], _Job] = {}
        self._ready: deque[_Job] = deque()
        self._finished: list[tuple[int, Trial]] = []
        self._precompile = spec.precompiler(self.workers)
        self._threads = ThreadPoolExecutor(self.workers, "compile") if self._precompile else None
        self._switch_s = sys.getswitchinterval()
        if self._threads is not None:
            sys.setswitchinterval(SWITCH_S)
        self._woken, self._waker = Pipe(duplex=False)
        self._evaluators: list[_Evaluator] = []
        self._spec, self._start_s = spec, start_s
        self._evaluators_in_all = spec.evaluators(self.workers)
        try:
            self._evaluators.append(_Evaluator(spec, start_s, spare))
            if self._threads is None:
                self._start_others()
        except BaseException:
            self.close()
            raise

    @property
    def capacity(self) -> int:
        """How many candidates to keep under way: a few more than workers, so that none has to wait."""
        if self.workers == 1:
            return 1
        at_hand = self._evaluators_in_all * AT_HAND if self._threads else 0
        return self.workers + max(1, self.workers // 4) + at_hand

    @property
    def idle(self) -> int:
        """How many evaluators wait for compilers. 0 where nothing is compiled ahead of them: they are never
        short of work, and on the emulator there is nothing to learn from another time."""
        if self._threads is None or self._ready:
            return 0
        return sum(evaluator.idle for evaluator in self._evaluators)

    def submit(self, number: int, candidate: Candidate) -> None:
        """Take a candidate; its Trial will come out of `wait` under `number`."""
        job = _Job(number, candidate)
        if self._threads is not None and self._precompile is not None:
            future = self._threads.submit(self._compile_ahead, job)
            self._compiling[future] = job
            future.add_done_callback(self._wake)
            self._collect_compiled()  # an earlier one need not wait until all have been submitted
        else:
            self._ready.append(job)
        self._hand_out()

    def remeasure(self, number: int, candidate: Candidate, earlier: int) -> None:
        """Take a candidate that was evaluated `earlier` times before; it goes to an evaluator at once."""
        self._ready.append(_Job(number, candidate, earlier=earlier))
        self._hand_out()

    def wait(self, timeout: float) -> list[tuple[int, Trial]]:
        """What has finished, in that order; waits at most `timeout` seconds for the first."""
        end = time.monotonic() + timeout
        while True:
            self._collect_compiled()
            for evaluator in self._evaluators:
                self._finished.extend(evaluator.collect())
                self._finished.extend(evaluator.supervise(self.deadline_s, self._ready))
            if self._evaluators[0].has_begun:
                self._start_others()
            self._hand_out()
            left = end - time.monotonic()
            if self._finished or left <= 0:
                finished, self._finished = self._finished, []
                return finished
            patience = min(e.patience(self.deadline_s) for e in self._evaluators)
            if len(self._evaluators) < self._evaluators_in_all:
                patience = min(patience, FIRST_ALONE_S)
            wait_for([self._woken, *(e.fileno() for e in self._evaluators)], min(left, patience))
            while self._woken.poll():
                self._woken.recv_bytes()

    def activity(self) -> list[str]:
        """What each worker does, in words: evaluators first, then compilers."""
        busy = [job for job in self._compiling.values() if job.stage == "compile"]
        idle = self.workers - len(busy) if self._threads is not None else 0
        return [*map(str, self._evaluators), *map(str, busy), *["compiler: idle"] * idle]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give up what is under way and end every process; may be called again."""
        for evaluator in self._evaluators:
            evaluator.close()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        if self._precompile is not None:
            self._precompile.close()  # ends compilers that are at work, so that their threads end
        if self._threads is not None:
            self._threads.shutdown(wait=True)
            sys.setswitchinterval(self._switch_s)
        self._evaluators, self._threads, self._precompile = [], None, None
        self._compiling.clear()
        self._ready.clear()
        self._finished.clear()
        for connection in (self._woken, self._waker):
            connection.close()

    def _start_others(self) -> None:
        """Before a GPU the other evaluators wait until the first one is at work: beside it they would delay
        the first trial, by the disk, the driver and the memory that all of them need to start."""
        while len(self._evaluators) < self._evaluators_in_all:
            self._evaluators.append(_Evaluator(self._spec, self._start_s))

    def _compile_ahead(self, job: _Job) -> Trial | None:
        job.stage, job.since = "compile", time.monotonic()
        assert self._precompile is not None
        try:
            return self._precompile(job.candidate)
        finally:
            job.ahead_s = time.monotonic() - job.since

    def _wake(self, _future: Future[Trial | None]) -> None:
        with contextlib.suppress(OSError):  # closed by now
            self._waker.send_bytes(b".")

    def _collect_compiled(self) -> None:
        """Candidates that were compiled become ready, in the order of submission if there is one worker."""
        for future in [f for f in self._compiling if f.done()]:
            job = self._compiling.pop(future)
            job.trial = future.result()  # raises what is not the candidate's fault
            job.stage, job.since = "waiting", time.monotonic()
            self._ready.append(job)

    def _hand_out(self) -> None:
        """Give ready candidates to the evaluators that hold the fewest."""
        while self._ready:
            trial = self._ready[0].trial
            if trial is not None:
                if self.workers == 1 and any(e.jobs for e in self._evaluators):
                    return  # earlier ones first
                self._finished.append((self._ready.popleft().number, trial))
                continue
            # one that starts gets something only if there is no other: the others would be done before it
            started = [e for e in self._evaluators if e.started] or self._evaluators
            free = [e for e in started if e.takes]
            if not free:
                return
            min(free, key=lambda e: len(e.jobs)).give(self._ready.popleft())


class _Evaluator:
    """A child that evaluates, and whatever child replaces it."""

    def __init__(self, spec: Spec, start_s: float, spare: Spare | None = None) -> None:
        self._spec = spec
        self._start_s = start_s
        self._fruitless = 0
        self._evaluated = False
        self.jobs: deque[_Job] = deque()
        """The first one is under way, as soon as the child says so."""
        self._start(spare)

    def _start(self, spare: Spare | None = None) -> None:
        self._child = Child(Evaluating, self._spec, start_s=self._start_s, env=ONE_THREAD, spare=spare)
        self._leaving = False
        self._under_way: float | None = None
        """When the child began with its first job, later by what it waited for others."""
        self._given = self._child.started
        """Since when it could have begun."""
        self._fruitless += 1

    def __str__(self) -> str:
        if not self._child.ready:
            return f"evaluator: starting {time.monotonic() - self._child.started:.1f} s"
        return str(self.jobs[0]) if self.jobs else "evaluator: idle"

    def fileno(self) -> int:
        """Readable when there is news."""
        return self._child.fileno()

    @property
    def started(self) -> bool:
        return self._child.ready

    @property
    def has_begun(self) -> bool:
        """Whether it has evaluated a candidate, or has been at its first for a while."""
        since = self._under_way
        return self._evaluated or (since is not None and time.monotonic() - since > FIRST_ALONE_S)

    @property
    def takes(self) -> bool:
        return len(self.jobs) < AT_HAND and not self._leaving

    @property
    def idle(self) -> bool:
        return self._child.ready and self.takes and not self.jobs

    def give(self, job: _Job) -> None:
        """Hand over a candidate; it counts from when the child begins with it."""
        if not self.jobs:
            self._given = time.monotonic()
        self.jobs.append(job)
        self._child.send("evaluate", job.candidate, job.earlier)

    def patience(self, deadline_s: float) -> float:
        """Seconds until it will be overdue."""
        since, limit = time.monotonic(), deadline_s
        if not self._child.ready:
            since, limit = self._child.started, self._start_s
        elif self.jobs and self._under_way is None:
            since, limit = self._given, self._start_s
        elif self.jobs and self._under_way is not None and self.jobs[0].stage != WAITING_STAGE:
            since = self._under_way
        return max(0.0, since + limit - time.monotonic())

    def collect(self) -> list[tuple[int, Trial]]:
        """Trials that have arrived. Raises what went wrong besides candidates."""
        trials = []
        for message in self._child.receive():
            job = self.jobs[0]
            if isinstance(message, Said):
                stage, when = message.what
                self._under_way = self._under_way or when
                if job.stage == WAITING_STAGE:
                    self._under_way += when - job.since
                job.stage, job.since = stage, when
                continue
            self.jobs.popleft()
            trial: Trial = message.value
            if job.ahead_s is not None:
                trial = replace(trial, seconds={"ahead": job.ahead_s, **trial.seconds})
            self._under_way, self._given = None, time.monotonic()
            self._fruitless, self._leaving, self._evaluated = 0, message.last, True
            trials.append((job.number, trial))
        return trials

    def supervise(self, deadline_s: float, ready: deque[_Job]) -> list[tuple[int, Trial]]:
        """Replace the child if it is overdue or dead. The Trial of the candidate that it fell over; what else
        it held goes back to the head of `ready`."""
        overdue = self.patience(deadline_s) == 0.0
        if not (overdue or self._child.dead):
            return []
        if not overdue:
            last_trials = self.collect()
            if last_trials:
                return last_trials  # it finished first; next time round it is replaced
        error = self._verdict(overdue, deadline_s)
        last_words = self._child.last_words()
        self._child.close()
        trials = []
        if self.jobs and self._under_way is not None and error is not None:
            job = self.jobs.popleft()
            self._fruitless = 0
            seconds = {job.stage: time.monotonic() - job.since}
            self._evaluated = True
            trials.append((job.number, failed(job.candidate, error, seconds=seconds)))
        for job in reversed(self.jobs):
            job.stage = "waiting"
            ready.appendleft(job)
        self.jobs.clear()
        if self._fruitless >= STARTS:
            raise MachineError(f"an evaluator does not start: {error}", last_words or "no output")
        self._start()
        return trials

    def _verdict(self, overdue: bool, deadline_s: float) -> Hung | Crashed | None:
        """What the end of the child means for the candidate under way; None if it left by itself."""
        if overdue:
            self._child.kill()
            if self._under_way is None:
                return self._child.late(self._start_s, "before a candidate")
            return self._child.late(deadline_s, f"in stage {self.jobs[0].stage}")
        death = self._child.death()
        return None if self._leaving and self._child.status == 0 else death

    def close(self) -> None:
        self._child.close()
