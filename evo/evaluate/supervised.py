"""One evaluator of a pool: a child process and its candidates. Another child replaces one that died."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from evo.child import EVALUATES, Answer, Child, Said, Spare
from evo.errors import Crashed, Hung, MachineError, NotEnoughMemory
from evo.evaluate import failed
from evo.evaluate.evaluating import Builds, Evaluating
from evo.fork_server import Forked
from evo.trial import Candidate, Trial

STARTS = 3
"""Starts without a single candidate evaluated after which the machine is held to be broken."""
AT_HAND = 2
"""Candidates that an evaluator holds: one under way, one to go on with."""
WAITING_STAGE = "turn"
"""The stage in which a candidate waits for others: a hang of one of those is not its own."""


@dataclass(eq=False)
class Job:
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
    gpu: str | None = None
    """The GPU that is compared with others by it; None: it is for any."""

    def __str__(self) -> str:
        what = f"#{self.number} {self.candidate.template}{' again' if self.earlier else ''}"
        return f"{what}: {self.stage} {time.monotonic() - self.since:.1f} s"


class SupervisedEvaluator:
    """A child that evaluates on one `gpu`, and whatever child replaces it. `forks`: it uses no GPU, and is
    forked."""

    def __init__(
        self, spec: Builds, gpu: str, start_s: float, spare: Spare | None = None, forks: bool = False
    ) -> None:
        self._spec = spec
        self.gpu = gpu
        self._start_s = start_s
        self._forks = forks
        self._fruitless = 0
        self.jobs: deque[Job] = deque()
        """The first one is under way, as soon as the child says so."""
        self._start(spare)

    def _start(self, spare: Spare | None = None) -> None:
        if spare is None and self._forks:
            spare = Forked(env=EVALUATES)
        self._child = Child(Evaluating, self._spec, start_s=self._start_s, env=EVALUATES, spare=spare)
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
    def takes(self) -> bool:
        return len(self.jobs) < AT_HAND and not self._leaving

    @property
    def idle(self) -> bool:
        return self._child.ready and self.takes and not self.jobs

    def give(self, job: Job, best_us: float | None = None) -> None:
        """Hand over a candidate; it counts from when the child begins with it. `best_us`: the best time of
        its problem on this GPU so far."""
        if not self.jobs:
            self._given = time.monotonic()
        self.jobs.append(job)
        self._child.send("evaluate", job.candidate, job.earlier, best_us, job.gpu is not None)

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

    def collect(self) -> Iterator[tuple[int, Trial]]:
        """Trials that have arrived. Raises what went wrong besides candidates."""
        for message in self._received():
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
            self._fruitless, self._leaving = 0, message.last
            yield job.number, replace(trial, gpu=self.gpu)

    def _received(self) -> Iterator[Answer | Said]:
        """What has arrived; a MachineError names the GPU, if it has an id. Where memory was short for a
        candidate, that one is given up, and the child takes the next."""
        try:
            yield from self._child.receive()
        except MachineError as error:
            where = f" (on {self.gpu})" if self.gpu else ""
            told = type(error)(f"{error.message}{where}", error.hint)
            if isinstance(told, NotEnoughMemory) and self.jobs and self._child.ready:
                told.number = self.jobs.popleft().number
                self._under_way, self._given = None, time.monotonic()
                self._fruitless = 0
            raise told from error

    def supervise(self, deadline_s: float, ready: deque[Job]) -> list[tuple[int, Trial]]:
        """Replace the child if it is overdue or dead. The Trial of the candidate that it fell over; what else
        it held goes back to the head of `ready`."""
        overdue = self.patience(deadline_s) == 0.0
        if not (overdue or self._child.dead):
            return []
        if not overdue:
            last_trials = list(self.collect())
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
            trial = failed(job.candidate, error, seconds=seconds)
            trials.append((job.number, replace(trial, gpu=self.gpu)))
        for job in reversed(self.jobs):
            job.stage = "waiting"
            ready.appendleft(job)
        self.jobs.clear()
        if self._fruitless >= STARTS:
            where = f" on {self.gpu}" if self.gpu else ""
            raise MachineError(f"an evaluator does not start{where}: {error}", last_words or "no output")
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
