"""A search for many problems that a person ends, and that goes on."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from landscape import LandscapeWorkers
from test_turns import BEST_ROWS, LONG_S, ShapedWorkers, member, run, tried

from evo.loop import Progress, Turn, search
from evo.loop.first_points import key_of
from evo.loop.member import Member
from evo.loop.turns import POINTS_BYTES, Found, Turns
from evo.store import Store
from evo.strategy import Proposal


def test_a_person_ends_all_turns(tmp_path: Path) -> None:
    said: list[str] = []

    def interrupt(one: Member, _text: str) -> None:
        said.append(one.name)

    with Store(tmp_path / "evo.db") as store:
        members = [member(store, tmp_path / "t", length) for length in BEST_ROWS]
        sent: list[Progress] = []

        def shown(progress: Progress) -> None:
            if progress.latest and not sent:
                sent.append(progress)
                os.kill(os.getpid(), signal.SIGINT)

        found = Turns(members, store, ShapedWorkers(2, 0.002), 2, interrupt, shown).run(LONG_S)
    assert found.interrupted
    assert len(said) == 1


def test_a_person_ends_all_turns_between_two(tmp_path: Path) -> None:
    said: list[str] = []

    def interrupt(one: Member, _text: str) -> None:
        said.append(one.name)
        if len(said) == 2:
            os.kill(os.getpid(), signal.SIGINT)

    with Store(tmp_path / "evo.db") as store:
        members = [member(store, tmp_path / "t", length) for length in BEST_ROWS]
        found = Turns(members, store, ShapedWorkers(2), 2, interrupt, lambda _: None).run(LONG_S)
        assert found.interrupted
        assert len(said) == 2
        tried = {one.name: len(one.points) for one in members}
        assert tried[said[0]] > 0
        assert tried[said[1]] == 0


def test_a_search_that_ended_goes_on_and_repeats_nothing(tmp_path: Path) -> None:
    with Store(tmp_path / "evo.db") as store:
        members = [member(store, tmp_path / "t", length) for length in BEST_ROWS]
        seen: set[str] = set()

        def shown(progress: Progress) -> None:
            if progress.latest and len(seen) < len(BEST_ROWS):  # a second signal would end the process
                seen.add(progress.study.name)
                if len(seen) == len(BEST_ROWS):
                    os.kill(os.getpid(), signal.SIGINT)

        Turns(members, store, ShapedWorkers(2, 0.01), 2, lambda *_: None, shown).run(LONG_S)
        before = {s.name: len(store.rows(s)) for s in store.studies()}
        assert sum(before.values()) < 36 * len(BEST_ROWS)
    _, said = run(tmp_path)
    assert not [text for text in said if "first round" in text]
    with Store(tmp_path / "evo.db") as store:
        for study in store.studies():
            points = [tried(row) for row in store.rows(study)]
            assert len(points) == len(set(points))
            assert len(points) >= before[study.name]
        assert sum(len(store.rows(s)) for s in store.studies()) > sum(before.values())


@pytest.mark.slow
def test_two_hundred_problems_are_searched_ended_and_gone_on_with(tmp_path: Path) -> None:
    """Every problem is served, whatever ended the search in between, and few kernels serve all."""
    lengths = range(1, 201)
    with Store(tmp_path / "evo.db") as store:

        def searched(end_with: int) -> tuple[Found, list[str]]:
            members = [member(store, tmp_path / "t", length) for length in lengths]
            said: list[str] = []

            sent: list[int] = []

            def shown(_: Progress) -> None:
                if len(said) == end_with and not sent:
                    sent.append(end_with)
                    os.kill(os.getpid(), signal.SIGINT)

            workers = LandscapeWorkers(2)
            search_all = Turns(members, store, workers, 12, lambda m, _: said.append(m.name), shown)
            return search_all.run(LONG_S), said

        found, said = searched(100)
        assert found.interrupted
        assert len(said) == 100
        assert len(found.unserved) in (100, 101), "the turn that ended may have tried nothing"
        found, said = searched(-1)
        assert len(said) >= 100
        assert not found.unserved
        assert found.portfolio is not None
        assert found.portfolio.worst_regret == 1.0, "it is the same landscape for all"
        assert all(len(one.points) == 36 for one in found.members)
        assert sum(one.nbytes for one in found.members) <= POINTS_BYTES
        assert set(found.left_out.values()) == {1.0}


def test_a_person_ends_the_last_round_and_what_was_under_way_is_tried_when_it_goes_on(tmp_path: Path) -> None:
    """There kernels of one problem are evaluated while those of the next are proposed."""
    with Store(tmp_path / "evo.db") as store:
        for number, length in enumerate(BEST_ROWS):
            study, spaces = member(store, tmp_path / "t", length).open((), True)
            every = spaces["landscape"].feasible.points
            own = [Proposal("landscape", every[at]) for at in range(number, 36, 3)]
            search(study, store, spaces, ShapedWorkers(2), turn=Turn(own, these_alone=True))

        def searched(end_with: int) -> tuple[Found, int]:
            members = [member(store, tmp_path / "t", length) for length in BEST_ROWS]
            for one in members:
                one.over = True  # nothing is left for the other rounds
            said: list[str] = []

            def told(_: Member, text: str) -> None:
                said.append(text)
                if len(said) == end_with:
                    os.kill(os.getpid(), signal.SIGINT)

            workers = ShapedWorkers(2, seconds=0.05, queued=30)
            found = Turns(members, store, workers, 3, told, lambda _: None).run(LONG_S)
            assert all(text.startswith("last round, ") for text in said)
            return found, sum(len(store.rows(study)) for study in store.studies())

        found, tried_first = searched(end_with=2)
        assert found.interrupted
        found, tried_in_all = searched(end_with=-1)
        assert not found.interrupted
        assert tried_in_all > tried_first
        assert found.portfolio is not None
        for one in found.members:
            assert {key_of(kernel) for kernel in found.kernels.values()} <= one.points.keys()
        for study in store.studies():
            points = [tried(row) for row in store.rows(study)]
            assert len(points) == len(set(points))


class SpendingTurns(Turns):
    """Its rounds spend what they would, and try nothing."""

    spent_s, takes_s = 0.0, 20.0

    @property
    def _spent_s(self) -> float:
        return self.spent_s

    def _first_round(self, budget_s: float) -> None:
        self.spent_s = 0.5 * budget_s

    def _second_round(self, until_s: float, usual_s: float) -> None:
        assert min(usual_s, until_s - self.spent_s) >= 1.0, "a turn has time"
        self.spent_s = until_s

    def _last_round(self, until_s: float) -> None:
        """The first one takes more than its part of the budget, later ones less and less."""
        self.spent_s = min(self.spent_s + self.takes_s, until_s)
        self.takes_s /= 3


@pytest.mark.parametrize("budget_s", [30.0, 100.0, 1000.0])
def test_what_a_last_round_does_not_need_buys_more_turns_until_all_is_spent(
    tmp_path: Path, budget_s: float
) -> None:
    with Store(tmp_path / "evo.db") as store:
        one = member(store, tmp_path / "t", 128)
        one.times[("x",)], one.points[("x",)] = 1.0, Proposal("landscape", {})
        turns = SpendingTurns([one], store, ShapedWorkers(2), 1, lambda *_: None, lambda _: None)
        turns.run(budget_s)
    assert budget_s - 2.0 < turns.spent_s <= budget_s
