"""What every strategy shares: proposals, and the guarantee that they are feasible, new, and repeatable."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from evo.space import FeasibleSet
from evo.strategy.field import Field, Positions
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
    """

    name: ClassVar[str]
    WISHES: ClassVar[int] = 2
    """How often a sampler may wish before its last wish is moved to the nearest open point."""

    def __init__(self, spaces: Mapping[str, FeasibleSet], seed: int) -> None:
        self._spaces = spaces
        self._seed = seed
        self._last: Told | None = None
        self._reset()

    def ask(self, told: Sequence[Told], pending: Sequence[Proposal], number: int) -> Proposal | None:
        """The proposal for trial `number`; None when no untried feasible point is left."""
        self._learn(told)
        for proposal in pending:
            if proposal.template in self._fields:
                self._fields[proposal.template].occupy(proposal.point)
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

    @abstractmethod
    def _wish(self, field: Field, rng: np.random.Generator, refused: list[Positions], /) -> Positions | None:
        """The point to try in `field`; None: any. `refused`: wishes of this question that were not open."""

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
