"""Evaluates many candidates, each in a process that may die: a hang is HUNG, a death CRASHED, and on it goes.

    search ── submit ──> compile ahead (threads, each with a compiler process)   only before a GPU
                             └── ready ──> evaluators (processes)  few a GPU; many on the emulator
    search <── wait ───────────────────────────┘

Each evaluator has the next candidate at hand while it works on one, so that it need not wait for the
strategy. One that is idle all the same may get a candidate that was evaluated before (`remeasure`), whose
code is compiled. The pool supervises (deadlines, deaths, new processes) in `wait`, which the search calls all
the time. Another kind of pool, say of a cluster, has the same methods.

With several GPUs each has as many evaluators, and all share the compilers: what is ready goes to whichever
evaluator holds the fewest. A trial says which GPU evaluated it. With each candidate an evaluator hears the
best time on its GPU, whichever of them measured it: what is clearly slower is dropped early.

A pool knows nothing of kernels: what its processes do is in the `Spec`. To what they say of a trial's seconds
it adds `ahead` (compiled ahead of the evaluator) and `idle` (how long the evaluator had waited for it).
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import cycle, islice
from multiprocessing import Pipe
from multiprocessing.connection import wait as wait_for
from typing import Protocol, Self

from evo.child import EVALUATES, START_LIMIT_S, Spare
from evo.evaluate.evaluating import Builds, Evaluates
from evo.evaluate.lead import Lead
from evo.evaluate.supervised import AT_HAND, Job, SupervisedEvaluator
from evo.fork_server import can_fork
from evo.trial import Candidate, Trial

DEADLINE_S = 60.0
"""How long a candidate may take, compiling included; while it waits for others on its GPU, nothing counts."""
SWITCH_S = 0.0002
"""How soon a thread that compiles ahead lets the strategy go on, which gives way at each of its many array
operations: at Python's 5 ms a model's arithmetic took 1.4 times as long beside two such threads."""


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

    @property
    def forks(self) -> bool:
        """Whether its processes use torch, and no GPU: then they are forked (evo/fork_server.py)."""
        ...

    def build(self) -> Evaluates: ...


class Pool:
    """`workers` candidates at a time. With one worker everything happens strictly in the order of submission.

    `submit` and `wait` raise what is not a candidate's fault: MachineError and other EvoErrors of a worker,
    and ChildError. Afterwards, as after Ctrl-C, `close` ends every process; but after NotEnoughMemory with a
    number that candidate alone is given up, and `wait` may be called again.

    `deadline_s`: how long a candidate may take. `start_s`: how long an evaluator may take to start, and to
    begin with a candidate. `spares`: processes that become evaluators, at first the first one of each GPU, in
    their order; what others do while they wait for these is `early`, a module with a function `prepare` and
    its word. `groups`: what evaluates on each GPU, by the GPU's id, where that is not the spec itself;
    the `workers` are for all of them.
    """

    def __init__(
        self,
        spec: Spec,
        workers: int,
        deadline_s: float = DEADLINE_S,
        start_s: float = START_LIMIT_S,
        spares: Sequence[Spare] = (),
        early: tuple[str, str] | None = None,
        groups: Mapping[str, Builds] | None = None,
    ) -> None:
        self.workers = max(1, workers)
        self.deadline_s = deadline_s
        spec.prepare()
        self._compiling: dict[Future[Trial | None], Job] = {}
        self._ready: deque[Job] = deque()
        self._finished: list[tuple[int, Trial]] = []
        self._best_us: dict[tuple[str, str], float] = {}
        """The best time on all timing inputs, by GPU and problem."""
        self._precompile = spec.precompiler(self.workers)
        self._threads = ThreadPoolExecutor(self.workers, "compile") if self._precompile else None
        self._switch_s = sys.getswitchinterval()
        if self._threads is not None:
            sys.setswitchinterval(SWITCH_S)
        self._woken, self._waker = Pipe(duplex=False)
        self._evaluators: list[SupervisedEvaluator] = []
        self._forks = spec.forks and can_fork()
        self._spares = [*spares]
        """Processes of evaluators that are to start."""
        self._groups, self._start_s = dict(groups or {"": spec}), start_s
        each = spec.evaluators(max(1, self.workers // len(self._groups)))
        self._evaluators_in_all = each * len(self._groups)
        self._most = self.workers + max(1, self.workers // 4)
        self._lead = Lead(self._most, self._evaluators_in_all)
        try:
            at_once = self._evaluators_in_all if self._threads is None else len(self._groups)
            while len(self._evaluators) < at_once:
                self._start_next()
            while early and len(self._evaluators) + len(self._spares) < self._evaluators_in_all:
                self._spares.append(Spare(early, env=EVALUATES))
            while len(self._evaluators) + len(self._spares) > self._evaluators_in_all:
                self._spares.pop().close()
        except BaseException:
            self.close()
            raise

    @property
    def gpus(self) -> tuple[str, ...]:
        """The ids of the GPUs that evaluate; "" where there is one that no id is known of."""
        return tuple(self._groups)

    @property
    def capacity(self) -> int:
        """How many candidates to keep under way: a few more than workers, so that none has to wait; fewer
        where evaluators do not keep up with compilers."""
        if self.workers == 1:
            return 1
        if self._threads is None:
            return self._most
        return self._lead.count + self._evaluators_in_all * AT_HAND

    @property
    def idle(self) -> int:
        """How many evaluators wait for compilers, of which all are at work. 0 where nothing is compiled ahead
        of them: they are never short of work, and on the emulator there is nothing to learn from another
        time."""
        if self._threads is None or self._ready or self._lead.held_back:
            return 0
        return sum(evaluator.idle for evaluator in self._evaluators)

    def submit(self, number: int, candidate: Candidate) -> None:
        """Take a candidate; its Trial will come out of `wait` under `number`."""
        job = Job(number, candidate)
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
        self._ready.append(Job(number, candidate, earlier=earlier))
        self._hand_out()

    def remeasure_on(self, gpu: str, number: int, candidate: Candidate, earlier: int) -> None:
        """The same, for the evaluators of one GPU, before all that waits for them: GPUs are compared by it.
        Each of them checks the candidate once, and its time on the first timing input is enough."""
        self._ready.appendleft(Job(number, candidate, earlier=earlier, gpu=gpu))
        self._hand_out()

    def withdraw(self, numbers: Collection[int]) -> set[int]:
        """Gives up those of the candidates that no evaluator has; which these are. What is being compiled is
        in the cache afterwards."""
        waiting = [job for job in [*self._ready, *self._compiling.values()] if job.number in numbers]
        for job in waiting:
            with contextlib.suppress(ValueError):
                self._ready.remove(job)
        left = {future: job for future, job in self._compiling.items() if job not in waiting}
        for future in self._compiling.keys() - left.keys():
            future.cancel()
        self._compiling = left
        return {job.number for job in waiting}

    def wait(self, timeout: float) -> list[tuple[int, Trial]]:
        """What has finished, in that order; waits at most `timeout` seconds for the first."""
        end = time.monotonic() + timeout
        while True:
            self._collect_compiled()
            for evaluator in self._evaluators:
                for number, trial in evaluator.collect():  # what came before an error is kept
                    self._finished.append((number, trial))
                    self._hear(evaluator.gpu, trial)
                self._finished.extend(evaluator.supervise(self.deadline_s, self._ready))
            if self._evaluators[0].started:
                self._start_others()
            self._hand_out()
            left = end - time.monotonic()
            if self._finished or left <= 0:
                finished, self._finished = self._finished, []
                return finished
            patience = min(e.patience(self.deadline_s) for e in self._evaluators)
            wait_for([self._woken, *(e.fileno() for e in self._evaluators)], min(left, patience))
            while self._woken.poll():
                self._woken.recv_bytes()

    def wake(self) -> None:
        """Ends a `wait` early; from any thread."""
        self._wake(None)

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
        for spare in self._spares:
            spare.close()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        if self._precompile is not None:
            self._precompile.close()  # ends compilers that are at work, so that their threads end
        if self._threads is not None:
            self._threads.shutdown(wait=True)
            sys.setswitchinterval(self._switch_s)
        self._evaluators, self._spares, self._threads, self._precompile = [], [], None, None
        self._compiling.clear()
        self._ready.clear()
        self._finished.clear()
        for connection in (self._woken, self._waker):
            connection.close()

    def _start_others(self) -> None:
        """The first evaluator of each GPU starts at once. The others wait until the very first one has
        started: beside it they would delay the first trial, by the driver and the memory that all need."""
        while len(self._evaluators) < self._evaluators_in_all:
            self._start_next()

    def _start_next(self) -> None:
        """One more evaluator; the GPUs get theirs by turns."""
        gpu, spec = next(islice(cycle(self._groups.items()), len(self._evaluators), None))
        spare = self._spares.pop(0) if self._spares else None
        self._evaluators.append(SupervisedEvaluator(spec, gpu, self._start_s, spare, self._forks))

    def _compile_ahead(self, job: Job) -> Trial | None:
        job.stage, job.since = "compile", time.monotonic()
        assert self._precompile is not None
        try:
            return self._precompile(job.candidate)
        finally:
            job.ahead_s = time.monotonic() - job.since

    def _wake(self, _future: Future[Trial | None] | None) -> None:
        with contextlib.suppress(OSError):  # closed by now
            self._waker.send_bytes(b".")

    def _collect_compiled(self) -> None:
        """Candidates that were compiled become ready, in the order of submission if there is one worker."""
        for future in [f for f in self._compiling if f.done()]:
            job = self._compiling.pop(future)
            job.trial = future.result()  # raises what is not the candidate's fault
            job.stage, job.since = "waiting", time.monotonic()
            self._ready.append(job)

    def _hear(self, gpu: str, trial: Trial) -> None:
        """Keeps the time of a trial that is the best so far, and what it took."""
        if "ahead" in trial.seconds:
            busy_s = sum(s for stage, s in trial.seconds.items() if stage not in ("ahead", "idle"))
            self._lead.learn(trial.seconds["ahead"], busy_s)
        if trial.timing is not None and trial.timing.complete:
            where = gpu, trial.candidate.problem.key
            self._best_us[where] = min(self._best_us.get(where, math.inf), trial.timing.median_us)

    def _hand_out(self) -> None:
        """Give ready candidates to the evaluators that hold the fewest."""
        for job in list(self._ready):
            if job.trial is not None:
                if self.workers == 1 and any(e.jobs for e in self._evaluators):
                    return  # earlier ones first
                self._finished.append((job.number, job.trial))
            else:
                fit = [e for e in self._evaluators if job.gpu in (None, e.gpu)]
                # one that starts gets something only if there is no other: the others would be done before it
                free = [e for e in [e for e in fit if e.started] or fit if e.takes]
                if not free and job.gpu is None:
                    return
                if not free:
                    continue
                chosen = min(free, key=lambda e: len(e.jobs))
                chosen.give(job, self._best_us.get((chosen.gpu, job.candidate.problem.key)))
            self._ready.remove(job)
