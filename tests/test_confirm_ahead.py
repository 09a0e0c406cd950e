"""What is checked while a search still goes on: with a real database; the worker notes what it is told."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from finals import SimulatedWorker
from landscape import evaluate, new_study, spaces_of
from times import timing

from evo.confirm.ahead import LEAD_S, Ahead
from evo.confirm.confirmation import TOP, reserve_s, rounds_s
from evo.confirm.on_emulator import GateRequest
from evo.store import Store
from evo.study import Study
from evo.trial import Interval, Timing


class Told(SimulatedWorker):
    """Keeps what it was told last."""

    left_s = -1.0

    def expect(self, coming: Sequence[GateRequest], left_s: float) -> None:
        self.expected, self.left_s = [name for name, _, _ in coming], left_s


class Searched:
    """A study to which trials are added by hand."""

    def __init__(self, folder: Path, store: Store) -> None:
        self.study: Study = store.create(new_study())
        self._template = spaces_of(folder / "t")["landscape"].template
        self._store, self._count = store, 0

    def add(self, rows: int, columns: int, stages: int, timing: Timing | None = None,
            seconds: Mapping[str, float] | None = None) -> str:  # fmt: skip
        """The name of another trial, with this `timing` or its own."""
        self._count += 1
        point = {"rows": rows, "columns": columns, "stages": stages, "wide": True}
        whole = {**self._template.space.default, **point}
        trial = evaluate(self._template.candidate(whole, self.study.problem))
        trial = replace(trial, timing=timing or trial.timing, seconds=seconds or {})
        self._store.add(self.study, self._count, trial)
        return f"{self.study.name}/{self._count}"


def test_what_has_led_for_a_while_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The best first, and no longer what was overtaken."""
    monkeypatch.setattr("evo.confirm.ahead.LOOK_S", 0.0)
    monkeypatch.setattr("evo.confirm.ahead.STEADY_S", 1.0)
    worker, made = Told(), list[float]()

    def make(left_s: float) -> Told:
        made.append(left_s)
        return worker

    with Store(tmp_path / "evo.db") as store:
        searched = Searched(tmp_path, store)
        reserve = reserve_s(searched.study.budget_s)
        slow = [searched.add(*point) for point in [(32, 32, 2), (32, 32, 3), (64, 32, 3), (128, 32, 3)]]
        with Ahead(searched.study, store, make) as ahead:
            ahead.look(reserve + LEAD_S + 1)
            assert made == [], "it is too early"
            ahead.look(reserve + LEAD_S)
            assert made == [pytest.approx(reserve, rel=0.01)], "its process starts"
            assert worker.expected == [], "nothing is steady yet"
            time.sleep(1.0)
            ahead.look(reserve + LEAD_S)
            assert worker.expected == slow[::-1]
            fast = searched.add(128, 64, 3)
            ahead.look(reserve + LEAD_S)
            assert worker.expected == slow[::-1]
            time.sleep(1.0)
            ahead.look(reserve + LEAD_S)
            assert worker.expected == [fast, *slow[::-1]]
            assert len(worker.expected) == TOP
            searched.add(128, 64, 2)
            searched.add(64, 64, 3)
            ahead.look(reserve + LEAD_S)
            assert worker.expected == [fast, slow[3], slow[2]], "two are overtaken, by two that are new"
            ahead.look(reserve + 1.0)
            assert len(worker.expected) == TOP, "at the end there is no time to wait"
            assert worker.left_s == pytest.approx(1.0, abs=0.1)
    assert len(made) == 1


def test_more_is_kept_where_rounds_take_long(tmp_path: Path) -> None:
    """Ten rounds of a kernel of 3 ms and the three baselines that take part."""
    baselines_us = {"cudnn": 3700.0, "flash": 3800.0, "efficient": 8000.0, "math": 52_000.0}
    near = Interval(2990.0, 3010.0)
    slow = timing((3000.0,) * 4, 3000.0, near, baselines_us, 1.2, Interval(1.1, 1.3))
    assert rounds_s(slow, 1) == pytest.approx(6 + 10 * 9 * 18.5e-3)
    longer_s = rounds_s(slow, 1) - 6 + 10 * 0.5
    with Store(tmp_path / "evo.db") as store:
        searched = Searched(tmp_path, store)
        name = searched.add(128, 64, 3, slow, {"gate": 0.5})
        made: list[float] = []

        def make(left_s: float) -> Told:
            made.append(left_s)
            return Told()

        with Ahead(searched.study, store, make) as ahead:
            usual = ahead.reserve_s
            ahead.look(usual + LEAD_S)
            assert ahead.reserve_s == pytest.approx(usual + longer_s)
        best = store.trial(name)
    assert made == [usual], "it is no time for baselines that must be compiled"
    assert reserve_s(8.0, best) == 4.0, "half of the budget is for the search"
    assert reserve_s(60.0) == 15.0


def test_without_a_confirmation_nothing_is_checked(tmp_path: Path) -> None:
    with Store(tmp_path / "evo.db") as store:
        searched = Searched(tmp_path, store)
        searched.add(64, 64, 3)
        with Ahead(searched.study, store, None) as ahead:
            ahead.look(0.0)
