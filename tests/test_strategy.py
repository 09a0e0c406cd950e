"""What our strategies do beyond what StrategyTests (evo.testing) asks of every strategy."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from evo.errors import UnknownName
from evo.space import FeasibleSet, Parameter, Space
from evo.strategy import STRATEGIES, Observation, Proposal, Strategy, make_strategy
from evo.strategy.candidates import Candidates
from evo.strategy.warm_points import WarmStartPoints
from evo.testing.strategy import LARGE, LIMITS, PROBLEM, SMALL
from evo.trial import Point

every_strategy = pytest.mark.parametrize("name", STRATEGIES)


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
    for seed in range(2):
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

    seeds = range(2)
    assert np.mean([best(name, s) for s in seeds]) < np.mean([best("random", s) for s in seeds]) - 1


BOWL = Space(tuple(Parameter(f"p{i}", tuple(range(8)), 0) for i in range(5)))


@pytest.mark.parametrize("name", ["evo", "tpe"])
def test_prefers_the_better_template(name: str) -> None:
    history = searched(make_strategy(name, spaces(LARGE, LARGE), 0), 200)
    assert np.mean([t.template == "t1" for t in history[50:]]) > 0.6


def test_a_template_is_given_up_the_sooner_the_more_of_it_was_tried() -> None:
    """One that is 1.5 times slower: of the next proposals it gets a seventh after one trial, few after 24."""
    both = spaces(Space((Parameter("a", tuple(range(2000)), 0),)), BOWL)
    fast = [Observation("t1", point, 1.0) for point in both["t1"].points[:24]]
    shares = []
    for tried in (1, 24):
        slow = [Observation("t0", point, 1.5) for point in both["t0"].points[:tried]]
        strategy = make_strategy("evo", both, 0)
        asked = [strategy.ask([*fast, *slow], [], number) for number in range(1, 200)]
        shares.append(np.mean([proposal is not None and proposal.template == "t0" for proposal in asked]))
    once, often = shares
    assert 0.1 < once < 0.4
    assert often < 0.06, "only where any template is drawn"


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


def warm_points(name: str, of: float, count: int = 16) -> list[bool]:
    """Whether each trial of a warm-started search is one of the best earlier ones. `of`: 1 where the earlier
    times are those of this study, -1 where fast and slow changed places."""
    points = spaces(BOWL)["t0"].points[100:3000:29]
    earlier = [Observation("t0", point, 40.0 + of * bowl(point)) for point in points]
    earlier += [
        Observation("gone", {"a": 1}, 0.1),
        Observation("t0", {"p0": 99}, 0.1),
        Observation("t0", points[0], None),
    ]
    best = sorted(points, key=lambda point: of * bowl(point))[:24]
    strategy = make_strategy(name, spaces(BOWL), 0, earlier)
    history: list[Observation] = []
    for n in range(count):
        proposal = strategy.ask(history, [], n)
        assert proposal is not None
        history.append(Observation("t0", proposal.point, bowl(proposal.point)))
    return [trial.point in best for trial in history]


@every_strategy
def test_a_warm_start_takes_turns_with_the_strategy(name: str) -> None:
    """And goes on while the best of the earlier studies are better here, too."""
    warm = warm_points(name, 1)
    assert warm[:2] == [True, False]
    assert sum(warm[:4]) >= 2


@every_strategy
def test_a_warm_start_that_misleads_ends_soon(name: str) -> None:
    warm = warm_points(name, -1)
    assert warm[: 2 * WarmStartPoints.JUDGED_AFTER : 2] == [True] * WarmStartPoints.JUDGED_AFTER
    assert not any(warm[2 * WarmStartPoints.JUDGED_AFTER :])


def test_no_two_warm_start_points_are_neighbours() -> None:
    feasible = spaces(BOWL)
    known = {"t0": Candidates("t0", feasible["t0"])}
    points = sorted(feasible["t0"].points, key=bowl)[:200]
    found = WarmStartPoints.of(known, [Observation("t0", point, bowl(point)) for point in points]).points
    assert 2 <= len(found) <= WarmStartPoints.COUNT
    for i, one in enumerate(found):
        assert all((one.at != other.at).sum() > 1 for other in found[:i])


def test_the_studies_of_a_warm_start_take_turns() -> None:
    """However near to its best each of the many good points of one is. A study that misleads ends alone."""
    feasible = spaces(BOWL)
    known = {"t0": Candidates("t0", feasible["t0"])}
    order = sorted(feasible["t0"].points, key=bowl)
    trials = [Observation("t0", point, 1.0, "many") for point in order[:500]]
    trials += [Observation("t0", point, 1.0 + i, "few") for i, point in enumerate(order[:-500:-50])]
    warm = WarmStartPoints.of(known, trials)
    assert [point.study for point in warm.points] == ["many", "few"] * (WarmStartPoints.COUNT // 2)
    for point in warm.points[: 2 * WarmStartPoints.JUDGED_AFTER]:
        warm.observe("t0", point.at, 1.0 if point.study == "many" else 3.0)
        known["t0"].close(known["t0"].space.point_at(point.at))
    for _ in range(2 * WarmStartPoints.COUNT):
        warm.observe("t0", known["t0"].space.indices_of(order[1000]), 2.0)
    left = [point for point in warm.points[2 * WarmStartPoints.JUDGED_AFTER :] if point.study == "many"]
    for expected in left:
        found = warm.next(known, [])
        assert found is not None
        assert found[1].tolist() == expected.at.tolist()
        known["t0"].close(known["t0"].space.point_at(expected.at))
    assert warm.next(known, []) is None


def test_a_strategy_thinks_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """In Python, too, where NumPy came with a thread a core."""
    threads: list[int] = []

    def counted(*_: object) -> None:
        threads.extend(one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas")

    monkeypatch.setattr(STRATEGIES["random"], "_suggest", counted)
    with threadpool_limits(2, "blas"):
        searched(make_strategy("random", spaces(SMALL), 0), 1)
        after = [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]
    assert threads
    assert set(threads) == {1}
    assert set(after) == {2}


def test_points_that_are_closed_are_not_proposed() -> None:
    field = spaces(SMALL)
    history = searched(make_strategy("evo", field, 0), 5)
    closed = [Proposal(trial.template, trial.point) for trial in history]
    strange = [Proposal("gone", {"a": 1}), Proposal("t0", {"bm": 17})]
    later = searched(STRATEGIES["evo"](field, 1, closed=[*closed, *strange]), 100)
    assert len(later) == 11 - 5
    assert not {key(trial) for trial in later} & {key(trial) for trial in history}


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UnknownName, match="unknown strategy: tpee") as caught:
        make_strategy("tpee", spaces(SMALL), 0)
    assert "did you mean tpe?" in caught.value.hint
