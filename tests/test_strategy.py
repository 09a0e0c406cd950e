"""StrategyTests: what every strategy must do, whatever it does besides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from evo.errors import UnknownName
from evo.gpu import Limits, target
from evo.space import FeasibleSet, Parameter, Space, rule
from evo.strategy import STRATEGIES, Observation, Proposal, Strategy, make_strategy
from evo.strategy.evolution.distance import Metric
from evo.strategy.evolution.features import Features
from evo.strategy.evolution.gaussian_process import GaussianProcess, inverse_of_lower, lower_times
from evo.task import load_task
from evo.template import load_template
from evo.trial import Point, Problem

LIMITS = Limits.of(target("sm_89"))
PROBLEM = Problem("toy", {"L": 512}, "fp16")

every_strategy = pytest.mark.parametrize("name", STRATEGIES)


@rule("tile above 4096")
def tile(p: Any, _limits: Limits, _problem: Problem) -> Any:
    return p.bm * p.bn <= 4096


@rule("swizzle of an odd stage count")
def swizzled(p: Any, _limits: Limits, _problem: Problem) -> Any:
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
    (tile, swizzled),
)
SMALL = Space((Parameter("bm", (16, 32, 64), 16), Parameter("bn", (16, 32, 64, 128), 16)), (tile,))


def spaces(*chosen: Space) -> dict[str, FeasibleSet]:
    return {f"t{i}": space.feasible(LIMITS, PROBLEM) for i, space in enumerate(chosen)}


def key(proposal: Proposal | Observation) -> tuple[object, ...]:
    return proposal.template, repr(sorted(proposal.point.items()))


def score(proposal: Proposal) -> float | None:
    """The second template is the better one; a swizzle of xor fails; otherwise larger tiles are faster."""
    p = proposal.point
    if p.get("swizzle") == "xor":
        return None
    return (10 if proposal.template == "t0" else 9) - math.log2(
        float(p.get("bm", 1)) * float(p.get("bn", 1))
    ) / 2


def observed(proposal: Proposal) -> Observation:
    return Observation(proposal.template, proposal.point, score(proposal))


def searched(strategy: Strategy, count: int, start: Sequence[Observation] = ()) -> list[Observation]:
    history = list(start)
    while len(history) < count:
        proposal = strategy.ask(history, [], len(history))
        if proposal is None:
            break
        history.append(observed(proposal))
    return history


@every_strategy
def test_proposes_only_feasible_points_and_none_twice(name: str) -> None:
    fields = spaces(SMALL, LARGE)
    history = searched(make_strategy(name, fields, 0), 250)
    assert len(history) == 250
    assert all(fields[t.template].contains(t.point) for t in history)
    assert len({key(t) for t in history}) == 250


@every_strategy
def test_proposes_nothing_that_is_under_way(name: str) -> None:
    strategy = make_strategy(name, spaces(SMALL), 0)
    history = searched(strategy, 4)
    pending: list[Proposal] = []
    while (proposal := strategy.ask(history, pending, len(history) + len(pending))) is not None:
        pending.append(proposal)
    both: list[Proposal | Observation] = [*history, *pending]
    assert len({key(p) for p in both}) == 11, "eleven points are feasible"
    again = strategy.ask(history, pending[1:], 99)
    assert again is not None
    assert key(again) == key(pending[0]), "what is no longer under way is open again"


@every_strategy
def test_ends_when_everything_is_tried(name: str) -> None:
    fields = spaces(SMALL, Space((Parameter("bm", (16, 32), 16), Parameter("bn", (16,), 16))))
    strategy = make_strategy(name, fields, 3)
    history = searched(strategy, 1000)
    assert len(history) == 13
    assert strategy.ask(history, [], 13) is None
    assert strategy.ask(history[:-1], [], 13) is not None


@every_strategy
def test_is_a_pure_function_of_history_and_number(name: str) -> None:
    fields = spaces(SMALL, LARGE)
    history = searched(make_strategy(name, fields, 7), 140)
    assert history == searched(make_strategy(name, fields, 7), 140)
    other = searched(make_strategy(name, fields, 8), 140)
    assert history != other
    for resumed_at in (0, 5, 11, 60, 139):
        fresh = make_strategy(name, fields, 7)
        assert history == searched(fresh, 140, history[:resumed_at]), "a resumed search goes another way"
    asked_out_of_turn = make_strategy(name, fields, 7)
    for n in (120, 30, 80):
        proposal = asked_out_of_turn.ask(history[:n], [], n)
        assert proposal is not None
        assert key(proposal) == key(history[n])


@every_strategy
def test_what_is_under_way_is_part_of_the_function(name: str) -> None:
    fields = spaces(LARGE)
    history = searched(make_strategy(name, fields, 0), 60)
    pending = [Proposal(t.template, t.point) for t in history[50:]]
    one, other = make_strategy(name, fields, 0), make_strategy(name, fields, 0)
    for n in range(0, 50, 7):
        other.ask(history[:n], pending, n)
    assert one.ask(history[:50], pending, 60) == other.ask(history[:50], pending, 60)


@every_strategy
def test_survives_a_history_it_does_not_understand(name: str) -> None:
    strange = [
        Observation("gone", {"bm": 16}, 1.0),
        Observation("t0", {"bm": 17, "bn": 16}, 1.0),
        Observation("t0", {"bm": 16}, 1.0),
        Observation("t0", {"bm": 64, "bn": 128}, 1.0),  # infeasible now
    ]
    history = searched(make_strategy(name, spaces(SMALL), 0), 1000, strange)
    assert len(history) == len(strange) + 11


@every_strategy
def test_one_point_is_enough(name: str) -> None:
    strategy = make_strategy(name, spaces(Space((Parameter("a", (1,), 1),))), 0)
    assert len(searched(strategy, 10)) == 1


@every_strategy
def test_one_and_true_are_two_values(name: str) -> None:
    field = spaces(Space((Parameter("a", (1, True, 0, False), 1),)))
    assert len(searched(make_strategy(name, field, 0), 10)) == 4


@every_strategy
def test_large_spaces_are_searched_through_a_sample(name: str) -> None:
    huge = Space(tuple(Parameter(f"p{i}", tuple(range(16)), 0) for i in range(20)))
    field = spaces(huge)["t0"]
    assert not field.exact
    strategy = make_strategy(name, {"t0": field}, 0)
    history: list[Observation] = []
    for n in range(60):
        proposal = strategy.ask(history, [], n)
        assert proposal is not None
        history.append(Observation("t0", proposal.point, 1.0 + sum(map(float, proposal.point.values()))))
    assert len({key(t) for t in history}) == 60


@pytest.mark.parametrize("name", [n for n in STRATEGIES if n != "random"])
def test_learns_from_failures(name: str) -> None:
    """Half of all points fail, by one parameter: a strategy that learns proposes fewer of them than chance
    does."""
    space = Space(tuple(Parameter(f"p{i}", tuple(range(6)), 0) for i in range(6)))
    shares = []
    for seed in range(3):
        strategy = make_strategy(name, {"t0": space.feasible(LIMITS, PROBLEM)}, seed)
        history: list[Observation] = []
        for n in range(200):
            proposal = strategy.ask(history, [], n)
            assert proposal is not None
            fails = int(proposal.point["p0"]) >= 3
            history.append(Observation("t0", proposal.point, None if fails else 10.0 - n % 3))
        shares.append(np.mean([t.score_us is None for t in history[100:]]))
    assert np.mean(shares) < 0.35


@pytest.mark.parametrize("name", ["evo", "tpe", "nsga2"])
def test_finds_a_good_point_sooner_than_chance(name: str) -> None:
    def best(which: str, seed: int) -> float:
        strategy = make_strategy(which, spaces(BOWL), seed)
        history: list[Observation] = []
        for n in range(240):
            proposal = strategy.ask(history, [], n)
            assert proposal is not None
            away = sum(abs(int(v) - 6) for v in proposal.point.values())
            history.append(Observation("t0", proposal.point, 1.0 + away))
        return min(t.score_us for t in history if t.score_us is not None)

    seeds = range(4)
    assert np.mean([best(name, s) for s in seeds]) < np.mean([best("random", s) for s in seeds]) - 1


BOWL = Space(tuple(Parameter(f"p{i}", tuple(range(8)), 0) for i in range(5)))


@pytest.mark.parametrize("name", ["evo", "tpe"])
def test_prefers_the_better_template(name: str) -> None:
    history = searched(make_strategy(name, spaces(LARGE, LARGE), 0), 200)
    assert np.mean([t.template == "t1" for t in history[50:]]) > 0.6


@every_strategy
def test_a_resumed_search_of_a_large_space_goes_the_same_way(name: str) -> None:
    """The pool of candidates is then a sample, and is drawn anew on the way."""
    fields, history = spaces(BOWL), list[Observation]()
    strategy = make_strategy(name, fields, 5)
    for n in range(64):
        proposal = strategy.ask(history, [], n)
        assert proposal is not None
        history.append(Observation("t0", proposal.point, bowl(proposal.point)))
    for resumed_at in (3, 31, 63):
        fresh = make_strategy(name, fields, 5).ask(history[:resumed_at], [], resumed_at)
        assert fresh is not None
        assert fresh.point == history[resumed_at].point


def bowl(point: Point) -> float:
    return 1.0 + sum(abs(int(v) - 6) for v in point.values())


@every_strategy
def test_a_warm_start_tries_the_best_of_earlier_studies_first(name: str) -> None:
    points = spaces(BOWL)["t0"].points[100:3000:29]
    earlier = [Observation("t0", point, bowl(point)) for point in points]
    earlier += [
        Observation("gone", {"a": 1}, 0.1),
        Observation("t0", {"p0": 99}, 0.1),
        Observation("t0", points[0], None),
    ]
    best = sorted(bowl(point) for point in points)[: Strategy.WARM_START_POINTS]
    strategy = make_strategy(name, spaces(BOWL), 0, earlier)
    history: list[Observation] = []
    for n in range(Strategy.WARM_START_POINTS):
        proposal = strategy.ask(history, [], n)
        assert proposal is not None
        history.append(Observation("t0", proposal.point, bowl(proposal.point)))
    assert [t.score_us for t in history] == best


def test_evo_learns_from_an_earlier_study_where_to_look() -> None:
    """The same landscape at another scale: what the best of it share is known before the first trial."""
    rng = np.random.default_rng(0)
    points = [spaces(BOWL)["t0"].points[int(i)] for i in rng.integers(8**5, size=200)]
    earlier = [Observation("t0", point, 3 * bowl(point)) for point in points]

    def best(warm_start: Sequence[Observation], seed: int) -> float:
        strategy = make_strategy("evo", spaces(BOWL), seed, warm_start)
        history: list[Observation] = []
        for n in range(11):
            proposal = strategy.ask(history, [], n)
            assert proposal is not None
            history.append(Observation("t0", proposal.point, bowl(proposal.point)))
        return min(t.score_us for t in history if t.score_us is not None)

    assert np.mean([best(earlier, s) for s in range(3)]) < np.mean([best((), s) for s in range(3)]) - 1


def test_evo_says_when_nothing_more_is_to_be_expected() -> None:
    strategy = make_strategy("evo", spaces(BOWL), 1)
    history: list[Observation] = []
    gains = []
    for n in range(150):
        proposal = strategy.ask(history, [], n)
        assert proposal is not None
        history.append(Observation("t0", proposal.point, bowl(proposal.point)))
        gains.append(strategy.expected_gain)
    assert gains[0] is None
    assert min(t.score_us for t in history if t.score_us is not None) == 1.0
    late = [gain for gain in gains[-30:] if gain is not None]
    early = [gain for gain in gains[10:20] if gain is not None]
    assert max(late) < 1e-2 * max(early)


def test_a_batch_of_evo_spreads() -> None:
    """What is under way counts: many workers are not sent to neighbours of one point."""
    history = searched(make_strategy("evo", spaces(LARGE), 0), 60)
    strategy, pending = make_strategy("evo", spaces(LARGE), 0), list[Proposal]()
    for n in range(16):
        proposal = strategy.ask(history, pending, 60 + n)
        assert proposal is not None
        pending.append(proposal)
    assert len({key(p) for p in pending}) == 16
    assert len({(p.point["bm"], p.point["bn"], p.point["stages"]) for p in pending}) >= 6


def modelled(smooth: bool = False) -> tuple[GaussianProcess, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """A process that knows 20 of 34 points (34, 3), and the values (34,) of all; its pool (50, 3) begins
    with the other 14."""
    rng = np.random.default_rng(7)
    x = rng.random((34, 3))
    y = np.sin(3 * x[:, 0]) + x[:, 1] ** 2
    model = GaussianProcess(np.zeros(3, bool), [None] * 3, smooth)
    model.fit(x[:20], y[:20])
    model.condition(x[:20], np.concatenate([x[20:], rng.random((36, 3))]), 4)
    return model, x, y


@pytest.mark.parametrize("smooth", [False, True])
def test_a_process_learns_the_same_at_once_and_one_by_one(smooth: bool) -> None:
    (one, x, y), (other, _, _), (whole, _, _) = modelled(smooth), modelled(smooth), modelled(smooth)
    for i in range(20, 34):
        one.add(x[i : i + 1])
    for few in (x[20:21], x[21:25], x[25:34]):
        other.add(few)
    rng = np.random.default_rng(7)
    rng.random((34, 3))
    whole.condition(x, np.concatenate([x[20:], rng.random((36, 3))]), 0)
    expected = whole.predict(y)
    for found in (one.predict(y), other.predict(y)):
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_what_is_under_way_is_less_uncertain_and_less_promising(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its value, when it comes, takes its place."""
    model, x, y = modelled()
    before = model.predict(y[:20])
    model.add(x[20:26])
    values = np.append(y[:20], [math.nan] * 6)
    mean, deviation = model.predict(values)
    assert (mean > before[0])[:6].all()
    assert mean.mean() > before[0].mean()
    assert (deviation <= before[1]).all()
    assert (deviation / before[1]).min() < 0.9
    monkeypatch.setattr("evo.strategy.evolution.gaussian_process.PENDING_PENALTY", 0.0)
    np.testing.assert_allclose(model.predict(values)[0], before[0], rtol=1e-9)
    values[22] = y[22]
    assert np.abs(model.predict(values)[0] - before[0]).max() > 1e-3


