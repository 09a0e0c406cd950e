"""The loop: ask, evaluate, record, tell, within a budget of wall-clock time.

A search can be killed at any moment: a trial is stored before the strategy hears of it, and what was under
way is tried again. `search` of a study that has trials already *is* its resumption.

With one worker the sequence of points is a function of the seed and the results alone: the proposal for
trial n is asked for when trials 0 to n - lookahead are told, no earlier and no later, in the order of their
numbers. With more workers a trial is told as soon as it is finished.
"""

from __future__ import annotations

import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Protocol

from evo.confirm import Step, confirm, reserve_s
from evo.errors import NothingFound, StoreError, UsageError
from evo.gpu import Limits
from evo.search.first_points import DeadParameter, Probes, dead_parameters, key_of
from evo.search.history import Ledger
from evo.search.stopping import PATIENCE, Convergence
from evo.search.usage import Meter, Usage
from evo.search.warm_start import earlier_trials
from evo.space import FeasibleSet
from evo.store import Confirmation, Failure, LeaderboardRow, Store, TrialRow
from evo.strategy import Observation, Proposal, make_strategy
from evo.study import Study
from evo.template import Template
from evo.trial import Candidate, Outcome, Problem, Trial

if TYPE_CHECKING:
    from evo.confirm.worker import Judges

__all__ = [
    "DeadParameter",
    "Ground",
    "Progress",
    "SearchResult",
    "Workers",
    "dead_parameters",
    "search",
    "survey",
]

TICK_S = 0.25
"""Longest time without a look at the budget, at Ctrl-C, and without news for whoever watches."""
HEARTBEAT_S = 2.0
"""How often the spent budget is written while no trial ends: what a kill can lose of it."""
GRACE_S = 5.0
"""What candidates under way get to finish when the search ends; then they are given up (tried on resume)."""
HOPELESS = 60
"""Trials after which a search of which none compiled is given up: the compiler or the template is broken."""

Stopped = Literal["budget", "exhausted", "converged", "interrupted", "hopeless"]


class Workers(Protocol):
    """Evaluates candidates in processes that may die: evo.evaluate.pool.Pool, or a cluster."""

    @property
    def capacity(self) -> int:
        """How many candidates to keep under way."""
        ...

    @property
    def idle(self) -> int:
        """How many could evaluate and have nothing to evaluate; 0 where another visit would teach nothing."""
        ...

    def submit(self, number: int, candidate: Candidate) -> None: ...

    def remeasure(self, number: int, candidate: Candidate, visit: int) -> None:
        """Gate and time again what was visited `visit` times; only while one is idle."""
        ...

    def wait(self, timeout: float) -> list[tuple[int, Trial]]:
        """What has finished; waits at most `timeout` seconds for something to."""
        ...

    def activity(self) -> list[str]:
        """What each worker does, in words."""
        ...

    def close(self) -> None:
        """Gives up what is under way and ends every process."""
        ...


@dataclass(frozen=True)
class Ground:
    """Where a search may look: a template and its feasible points."""

    template: Template
    feasible: FeasibleSet


@dataclass(frozen=True)
class Progress:
    """How a search stands. `latest`: the trial that just ended, None where only time has passed."""

    study: Study
    phase: Literal["probing", "searching", "finishing", "confirming", "over"]
    spent_s: float
    outcomes: Mapping[str, int]
    best: TrialRow | None
    baselines_us: Mapping[str, float]
    per_minute: float
    in_flight: int
    activity: Sequence[str]
    latest: TrialRow | None = None
    step: str = ""
    """What CONFIRMED is at, in words."""
    usage: Usage | None = None

    @property
    def left_s(self) -> float:
        return max(0.0, self.study.budget_s - self.spent_s)

    @property
    def trials(self) -> int:
        return sum(self.outcomes.values())

    @property
    def correct(self) -> int:
        return sum(n for outcome, n in self.outcomes.items() if Outcome(outcome).correct)


@dataclass(frozen=True)
class SearchResult:
    """How a search ended and what it found, best first."""

    study: Study
    stopped: Stopped
    progress: Progress
    best: Sequence[LeaderboardRow]
    failures: Sequence[Failure]
    dead: Sequence[DeadParameter]
    confirmation: Confirmation | None = None


