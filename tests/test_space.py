"""Spaces: what a rule rejects, a point is told, a set counts, all agree with plain Python loops."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evo.errors import BadTemplate, UsageError
from evo.gpu import Limits, target
from evo.space import MOST_POINTS, Parameter, ResourceModels, Rule, Space, hardware_rules, rule
from evo.trial import Problem

PROBLEM = Problem("attention", {"B": 1, "H": 8, "L": 512, "D": 64}, "fp16", {"causal": False})
L4 = Limits.of(target("sm_89"))

BM = Parameter("bm", (16, 32, 64, 128), 64, "macro")
BN = Parameter("bn", (128, 16, 64), 64)
SWIZZLE = Parameter("swizzle", ("xor", "pad", "none"), "xor", off="none")
EARLY = Parameter("early", (False, True), True)


@rule("tile of more than 8192 elements")
def small_tile(p: Any, _limits: Limits, _problem: Problem) -> Any:
    return p.bm * p.bn <= 8192


@rule("padding wants tiles of 64 keys and more, not the {problem[L]} at hand")
def padded(p: Any, _limits: Limits, _problem: Problem) -> Any:
    return (p.swizzle != "pad") | (p.bn >= 64)


@rule("early start with 16 rows")
def early(p: Any, _limits: Limits, _problem: Problem) -> Any:
    return ~(p.early & (p["bm"] == 16))


SPACE = Space((BM, BN, SWIZZLE, EARLY), (small_tile, padded, early))


def test_points_are_counted_under_the_first_rule_that_rejects_them() -> None:
    feasible = SPACE.feasible(L4, PROBLEM)
    expected = {"tile of more than 8192 elements": 0, "early start with 16 rows": 0}
    expected["padding wants tiles of 64 keys and more, not the 512 at hand"] = 0
    points = []
    for bm, bn, swizzle, first in itertools.product(*(p.values for p in SPACE.parameters)):
        assert isinstance(bm, int)
        assert isinstance(bn, int)
        if bm * bn > 8192:
            expected["tile of more than 8192 elements"] += 1
        elif swizzle == "pad" and bn < 64:
            expected["padding wants tiles of 64 keys and more, not the 512 at hand"] += 1
        elif first and bm == 16:
            expected["early start with 16 rows"] += 1
        else:
            points.append({"bm": bm, "bn": bn, "swizzle": swizzle, "early": first})
    assert feasible.rejected == expected
    assert list(feasible.points) == points
    assert feasible.count == len(points) < feasible.size == SPACE.size == 72
    assert feasible.exact


def test_a_single_point_gets_the_reason_that_it_is_counted_under() -> None:
    feasible = SPACE.feasible(L4, PROBLEM)
    counted = dict.fromkeys(feasible.rejected, 0)
    for values in itertools.product(*(p.values for p in SPACE.parameters)):
        point = dict(zip(("bm", "bn", "swizzle", "early"), values, strict=True))
        why = SPACE.why_not(point, L4, PROBLEM)
        assert feasible.contains(point) == (why is None) == (point in list(feasible.points))
        if why is not None:
            counted[why] += 1
    assert counted == feasible.rejected


def test_values_come_back_as_they_were_declared() -> None:
    point = SPACE.feasible(L4, PROBLEM).points[0]
    assert {name: type(value) for name, value in point.items()} == {
        "bm": int,
        "bn": int,
        "swizzle": str,
        "early": bool,
    }


def test_a_point_of_fewer_parameters_is_completed_by_defaults() -> None:
    older = Parameter("tile", (32, 64), 64)
    newer = Space((older, Parameter("waits", ("free", "held"), "free")))
    assert newer.completed({"tile": 32}) == {"tile": 32, "waits": "free"}
    with pytest.raises(UsageError, match="point without waits"):
        newer.parse({"tile": 32})
    with pytest.raises(UsageError, match="stages"):
        newer.completed({"tile": 32, "stages": 2})


def test_neighbours_of_numbers_are_adjacent_in_value_not_in_order_of_declaration() -> None:
    assert BN.neighbours(64) == (16, 128)
    assert BN.neighbours(128) == (64,)
    assert SWIZZLE.neighbours("pad") == ("xor", "none")
    assert EARLY.neighbours(True) == (False,)
    around = list(SPACE.neighbours(SPACE.default))
    assert len(around) == 2 + 2 + 2 + 1
    for point in around:
        assert sum(point[name] != SPACE.default[name] for name in point) == 1


def test_parse_takes_values_and_their_text_and_refuses_the_rest() -> None:
    assert SPACE.parse({"early": "true", "bm": "64", "bn": 16, "swizzle": "XOR"}) == {
        "bm": 64,
        "bn": 16,
        "swizzle": "xor",
        "early": True,
    }
    assert list(SPACE.parse({"early": True, "bm": 64, "bn": 16, "swizzle": "xor"})) == [
        "bm",
        "bn",
        "swizzle",
        "early",
    ]
    for wrong in ({"bm": 65}, {"bm": True}, {"early": 1}, {"swizzle": "XORR"}, {"what": 1}):
        with pytest.raises(UsageError):
            SPACE.parse({**SPACE.default, **wrong})
    with pytest.raises(UsageError, match="without bn, early"):
        SPACE.parse({"bm": 64, "swizzle": "xor"})


def test_true_and_one_are_different_values() -> None:
    both = Parameter("x", (0, 1, False, True), 1)
    space = Space((both,), ())
    assert [type(p["x"]) for p in space.feasible(L4, PROBLEM).points] == [int, int, bool, bool]
    assert [int(space.indices_of({"x": v})[0]) for v in both.values] == [0, 1, 2, 3]
    assert both.parse(True) is True


@pytest.mark.parametrize(
    "broken",
    [
        {"name": "2bm"},
        {"name": "keys"},
        {"name": "b m"},
        {"values": ()},
        {"values": (64, 64)},
        {"default": 48},
        {"off": 3},
        {"values": ("a\nb",), "default": "a\nb"},
        {"auto": lambda _p, _problem, _gpu: 64},
        {"values": ("auto", 64, 1.5), "auto": lambda _p, _problem, _gpu: 64},
        {"values": ('"',), "default": '"'},
        {"values": (64, "wide"), "most": lambda _p, _problem, _gpu: 64},
    ],
)
def test_malformed_parameters_are_refused(broken: dict[str, Any]) -> None:
    with pytest.raises(BadTemplate):
        Parameter(**{"name": "bm", "values": (64, 128), "default": 64, **broken})


def test_a_parameter_declared_twice_is_refused() -> None:
    with pytest.raises(BadTemplate, match="twice"):
        Space((BM, BM))


def _space_with(allowed: Any, reason: str = "no") -> Space:
    return Space((BM,), (Rule(allowed, reason),))


@pytest.mark.parametrize(
    ("allowed", "message"),
    [
        (lambda p, _l, _q: p.bm > 16 and p.bm < 99, "ambiguous"),
        (lambda p, _l, _q: p.bq > 16, "no parameter bq"),
        (lambda p, _l, _q: p.bm, "int64"),
        (lambda _p, _l, _q: np.array([True, False, True]), "gave bool"),
        (lambda _p, _l, problem: problem["M"] > 1, "'M'"),
    ],
)
def test_a_broken_rule_is_the_templates_fault(allowed: Any, message: str) -> None:
    with pytest.raises(BadTemplate, match=message):
        _space_with(allowed).feasible(L4, PROBLEM)


def test_a_rule_that_fails_says_where() -> None:
    with pytest.raises(BadTemplate, match=r"test_space\.py:\d+: rule .* failed") as caught:
        _space_with(lambda p, _l, _q: p.bm // None).feasible(L4, PROBLEM)
    assert "np.where" in caught.value.hint


def test_a_malformed_reason_is_refused() -> None:
    with pytest.raises(BadTemplate, match="malformed reason"):
        _space_with(lambda p, _l, _q: p.bm > 0, "over {problem[M]}").feasible(L4, PROBLEM)


def test_a_space_without_feasible_points_says_why() -> None:
    nothing = _space_with(lambda p, _l, _q: p.bm > 1000, "too few rows").feasible(L4, PROBLEM)
    assert nothing.count == 0
    assert len(nothing.points) == 0
    with pytest.raises(UsageError, match="reject all 4") as caught:
        nothing.sample(np.random.default_rng(0))
    assert "4 × too few rows" in caught.value.hint


MODELS = ResourceModels(
    needs="sm_80",
    smem_bytes=lambda p, _q: p.bm * 1024,
    threads=lambda p, _q: p.bm * 16,
    registers=lambda p, _q: p.bm * 4,
    grid=lambda p, q: (q["L"] // p.bm, q["B"] * q["H"], 1),
    cluster=lambda p, _q: p.bm // 16,
)


def test_hardware_rules_name_the_limit() -> None:
    first, last = hardware_rules(MODELS)
    space = Space((BM,), (*first, *last))
    a100 = Limits.of(target("sm_80"), smem_limit=48 * 1024)
    rejected = space.feasible(a100, PROBLEM).rejected
    assert rejected["more than 48 KB of shared memory a CTA"] == 2
    assert space.why_not({"bm": 128}, L4, PROBLEM) == "more than 99 KB of shared memory a CTA"
    hopper = Limits.of(target("sm_90a"))
    assert space.why_not({"bm": 128}, hopper, PROBLEM) == "more than 1024 threads a CTA"
    assert "grid beyond" in str(space.why_not({"bm": 16}, a100, PROBLEM.replace(H=70000)))
    assert space.why_not({"bm": 32}, a100, PROBLEM) == "cluster of more than 1 CTAs"
    fat = ResourceModels("sm_80", lambda _p, _q: 0, lambda _p, _q: 32, registers=lambda p, _q: p.bm * 5)
    assert "register model" in str(Space((BM,), hardware_rules(fat)[1]).why_not({"bm": 64}, L4, PROBLEM))


def test_an_instruction_set_that_is_not_allowed_rejects_everything() -> None:
    wgmma = replace(MODELS, needs="sm_90a")
    first, last = hardware_rules(wgmma)
    space = Space((BM,), (*first, *last))
    assert space.feasible(L4, PROBLEM).rejected["needs sm_90a instructions, sm_89 allowed"] == 4


LADDER = tuple(range(8))


@rule("sum of ends")
def ends(p: Any, _l: Limits, _q: Problem) -> Any:
    return p.x0 + p.x5 < 12


@rule("product")
def product(p: Any, _l: Limits, _q: Problem) -> Any:
    return p.x1 * p.x2 <= p.x3 * 16


def _wide(parameters: int) -> Space:
    return Space(tuple(Parameter(f"x{i}", LADDER, 0) for i in range(parameters)), (ends, product, product))


def test_a_million_points_are_enumerated_in_two_seconds_of_a_processor() -> None:
    space = Space((*_wide(6).parameters, SWIZZLE, EARLY), (ends, product, product))
    start = time.process_time()
    feasible = space.feasible(L4, PROBLEM)
    assert time.process_time() - start < 2
    assert feasible.size == 8**6 * 6 > 10**6
    assert feasible.exact
    assert feasible.count + sum(feasible.rejected.values()) == feasible.size
    assert feasible.points[feasible.count - 1]["x0"] in LADDER


def test_a_large_product_of_which_rules_leave_few_points_is_known_whole() -> None:
    ladder = tuple(range(16))

    def equal(p: Any, _limits: Limits, _problem: Problem, number: int) -> Any:
        return p[f"x{number}"] == p[f"x{number + 1}"]

    rules = tuple(Rule(partial(equal, number=i), f"unlike {i}", written_at="here:1") for i in range(12))
    space = Space(tuple(Parameter(f"x{i}", ladder, 0) for i in range(13)), rules)
    feasible = space.feasible(L4, PROBLEM)
    assert feasible.exact
    assert feasible.indices.tolist() == [[value] * 13 for value in ladder]
    assert feasible.rejected == {f"unlike {i}": 16 ** (12 - i) * 15 for i in range(12)}
    assert feasible.count + sum(feasible.rejected.values()) == space.size == 16**13


def test_a_parameter_may_have_more_values_than_16_bits_number() -> None:
    feasible = Space((Parameter("n", tuple(range(40_000)), 0), EARLY)).feasible(L4, PROBLEM)
    assert [feasible.points[i]["n"] for i in (0, 65_536, 79_999)] == [0, 32_768, 39_999]


def test_larger_sets_are_sampled_and_say_so() -> None:
    space = _wide(10)
    assert space.size > MOST_POINTS
    feasible = space.feasible(L4, PROBLEM)
    assert not feasible.exact
    exact = _wide(6).feasible(L4, PROBLEM)  # the rules see only the first six
    assert feasible.count / feasible.size == pytest.approx(exact.count / exact.size, abs=0.01)
    rng = np.random.default_rng(5)
    drawn = [feasible.sample(rng) for _ in range(50)]
    assert all(feasible.contains(point) for point in drawn)
    assert len({tuple(point.values()) for point in drawn}) == 50
    again = space.feasible(L4, PROBLEM)
    assert np.array_equal(feasible.indices, again.indices)  # a resumed study sees the same set


def test_samples_are_spread_over_the_feasible_set() -> None:
    feasible = SPACE.feasible(L4, PROBLEM)
    rng = np.random.default_rng(0)
    counts = {tuple(point.values()): 0 for point in feasible.points}
    for _ in range(100 * feasible.count):
        counts[tuple(feasible.sample(rng).values())] += 1
    assert min(counts.values()) > 60
    assert max(counts.values()) < 145


def test_a_covering_sample_has_every_pair_of_values_that_occurs() -> None:
    feasible = SPACE.feasible(L4, PROBLEM)

    def pairs(points: Any) -> set[Any]:
        return {pair for p in points for pair in itertools.combinations(p.items(), 2)}

    sample = feasible.covering(np.random.default_rng(0), least=0)
    assert pairs(sample) == pairs(feasible.points)
    assert len(sample) < feasible.count / 1.5
    assert len(feasible.covering(np.random.default_rng(0), least=20)) == 20
    everything = feasible.covering(np.random.default_rng(0), least=10_000)
    assert {tuple(p.values()) for p in everything} == {tuple(p.values()) for p in feasible.points}


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_indices_and_points_are_inverse(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    space = Space(tuple(Parameter(f"x{i}", tuple(range(n)), 0) for i, n in enumerate(sizes)))
    feasible = space.feasible(L4, PROBLEM)
    assert feasible.count == space.size == len({tuple(p.values()) for p in feasible.points})
    at = data.draw(st.integers(0, space.size - 1))
    assert np.array_equal(space.indices_of(feasible.points[at]), feasible.indices[at])


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_built_up_points_are_those_that_rules_leave_of_the_whole_product(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=5))
    space = Space(tuple(Parameter(f"x{i}", tuple(range(n)), 0) for i, n in enumerate(sizes)))
    rules = []
    for number in range(data.draw(st.integers(0, 4))):
        names = data.draw(st.lists(st.sampled_from([p.name for p in space.parameters]), max_size=3))
        refused = data.draw(st.integers(0, 6))

        def other_sum(
            p: Any, _limits: Limits, _problem: Problem, names: list[str] = names, refused: int = refused
        ) -> Any:
            return np.int64(0) + sum(p[name] for name in names) != refused

        rules.append(Rule(other_sum, f"rule {number}"))
    space = replace(space, rules=tuple(rules))
    feasible = space.feasible(L4, PROBLEM)
    every = np.array(list(itertools.product(*(range(n) for n in sizes))), np.int16)
    left, said = space.sieve(every, L4, PROBLEM)
    assert np.array_equal(feasible.indices, left)
    assert feasible.indices.dtype == np.int16
    assert list(feasible.rejected.items()) == list(said.rejected.items())
    assert feasible.count + sum(feasible.rejected.values()) == space.size == feasible.asked


def test_a_rule_may_look_at_a_parameter_only_where_another_has_some_value() -> None:
    def looks(p: Any, _limits: Limits, _problem: Problem) -> Any:
        return (p.bn <= 64) if (p.bm > 64).any() else p.early

    space = Space((BM, BN, EARLY), (Rule(lambda p, _l, _p: p.bm < 64, "tall"), Rule(looks, "late")))
    assert {p["early"] for p in space.feasible(L4, PROBLEM).points} == {True}
    assert space.feasible(L4, PROBLEM).rejected == {"tall": 12, "late": 6}


def test_a_rule_is_asked_of_no_more_points_than_it_can_tell_apart() -> None:
    asked = []

    def counted(p: Any, _limits: Limits, _problem: Problem) -> Any:
        asked.append(len(p.bm))
        return p.bm < 64

    many = tuple(Parameter(f"x{i}", tuple(range(8)), 0) for i in range(6))
    feasible = Space((*many, BM), (Rule(counted, "tall"),)).feasible(L4, PROBLEM)
    assert asked == [4]
    assert feasible.count == 2 * 8**6
    assert feasible.rejected == {"tall": 2 * 8**6}
