"""What every strategy must do, whatever it does besides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from evo.gpu import Limits, target
from evo.space import FeasibleSet, Parameter, Space, rule
from evo.strategy import Observation, Proposal, Strategy
from evo.trial import Problem

LIMITS = Limits.of(target("sm_89"))
PROBLEM = Problem("toy", {"L": 512}, "fp16")


@rule("tile above 4096")
def small_tile(p: Any, _limits: Limits, _problem: Problem) -> Any:
    return p.bm * p.bn <= 4096


@rule("swizzle of an odd stage count")
def even_stages(p: Any, _limits: Limits, _problem: Problem) -> Any:
    return (p.swizzle != "xor") | (p.stages % 2 == 0)


LARGE = Space(
    (
        Parameter("bm", (16, 32, 64, 128), 64),
        Parameter("bn", (16, 32, 64, 128), 64),
        Parameter("stages", (1, 2, 3, 4), 2),
        Parameter("swizzle", ("none", "pad", "xor"), "none"),
        Parameter("direct", (False, True), False),
        Parameter("fixed", (7,), 7),
        Parameter("mixed", (0, True, "auto"), 0),
    ),
    (small_tile, even_stages),
)
SMALL = Space((Parameter("bm", (16, 32, 64), 16), Parameter("bn", (16, 32, 64, 128), 16)), (small_tile,))
TINY = Space((Parameter("bm", (16, 32), 16), Parameter("bn", (16,), 16)))


class StrategyTests:
    """Set `strategy`, a class with the constructor of `Strategy`: (spaces, seed, earlier)."""

    strategy: ClassVar[type[Strategy]]

    def spaces(self, *chosen: Space) -> dict[str, FeasibleSet]:
        return {f"t{i}": space.feasible(LIMITS, PROBLEM) for i, space in enumerate(chosen)}

    def score(self, proposal: Proposal) -> float | None:
        """The second template is the better one; a swizzle of xor fails; else larger tiles are faster."""
        p = proposal.point
        if p.get("swizzle") == "xor":
            return None
        work = math.log2(float(p.get("bm", 1)) * float(p.get("bn", 1)))
        return (10 if proposal.template == "t0" else 9) - work / 2

    def searched(
        self, strategy: Strategy, count: int, start: Sequence[Observation] = ()
    ) -> list[Observation]:
        """The trials of a search of up to `count` trials, one at a time."""
        history = list(start)
        while len(history) < count:
            proposal = strategy.ask(history, [], len(history))
            if proposal is None:
                break
            history.append(Observation(proposal.template, proposal.point, self.score(proposal)))
        return history

    @staticmethod
    def key(proposal: Proposal | Observation) -> tuple[object, ...]:
        return proposal.template, repr(sorted(proposal.point.items()))

    def test_proposes_only_feasible_points_and_none_twice(self) -> None:
        spaces = self.spaces(SMALL, LARGE)
        history = self.searched(self.strategy(spaces, 0), 250)
        assert len(history) == 250
        assert all(spaces[seen.template].contains(seen.point) for seen in history)
        assert len({self.key(seen) for seen in history}) == 250

    def test_proposes_nothing_that_is_under_way(self) -> None:
        strategy = self.strategy(self.spaces(SMALL), 0)
        history = self.searched(strategy, 4)
        pending: list[Proposal] = []
        while (proposal := strategy.ask(history, pending, len(history) + len(pending))) is not None:
            pending.append(proposal)
        both: list[Proposal | Observation] = [*history, *pending]
        assert len({self.key(one) for one in both}) == 11, "eleven points are feasible"
        again = strategy.ask(history, pending[1:], 99)
        assert again is not None
        assert self.key(again) == self.key(pending[0]), "what is no longer under way is open again"

    def test_ends_when_everything_is_tried(self) -> None:
        strategy = self.strategy(self.spaces(SMALL, TINY), 3)
        history = self.searched(strategy, 1000)
        assert len(history) == 13
        assert strategy.ask(history, [], 13) is None
        assert strategy.ask(history[:-1], [], 13) is not None

    def test_is_a_pure_function_of_history_and_number(self) -> None:
        spaces = self.spaces(SMALL, LARGE)
        known = self.searched(self.strategy(spaces, 7), 40)
        fresh, used = self.strategy(spaces, 7), self.strategy(spaces, 7)
        self.searched(used, 60)
        for number in (40, 41, 55):
            one, other = fresh.ask(known, [], number), used.ask(known, [], number)
            assert one is not None
            assert other is not None
            assert self.key(one) == self.key(other)

    @pytest.mark.parametrize("seed", [0, 2**40])
    def test_equal_seeds_give_equal_searches(self, seed: int) -> None:
        spaces = self.spaces(LARGE)
        one, same = (self.searched(self.strategy(spaces, seed), 60) for _ in range(2))
        assert [self.key(seen) for seen in one] == [self.key(seen) for seen in same]

    def test_a_search_that_only_fails_goes_on(self) -> None:
        strategy = self.strategy(self.spaces(SMALL), 1)
        history: list[Observation] = []
        while (proposal := strategy.ask(history, [], len(history))) is not None:
            history.append(Observation(proposal.template, proposal.point, None))
        assert len(history) == 11

    def test_learns_from_an_earlier_study(self) -> None:
        """Points of another study are no trials of this one: they may be proposed again."""
        spaces = self.spaces(LARGE)
        earlier = self.searched(self.strategy(spaces, 5), 60)
        warm = self.searched(self.strategy(spaces, 6, earlier), 40)
        assert len({self.key(seen) for seen in warm}) == 40
        assert all(spaces[seen.template].contains(seen.point) for seen in warm)
