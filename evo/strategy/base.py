"""What every strategy shares: proposals, and the guarantee that they are feasible, new, and repeatable."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from evo.space import FeasibleSet
from evo.strategy.candidates import Field, Positions
from evo.trial import Point


@dataclass(frozen=True)
class Proposal:
    """What to try: a template and a point of its space."""

    template: str
    point: Point


@dataclass(frozen=True, slots=True)
class Told:
    """A finished trial, as a strategy hears of it. `score_us` is to be made small; None: not correct."""

    template: str
    point: Point
    score_us: float | None


class Strategy(ABC):
    """Base of all strategies: keeps the histories, refuses what is infeasible or known, notices the end.

    `spaces`: the feasible points by template. A strategy says which template (`_choose`; all alike unless it
    knows better) and which point it wishes for (`_wish`); the point may be infeasible or known.

    `earlier`: trials of other studies (another shape, another GPU), the best of which are tried first.
    """

    name: ClassVar[str]
    WISHES: ClassVar[int] = 2
    """How often a sampler may wish before its last wish is moved to the nearest open point."""

    HEIRLOOMS = 8
    """Of the earlier trials, so many are tried first."""
    SHARE = 20
    """One question in so many goes to a template at random, so that none is given up for a bad start."""
    KEENNESS = 4
    """A template whose best takes twice as long as the best of all is drawn 2^-KEENNESS times as often: a
    TPE over templates gave the slowest two, 5x and 10x off, a fifth of a short search."""

    expected_gain: float | None = None
    """By what part of the best time the last proposal is expected to better it; None: not known."""

    def __init__(self, spaces: Mapping[str, FeasibleSet], seed: int, earlier: Sequence[Told] = ()) -> None:
        self._spaces = spaces
        self._earlier = earlier
        self._seed = seed
        self._last: Told | None = None
        self._places: dict[int, tuple[Proposal, Positions | None]] = {}
        """Of what is under way, by identity: the proposal (so that it lives) and where it is."""
        self._reset()

    def ask(self, told: Sequence[Told], pending: Sequence[Proposal], number: int) -> Proposal | None:
        """The proposal for trial `number`; None when no untried feasible point is left."""
        self._learn(told)
        # the same proposals are under way question after question
        places = {id(p): self._places.get(id(p)) or (p, self._place(p)) for p in pending}
        self._places = places
        for name, field in self._fields.items():
            field.occupy([at for p, at in places.values() if at is not None and p.template == name])
        try:
            rng = np.random.default_rng([self._seed % 2**63, number])
            fields = [field for field in self._fields.values() if field.open_count]
            if not fields:
                return None
            field, positions = self._next(fields, rng, number)
            return Proposal(field.template, field.space.point_at(positions))
        finally:
            for field in self._fields.values():
                field.vacate()

    def _next(self, fields: list[Field], rng: np.random.Generator, number: int) -> tuple[Field, Positions]:
        for name, heirloom in self._heirlooms:
            field = self._fields[name]
            if field.open_count and field.is_open(heirloom):
                return field, heirloom
        field = self._choose(fields, rng, number)
        refused: list[Positions] = []
        for _ in range(self.WISHES):
            wish = self._wish(field, rng, refused)
            if wish is None:
                return field, field.anything(rng)
            if field.is_open(wish):
                return field, wish
            refused.append(wish)
        return field, field.nearest(refused[-1], rng)

    def _choose(self, fields: list[Field], rng: np.random.Generator, number: int) -> Field:  # noqa: ARG002
        """One of `fields`, the templates that have open points."""
        return fields[int(rng.integers(len(fields)))]

    def _by_best(self, fields: list[Field], rng: np.random.Generator, number: int) -> Field:
        """One of `fields` by how near its best trial comes to the best of all, now and then any."""
        if len(fields) == 1 or number % self.SHARE == 0:
            return fields[int(rng.integers(len(fields)))]
        scores = [field.best(1)[0][0] if field.best(1) else None for field in fields]
        best = min((score for score in scores if score is not None), default=1.0)
        hopes = [
            1 / (1 + len(field.tried)) if score is None else (best / score) ** self.KEENNESS
            for field, score in zip(fields, scores, strict=True)
        ]
        return fields[int(rng.choice(len(fields), p=np.array(hopes) / sum(hopes)))]

    def _place(self, proposal: Proposal) -> Positions | None:
        field = self._fields.get(proposal.template)
        return field.locate(proposal.point) if field else None

    @abstractmethod
    def _wish(self, field: Field, rng: np.random.Generator, refused: list[Positions], /) -> Positions | None:
        """The point to try in `field`; None: any. `refused`: wishes of this question that were not open."""

    @cached_property
    def _heirlooms(self) -> list[tuple[str, Positions]]:
        """The best of the earlier trials that are feasible here, with their templates."""
        fields = {name: Field(name, feasible) for name, feasible in self._spaces.items()}
        for trial in self._earlier:
            if trial.template in fields and trial.score_us is not None:
                fields[trial.template].learn(trial.point, trial.score_us, feasible_only=True)
        best = [(score, name, p) for name, f in fields.items() for score, p in f.best(self.HEIRLOOMS)]
        best.sort(key=lambda entry: (entry[0], entry[1], entry[2].tolist()))
        return [(name, p) for _, name, p in best[: self.HEIRLOOMS]]

    def _learn(self, told: Sequence[Told]) -> None:
        """Takes in what is new. `told` only ever grows; anything else is learnt from the start."""
        if len(told) < self._learnt or (self._learnt and told[self._learnt - 1] is not self._last):
            self._reset()
        for trial in told[self._learnt :]:
            if trial.template in self._fields:
                self._take_in(trial)
            self._learnt += 1
            self._last = trial

    def _take_in(self, trial: Told) -> None:
        self._fields[trial.template].learn(trial.point, trial.score_us)

    def _reset(self) -> None:
        self._fields = {name: Field(name, feasible) for name, feasible in self._spaces.items()}
        self._learnt = 0
        self._last = None
