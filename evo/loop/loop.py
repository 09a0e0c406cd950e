"""The search loop: propose, evaluate, store, report, within a budget of wall-clock time.

A search can be killed at any moment: a trial is stored before the strategy learns of it, and what was under
way is tried again. To resume a study is to call `search` for a study that has trials already.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal, Protocol

from evo.confirm import Ahead, Step, confirm
from evo.errors import BadTemplate, NothingFound, StoreError, Unrenderable
from evo.evaluate import failed
from evo.loop.dead_parameters import DeadParameter, dead_parameters
from evo.loop.history import History
from evo.loop.progress import Meter, Phase, Progress
from evo.loop.proposals import Proposals
from evo.loop.remeasure import REMEASURED_EVERY_S, Pace
from evo.loop.spaces import SearchSpace
from evo.loop.starts import Start, starts_of
from evo.loop.stopping import ALONE, STOPPING_PATIENCE, Clock, Interrupts, Stopped, Turn, interrupts
from evo.loop.warm_start import earlier_trials
from evo.store import Confirmation, Failure, LeaderboardRow, Store, TrialRow
from evo.strategy import Proposal
from evo.study import Study
from evo.trial import Candidate, Outcome, Trial

if TYPE_CHECKING:
    from evo.confirm.worker import ConfirmWorker

TICK_S = 0.25
"""The budget, Ctrl-C and the shown progress are at most so old."""
HEARTBEAT_S = 2.0
"""How often the spent budget is written while no trial ends: a kill can lose so much of it."""
UNCOMPILABLE_TRIALS = 60
"""A search is given up when so many trials did not compile and none did: the compiler or the template is
broken."""
UNRENDERABLE_IN_A_ROW = 10
"""A search ends when its templates failed at so many points in a row; their author mends them first."""


class Workers(Protocol):
    """Evaluates candidates in processes that may die: evo.evaluate.pool.Pool, or a cluster."""

    @property
    def capacity(self) -> int:
        """How many candidates to keep under way."""
        ...

    @property
    def idle(self) -> int:
        """How many evaluators have nothing to do; 0 where another measurement would bring nothing."""
        ...

    def submit(self, number: int, candidate: Candidate) -> None: ...

    def remeasure(self, number: int, candidate: Candidate, earlier: int) -> None:
        """Gates and times again a candidate that was measured `earlier` times; only while one is idle."""
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
class SearchResult:
    """How a search ended and what it found, best first."""

    study: Study
    stopped: Stopped
    progress: Progress
    best: Sequence[LeaderboardRow]
    failures: Sequence[Failure]
    dead: Sequence[DeadParameter]
    starts: Sequence[Start] = ()
    confirmation: Confirmation | None = None


def search(
    study: Study,
    store: Store,
    spaces: Mapping[str, SearchSpace],
    workers: Workers,
    on_progress: Callable[[Progress], None] = lambda _: None,
    confirm_with: Callable[[float], ConfirmWorker] | None = None,
    patience: int = STOPPING_PATIENCE,
    turn: Turn = ALONE,
) -> SearchResult:
    """Searches `study` until its budget is spent, it has its trials, its points are exhausted, or a person
    interrupts it. When its strategy expects nothing more (see `EarlyStopping`) it starts again elsewhere, or
    ends, as `Study.starts_again` says. Then it confirms the best trials with what `confirm_with` makes of the
    seconds left: part of the budget is kept for that. `patience`: it has converged when its strategy expects
    nothing of so many proposals in a row. `turn`: where it is a part of a search for many problems.

    Ctrl-C (or SIGTERM) once ends it cleanly; twice, at once (KeyboardInterrupt). `workers` are closed in any
    case. Raises NothingFound when the search came to its end without a correct kernel, StoreError when the
    database cannot be written (what is stored stays), UsageError when another process searches this study,
    BadTemplate when templates failed at UNRENDERABLE_IN_A_ROW points in a row.
    """
    with _closing(workers), Ahead(study, store, confirm_with) as ahead, interrupts() as interrupted:
        claimed = store.claim(study, workers.capacity, study.budget_s, study.rate)
        clock = Clock(claimed, ahead.reserve_s, turn.began)
        status = "failed"
        try:
            loop = _Loop(clock, store, spaces, workers, ahead, on_progress, patience, turn)
            stopped = loop.run(interrupted)
            if confirm_with and stopped in ("budget", "trials", "exhausted", "converged"):
                workers.close()  # a GPU must be free of them
                stopped = loop.confirm(interrupted) or stopped
            status = _STATUS.get(stopped, stopped)
        except KeyboardInterrupt:
            status = "interrupted"
            raise
        finally:
            with suppress(StoreError):  # a full disk: the error under way says so already
                store.release(clock.study, status, clock.spent_s)
    return loop.result(stopped)


_STATUS: Mapping[str, str] = {
    "budget": "finished",
    "trials": "finished",
    "tried": "finished",
    "hopeless": "failed",
    "unrenderable": "failed",
}
"""What a study is called that ended so; otherwise what ended it."""


class _Loop:
    """One run of a search."""

    def __init__(
        self,
        clock: Clock,
        store: Store,
        spaces: Mapping[str, SearchSpace],
        workers: Workers,
        ahead: Ahead,
        on_progress: Callable[[Progress], None],
        patience: int,
        turn: Turn,
    ) -> None:
        study, self._turn = clock.study, turn
        self._clock, self._study, self._ahead = clock, study, ahead
        self._store, self._spaces, self._workers, self._on_progress = store, spaces, workers, on_progress
        self._history = History(store.rows(study), self._stored)
        self._rows = self._history.rows
        feasible = {name: space.feasible for name, space in spaces.items()}
        earlier = earlier_trials(store, study, feasible)
        self._proposals = Proposals(study, feasible, self._rows, earlier, patience, turn)
        self._most = math.inf if turn.these_alone else max(study.most_trials, len(self._rows))
        self._next, self._exhausted = 0, False
        self._unrenderable = 0
        """Trials in a row whose template failed, in this run."""
        self._under_way: dict[int, Proposal] = {}
        self._pace = Pace(REMEASURED_EVERY_S)
        self._remeasuring: set[int] = set()
        """Best trials that are being gated and timed again."""
        self._meter = Meter(study.baselines_us)
        self._proposing_s: dict[int, float] = {}
        """How long each proposal under way took."""
        self._beat = time.monotonic()
        self._confirmation: Confirmation | None = None

    def run(self, interrupted: Interrupts) -> Stopped:
        while True:
            stopped = self._why_stop(interrupted)
            if stopped == "converged" and self._study.starts_again:
                self._start_again()
            elif stopped:
                return self._finish(stopped)
            self._submit(interrupted)
            self._gather(TICK_S)
            self._ahead.look(self._clock.left_s)
            self._clock.reserve_s = self._ahead.reserve_s

    def _start_again(self) -> None:
        """With time left the search begins anew, elsewhere: see `Proposals.start_again`."""
        self._study = self._store.start_again(self._study, self._next)
        self._clock.study = self._study
        self._proposals.start_again(self._next, self._under_way)

    def confirm(self, interrupted: Callable[[], bool]) -> Stopped | None:
        """Confirms the best trials within what is left of the budget; "interrupted" where a person did so."""
        clock = self._clock

        def watch(step: Step) -> None:
            self._store.heartbeat(self._study, clock.spent_s)
            self._on_progress(replace(self._progress("confirming"), step=step.text))

        def over(needs_s: float) -> bool:
            return interrupted() or clock.left_s <= needs_s

        worker, seed = self._ahead.worker(clock.left_s), self._ahead.seed
        self._confirmation = confirm(
            self._study, self._store, worker, over=over, hurried=self._ahead.hurried, watch=watch, seed=seed
        )
        return "interrupted" if interrupted() else None

    def result(self, stopped: Stopped) -> SearchResult:
        """What was found; NothingFound where nothing was, unless a person ended the search."""
        study = self._store.study(self._study.name)
        if self._turn.brief:
            return SearchResult(study, stopped, self._progress("over"), (), (), ())
        failures = self._store.failures(study)
        if stopped == "unrenderable":
            last = self._stored(next(reversed(self._rows)))
            raise BadTemplate(
                f"{last.where or last.candidate.template}: {last.detail} "
                f"({self._unrenderable} points in a row failed like {last.name})",
                f"mend the template, then: evo resume {study.name}",
            )
        if not self._rows and stopped == "budget":
            spent = f"no candidate was finished in {study.spent_s:.0f} s: this problem needs more time"
            raise NothingFound(spent, f"evo resume {study.name} --budget +5m; a smaller --shape is faster")
        if not self._history.correct and stopped != "interrupted":
            reasons = [f"{f.count} × {f.outcome} {f.reason}" for f in failures[:3]]
            where = [f"evo show {study.name}/{f.example} says where" for f in failures[:1]]
            raise NothingFound(
                f"none of {len(self._rows)} candidates is a correct kernel", "; ".join([*reasons, *where])
            )
        best = self._store.leaderboard(study=study.name, limit=10)
        dead = dead_parameters(self._rows.values())
        over = replace(self._progress("over"), study=study)
        starts = starts_of(self._rows, study.starts)
        return SearchResult(study, stopped, over, best, failures, dead, starts, self._confirmation)

    def _why_stop(self, interrupted: Callable[[], bool]) -> Stopped | None:
        tried = len(self._rows)
        only_uncompilable = self._history.outcomes.keys() == {Outcome.UNCOMPILABLE}
        reasons: dict[Stopped, bool] = {
            "interrupted": interrupted(),
            "budget": self._clock.search_is_over,
            "trials": self._next >= self._most and not self._under_way,
            "exhausted": self._exhausted and not self._under_way,
            "tried": self._proposals.over,
            "converged": self._proposals.converged,
            "unrenderable": self._unrenderable >= UNRENDERABLE_IN_A_ROW,
            "hopeless": only_uncompilable and tried >= UNCOMPILABLE_TRIALS,
        }
        return next((why for why, so in reasons.items() if so), None)

    def _finish(self, stopped: Stopped) -> Stopped:
        """Waits a while for what is under way, and stores its results."""
        began = time.monotonic()
        while self._under_way:
            if time.monotonic() >= began + self._clock.grace_s(self._turn, self._history.correct > 0):
                break
            self._gather(TICK_S, "finishing")
        if self._meter.baselines_us:
            self._store.set_baselines(self._study, self._meter.baselines_us)
        return stopped

    # ---- propose

    def _submit(self, interrupted: Interrupts) -> None:
        """Keeps the workers supplied with candidates."""
        while not self._exhausted and self._may_propose() and not self._why_stop(interrupted):
            number = self._next
            self._next += 1
            if number in self._rows:
                self._proposals.repeat(number)
                continue
            began = time.monotonic()
            proposal = interrupted.at_once(partial(self._proposals.propose, number, self._under_way))
            self._proposing_s[number] = time.monotonic() - began
            if proposal is None:
                self._exhausted = not interrupted()
                return
            made = interrupted.at_once(partial(self._render, proposal))
            if isinstance(made, Trial):
                self._add(number, made)
            elif made is not None:
                self._evaluate(number, proposal, made)

    def _render(self, proposal: Proposal) -> Candidate | Trial:
        """The candidate of a proposal, or its trial where the template fails."""
        space, problem = self._spaces[proposal.template], self._study.problem
        try:
            space.feasible.ask_rules(proposal.point)
            return space.template.candidate(proposal.point, problem)
        except BadTemplate as error:
            nothing = space.template.unrendered(proposal.point, problem)
            return failed(nothing, Unrenderable.of(error), seconds={})

    def _evaluate(self, number: int, proposal: Proposal, candidate: Candidate) -> None:
        """Has a candidate evaluated, unless the same program was."""
        original = self._history.programs.get(candidate.program)
        if original is not None:
            self._add(number, self._copy_of(original, candidate), same_as=original)
        else:
            self._under_way[number] = proposal
            self._workers.submit(number, candidate)

    def _may_propose(self) -> bool:
        if (self._proposals.over and self._next not in self._rows) or self._next >= self._most:
            return False
        return self._proposals.may_propose(self._next, len(self._under_way), self._workers.capacity)

    def _copy_of(self, number: int, candidate: Candidate) -> Trial:
        """The result of trial `number`, which is the same program, for another point."""
        return replace(self._stored(number), candidate=candidate, seconds={})

    # ---- evaluate, store, report

    def _gather(self, timeout: float, phase: Literal["finishing"] | None = None) -> None:
        """Waits for results; each is in the store before the strategy learns of it."""
        ended = self._workers.wait(timeout)
        if phase is None:
            self._remeasure()  # at once: the worker of an ended trial may be idle now
        for number, trial in ended:
            if number in self._remeasuring:
                self._update(number, trial, phase)
            else:
                del self._under_way[number]
                self._add(number, trial, phase=phase)
        if not ended:
            self._on_progress(self._progress(phase))
            if time.monotonic() - self._beat > HEARTBEAT_S:
                self._store.heartbeat(self._study, self._clock.spent_s)
                self._beat = time.monotonic()

    def _add(
        self, number: int, trial: Trial, same_as: int | None = None, phase: Literal["finishing"] | None = None
    ) -> None:
        """Stores a new trial, then reports it."""
        proposing_s = self._proposing_s.pop(number, 0.0)
        trial = replace(trial, seconds={"strategy": proposing_s, **trial.seconds})
        self._store.add(self._study, number, trial, same_as, self._clock.spent_s)
        self._meter.add(trial)
        self._unrenderable = self._unrenderable + 1 if trial.outcome is Outcome.UNRENDERABLE else 0
        self._beat = time.monotonic()
        row = TrialRow.of(number, trial, same_as)
        self._history.add(row)
        self._proposals.observe(row)
        self._on_progress(replace(self._progress(phase), latest=row))

    def _stored(self, number: int) -> Trial:
        return self._store.trial(f"{self._study.name}/{number}")

    # ---- measure the best again

    def _remeasure(self) -> None:
        """Lets idle evaluators gate and time the best trials again. With one worker never: when it is idle is
        not a function of the seed."""
        if self._proposals.ordered or self._proposals.first_points:
            return
        for _ in range(self._workers.idle):
            best = self._history.best_trials.next(self._remeasuring)
            if best is None or not self._pace.allows(time.monotonic()):
                return
            self._remeasuring.add(best[0])
            self._workers.remeasure(*best)

    def _update(self, number: int, measured: Trial, phase: Literal["finishing"] | None) -> None:
        """Takes in another measurement of one of the best trials. What the strategy knows of it stays."""
        self._remeasuring.remove(number)
        trial, changed = self._history.update(number, measured)
        self._store.revise(self._study, changed, trial, self._clock.spent_s)
        self._meter.add(measured, remeasured=True)
        self._beat = time.monotonic()
        self._on_progress(self._progress(phase))

    def _progress(self, phase: Phase | None = None) -> Progress:
        return Progress(
            self._study,
            phase or ("first points" if self._proposals.first_points else "searching"),
            self._clock.spent_s,
            dict(self._history.outcomes),
            self._history.best,
            self._meter.baselines_us,
            self._meter.per_minute,
            self._workers.activity(),
            usage=self._meter.usage(),
        )


@contextmanager
def _closing(workers: Workers) -> Iterator[None]:
    try:
        yield
    finally:
        workers.close()
