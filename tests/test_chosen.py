"""Which kernels a portfolio is made of while its search goes on, by known and by expected times."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from landscape import LIMITS, TASK, write_template

from evo.loop.chosen import DOUBT, NEAR, Chosen, expected
from evo.loop.first_points import key_of
from evo.loop.member import Member
from evo.loop.spaces import SearchSpace, search_spaces
from evo.strategy import AcrossProblems, Proposal
from evo.trial import Point, Problem

LENGTHS = tuple(128 * 2**i for i in range(8))
BEST = 5.0
"""Microseconds of each problem's best kernel."""


def problem(length: int, causal: bool = False) -> Problem:
    return TASK.problem(f"1,1,{length},64", causal=causal)


def slowness(point: Point, one: Problem) -> float:
    """Twice the rows for 16 times the length, one kind of columns, and `wide` under a mask."""
    rows = math.log2(point["rows"]) - 4 - math.log2(one.sizes["L"] / 128) / 4  # type: ignore[arg-type]
    columns = abs(math.log2(point["columns"]) - 5)  # type: ignore[arg-type]
    return math.exp(0.1 * abs(rows) + 0.08 * columns + 0.15 * (point["wide"] != one.flags["causal"]))


@pytest.fixture
def space(tmp_path: Path) -> SearchSpace:
    return search_spaces([write_template(tmp_path)], LIMITS, problem(128))["landscape"]


def members_of(
    space: SearchSpace, problems: list[Problem], tried: Callable[[int], Iterable[int]]
) -> list[Member]:
    """Problems that have tried the points of the space whose numbers `tried(problem)` gives."""
    found = []
    for number, one in enumerate(problems):
        member = Member(one, lambda *_: pytest.fail("no turn"))
        for i in tried(number):
            kernel = Proposal("landscape", space.feasible.points[i])
            key = key_of(kernel)
            member.points[key], member.registers[key] = kernel, None
            member.times[key] = BEST * slowness(kernel.point, one)
        member.best_us = min(member.times.values(), default=None)
        found.append(member)
    return found


def some_of(space: SearchSpace, count: int) -> Callable[[int], list[int]]:
    """So many points of each problem, drawn."""
    rng = np.random.default_rng(1)
    return lambda _: rng.permutation(len(space.feasible.points))[:count].tolist()


def loss(chosen: Chosen, members: list[Member]) -> float:
    """The logarithm of how many times as long as the best kernels of the space the chosen ones take, mean."""
    kernels = chosen.kernels.values()
    return float(np.mean([np.log(min(slowness(one.point, m.problem) for one in kernels)) for m in members]))


def test_times_on_other_problems_are_expected_from_sizes_and_flags(space: SearchSpace) -> None:
    problems = [problem(length, causal=causal) for length in LENGTHS for causal in (False, True)]
    members = members_of(space, problems, some_of(space, 40))
    kernels = {key_of(one): one for member in members for one in member.best(8)}
    found = list(expected(members, space, kernels))
    assert len(found) > 500
    by_name = {one.name: one for one in members}
    assert not any(key in by_name[name].points for key, name, _ in found), "what was tried is known"
    off = [
        math.log(us / (BEST * slowness(kernels[key].point, by_name[name].problem))) for key, name, us in found
    ]
    spread = np.std([math.log(slowness(kernels[key].point, by_name[name].problem)) for key, name, _ in found])
    assert np.std(off) < 0.35 * spread


def test_nothing_is_expected_from_few_trials_or_where_rules_refuse(space: SearchSpace) -> None:
    problems = [problem(length) for length in LENGTHS]
    few = members_of(space, problems, lambda number: [number])
    kernels = {key_of(one): one for member in few for one in member.best(1)}
    assert len(few) < AcrossProblems.LEAST_TRIED
    assert not list(expected(few, space, kernels))
    members = members_of(space, problems, some_of(space, 40))
    refused = Proposal("landscape", {**space.feasible.points[0], "rows": 128, "columns": 128})
    assert not space.feasible.contains(refused.point)
    assert not list(expected(members, space, {key_of(refused): refused}))


def test_a_kernel_that_few_have_tried_is_chosen_and_tried_where_it_is_expected_to_be_near(
    space: SearchSpace,
) -> None:
    problems = [problem(length) for length in LENGTHS]
    members = members_of(space, problems, some_of(space, 40))
    chosen = Chosen(members, 3, {"landscape": space})
    assert len(chosen.kernels) == 3
    assert loss(chosen, members) < 0.06
    assert loss(chosen, members) < 0.5 * loss(Chosen(members, 3, {}), members), "by what is known alone"
    near = {member.name: chosen.for_problem(member, all_of_them=False) for member in members}
    every = {member.name: chosen.for_problem(member, all_of_them=True) for member in members}
    counts = [sum(map(len, found.values())) for found in (near, every)]
    assert 0 < counts[0] < counts[1]
    assert counts[1] <= 3 * len(members)
    for member in members:
        fastest = min(slowness(one.point, member.problem) for one in chosen.kernels.values())
        for one in near[member.name]:
            assert key_of(one) not in member.points
            assert slowness(one.point, member.problem) < fastest * NEAR * DOUBT


def test_without_any_space_it_is_chosen_by_what_is_known(space: SearchSpace) -> None:
    problems = [problem(length) for length in LENGTHS]
    common = next(i for i, point in enumerate(space.feasible.points) if slowness(point, problems[4]) == 1.0)
    members = members_of(space, problems, lambda number: [common, number + 1])
    chosen = Chosen(members, 1, {})
    assert [one.point for one in chosen.kernels.values()] == [space.feasible.points[common]], "it serves all"


def test_equal_points_take_as_long_on_a_problem_as_its_trials_say(space: SearchSpace) -> None:
    """The process is asked for a point that it has seen, on the same problem and on a far one."""
    sets = [space.feasible.space.unasked(LIMITS, problem(length)) for length in LENGTHS]
    points = space.feasible.indices
    number = np.repeat(np.arange(len(sets)), len(points))
    every = np.tile(points, (len(sets), 1))
    true = np.array([slowness(space.feasible.space.point_at(at), s.problem) for s in sets for at in points])
    model = AcrossProblems(sets, number, every, true)
    for place in (0, len(sets) - 1):
        told = model.slowness(place, points)
        own = true[number == place]
        assert np.corrcoef(told, own)[0, 1] > 0.95
        assert (told >= 1.0).all()
