"""The statistics of CONFIRMED, on samples whose truth is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from evo.timing.statistics import FEWEST_ROUNDS, LEVEL, standings
from evo.trial import Round


def simulated(
    seed: int,
    times: dict[str, float],
    count: int = 20,
    noise: float = 0.0015,
    tail: float = 0.004,
    slower: dict[str, dict[str, float]] | None = None,
) -> list[Round]:
    """Rounds as a GPU gives them: each drifts as a whole, each contestant in it a little, and single samples
    have a long tail above. `slower`: by what factors a contestant takes longer on other timing inputs."""
    rng = np.random.default_rng(seed)
    rounds = []
    for number in range(count):
        drift = rng.normal(0, 0.004)
        taken: dict[bool, dict[str, dict[str, tuple[float, ...]]]] = {True: {}, False: {}}
        for name, us in times.items():
            own = drift + rng.normal(0, noise)
            taken[name.startswith("s/")][name] = {
                on: tuple(us * factor * np.exp(own + tail * (rng.exponential(1, 6) - np.log(2))))
                for on, factor in {"normal": 1.0, **(slower or {}).get(name, {})}.items()
            }
        rounds.append(Round("warm", number, taken[True], taken[False]))
    return rounds


FINALISTS = [f"s/{i}" for i in range(5)]


def test_equal_finalists_seldom_win_or_lose() -> None:
    """Five finalists that are the baseline: one of them beats it in no more than half of 1 - LEVEL."""
    wins = losses = 0
    times = dict.fromkeys([*FINALISTS, "base"], 9.1)
    for seed in range(200):
        found = standings(simulated(seed, times), FINALISTS, ["base"])
        verdicts = [found[name].verdict for name in FINALISTS]
        wins += "faster" in verdicts
        losses += "slower" in verdicts
    assert wins <= 4  # 1 is expected; more than 4 happen once in 250 times
    assert losses <= 4


def test_one_per_cent_is_found() -> None:
    times = {"s/0": 9.1 * 0.99} | dict.fromkeys([*FINALISTS[1:], "base"], 9.1)
    found = [standings(simulated(s, times), FINALISTS, ["base"])["s/0"] for s in range(60)]
    assert sum(f.verdict == "faster" for f in found) >= 57
    covered = sum(
        f.speedup_interval.low <= 1 / 0.99 <= f.speedup_interval.high for f in found if f.speedup_interval
    )
    assert covered >= 57


def test_a_finalist_must_beat_every_baseline() -> None:
    """Nearly tied with one baseline, far ahead of another: no win, whichever looked faster by luck."""
    times = {"s/0": 9.1, "close": 9.1, "far": 20.0}
    found = standings(simulated(3, times), ["s/0"], ["close", "far"])["s/0"]
    assert (found.versus, found.verdict) == ("close", "tie")


def test_odd_rounds_of_a_baseline_decide_nothing() -> None:
    """Two of 20 rounds in which a baseline read a fifth too long are neither its time nor its interval."""
    rounds = simulated(4, dict.fromkeys(FINALISTS, 3.5) | {"base": 5.9})
    for odd in (0, 13):
        slow = tuple(1.2 * us for us in rounds[odd].baselines_us["base"]["normal"])
        rounds[odd] = replace(rounds[odd], baselines_us={"base": {"normal": slow}})
    found = standings(rounds, FINALISTS, ["base"])
    assert found["base"].median_us == pytest.approx(5.9, rel=0.005)
    best = found["s/0"]
    assert best.verdict == "faster"
    assert best.speedup_interval is not None
    assert 1.67 < best.speedup_interval.low < 5.9 / 3.5 < best.speedup_interval.high < 1.70


def test_an_interval_of_few_rounds_for_many_finalists_says_its_level() -> None:
    many = [f"s/{i}" for i in range(12)]
    found = standings(simulated(1, dict.fromkeys(many, 9.0), count=FEWEST_ROUNDS), many, [])
    assert found["s/0"].interval.level == pytest.approx(1 - 12 * 2 / 2**FEWEST_ROUNDS)


def test_few_rounds_conclude_nothing() -> None:
    rounds = simulated(1, {"s/0": 9.0, "base": 9.1}, count=FEWEST_ROUNDS - 1)
    assert standings(rounds, ["s/0"], ["base"]) == {}


def test_intervals_say_their_level_and_are_the_same_for_the_same_samples() -> None:
    rounds = simulated(1, {"s/0": 9.0, "base": 9.1})
    found = standings(rounds, ["s/0"], ["base"])
    assert found == standings(rounds, ["s/0"], ["base"])
    assert found["s/0"].interval.level == LEVEL
    assert found["base"].verdict == ""


# ---- several timing inputs

ALIKE = {"sharp": 1.0, "sink": 1.0, "growing": 1.0}
"""A contestant to which all timing inputs are one."""


def on_four(seed: int, times: dict[str, float], **slower: dict[str, float]) -> list[Round]:
    """Rounds on four timing inputs; s0 is s/0."""
    every = {name: ALIKE | slower.get(name.replace("/", ""), {}) for name in times}
    return simulated(seed, times, slower=every)


def test_a_kernel_that_bets_on_noise_is_ranked_by_what_it_takes_where_it_loses() -> None:
    times = {"s/0": 3.41, "s/1": 3.57, "base": 9.1}
    rounds = on_four(2, times, s0={"sharp": 1.3, "growing": 1.1})
    found = standings(rounds, ["s/0", "s/1"], ["base"])
    bet, sure = found["s/0"], found["s/1"]
    assert bet.median_us == pytest.approx(1.3 * 3.41, rel=0.005) == bet.times["sharp"].median_us
    assert (bet.on, bet.versus, bet.varies) == ("sharp", "base", True)
    assert bet.speedup == pytest.approx(9.1 / 3.41 / 1.3, rel=0.005)
    assert bet.times["normal"].speedup == pytest.approx(9.1 / 3.41, rel=0.005)
    assert sure.median_us == pytest.approx(3.57, rel=0.005)
    assert sure.median_us < bet.median_us
    assert not sure.varies
    assert sure.interval.level >= LEVEL


def test_a_ranking_says_which_time_counts() -> None:
    rounds = on_four(3, {"s/0": 4.0, "base": 4.4}, s0={"sharp": 1.2})
    means = {ranking: standings(rounds, ["s/0"], ["base"], ranking)["s/0"] for ranking in RANKINGS}
    assert means["worst"].median_us == pytest.approx(4.8, rel=0.005)
    assert means["mean"].median_us == pytest.approx(4.2, rel=0.005)
    assert means["sink"].median_us == pytest.approx(4.0, rel=0.005)
    assert [means[ranking].verdict for ranking in RANKINGS] == ["slower", "slower", "faster"]
    assert [means[ranking].on for ranking in RANKINGS] == ["sharp", "sharp", "sink"]


RANKINGS = ("worst", "mean", "sink")


def test_equal_finalists_seldom_win_or_lose_on_four_inputs_either() -> None:
    """The worst of four inputs must not lose by being the unluckiest of four."""
    wins = losses = 0
    times = dict.fromkeys([*FINALISTS, "base"], 9.1)
    for seed in range(60):
        found = standings(on_four(seed, times), FINALISTS, ["base"])
        verdicts = [found[name].verdict for name in FINALISTS]
        wins += "faster" in verdicts
        losses += "slower" in verdicts
        assert not any(found[name].varies for name in FINALISTS)
    assert wins <= 2
    assert losses <= 2


def test_one_per_cent_is_found_on_four_inputs() -> None:
    times = {"s/0": 9.1 * 0.99} | dict.fromkeys([*FINALISTS[1:], "base"], 9.1)
    found = [standings(on_four(s, times), FINALISTS, ["base"])["s/0"] for s in range(30)]
    assert sum(f.verdict == "faster" for f in found) >= 28


def test_an_input_that_some_round_lacks_says_nothing() -> None:
    rounds = on_four(1, {"s/0": 4.0, "base": 9.0})
    older = simulated(1, {"s/0": 4.0, "base": 9.0})
    found = standings([*older[:10], *rounds[:10]], ["s/0"], ["base"])["s/0"]
    assert list(found.times) == ["normal"]
