"""Kernels and baselines side by side over shapes: a table for people who ask how it does elsewhere.

An entrant is a champion's source, or a stored trial's point, rendered for each problem that its template
can serve. Every one passes the thorough gate there; rounds and standings are those of CONFIRMED (warm), but
nothing is stored.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from evo.confirm.rounds import Fallen
from evo.confirm.worker import ConfirmWorker
from evo.errors import CandidateError, Infeasible, UsageError
from evo.gpu import Limits
from evo.template import Template
from evo.timing.statistics import FEWEST_ROUNDS, standings
from evo.trial import Candidate, Problem, Round, Standing, Value


@dataclass(frozen=True)
class Entrant:
    """What takes part: its candidate for a problem (Infeasible where it cannot serve it), and where it comes
    from."""

    candidate: Callable[[Problem], Candidate]
    origin: str = ""


@dataclass(frozen=True)
class Sheet:
    """One problem: standings of entrants and baselines by name, where the entrants come from, what could not
    take part and why, and which kernels the baselines ran."""

    problem: str
    shape: str
    flags: Mapping[str, Value]
    device: str
    rounds: int
    entrants: tuple[str, ...]
    origins: Mapping[str, str]
    standings: Mapping[str, Standing]
    absent: Mapping[str, str]
    kernels: Mapping[str, Sequence[str]]
    clocks: Mapping[str, float]
    versions: Mapping[str, str]

    @property
    def baselines(self) -> dict[str, Standing]:
        return {name: s for name, s in self.standings.items() if name not in self.entrants}


def rendered(template: Template, stored: Candidate, limits: Limits, origin: str = "") -> Entrant:
    """The point of a stored candidate, for any problem; the stored source itself for its own."""

    def candidate_for(problem: Problem) -> Candidate:
        if problem.key == stored.problem.key:
            return stored
        if reason := template.supports(problem, limits):
            raise Infeasible(reason)
        try:
            point = template.space.completed(stored.point)
            point = template.space.with_auto(point, problem, limits.gpu)
        except UsageError as error:
            raise Infeasible(f"a point of an older state of its template: {error.message}") from error
        if reason := template.space.why_not(point, limits, problem):
            raise Infeasible(reason)
        return template.candidate(point, problem)

    return Entrant(candidate_for, origin)


def bench(
    problems: Sequence[Problem],
    entrants: Callable[[Problem], Mapping[str, Entrant]],
    worker_for: Callable[[Problem], ConfirmWorker],
    rounds: int = FEWEST_ROUNDS,
    watch: Callable[[str], None] = lambda _: None,
) -> list[Sheet]:
    """A sheet for each problem, with its entrants by names that contain a slash. Raises MachineError, and
    Hung or Crashed where a process is lost and no kernel is to blame."""
    sheets = []
    for problem in problems:
        with closing(worker_for(problem)) as worker:
            sheets.append(_sheet(problem, entrants(problem), worker, rounds, watch))
    return sheets


def _sheet(
    problem: Problem,
    entrants: Mapping[str, Entrant],
    worker: ConfirmWorker,
    rounds: int,
    watch: Callable[[str], None],
) -> Sheet:
    seed = random.SystemRandom().randrange(1 << 30)
    absent: dict[str, str] = {}
    programs: dict[str, str] = {}
    for name, entrant in entrants.items():
        watch(f"{problem.key}: gating {name}")
        try:
            candidate = entrant.candidate(problem)
            if (twin := programs.setdefault(candidate.program, name)) != name:
                absent[name] = f"the same program as {twin}"
                continue
            worker.gate(name, candidate, seed, True)
        except CandidateError as error:
            absent[name] = f"{error.outcome}: {error.reason}"
    names = [name for name in entrants if name not in absent]
    taken: list[Round] = []
    while len(taken) < rounds:
        watch(f"{problem.key}: round {len(taken) + 1} of {rounds}")
        try:
            taken.append(worker.round("warm", seed + len(taken), names))
        except Fallen as fallen:
            absent[fallen.name] = f"{fallen.error.outcome}: {fallen.error.reason}"
            names.remove(fallen.name)
    around = worker.surroundings()
    baselines = sorted(set.intersection(*(set(r.baselines_us) for r in taken)))
    return Sheet(
        problem.key,
        problem.shape,
        dict(problem.flags),
        around.device,
        rounds,
        tuple(names),
        {name: entrants[name].origin for name in names},
        standings(taken, names, baselines),
        absent | dict(worker.skipped()),
        worker.kernels(),
        taken[-1].clocks,
        around.versions,
    )
