"""A parameter's value `auto`: what it stands for, for a problem and a GPU, and that a kernel has one name."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np

from evo.gpu import Gpu, Limits, target
from evo.space import Filling, Parameter, Space, auto_rules, rule, where
from evo.trial import Point, Problem

PROBLEM = Problem("attention", {"B": 1, "H": 8, "L": 512, "D": 64}, "fp16", {"causal": False})
L4, H200 = Limits.of(target("sm_89")), target("sm_90a")
BM = Parameter("bm", (16, 32, 64, 128), 64, "macro")


def parts_for(p: Any, problem: Problem, gpu: Gpu) -> Any:
    """As many parts as leave a part of L / bm tiles to each SM, 4 at most."""
    tiles = problem["L"] // p.bm
    return where(4 * tiles <= gpu.sms, 4, where(2 * tiles <= gpu.sms, 2, 1))


PARTS = Parameter("parts", (1, "auto", 2, 4), 1, auto=parts_for)
SPLIT = Space((PARTS, BM), auto_rules((PARTS,)))


def test_what_auto_stands_for_follows_from_the_point_the_problem_and_the_gpu() -> None:
    for length, bm, gpu, expected in ((512, 64, L4.gpu, 4), (2048, 64, L4.gpu, 1), (2048, 64, H200, 4)):
        problem = PROBLEM.replace(L=length)
        point: Point = {"parts": "auto", "bm": bm}
        assert SPLIT.filling(point, problem, gpu) == {"parts": expected, "bm": bm}
        columns = SPLIT.columns(SPLIT.indices_of(point)[None, :], problem, gpu)
        assert columns.parts.tolist() == [expected]
    assert SPLIT.filling({"parts": 2, "bm": 64}, PROBLEM, L4.gpu) == {"parts": 2, "bm": 64}


def test_auto_may_be_written_for_columns_alone() -> None:
    parts = replace(PARTS, auto=lambda p, problem, _gpu: np.where(problem["L"] // p.bm > 8, 1, 4))
    value = Space((parts, BM)).filling({"parts": "auto", "bm": 64}, PROBLEM, L4.gpu).parts
    assert value == 4
    assert type(value) is int


def test_rules_see_what_auto_stands_for_and_a_kernel_has_one_name() -> None:
    @rule("more than 64 pieces")
    def few(p: Any, _limits: Limits, problem: Problem) -> Any:
        return p.parts * (problem["L"] // p.bm) <= 64

    for length in (16, 512, 1024, 4096):
        problem, space = PROBLEM.replace(L=length), replace(SPLIT, rules=(*SPLIT.rules, few))
        expected = []
        for parts, bm in itertools.product(PARTS.values, map(int, BM.values)):
            point: Point = {"parts": parts, "bm": bm}
            auto = parts_for(Filling(bm=bm), problem, L4.gpu)
            value = auto if parts == "auto" else int(parts)
            allowed = parts == "auto" or parts != auto
            if allowed and value * (length // bm) <= 64:
                expected.append(point)
            why = space.why_not(point, L4, problem)
            assert why in ((None, few.reason) if allowed else ("parts=auto is the same kernel",))
        feasible = space.feasible(L4, problem)
        assert list(feasible.points) == expected
        for found in feasible.points:
            assert feasible.named(dict(space.filling(found, problem, L4.gpu))) == found


def test_a_kernel_of_another_space_keeps_its_name() -> None:
    assert SPLIT.with_auto({"parts": 1}, PROBLEM, L4.gpu) == {"parts": 1}
