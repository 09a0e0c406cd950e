"""What is checked while a search still goes on: with a real database; the worker notes what it is told."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from finals import SimulatedWorker
from landscape import evaluate, new_study, spaces_of

from evo.confirm.ahead import LEAD_S, Ahead
from evo.confirm.confirmation import TOP, reserve_s
from evo.confirm.worker import GateRequest
from evo.store import Store
from evo.study import Study


class Told(SimulatedWorker):
    """Keeps what it was told last."""

    def expect(self, coming: Sequence[GateRequest]) -> None:
        self.expected = [name for name, _, _ in coming]


class Searched:
    """A study to which trials are added by hand."""

    def __init__(self, folder: Path, store: Store) -> None:
        self.study: Study = store.create(new_study())
        self._template = spaces_of(folder / "t")["landscape"].template
        self._store, self._count = store, 0

    def add(self, rows: int, columns: int, stages: int) -> str:
        """The name of another trial."""
        self._count += 1
        point = {"rows": rows, "columns": columns, "stages": stages, "wide": True}
        whole = {**self._template.space.default, **point}
        trial = evaluate(self._template.candidate(whole, self.study.problem))
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
            assert (made, worker.expected) == ([reserve], []), "its process starts; nothing is steady yet"
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
    assert made == [reserve]


def test_without_a_confirmation_nothing_is_checked(tmp_path: Path) -> None:
    with Store(tmp_path / "evo.db") as store:
        searched = Searched(tmp_path, store)
        searched.add(64, 64, 3)
        with Ahead(searched.study, store, None) as ahead:
            ahead.look(0.0)
