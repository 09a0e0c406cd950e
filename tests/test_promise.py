"""What another turn of a problem promises: the search for many problems gives its turns by that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from test_turns import member

from evo.loop.member import Member
from evo.store import Store
from evo.strategy import Proposal


def after(store: Store, folder: Path, length: int, trials: int, spent_s: float, gain: float = 1.0) -> Member:
    """A problem of which so much was tried; its last turn made the best kernel faster by `gain`."""
    found = member(store, folder, length)
    found.study = replace(found.begin(), spent_s=spent_s)
    found.points = {("landscape", str(number)): Proposal("landscape", {}) for number in range(trials)}
    found.gain = gain
    return found


def test_few_trials_promise_more_than_many_and_a_gain_as_much_as_it_was(tmp_path: Path) -> None:
    with Store(tmp_path / "evo.db") as store:
        few = after(store, tmp_path / "t", 128, 15, 6.0)
        many = after(store, tmp_path / "t", 512, 90, 6.0)
        gained = after(store, tmp_path / "t", 2048, 90, 6.0, gain=1.05)
        new = member(store, tmp_path / "t", 8192)
    promised = [one.promise(2.0) for one in (new, gained, few, many)]
    assert promised == sorted(promised, reverse=True)
    assert promised[1] == 1.05
    assert promised[2] == pytest.approx(1 + 0.4 * (1 / 15 - 1 / 20)), "a turn of 2 s has 5 more trials"


def test_slow_trials_promise_less_in_a_turn_than_as_many_fast_ones(tmp_path: Path) -> None:
    with Store(tmp_path / "evo.db") as store:
        slow, fast = (
            after(store, tmp_path / "t", length, 15, spent_s) for length, spent_s in ((128, 30.0), (512, 3.0))
        )
    assert 1.0 < slow.promise(2.0) < fast.promise(2.0)
