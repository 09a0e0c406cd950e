"""A problem of a search for many: its study, its space while it has its turn, and what is known of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from evo.errors import UsageError
from evo.loop.first_points import Key, key_of
from evo.loop.spaces import SearchSpace
from evo.loop.waves import wave_factors
from evo.store import Store, TrialRow
from evo.strategy import Proposal
from evo.study import Study
from evo.trial import Problem

LOOKED_AT = 16
"""So many of the best kernels of another problem are looked at."""


@dataclass
class Member:
    """A problem of the search: its study, from its first turn on, its space while it has a turn, and how its
    turns went."""

    problem: Problem
    open: Callable[[Collection[str], bool], tuple[Study, Mapping[str, SearchSpace]]]
    """Opens the problem's study, or makes one, and gives it with its search spaces; these have no points at
    hand where it is told False, for it takes a while to find them. A new study leaves out the templates that
    are named, unless no others are left. UsageError where no template serves."""
    study: Study | None = None
    """None before its first turn."""
    spaces: Mapping[str, SearchSpace] = field(default_factory=dict)
    """Between its turns it may have no points at hand: those of hundreds of problems fill the memory."""
    turns: int = 0
    gain: float = math.inf
    """By what factor the last turn made the best kernel faster; infinite before the first one."""
    over: bool = False
    """Whether nothing is left to try, or no kernel of it is ever right."""
    refused: str = ""
    """Why it has no more turns at all: it does not fit in memory."""
    unserved: UsageError | None = None
    """Why it was not searched: no template serves it."""
    best_us: float | None = None
    times: dict[Key, float] = field(default_factory=dict)
    """Of each correct kernel the time here, in microseconds."""
    points: dict[Key, Proposal] = field(default_factory=dict)
    """What was tried, correct or not."""
    registers: dict[Key, int | None] = field(default_factory=dict)
    """Of what was tried: registers a thread."""

    @property
    def name(self) -> str:
        return self.problem.key

    @property
    def spent_s(self) -> float:
        return self.study.spent_s if self.study else 0.0

    def begin(self, without: Collection[str] = (), points: bool = True) -> Study:
        """Its turn begins: the study, and its space is there. `without`, `points`: see `open`."""
        if self.study is None or not self.spaces or (points and not self.nbytes):
            found, self.spaces = self.open(without, points)
            self.study = self.study or found  # what is known here is newer
        return self.study

    @property
    def nbytes(self) -> int:
        """Of the points at hand."""
        return sum(space.feasible.indices.nbytes for space in self.spaces.values())

    def let_go(self) -> None:
        """Of its points."""
        self.spaces = {
            name: replace(space, feasible=space.feasible.without_points)
            for name, space in self.spaces.items()
        }

    def refuse(self, why: str) -> None:
        """It has no more turns; the others go on."""
        self.over, self.refused = True, why

    def look(self, store: Store) -> None:
        """Takes in what the database has of its study."""
        assert self.study is not None
        self.study = store.study(self.study.name)
        self.times.clear()
        self.best_us = None
        for row in store.rows(self.study):
            self.take(row)

    def take(self, row: TrialRow) -> None:
        """Takes in a trial of its study."""
        proposal = Proposal(row.template, row.point)
        key = key_of(proposal)
        self.points[key], self.registers[key] = proposal, row.registers
        if row.score_us is not None:
            self.times[key] = min(row.score_us, self.times.get(key, math.inf))
            self.best_us = min(row.score_us, self.best_us or math.inf)

    def slowness(self, template: str) -> float | None:
        """How many times as long the template's best kernel takes as the best of all; None where it has no
        correct one."""
        own = [us for key, us in self.times.items() if key[0] == template]
        return min(own) / self.best_us if own and self.best_us else None

    def best(self, count: int) -> list[Proposal]:
        return [self.points[key] for key in sorted(self.times, key=self.times.__getitem__)[:count]]

    def promising(self, other: Member, count: int) -> list[Proposal]:
        """Of the best kernels of another problem those that promise most here: by their times there, and by
        how their CTAs fill the SMs there and here."""
        known = other.best(LOOKED_AT)
        gpu = other.study.gpu if other.study else ""
        feasible = {name: space.feasible for name, space in self.spaces.items()}
        registers = [other.registers[key_of(one)] for one in known]
        factors = wave_factors(known, registers, other.problem, gpu, feasible)
        expected = [other.times[key_of(one)] * factor for one, factor in zip(known, factors, strict=True)]
        return [known[i] for i in sorted(range(len(known)), key=expected.__getitem__)[:count]]

    def only(self, proposals: Sequence[Proposal]) -> dict[str, SearchSpace]:
        """The space of these feasible points alone."""
        found = {}
        for name, space in self.spaces.items():
            points = [space.feasible.space.indices_of(one.point) for one in proposals if one.template == name]
            if points:
                few = replace(space.feasible, indices=np.array(points))
                found[name] = replace(space, feasible=few)
        return found

    def untried(self, proposals: Sequence[Proposal]) -> list[Proposal]:
        """Those that are feasible here and were not tried."""
        named = [
            replace(one, point=self.spaces[one.template].feasible.named(one.point))
            for one in proposals
            if one.template in self.spaces
        ]
        return [
            one
            for one in {key_of(one): one for one in named}.values()
            if key_of(one) not in self.points and self.spaces[one.template].feasible.contains(one.point)
        ]
