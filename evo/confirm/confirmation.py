"""CONFIRMED: the best trials of a study, gated again thoroughly and timed again in a fresh process, in turns
with each other and with the baselines, until it is known which is faster than which.

    contenders ── the best timed trials, each another program
      gate       thoroughly, with fresh seeds, beside it on the emulator ── what fails is out, the next
                 contender takes its place
      rounds     warm, then cold: fresh inputs, buffers, graphs and order in each; stored one by one
      sanitize   memcheck, initcheck and synccheck, as far as there is time
      kernels    which kernels the baselines really ran, from the profiler
      conclude   standings with simultaneous intervals (timing/statistics)

Each step is in the database before the next: a confirmation that was killed goes on where it stood.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from evo.confirm.rounds import SAMPLES, Fallen, slow
from evo.errors import CandidateError, Crashed, Hung, MachineError
from evo.store import Confirmation, Finalist, Store
from evo.study import Study
from evo.timing.statistics import FEWEST_ROUNDS, standings
from evo.trial import Timing, Trial

if TYPE_CHECKING:
    from evo.confirm.on_emulator import GateRequest
    from evo.confirm.worker import ConfirmWorker

TOP = 5
ROUNDS = {"warm": 20, "cold": 12}
"""Rounds of each protocol. Rank and verdict follow from `warm`."""
SUBSTITUTES = 3
"""Contenders that are tried for each place among the finalists."""
LIVES = 3
"""How often a round may take the process with it without anybody to blame."""
ROUNDS_S = 6.0
"""What all rounds of a small problem take, with the baselines' setting up: kept free while
finalists are gated, for few finalists in many rounds say more than many in few."""
ROUND_LAUNCHES = 2 * SAMPLES + 1
"""Of a contestant on a timing input, where one launch is a sample: the first warms up, and each sample has an
untimed one in front."""
GATES = 10
"""A finalist's gate takes about so many times as long as a trial's where the study's own problem is most of
both: it runs 38 cases of that, a trial three."""
MISSED_ROUNDS = "some rounds were held without it; `evo confirm` once more times it"
"""Why a baseline has no standing where a confirmation went on with others than it began with."""
SANITIZE_S = 20.0
"""What compute-sanitizer takes for a finalist, with its three tools (16 s on an H200)."""
SHARE, MOST_S, PATIENT_S = 0.25, 120.0, 29.0
"""Of a search's budget: the share that is kept for CONFIRMED, and the most of it; from the last one on, the
baselines that must be compiled first, and slow ones, take part."""


def reserve_s(budget_s: float, leading: Sequence[Trial] = ()) -> float:
    """Seconds of a search's budget that are kept for CONFIRMED: more where the gate and the rounds of one
    finalist like the `leading` trials, the best first, take longer than those of a small problem; no more
    than `most_reserve_s`."""
    share = min(SHARE * budget_s, MOST_S)
    if not leading:
        return share
    gates_s = [trial.seconds["gate"] for trial in leading if "gate" in trial.seconds]
    gate_s = median(gates_s) if gates_s else 0.0
    longer_s = rounds_s(leading[0].timing, 1, is_hurried(budget_s)) - ROUNDS_S + GATES * gate_s
    return min(share + longer_s, most_reserve_s(budget_s))


def most_reserve_s(budget_s: float) -> float:
    """The most seconds that are kept, however slow kernels are: half of a short budget."""
    share = min(SHARE * budget_s, MOST_S)
    return min(share + MOST_S, max(share, budget_s / 2))


def is_hurried(budget_s: float, left_s: float = 0.0) -> bool:
    """Whether CONFIRMED leaves out baselines that take long, at the end of a search with this budget of which
    `left_s` seconds are left."""
    # by the reserve as well: a confirmation that goes on has the baselines that it began with
    return max(left_s, reserve_s(budget_s)) < PATIENT_S


@dataclass(frozen=True)
class Step:
    """How far a confirmation has come, in words."""

    text: str


def rounds_s(timing: Timing | None, finalists: int, hurried: bool) -> float:
    """Seconds that rounds of so many `finalists` as fast as this one need: all rounds of a small problem, the
    fewest of one whose kernels take milliseconds. `hurried`: without baselines that are too slow."""
    us = 0.0
    for one in timing.times.values() if timing is not None else ():
        left_out = slow(one.baselines_us) if hurried else {}
        us += finalists * one.median_us
        us += sum(taken for name, taken in one.baselines_us.items() if name not in left_out)
    return ROUNDS_S + FEWEST_ROUNDS * ROUND_LAUNCHES * us / 1e6


def fresh_seed() -> int:
    """A seed that nothing follows from: what the search used is not used again."""
    return random.SystemRandom().randrange(1 << 31)


def gate_request(store: Store, study: str, number: int, seed: int) -> GateRequest:
    """What the worker is asked for a finalist of the confirmation with this seed."""
    name = f"{study}/{number}"
    return name, store.trial(name).candidate, _seed(seed, "gate", number)


def _seed(seed: int, what: str, number: int) -> int:
    """Seeds of a confirmation follow from its own, which is stored."""
    return random.Random(f"{seed} {what} {number}").randrange(1 << 31)


def never(_needs_s: float) -> bool:
    """Nothing ends this confirmation early."""
    return False


def confirm(
    study: Study,
    store: Store,
    worker: ConfirmWorker,
    *,
    top: int = TOP,
    afresh: bool = False,
    over: Callable[[float], bool] = never,
    hurried: bool = False,
    watch: Callable[[Step], None] = lambda _: None,
    seed: int | None = None,
) -> Confirmation | None:
    """Confirms the `top` trials of `study`, or goes on with the confirmation that was begun.

    A finished one of the very same trials is given back as it is, unless `afresh`. `over` is asked between
    steps whether there is no time for the seconds that the next one needs; where that ends the work before
    FEWEST_ROUNDS, the confirmation stays unfinished. `hurried`: whether the worker is so. `seed`: of a new
    one (default: a fresh one). None if the study has no timed trial. Raises MachineError where the process
    dies again and again and no kernel is to blame.
    """
    contenders = store.confirmations.contenders(study, SUBSTITUTES * top)
    if not contenders:
        return None
    found = store.confirmations.newest(study)
    if found and found.status == "finished" and not afresh and _covers(found, contenders, top):
        return found
    around = worker.surroundings()
    resumable = (
        found is not None
        and (found.status, found.top, found.device) == ("running", top, around.device)
        and (found.versions, found.gpu) == (around.versions, around.gpu)
        and _head(found, contenders)
    )
    if found is None or not resumable:
        environment = store.environment(around.device, around.compiler, around.versions)
        found = store.confirmations.begin(
            study, top, fresh_seed() if seed is None else seed, environment, around.gpu
        )
    return _Confirming(found, study.ranking, store, worker, over, hurried, watch).run(contenders)


def _covers(found: Confirmation, contenders: list[int], top: int) -> bool:
    """Whether a finished confirmation is of the trials that would be confirmed now."""
    return {f.number for f in found.green} >= set(contenders[:top])


def _head(found: Confirmation, contenders: list[int]) -> bool:
    """Whether the finalists so far are the ones that would be chosen now."""
    green = [f.number for f in found.green]
    failed = {f.number for f in found.finalists} - set(green)
    return green == [number for number in contenders if number not in failed][: len(green)]


class _Confirming:
    """One run of a confirmation."""

    def __init__(
        self,
        of: Confirmation,
        ranking: str,
        store: Store,
        worker: ConfirmWorker,
        over: Callable[[float], bool],
        hurried: bool,
        watch: Callable[[Step], None],
    ) -> None:
        self._of, self._store, self._worker, self._over, self._watch = of, store, worker, over, watch
        self._ranking, self._hurried = ranking, hurried
        self._cut_short = False
        """Whether there was no time for all contenders that are to be gated."""

    def run(self, contenders: list[int]) -> Confirmation:
        self._gate(contenders)
        for protocol, count in ROUNDS.items():
            self._rounds(protocol, count)
        self._sanitize()
        return self._conclude()

    # ---- gate

    def _gate(self, contenders: list[int]) -> None:
        """The first `top` contenders that pass become finalists, if there is time for their gate and for
        rounds; once rounds are held, none joins."""
        if self._store.confirmations.rounds(self._of, "warm"):
            return
        known = {f.number for f in self._of.finalists}
        ahead = [number for number in contenders[: self._of.top] if number not in known]
        self._worker.expect([self._request(number) for number in ahead], time.time())
        for number in contenders:
            green = len(self._of.green)
            if green >= self._of.top:
                return
            gate_s = self._gate_s(number) if green and number not in known else 0.0
            if self._over(self._rounds_s(green + 1) + gate_s if green else 0.0):
                self._cut_short = True
                return
            if number not in known:
                self._watch(Step(f"gating finalist {green + 1} of {self._of.top}: #{number}"))
                self._add(number)

    def _gate_s(self, number: int) -> float:
        name, _, seed = self._request(number)
        return self._worker.gate_s(name, seed)

    def _rounds_s(self, finalists: int) -> float:
        return rounds_s(self._store.trial(self._of.green[0].name).timing, finalists, self._hurried)

    def _request(self, number: int) -> GateRequest:
        return gate_request(self._store, self._of.study, number, self._of.seed)

    def _add(self, number: int) -> None:
        confirmations = self._store.confirmations
        try:
            passed = self._worker.gate(*self._request(number), thorough=True)
        except CandidateError as error:
            self._say_refused(number, error)
            self._of = confirmations.add_finalist(self._of, number, error)
        else:
            self._of = confirmations.add_finalist(self._of, number, passed)

    def _load(self) -> None:
        """After a resume or a death: finalists pass the gate once more, quickly, before they are timed."""
        while unloaded := [f for f in self._of.green if f.name not in self._worker.loaded]:
            finalist = unloaded[0]
            candidate = self._store.trial(finalist.name).candidate
            try:
                self._worker.gate(finalist.name, candidate, self._seed("seat", finalist.number), False)
            except CandidateError as error:
                self._fell(finalist, error)

    def _fell(self, finalist: Finalist, error: CandidateError) -> None:
        """A finalist that was GREEN turned out wrong."""
        self._say_refused(finalist.number, error)
        self._of = self._store.confirmations.fell(self._of, finalist, error)

    def _say_refused(self, number: int, error: CandidateError) -> None:
        self._watch(Step(f"#{number} is refused: {error.outcome} {error.message}"))

    # ---- time

    def _rounds(self, protocol: str, count: int) -> None:
        done = len(self._store.confirmations.rounds(self._of, protocol))
        lives = LIVES
        while done < count and self._of.green and not self._over(0.0):
            self._watch(Step(f"{protocol} round {done + 1} of {count}"))
            try:
                self._load()
                names = [f.name for f in self._of.green]
                taken = self._worker.round(protocol, self._seed(protocol, done), names)
            except Fallen as fallen:
                self._fell(self._named(fallen.name), fallen.error)
            except (Hung, Crashed) as error:
                lives -= 1
                if not lives:
                    raise MachineError(
                        f"the confirm worker dies in every round: {error}", error.detail
                    ) from error
            else:
                self._store.confirmations.add_round(self._of, done, taken)
                done += 1

    def _named(self, name: str) -> Finalist:
        return next(f for f in self._of.green if f.name == name)

    def _sanitize(self) -> None:
        """Only for finalists that are timed: what it costs is better spent on rounds."""
        self._load()
        for finalist in self._of.green:
            if self._over(SANITIZE_S):
                return
            if finalist.sanitizer:
                continue
            self._watch(Step(f"asking compute-sanitizer about #{finalist.number}"))
            try:
                said = self._worker.sanitize(finalist.name)
            except CandidateError as error:
                self._fell(finalist, error)
            else:
                self._of = self._store.confirmations.sanitized(self._of, finalist, said)

    # ---- conclude

    def _conclude(self) -> Confirmation:
        """The standings, if there are rounds enough, or no finalist is correct; otherwise it stays
        unfinished."""
        confirmations = self._store.confirmations
        taken = {protocol: confirmations.rounds(self._of, protocol) for protocol in ROUNDS}
        green = [f.name for f in self._of.green]
        if len(taken["warm"]) < FEWEST_ROUNDS if green else self._cut_short:
            return self._of
        self._watch(Step("asking the profiler which kernels the baselines run"))
        skipped, kernels = (self._worker.skipped(), self._worker.kernels()) if green else ({}, {})
        found = {}
        missed = {name for rounds in taken.values() for round in rounds for name in round.baselines_us}
        for protocol, rounds in taken.items():
            in_all = set.intersection(*(set(round.baselines_us) for round in rounds)) if rounds else set()
            found[protocol] = standings(rounds, green, sorted(in_all), self._ranking)
            missed -= in_all if protocol == "warm" else set()
        missed |= kernels.keys() - found["warm"].keys()
        skipped = dict.fromkeys(missed, MISSED_ROUNDS) | dict(skipped)
        ran = {name: names for name, names in kernels.items() if name not in skipped}
        return confirmations.conclude(self._of, found, skipped, ran)

    def _seed(self, what: str, number: int) -> int:
        return _seed(self._of.seed, what, number)