def survey(templates: Sequence[Template], limits: Limits, problem: Problem) -> dict[str, Ground]:
    """The feasible points of each template that can serve `problem` within `limits`.

    UsageError, with the reasons, where no template can, or no point of any is feasible.
    """
    grounds: dict[str, Ground] = {}
    refused: dict[str, str] = {}
    for template in templates:
        if reason := template.supports(problem, limits):
            refused[template.name] = reason
        else:
            grounds[template.name] = Ground(template, template.space.feasible(limits, problem))
    if not grounds:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in refused.items())
        raise UsageError(f"no template serves {problem.key}", reasons)
    feasible = {name: ground for name, ground in grounds.items() if len(ground.feasible.indices)}
    if not feasible:
        for ground in grounds.values():
            ground.feasible.require_some()
    return feasible


def search(
    study: Study,
    store: Store,
    grounds: Mapping[str, Ground],
    workers: Workers,
    watch: Callable[[Progress], None] = lambda _: None,
    judges: Callable[[float], Judges] | None = None,
    patience: int = PATIENCE,
) -> SearchResult:
    """Searches `study` until its budget is spent, its points are exhausted, its strategy expects nothing more
    (see `convergence`), or a person interrupts; then confirms the best with what makes `judges`, given the
    seconds left: part of the budget is kept for it. `patience`: proposals in a row of which the strategy
    expects nothing before the search ends.

    Ctrl-C (or SIGTERM) once ends it cleanly; twice, at once (KeyboardInterrupt). `workers` are closed in any
    case. Raises NothingFound when the search came to its end without a correct kernel, StoreError when the
    database cannot be written (what is recorded stays), UsageError when another process searches this study.
    """
    with _closing(workers), _interrupts() as interrupted:
        clock = _Clock(store.claim(study, workers.capacity), reserve_s(study.budget_s) if judges else 0.0)
        status = "failed"
        try:
            loop = _Loop(clock, store, grounds, workers, watch, patience)
            stopped = loop.run(interrupted)
            if judges and stopped in ("budget", "exhausted", "converged"):
                workers.close()  # a GPU must be free of them
                stopped = loop.confirm(judges, interrupted) or stopped
            status = {"budget": "finished", "hopeless": "failed"}.get(stopped, stopped)
        except KeyboardInterrupt:
            status = "interrupted"
            raise
        finally:
            with suppress(StoreError):  # a full disk: the error under way says so already
                store.release(clock.study, status, clock.spent_s)
    return loop.result(stopped)


class _Clock:
    """What a study has spent, over all its runs; `reserve_s` of its budget is not the search's to spend."""

    def __init__(self, study: Study, reserve_s: float) -> None:
        self.study = study
        self.reserve_s = reserve_s
        self._began = time.monotonic()

    @property
    def spent_s(self) -> float:
        return self.study.spent_s + time.monotonic() - self._began

    @property
    def left_s(self) -> float:
        return self.study.budget_s - self.spent_s


