"""The strategy `evo`: what it learns, and the arithmetic of its model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from test_strategy import BOWL, bowl, key, searched, spaces

from evo.gpu import Limits, target
from evo.space import Parameter, Space
from evo.strategy import Observation, Proposal, make_strategy
from evo.strategy.evolution.distance import Metric
from evo.strategy.evolution.features import Features, template_models
from evo.strategy.evolution.gaussian_process import GaussianProcess, inverse_of_lower, lower_times
from evo.strategy.evolution.model import predicts
from evo.strategy.evolution.registers import RegisterModel
from evo.task import load_task
from evo.template import load_template
from evo.testing.strategy import LARGE, LIMITS, PROBLEM


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


def test_the_first_points_of_evo_fill_the_space() -> None:
    """No two are near each other, however the search goes."""
    strategy, history = make_strategy("evo", spaces(BOWL), 3), list[Observation]()
    for n in range(8):
        proposal = strategy.ask(history, [], n)
        assert proposal is not None
        history.append(Observation("t0", proposal.point, None if n % 2 else 1.0))
    points = np.array([[int(v) for v in trial.point.values()] for trial in history])
    at_random = np.random.default_rng(0).integers(8, size=(100, 8, 5))
    assert nearest(points) > 1.4 * np.mean([nearest(some) for some in at_random])


def nearest(points: np.ndarray[Any, Any]) -> float:
    """How far the two nearest of points (n, parameters) of BOWL are apart."""
    gaps = np.abs(points[:, None] - points[None])
    distances: np.ndarray[Any, Any] = (gaps / 7 + (gaps > 0)).sum(axis=2)[np.triu_indices(len(points), 1)]
    return float(distances.min())


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
    pool = np.concatenate([x[20:], np.zeros((1000, 3)), x[20:][::-1]])
    quick = model.predict_many(x[:20], y[:20], pool)
    assert quick[0].shape == quick[1].shape == (1028,)
    np.testing.assert_allclose(quick[0][:14], mean[:14], rtol=1e-4)
    np.testing.assert_allclose(quick[1][:14], deviation[:14], rtol=1e-3)
    for found in quick:  # bit by bit, whatever a BLAS does at the end of a matrix: ties decide a pool
        assert (found[14:1014] == found[14]).all(), "the same point"
        assert (found[1014:] == found[:14][::-1]).all(), "the same points in another order"


def test_values_of_a_ladder_that_begins_with_0_are_scaled_by_their_logarithms() -> None:
    feasible = Space((Parameter("step", (0, 1, 2, 4, 8, 16, 32), 0),)).feasible(LIMITS, PROBLEM)
    (scaled, *_) = Features(feasible)(feasible.indices.astype(np.intp)).T
    assert (scaled[0], scaled[-1]) == (0.0, 1.0)
    assert np.diff(scaled).max() < 1.8 * np.diff(scaled).min()


def test_products_of_sizes_and_their_powers_of_two_are_features() -> None:
    sizes = (Parameter("x", (32, 64, 96, 128), 32), Parameter("y", (1, 2, 4), 1))
    feasible = Space((*sizes, Parameter("unroll", (0, 1, 2), 0))).feasible(LIMITS, PROBLEM)
    features, rows = Features(feasible), feasible.indices.astype(np.intp)
    powers, product = features(rows)[:, features.derived].T
    x, y = (np.array(parameter.values)[rows[:, i]] for i, parameter in enumerate(sizes))
    np.testing.assert_allclose(powers, np.log2(x & -x) / 2 - 2.5)
    np.testing.assert_allclose(product, np.log(x * y / 32) / math.log(16), atol=1e-8)
    assert len(np.unique(product)) == len(np.unique(x * y)), "equal products are equal numbers"


def test_features_that_are_cached_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    feasible = load_template(load_task("attention"), "flash_mma").space.feasible(
        Limits.of(target("sm_90")), load_task("attention").example
    )
    features, rows = Features(feasible), feasible.indices[:: len(feasible.indices) // 20].astype(np.intp)
    monkeypatch.setattr("evo.strategy.evolution.features.CACHED_POINTS", 12)
    for few in (rows[:5], rows[3:9], rows, rows[-2:]):
        assert (features.of_few(list(few)) == features(few)).all()


def test_what_earlier_studies_expect_counts_only_while_it_predicts() -> None:
    expected, times = np.array([0.0, 0.2, 0.4, 0.6, 0.8]), np.array([1.0, 2.0, 3.0, math.inf, math.inf])
    assert predicts(expected, times)
    assert not predicts(expected, times[::-1].copy())
    assert not predicts(np.zeros(5), times), "they expect the same of all"
    assert not predicts(expected, np.full(5, math.inf))


def test_registers_of_other_points_are_expected_from_those_that_were_compiled() -> None:
    """Here a kernel with one of the overlaps takes 24 more than the template's model says."""
    attention = load_task("attention")
    feasible = load_template(attention, "flash_wgmma").space.feasible(
        Limits.of(target("sm_90a")), attention.example
    )
    rows = feasible.indices[np.random.default_rng(0).choice(len(feasible.indices), 300, False)].astype(
        np.intp
    )
    models = feasible.space.models
    assert models is not None
    assert models.registers is not None
    columns = feasible.space.columns(rows, attention.example, feasible.limits.gpu)
    modelled = np.asarray(models.registers(columns, attention.example)).astype(int)
    names = [parameter.name for parameter in feasible.space.parameters]
    actual = np.minimum(255, modelled + 24 * (rows[:, names.index("overlap")] == 1))
    assert RegisterModel.of(feasible, list(rows[:11]), actual[:11].tolist()) is None, "too few"
    learnt = RegisterModel.of(feasible, list(rows[:120]), [*actual[:100].tolist(), *[0] * 20])
    assert learnt is not None
    assert (learnt(rows[:100]) == actual[:100]).all(), "what was compiled is known"
    before, after = np.abs(modelled - actual)[100:], np.abs(learnt(rows) - actual)[100:]
    assert after.mean() < before.mean() / 2


def test_how_ctas_share_an_sm_is_a_feature_that_follows_registers() -> None:
    attention = load_task("attention")
    problem = attention.problem("1,8,768,64")
    feasible = load_template(attention, "flash_wgmma").space.feasible(Limits.of(target("sm_90a")), problem)
    point = {"row_groups": 1, "bn": 128, "stages": 2, "cluster_kv": 2, "producer": "warp", "overlap": "none"}
    at = feasible.space.indices_of(feasible.space.completed(point))[None, :].astype(np.intp)
    few, many = (template_models(feasible, at, np.array([registers]))[-3:] for registers in (168.0, 176.0))
    assert [float(column[0]) for column in few] == [0.0, 0.5, 1 / 3], "192 CTAs: two on an SM at once"
    assert [float(column[0]) for column in many] == [0.5, 0.0, 0.0], "two rounds of one"
