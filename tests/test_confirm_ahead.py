"""What is checked while a search still goes on: with a real database; the worker notes what it is told."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from finals import SimulatedWorker
from landscape import LandscapeWorkers, evaluate, new_study, spaces_of
from times import timing

from evo.confirm.ahead import LEAD_S, LOOK_S, Ahead
from evo.confirm.confirmation import TOP, is_hurried, reserve_s, rounds_s
from evo.confirm.on_emulator import GateRequest
from evo.confirm.rounds import slow
from evo.loop import Progress, search
from evo.store import Store
from evo.study import Study
from evo.trial import Interval, Timing


class Told(SimulatedWorker):
    """Keeps what it was told last."""

    asked_at = 0.0

    def expect(self, coming: Sequence[GateRequest], asked_at: float) -> None:
        self.expected, self.asked_at = [name for name, _, _ in coming], asked_at


class Searched:
    """A study to which trials are added by hand."""

    def __init__(self, folder: Path, store: Store, budget_s: float = 600.0) -> None:
        self.study: Study = store.create(new_study(budget_s=budget_s))
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
            assert made == [reserve], "its process starts"
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
            for left_s in (1.0, 0.0):  # the second time sooner than it was told
                before = time.time() + left_s
                ahead.look(reserve + left_s)
                assert len(worker.expected) == TOP, "at the end there is no time to wait"
                assert before - 0.1 <= worker.asked_at <= time.time() + left_s
    assert len(made) == 1


def test_a_worker_is_told_once(tmp_path: Path) -> None:
    told: list[float] = []

    class Counts(Told):
        def expect(self, coming: Sequence[GateRequest], asked_at: float) -> None:  # noqa: ARG002
            told.append(asked_at)

    with Store(tmp_path / "evo.db") as store:
        searched = Searched(tmp_path, store)
        searched.add(128, 64, 3)
        with Ahead(searched.study, store, lambda _: Counts()) as ahead:
            ends = time.monotonic() + ahead.reserve_s + 2.5
            while (left_s := ends - time.monotonic()) > ahead.reserve_s:
                ahead.look(left_s)
                time.sleep(0.1)
    assert len(told) == 1, "it is steady from the start, for little time is left"


def test_a_resumed_search_keeps_a_share_of_what_it_has_got(tmp_path: Path) -> None:
    """A study of ten minutes that was given two more kept all of these."""
    with Store(tmp_path / "evo.db") as store:
        study = replace(Searched(tmp_path, store, 720.0).study, spent_s=600.0)
        with Ahead(study, store, lambda _: Told()) as ahead:
            assert ahead.reserve_s == pytest.approx(30.0)


def test_more_is_kept_where_rounds_take_long(tmp_path: Path) -> None:
    """Ten rounds of a kernel of 3 ms and the three baselines that take part; `math` does with time enough."""
    baselines_us = {"cudnn": 3700.0, "flash": 3800.0, "efficient": 8000.0, "math": 52_000.0}
    near = Interval(2990.0, 3010.0)
    long = timing((3000.0,) * 4, 3000.0, near, baselines_us, 1.2, Interval(1.1, 1.3))
    assert rounds_s(long, 1, hurried=True) == pytest.approx(6 + 10 * 9 * 18.5e-3)
    assert rounds_s(long, 1, hurried=False) == pytest.approx(6 + 10 * 9 * 70.5e-3)
    assert (is_hurried(60.0), is_hurried(120.0)) == (True, False)
    made: list[float] = []

    def make(left_s: float) -> Told:
        made.append(left_s)
        return Told()

    with Store(tmp_path / "evo.db") as store:
        searched = Searched(tmp_path, store, 60.0)
        names = [searched.add(*at, long, {"gate": 0.5}) for at in [(128, 64, 3), (64, 64, 3), (32, 64, 3)]]
        longer_s = 10 * 9 * 18.5e-3 + 10 * 0.5
        with Ahead(searched.study, store, make) as ahead:
            assert ahead.reserve_s == 15.0
            ahead.look(30.0 + LEAD_S)
            assert ahead.reserve_s == pytest.approx(15.0 + longer_s)
            assert made == [], "it is too early for a worker"
            time.sleep(LOOK_S)
            ahead.look(15.0 + longer_s + LEAD_S)
        leading = [store.trial(name) for name in names]
    assert made == [15.0], "what is kept for slow kernels is no time for baselines that must be compiled"
    assert reserve_s(8.0, leading) == 4.0, "half of the budget is for the search"
    slow = [replace(trial, seconds={"gate": 60.0}) for trial in leading]
    assert reserve_s(36_000.0, slow) == 240.0
    assert reserve_s(36_000.0) == 120.0


def test_a_search_ends_sooner_where_rounds_take_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as launches of milliseconds would."""
    monkeypatch.setattr("evo.confirm.confirmation.ROUND_LAUNCHES", 100_000)
    seen: list[Progress] = []
    with Store(tmp_path / "evo.db") as store:
        study = store.create(new_study(budget_s=12.0, strategy="random"))
        workers = LandscapeWorkers(seconds=0.1)
        search(study, store, spaces_of(tmp_path / "t"), workers, seen.append, lambda _: SimulatedWorker())
    begun = next(progress.spent_s for progress in seen if progress.phase == "confirming")
    assert 5.5 < begun < 8.9, "half of the budget is kept, not a quarter"


def test_slow_baselines_take_no_part_where_time_is_short() -> None:
    few = {"cudnn": 900.0, "flash": 1000.0, "math": 9000.0}
    assert list(slow(few)) == ["math"]
    assert slow(few)["math"].startswith("takes 10 times as long as the fastest; `evo confirm`")
    assert slow({name: us / 5 for name, us in few.items()}) == {}, "they take no time"
    assert slow({"eager": 9000.0, "compiled": 3000.0}) == {}
    assert slow({"eager": 9000.0}) == {}
    assert slow({}) == {}


def test_without_a_confirmation_nothing_is_checked(tmp_path: Path) -> None:
    with Store(tmp_path / "evo.db") as store:
        searched = Searched(tmp_path, store)
        searched.add(64, 64, 3)
        with Ahead(searched.study, store, None) as ahead:
            ahead.look(0.0)
