"""What every strategy shares: its proposals are feasible, new and repeatable."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from evo.space import FeasibleSet
from evo.strategy.candidates import Candidates, Positions
from evo.strategy.observation import Observation, times_behind
from evo.strategy.threads import one_thread
from evo.strategy.warm_points import WarmStartPoints
from evo.trial import Point


@dataclass(frozen=True)
class Proposal:
    """What to try: a template and a point of its space."""

    template: str
    point: Point


class Strategy(ABC):
    """Base of all strategies. It keeps the history of each template, refuses points that are infeasible or
    known, and notices when no point is left.

    `spaces`: the feasible points by template. A subclass chooses the template (`_choose`; by default all are
    equally likely) and suggests a point of it (`_suggest`), which may be infeasible or known.

    `closed`: points that are not proposed, and of which nothing is known.

    `earlier`: trials of other studies (another shape, another GPU). The best of them are tried in turns with
    the strategy's own points, as long as they are better than these.
    """

    name: ClassVar[str]
    SUGGESTIONS: ClassVar[int] = 2
    """How often a sampler is asked before its last suggestion is moved to the nearest open point."""

    RANDOM_TEMPLATE_EVERY = 20
    """One question in so many goes to a random template, so that no template is given up after a bad
    start."""
    TEMPLATE_EXPONENT = 4
    """A template whose best takes twice as long as the best of all is drawn 2^-TEMPLATE_EXPONENT times as
    often. A TPE over templates spent a fifth of a short search on the slowest two, 5x and 10x off."""
    TEMPLATE_TRIALS = 8
    """With each so many trials of a template the exponent grows by as much again: what many of its points did
    not make fast, few will. In replays of two attention spaces 13 of 24 cold searches came within 2 % of the
    best in 200 trials with one exponent for all, and 19 with this; with 2, 4 and 32 there were 16, 17, 14."""
    MOST_SURE = 4
    """The exponent grows by so many times itself at most: one that is a hundredth behind may still win."""

    expected_gain: float | None = None
    """By what part of the best time the last proposal is expected to improve on it; None: not known."""

    def __init__(
        self,
        spaces: Mapping[str, FeasibleSet],
        seed: int,
        earlier: Sequence[Observation] = (),
        closed: Sequence[Proposal] = (),
    ) -> None:
        self._spaces = spaces
        self._closed = closed
        self._earlier = earlier
        self._behind = times_behind(earlier)
        self._seed = seed
        self._last: Observation | None = None
        self._warm_start_points = WarmStartPoints([])  # none before the candidates are there
        self._pending: dict[int, tuple[Proposal, Positions | None]] = {}
        """What is under way, by identity: the proposal (so that it stays alive) and its positions."""
        self._reset()
        self._warm_start_points = WarmStartPoints.of(self._candidates, earlier)

    def ask(
        self, history: Sequence[Observation], pending: Sequence[Proposal], number: int
    ) -> Proposal | None:
        """The proposal for trial `number`; None when no untried feasible point is left."""
        with one_thread():
            return self._ask(history, pending, number)

    def _ask(
        self, history: Sequence[Observation], pending: Sequence[Proposal], number: int
    ) -> Proposal | None:
        self._update(history)
        # the same proposals are under way question after question
        self._pending = {id(p): self._pending.get(id(p)) or (p, self._locate(p)) for p in pending}
        for name, candidates in self._candidates.items():
            candidates.mark_pending(
                [at for p, at in self._pending.values() if at is not None and p.template == name]
            )
        try:
            rng = np.random.default_rng([self._seed % 2**63, number])
            with_open = [candidates for candidates in self._candidates.values() if candidates.open_count]
            if not with_open:
                return None
            chosen, positions = self._next(with_open, rng, number)
            return Proposal(chosen.template, chosen.space.point_at(positions))
        finally:
            for candidates in self._candidates.values():
                candidates.clear_pending()

    def _next(
        self, with_open: list[Candidates], rng: np.random.Generator, number: int
    ) -> tuple[Candidates, Positions]:
        under_way = [(p.template, at) for p, at in self._pending.values() if at is not None]
        if (warm := self._warm_start_points.next(self._candidates, under_way)) is not None:
            return warm
        candidates = self._choose(with_open, rng, number)
        refused: list[Positions] = []
        for _ in range(self.SUGGESTIONS):
            suggestion = self._suggest(candidates, rng, refused)
            if suggestion is None:
                return candidates, candidates.any_open(rng)
            if candidates.is_open(suggestion):
                return candidates, suggestion
            refused.append(suggestion)
        return candidates, candidates.nearest_open(refused[-1], rng)

    def _choose(
        self,
        with_open: list[Candidates],
        rng: np.random.Generator,
        number: int,  # noqa: ARG002
    ) -> Candidates:
        """One of the templates that have open points."""
        return with_open[int(rng.integers(len(with_open)))]

    def _choose_by_best(
        self, with_open: list[Candidates], rng: np.random.Generator, number: int
    ) -> Candidates:
        """One of the templates, the more likely the nearer its best trial is to the best of all; now and then
        any of them. Of one that has none, earlier studies say how near it may be."""
        if len(with_open) == 1 or number % self.RANDOM_TEMPLATE_EVERY == 0:
            return with_open[int(rng.integers(len(with_open)))]
        scores = [each.best(1)[0][0] if each.best(1) else None for each in with_open]
        best = min((score for score in scores if score is not None), default=1.0)
        weights = [
            self._untried_weight(each) if score is None else (best / score) ** self._exponent(each)
            for each, score in zip(with_open, scores, strict=True)
        ]
        return with_open[int(rng.choice(len(with_open), p=np.array(weights) / sum(weights)))]

    def _exponent(self, candidates: Candidates) -> float:
        sure = min(len(candidates.tried) / self.TEMPLATE_TRIALS, self.MOST_SURE)
        return self.TEMPLATE_EXPONENT * (1 + sure)

    def _untried_weight(self, candidates: Candidates) -> float:
        """Of a template without a correct trial."""
        behind = self._behind.get(candidates.template, 1.0)
        return behind**-self.TEMPLATE_EXPONENT / (1 + len(candidates.tried))

    def _locate(self, proposal: Proposal) -> Positions | None:
        candidates = self._candidates.get(proposal.template)
        return candidates.locate(proposal.point) if candidates else None

    @abstractmethod
    def _suggest(
        self, candidates: Candidates, rng: np.random.Generator, refused: list[Positions], /
    ) -> Positions | None:
        """The point to try; None: any. `refused`: suggestions for this question that were not open."""

    def _update(self, history: Sequence[Observation]) -> None:
        """Takes in the new observations. `history` only ever grows; a different one is read from its
        start."""
        if len(history) < self._observed or (
            self._observed and history[self._observed - 1] is not self._last
        ):
            self._reset()
        for trial in history[self._observed :]:
            if trial.template in self._candidates:
                at = self._candidates[trial.template].observe(trial.point, trial.score_us, trial.registers)
                if at is not None:
                    self._warm_start_points.observe(trial.template, at, trial.score_us)
            self._observed += 1
            self._last = trial

    def _reset(self) -> None:
        self._candidates = {name: Candidates(name, feasible) for name, feasible in self._spaces.items()}
        for proposal in self._closed:
            if proposal.template in self._candidates:
                self._candidates[proposal.template].close(proposal.point)
        self._warm_start_points.reset()
        self._observed = 0
        self._last = None