def test_a_proposal_that_is_given_up_is_forgotten() -> None:
    """Evaluators die: a point that was under way may come back as open, and what was learnt from it goes."""
    history = searched(make_strategy("evo", spaces(LARGE), 0), 30)
    strategy, pending = make_strategy("evo", spaces(LARGE), 0), list[Proposal]()
    for n in range(8):
        proposal = strategy.ask(history, pending, 30 + n)
        assert proposal is not None
        pending.append(proposal)
    fresh = make_strategy("evo", spaces(LARGE), 0)
    assert strategy.ask(history, pending[2:5], 40) == fresh.ask(history, pending[2:5], 40)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UnknownName, match="unknown strategy: tpee") as caught:
        make_strategy("tpee", spaces(SMALL), 0)
    assert "did you mean tpe?" in caught.value.hint


def test_distances_as_products_are_weighted_sums_over_features() -> None:
    rng = np.random.default_rng(3)
    ladder = np.array([0.0, 0.3, 1.0])
    labels, weights = np.array([False, True, False]), np.array([0.7, 0.2, 1.9])
    x = np.stack([rng.choice(ladder, 40), rng.integers(4, size=40), rng.normal(size=40)], axis=1)
    gap = np.abs(x[:, None, :] - x[None, :, :])
    for squares, power in ((False, 1), (True, 2)):
        direct = np.where(labels, gap > 0, gap**power) @ weights
        metric = Metric(labels, [ladder, np.arange(4.0), None], squares)
        metric.weigh(weights)
        spread = metric.embed(x)
        assert np.allclose(spread.distances_to(spread), direct)
        assert np.allclose(spread.with_points(spread).distances_to(spread)[40:], direct)
        assert np.allclose(spread[:7].distances_to(spread[7:]), direct[:7, 7:])
        single = metric.embed(np.asfortranarray(x), np.float32)
        assert single.distances_to(single).dtype == np.float32
        assert np.allclose(single.distances_to(single), direct, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 4, 31, 32, 33, 100, 161])