class _Loop:
    """One run of a search."""

    def __init__(
        self,
        clock: _Clock,
        store: Store,
        grounds: Mapping[str, Ground],
        workers: Workers,
        watch: Callable[[Progress], None],
        patience: int,
    ) -> None:
        study = clock.study
        self._clock, self._study = clock, study
        self._store, self._grounds, self._workers, self._watch = store, grounds, workers, watch
        spaces = {name: ground.feasible for name, ground in grounds.items()}
        earlier = earlier_trials(store, study)
        self._strategy = make_strategy(study.strategy, spaces, study.seed, earlier)
        self._convergence = Convergence(patience)
        self._probes = Probes(spaces)
        self._probing = True
        self._ordered = study.workers == 1
        self._ledger = Ledger(store.rows(study), self._stored)
        self._rows = self._ledger.rows
        self._visits: set[int] = set()
        """Leaders that are being gated and timed again."""
        self._tried: set[tuple[object, ...]] = set()
        """What was proposed for the numbers before the next one."""
        self._told: list[Observation] = []
        if not self._ordered:
            self._told = [_told(row) for row in self._rows.values()]
            self._tried = {key_of(_proposal(row)) for row in self._rows.values()}
        self._under_way: dict[int, Proposal] = {}
        self._next = 0
        self._exhausted = False
        self._ends: deque[float] = deque(maxlen=4096)
        self._meter = Meter()
        self._asking_s: dict[int, float] = {}
        """What the proposals under way took."""
        self._baselines = dict(study.baselines_us)
        self._beat = time.monotonic()
        self._confirmation: Confirmation | None = None

    def run(self, interrupted: Callable[[], bool]) -> Stopped:
        while True:
            stopped = self._why_stop(interrupted)
            if stopped:
                return self._finish(stopped)
            self._fill(interrupted)
            self._gather(TICK_S)

    def confirm(self, judges: Callable[[float], Judges], interrupted: Callable[[], bool]) -> Stopped | None:
        """Confirms the best trials within what is left of the budget; "interrupted" if a person was."""
        clock = self._clock

        def watch(step: Step) -> None:
            self._store.heartbeat(self._study, clock.spent_s)
            self._watch(replace(self._progress("confirming"), step=step.text))

        def over(needs_s: float) -> bool:
            return interrupted() or clock.left_s <= needs_s

        with closing(judges(clock.left_s)) as referee:
            self._confirmation = confirm(self._study, self._store, referee, over=over, watch=watch)
        return "interrupted" if interrupted() else None

    def result(self, stopped: Stopped) -> SearchResult:
        """What was found; NothingFound where nothing was, unless a person ended the search."""
        study = self._store.study(self._study.name)
        failures = self._store.failures(study)
        if not self._ledger.correct and stopped != "interrupted":
            reasons = (
                f"{f.count} × {f.outcome} {f.reason} (as {study.name}/{f.example})" for f in failures[:3]
            )
            raise NothingFound(
                f"none of {len(self._rows)} candidates is a correct kernel", "; ".join(reasons)
            )
        best = self._store.leaderboard(study=study.name, limit=10)
        dead = dead_parameters(self._rows.values())
        over = replace(self._progress("over"), study=study)
        return SearchResult(study, stopped, over, best, failures, dead, self._confirmation)

    def _why_stop(self, interrupted: Callable[[], bool]) -> Stopped | None:
        if interrupted():
            return "interrupted"
        if self._clock.left_s <= self._clock.reserve_s:
            return "budget"
        if self._exhausted and not self._under_way:
            return "exhausted"
        if self._convergence.reached(len(self._rows)):
            return "converged"
        if len(self._rows) >= HOPELESS and self._ledger.outcomes.keys() == {Outcome.UNCOMPILABLE}:
            return "hopeless"
        return None

    def _finish(self, stopped: Stopped) -> Stopped:
        """Gives what is under way a moment, and its results their place in the store."""
        deadline = time.monotonic() + GRACE_S
        while self._under_way and time.monotonic() < deadline:
            self._gather(TICK_S, "finishing")
        if self._baselines:
            self._store.set_baselines(self._study, self._baselines)
        return stopped

    # ---- ask

    def _fill(self, interrupted: Callable[[], bool]) -> None:
        """Keeps the workers supplied."""
        while not self._exhausted and self._may_ask() and not self._why_stop(interrupted):
            number = self._next
            self._next += 1
            if number in self._rows:
                self._tried.add(key_of(_proposal(self._rows[number])))
                continue
            began = time.monotonic()
            proposal = self._propose(number)
            self._asking_s[number] = time.monotonic() - began
            if proposal is None:
                self._exhausted = True
                return
            self._tried.add(key_of(proposal))
            candidate = self._grounds[proposal.template].template.candidate(
                proposal.point, self._study.problem
            )
            twin = self._ledger.programs.get(candidate.program)
            if twin is not None:
                self._record(number, self._of_twin(candidate, twin), same_as=twin)
            else:
                self._under_way[number] = proposal
                self._workers.submit(number, candidate)

    def _may_ask(self) -> bool:
        if self._ordered:
            return self._next in self._rows or self._known_through(self._next - self._study.lookahead)
        return self._next in self._rows or self._has_room()

    def _has_room(self) -> bool:
        """Whether another candidate should be under way. Wishes that are under way at once know nothing of
        each other's answers: there are no more of them than trials are known. Probes need no knowledge."""
        under_way = len(self._under_way)
        if under_way >= self._workers.capacity:
            return False
        if under_way < max(1, len(self._rows)):
            return True
        return self._probes.next(self._told, self._tried) is not None

    def _known_through(self, number: int) -> bool:
        """Whether trials 0 to `number` are finished: tells the strategy of those it has not heard of."""
        while len(self._told) <= number and len(self._told) in self._rows:
            self._told.append(_told(self._rows[len(self._told)]))
        return len(self._told) > number

    def _propose(self, number: int) -> Proposal | None:
        if self._ordered:
            # finished ones that may not be known yet count as under way, as when this was first asked
            before = range(len(self._told), number)
            pending = [self._under_way.get(n) or _proposal(self._rows[n]) for n in before]
        else:
            pending = list(self._under_way.values())
        probe = self._probes.next(self._told, self._tried)
        self._probing = probe is not None
        if probe is None:
            probe = self._strategy.ask(self._told, pending, number)
            self._convergence.hear(self._strategy.expected_gain)
        return probe

    # ---- evaluate, record, tell

    def _gather(self, timeout: float, phase: Literal["finishing"] | None = None) -> None:
        """Waits for results; each is in the store before the strategy can hear of it."""
        finished = self._workers.wait(timeout)
        if phase is None:
            self._remeasure()  # at once: whose result this is may be idle now
        for number, trial in finished:
            if number in self._visits:
                self._revise(number, trial, phase)
            else:
                del self._under_way[number]
                self._record(number, trial, phase=phase)
        if not finished:
            self._watch(self._progress(phase))
            if time.monotonic() - self._beat > HEARTBEAT_S:
                self._store.heartbeat(self._study, self._clock.spent_s)
                self._beat = time.monotonic()

    def _record(
        self, number: int, trial: Trial, same_as: int | None = None, phase: Literal["finishing"] | None = None
    ) -> None:
        asking_s = self._asking_s.pop(number, 0.0)
        trial = replace(trial, seconds={"strategy": asking_s, **trial.seconds})
        self._store.add(self._study, number, trial, same_as, self._clock.spent_s)
        self._hear(trial)
        self._ends.append(self._beat)
        row = TrialRow.of(number, trial, same_as)
        self._ledger.note(row)
        if not self._ordered:
            self._told.append(_told(row))
        self._watch(replace(self._progress(phase), latest=row))

    def _hear(self, trial: Trial, again: bool = False) -> None:
        """Takes in what a trial that was just stored says of the machine."""
        self._meter.add(trial, again)
        self._beat = time.monotonic()
        if trial.timing and trial.timing.baselines_us:
            self._baselines = dict(trial.timing.baselines_us)

    def _of_twin(self, candidate: Candidate, twin: int) -> Trial:
        """The result of trial `twin`, which is the same program, for another point."""
        return replace(self._stored(twin), candidate=candidate, seconds={})

    def _stored(self, number: int) -> Trial:
        return self._store.trial(f"{self._study.name}/{number}")

    # ---- leaders

    def _remeasure(self) -> None:
        """Has evaluators that have nothing to do gate and time leaders again. With one worker never: when one
        is idle is no function of the seed."""
        if self._ordered or self._probing:
            return
        for _ in range(self._workers.idle):
            leader = self._ledger.leaders.next(self._visits)
            if leader is None:
                return
            self._visits.add(leader[0])
            self._workers.remeasure(*leader)

    def _revise(self, number: int, visit: Trial, phase: Literal["finishing"] | None) -> None:
        """Takes in another visit of a leader. What the strategy was told stays as it was told."""
        self._visits.remove(number)
        trial, changed = self._ledger.revise(number, visit)
        self._store.revise(self._study, changed, trial, self._clock.spent_s)
        self._hear(visit, again=True)
        self._watch(self._progress(phase))

    def _progress(self, phase: Literal["finishing", "confirming", "over"] | None = None) -> Progress:
        now = time.monotonic()
        minute = [end for end in self._ends if now - end <= 60]
        lasted = min(60.0, max(1.0, now - self._ends[0])) if self._ends else 1.0
        return Progress(
            self._study,
            phase or ("probing" if self._probing else "searching"),
            self._clock.spent_s,
            dict(self._ledger.outcomes),
            self._ledger.best,
            self._baselines,
            len(minute) / lasted * 60,
            len(self._under_way),
            self._workers.activity(),
            usage=self._meter.usage(),
        )


def _told(row: TrialRow) -> Observation:
    return Observation(row.template, row.point, row.score_us)


def _proposal(row: TrialRow) -> Proposal:
    return Proposal(row.template, row.point)


@contextmanager
def _closing(workers: Workers) -> Iterator[None]:
    try:
        yield
    finally:
        workers.close()


@contextmanager
def _interrupts() -> Iterator[Callable[[], bool]]:
    """Gives a function that says whether SIGINT or SIGTERM came; a second one is a KeyboardInterrupt."""
    came = threading.Event()

    def on_signal(_number: int, _frame: object) -> None:
        if came.is_set():
            raise KeyboardInterrupt
        came.set()

    if threading.current_thread() is not threading.main_thread():  # only there can signals be handled
        yield came.is_set
        return
    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield came.is_set
    finally:
        for number, action in before.items():
            signal.signal(number, action)
