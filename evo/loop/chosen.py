"""The kernels of a portfolio, chosen while its search goes on, and which of them each problem tries.

Of most kernels the time is known on a few problems. What they take on the others is expected, by a model over
points and problems. So a kernel may be chosen that few problems have tried, and a problem tries those that
are expected to be near the fastest of the chosen ones. What it meets changes what is expected, and chosen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from evo.confirm.portfolio import Times, choose
from evo.errors import NothingFound
from evo.loop.first_points import Key, key_of
from evo.loop.member import Member
from evo.loop.spaces import SearchSpace
from evo.space import Indices
from evo.strategy import AcrossProblems, Proposal

CHOSEN_FROM = 8
"""So many kernels of each problem may enter the portfolio. By one search's times 12 kernels for 200 products
lose 5.2 % if chosen from 3 of each, 5.1 from 8 or 30; those chosen without a problem lose 16 and 14 there."""
DOUBT = 1.02
"""What is expected counts as so many times as long: else kernels are chosen for luck that they have not had.
By a model of that search's times the last round has half as many trials so, and loses as little."""
NEAR = 1.1
"""A problem tries a chosen kernel that is expected to take at most so many times as long as the fastest of
the chosen ones."""


def times_of(members: Sequence[Member]) -> Times:
    """The times of the best kernels of each problem, on all problems where they were tried."""
    kept = {key_of(one) for member in members for one in member.best(CHOSEN_FROM)}
    found: dict[str, dict[str, float]] = {}
    for member in members:
        for key in kept & member.times.keys():
            found.setdefault(str(key), {})[member.name] = member.times[key]
    return Times(found)


class Chosen:
    """The `most` kernels of the best portfolio of these problems, by what is known and what is expected.
    `spaces`: one of each template that is searched, by its name; times are expected within their limits."""

    def __init__(self, members: Sequence[Member], most: int, spaces: Mapping[str, SearchSpace]) -> None:
        kernels = {key_of(one): one for member in members for one in member.best(CHOSEN_FROM)}
        names = {key: str(key) for key in kernels}
        us = {name: dict(known) for name, known in times_of(members).us.items()}
        for template, space in spaces.items():
            own = {key: one for key, one in kernels.items() if one.template == template}
            for key, problem, expected_us in expected(members, space, own):
                us[names[key]][problem] = DOUBT * expected_us
        try:
            chosen = set(choose(Times(us), most).kernels)
        except NothingFound:  # not yet: the best of each may serve the others
            ranked = sorted(members, key=lambda one: -len(one.times))
            chosen = {names[key_of(one)] for member in ranked[:most] for one in member.best(1)}
        self._us = us
        self.kernels: Mapping[Key, Proposal] = {
            key: one for key, one in kernels.items() if names[key] in chosen
        }

    def for_problem(self, member: Member, all_of_them: bool) -> list[Proposal]:
        """Those that the problem has not tried and that are expected to be near the fastest of the chosen
        ones there, or all that it has not tried."""
        us = {key: self._us[str(key)].get(member.name, math.inf) for key in self.kernels}
        bound = math.inf if all_of_them else NEAR * min(us.values(), default=math.inf)
        return [one for key, one in self.kernels.items() if us[key] <= bound and key not in member.points]


def expected(
    members: Sequence[Member], space: SearchSpace, kernels: Mapping[Key, Proposal]
) -> Iterator[tuple[Key, str, float]]:
    """Of each of the `kernels`, points of one template, and each problem that the rules allow it for and that
    has not tried it: the µs that it is expected to take there. None where too few were tried."""
    template, feasible = space.template, space.feasible
    limits = feasible.limits
    served = [
        (one, one.best_us)
        for one in members
        if one.best_us is not None and not template.supports(one.problem, limits)
    ]
    places = {key: feasible.space.located(one.point) for key, one in kernels.items()}
    tried: list[tuple[int, Indices, float]] = []
    for number, (member, best_us) in enumerate(served):
        for key in (key for key in member.times if key[0] == template.name):
            if key not in places:
                places[key] = feasible.space.located(member.points[key].point)
            if (at := places[key]) is not None:
                tried.append((number, at, member.times[key] / best_us))
    wanted = {at.tobytes(): key for key in kernels if (at := places[key]) is not None}
    if len(tried) < AcrossProblems.LEAST_TRIED or not wanted:
        return
    numbers, points, slowness = zip(*tried, strict=True)
    sets = [feasible.space.unasked(limits, one.problem) for one, _ in served]
    model = AcrossProblems(sets, np.array(numbers), np.stack(points), np.array(slowness))
    rows = np.stack([at for key in kernels if (at := places[key]) is not None])
    for number, (member, best_us) in enumerate(served):
        allowed, _ = feasible.space.sieve(rows, limits, member.problem)
        new = [at for at in allowed if wanted[at.tobytes()] not in member.points]
        if new:
            us = best_us * model.slowness(number, np.stack(new))
            for at, expected_us in zip(new, us.tolist(), strict=True):
                yield wanted[at.tobytes()], member.name, expected_us