def test_triangular_matrices_are_inverted_and_multiplied_by_parts(rows: int) -> None:
    rng = np.random.default_rng(rows)
    lower = np.tril(rng.normal(size=(rows, rows)) / rows) + np.eye(rows)
    other = rng.normal(size=(rows, 5))
    assert np.allclose(inverse_of_lower(lower) @ lower, np.eye(rows))
    assert np.allclose(lower_times(lower, other), lower @ other)


@pytest.mark.parametrize("smooth", [False, True])
def test_the_slope_of_the_likelihood_is_how_it_changes(smooth: bool) -> None:
    rng = np.random.default_rng(2)
    x = np.stack([rng.random(40), rng.integers(3, size=40), rng.random(40)], axis=1)
    z = np.sin(4 * x[:, 0]) + (x[:, 1] == 2) + 0.1 * rng.normal(size=40)
    model = GaussianProcess(np.array([False, True, False]), [None, np.arange(3.0), None], smooth)
    apart = np.array([np.abs(np.subtract.outer(c, c)) ** (1 + smooth) for c in x.T])
    apart[1] = apart[1] > 0
    pairs = np.tri(40, k=-1, dtype=bool)

    def likelihood(theta: Any) -> tuple[float, Any]:
        return model._likelihood(theta, apart[:, pairs], pairs, z)

    theta = np.array([0.3, -0.5, 0.1, -2.0])
    r = np.sqrt(5 * np.tensordot(np.exp(theta[:-1]), apart, 1))
    k = (1 + r + r * r / 3) * np.exp(-r) if smooth else np.exp(-r * r / 5)
    k += np.exp(theta[-1]) * np.eye(40)
    direct = -20 * math.log(z @ np.linalg.solve(k, z) / 40) - 0.5 * np.linalg.slogdet(k)[1]
    value, slope = likelihood(theta)
    assert value == pytest.approx(direct)
    for i, step in enumerate(1e-5 * np.eye(4)):
        change = (likelihood(theta + step)[0] - likelihood(theta - step)[0]) / 2e-5
        assert slope[i] == pytest.approx(change, rel=1e-5)


@pytest.mark.parametrize("smooth", [False, True])
def test_single_precision_predicts_the_same(smooth: bool) -> None:
    model, x, y = modelled(smooth)
    mean, deviation = model.predict(y[:20])
    pool = np.concatenate([x[20:], np.zeros((1000, 3))])
    quick = model.predict_many(x[:20], y[:20], pool)
    assert quick[0].shape == quick[1].shape == (1014,)
    np.testing.assert_allclose(quick[0][:14], mean[:14], rtol=1e-4)
    np.testing.assert_allclose(quick[1][:14], deviation[:14], rtol=1e-3)
    assert (quick[0][14:] == quick[0][14]).all(), "the same point"


def test_features_that_are_cached_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    feasible = load_template(load_task("attention"), "flash_mma").space.feasible(
        Limits.of(target("sm_90")), load_task("attention").example
    )
    features, rows = Features(feasible), feasible.indices[:: len(feasible.indices) // 20].astype(np.intp)
    monkeypatch.setattr("evo.strategy.evolution.features.CACHED_POINTS", 12)
    for few in (rows[:5], rows[3:9], rows, rows[-2:]):
        assert (features.of_few(list(few)) == features(few)).all()
