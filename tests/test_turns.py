"""One search for many problems: whose turn it is, what a turn begins with, and the portfolio at the end."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from landscape import LIMITS, SPACE, TASK, TILES, LandscapeWorkers, evaluate, new_study, write_template

from evo.errors import NotEnoughMemory, NothingFound, UsageError
from evo.loop import SearchSpace, Turn, search, search_spaces
from evo.loop.first_points import Key, key_of
from evo.loop.lent import RATED, Lent
from evo.loop.member import Member
from evo.loop.turns import FIRST_TURN_S, Found, Turns, losing, order_of
from evo.store import Store, TrialRow
from evo.strategy import Proposal
from evo.study import Study
from evo.trial import Candidate, Problem, Trial

BEST_ROWS = {128: 32, 512: 64, 2048: 128}
"""By length: the rows of the fastest kernel; those of another length take longer."""


SMALL = (
    SPACE.replace('"rows", (16, 32, 64, 128)', '"rows", (32, 64, 128)')
    .replace('"columns", (16, 32, 64, 128)', '"columns", (32, 64)')
    .replace('"hint", (0, 1)', '"hint", (0,)')
    .replace('"ghost", (0, 1)', '"ghost", (0,)')
)
"""36 points, with the best of each length: a search tries all of them long before its budget is spent."""
LONG_S = 1000.0


class ShapedWorkers(LandscapeWorkers):
    """The landscape, moved along `rows` by the problem's length."""

    def wait(self, timeout: float) -> list[tuple[int, Trial]]:
        candidates = {number: candidate for _, number, candidate, _ in self._waiting}
        ended = super().wait(timeout)
        return [(number, self._moved(candidates[number])) for number, _ in ended]

    def _moved(self, candidate: object) -> Trial:
        rows = candidate.point["rows"] * 128 // BEST_ROWS[candidate.problem.sizes["L"]]  # type: ignore[attr-defined]
        moved = replace(candidate, point={**candidate.point, "rows": rows})  # type: ignore[type-var, attr-defined]
        return replace(evaluate(moved), candidate=candidate)  # type: ignore[arg-type]


class ShortWorkers(ShapedWorkers):
    """One length does not fit in memory: each of its candidates says so, when it would have ended."""

    def __init__(self, count: int, seconds: float) -> None:
        super().__init__(count, seconds)
        self._short: list[int] = []

    def wait(self, timeout: float) -> list[tuple[int, Trial]]:
        ended = [] if self._short else super().wait(timeout)
        large = {number for number, trial in ended if trial.candidate.problem.sizes["L"] == 2048}
        self._short += large
        kept = [one for one in ended if one[0] not in large]
        if kept or not self._short:
            return kept
        short = NotEnoughMemory("not enough memory for L=2048", "search a smaller --shape")
        short.number = self._short.pop()
        raise short


def tried(row: TrialRow) -> Key:
    return key_of(Proposal(row.template, row.point))


def problem(length: int) -> Problem:
    return TASK.problem(f"1,1,{length},64")


def member(store: Store, folder: Path, length: int, until: str = "budget") -> Member:
    one = problem(length)
    name = f"many-{length}"
    found = next((study for study in store.studies() if study.name == name), None)

    def open_study(
        _without: Collection[str] = (), points: bool = True
    ) -> tuple[Study, Mapping[str, SearchSpace]]:
        spaces = search_spaces([write_template(folder, space=SMALL)], LIMITS, one, points)
        study = Study(name, one, "none", "L4", ("landscape",), LONG_S, workers=2, until=until)
        there = {study.name for study in store.studies()}
        return store.study(name) if name in there else store.create(study), spaces

    return Member(one, open_study, found)


def run(
    folder: Path,
    budget_s: float = LONG_S,
    most: int = 3,
    seconds: float = 0.0,
    crew: type[ShapedWorkers] = ShapedWorkers,
) -> tuple[Found, list[str]]:
    said: list[str] = []
    with Store(folder / "evo.db") as store:
        members = [member(store, folder / "t", length) for length in BEST_ROWS]
        workers = crew(2, seconds)
        turns = Turns(
            members, store, workers, most, lambda m, t: said.append(f"{m.name}: {t}"), lambda _: None
        )
        return turns.run(budget_s), said


def test_the_middle_comes_first_and_then_what_is_nearest_to_what_is_known(tmp_path: Path) -> None:
    with Store(tmp_path / "evo.db") as store:
        members = [member(store, tmp_path, length) for length in (64, 4096, 512, 1024, 16384)]
        order = order_of(members, members)
        assert [one.problem.sizes["L"] for one in order] == [1024, 512, 4096, 16384, 64]
        members[0].times[("x",)] = 1.0
        assert order_of(members, members[1:])[0].problem.sizes["L"] == 512


def test_a_budget_that_is_enough_gives_each_problem_a_turn_whatever_the_others_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here two problems need all of it."""

    class SlowWorkers(ShapedWorkers):
        def submit(self, number: int, candidate: Candidate) -> None:
            time.sleep(2.0)
            super().submit(number, candidate)

    monkeypatch.setattr("evo.loop.turns.GRACE_S", 0.25)
    monkeypatch.setattr("evo.loop.turns.FIRST_TURN_S", 1.25)
    found, said = run(tmp_path, 3.75, crew=SlowWorkers)
    assert [text.split(": ")[1] for text in said[:3]] == [f"first round, {n} of 3" for n in (1, 2, 3)]
    assert all(member.points for member in found.members)


def test_what_a_budget_is_too_short_for_is_known_beforehand(tmp_path: Path) -> None:
    with Store(tmp_path / "evo.db") as store:
        members = [member(store, tmp_path / "t", length) for length in BEST_ROWS]
        turns = Turns(members, store, ShapedWorkers(), 3, lambda *_: None, lambda _: None)
        assert turns.short_of(3 * FIRST_TURN_S) == (3 * FIRST_TURN_S, [])
        least_s, waiting = turns.short_of(1.5 * FIRST_TURN_S)
        assert least_s == 3 * FIRST_TURN_S
        assert [one.problem.sizes["L"] for one in waiting] == [128, 2048], "the middle comes first"
        members[1].points[("x",)] = Proposal("landscape", {})
        assert turns.short_of(2 * FIRST_TURN_S) == (2 * FIRST_TURN_S, [])


def test_each_turn_begins_with_what_was_good_elsewhere_and_all_are_served(tmp_path: Path) -> None:
    found, said = run(tmp_path)
    assert [text.split(": ")[1] for text in said[:3]] == [f"first round, {n} of 3" for n in (1, 2, 3)]
    assert "L=512" in said[0]
    with Store(tmp_path / "evo.db") as store:
        second = problem(128).key if "L=128" in said[1] else problem(2048).key
        study = next(s for s in store.studies() if s.problem.key == second)
        rows = {s.name: store.rows(s) for s in store.studies()}
        first = {tried(row): row.score_us or math.inf for row in rows["many-512"]}
        begun = [tried(row) for row in sorted(rows[study.name], key=lambda row: row.number)[:3]]
        best_of_first = sorted(first.values())[:3]
        assert sorted(first[key] for key in begun) == best_of_first, "the best of the problem before it"
    assert found.portfolio is not None
    assert found.portfolio.worst_regret == 1.0
    best = {one.problem.sizes["L"]: one.best(1)[0].point["rows"] for one in found.members}
    assert best == BEST_ROWS
    for one in found.members:
        assert {key_of(kernel) for kernel in found.kernels.values()} <= one.points.keys()
    assert not found.unserved
    assert not found.interrupted


@pytest.mark.parametrize("seconds", [0.0, 0.02])
def test_a_problem_that_does_not_fit_in_memory_is_told_and_the_others_are_searched(
    tmp_path: Path, seconds: float
) -> None:
    found, said = run(tmp_path, seconds=seconds, crew=ShortWorkers)
    assert found.refused == {problem(2048).key: "not enough memory for L=2048"}
    assert found.unserved == [problem(2048).key]
    assert sum("L=2048" in text for text in said) == 1, "it has no second turn"
    best = {one.problem.sizes["L"]: one.best(1)[0].point["rows"] for one in found.members if one.times}
    assert best == {128: 32, 512: 64}
    with Store(tmp_path / "evo.db") as store:
        studies = {study.name: (study.status, len(store.rows(study))) for study in store.studies()}
    assert studies["many-2048"] == ("failed", 0)
    assert studies["many-512"][1] == 36


def test_of_another_problem_those_are_tried_whose_ctas_fill_the_sms_here(tmp_path: Path) -> None:
    """58 CTAs of 128 rows are one for each SM of an L4. With one more two share an SM; of 118 CTAs of 64 rows
    three share one, where two did."""
    template = write_template(tmp_path, space=SPACE + TILES)
    there, here = problem(58 * 128), problem(59 * 128)
    spaces = search_spaces([template], LIMITS, here)
    with Store(tmp_path / "evo.db") as store:
        study = store.create(replace(new_study("here"), problem=here))
        one = Member(here, lambda *_: (study, spaces))
        other = Member(there, lambda *_: (study, spaces), study)
        for us, rows in ((5.0, 128), (5.1, 64), (9.0, 32)):
            kernel = Proposal(template.name, {**template.space.default, "rows": rows})
            other.points[key_of(kernel)], other.registers[key_of(kernel)] = kernel, rows
            other.times[key_of(kernel)] = us
        assert [kernel.point["rows"] for kernel in one.promising(other, 2)] == [128, 64], "without a space"
        one.begin()
        assert [kernel.point["rows"] for kernel in one.promising(other, 2)] == [64, 128]


def test_one_kernel_for_all_costs_something(tmp_path: Path) -> None:
    found, _ = run(tmp_path, most=1)
    assert found.portfolio is not None
    assert len(found.kernels) == 1
    (kernel,) = found.kernels.values()
    assert kernel.point["rows"] == 64, "the middle"
    regrets = {name.split("L=")[1].split()[0]: regret for name, regret in found.portfolio.regrets.items()}
    assert regrets == {"128": pytest.approx(1.2), "512": 1.0, "2048": pytest.approx(1.2)}
    assert found.left_out.keys() == {one.name for one in found.members}


def test_in_the_last_round_every_problem_tries_the_kernels_of_the_portfolio(tmp_path: Path) -> None:
    with Store(tmp_path / "evo.db") as store:
        for number, length in enumerate(BEST_ROWS):
            one = member(store, tmp_path / "t", length)
            study, spaces = one.open((), True)
            points = spaces["landscape"].feasible.points
            own = [Proposal("landscape", points[at]) for at in range(number, 36, 3)]
            search(study, store, spaces, ShapedWorkers(2), turn=Turn(own, these_alone=True))
        members = [member(store, tmp_path / "t", length) for length in BEST_ROWS]
        for one in members:
            one.over = True  # nothing is left for the other rounds
        said: list[str] = []
        turns = Turns(members, store, ShapedWorkers(2), 3, lambda _, text: said.append(text), lambda _: None)
        found = turns.run(LONG_S)
        assert said
        assert all(text.startswith("last round, ") for text in said)
        assert found.portfolio is not None
        for one in found.members:
            assert {key_of(kernel) for kernel in found.kernels.values()} <= one.points.keys()
            assert 12 < len(one.points) < 36


def test_each_problem_has_so_many_trials_and_then_those_of_the_portfolio(tmp_path: Path) -> None:
    with Store(tmp_path / "evo.db") as store:
        members = [member(store, tmp_path / "t", length, until="9") for length in BEST_ROWS]
        found = Turns(members, store, ShapedWorkers(2), 3, lambda _, __: None, lambda _: None).run(LONG_S)
        counts = [len(store.rows(one.study)) for one in found.members if one.study]
    assert len(counts) == len(BEST_ROWS)
    assert all(9 <= count <= 9 + len(found.kernels) for count in counts)


def test_a_problem_that_nothing_serves_is_said(tmp_path: Path) -> None:
    with Store(tmp_path / "evo.db") as store:
        members = [member(store, tmp_path / "t", length) for length in (128, 512)]

        def refuse(*_: object) -> tuple[Study, Mapping[str, SearchSpace]]:
            raise UsageError("no template serves it")

        lost = Member(problem(2048), refuse)
        turns = Turns([*members, lost], store, ShapedWorkers(2), 2, lambda *_: None, lambda _: None)
        found = turns.run(LONG_S)
        assert found.unserved == [lost.name]
        assert found.portfolio is not None
        with pytest.raises(NothingFound, match="none of 1 problems") as told:
            Turns([lost], store, ShapedWorkers(2), 2, lambda *_: None, lambda _: None).run(1.0)
        assert told.value.hint.startswith("no template serves it")


def lending(
    folder: Path, workers: LandscapeWorkers
) -> tuple[Lent, list[tuple[Member, int]], Callable[[Member, int], Candidate]]:
    """Workers that are lent, what came late of them, and what makes a problem's candidate of a number."""
    template, late = write_template(folder), list[tuple[Member, int]]()
    points = template.space.feasible(LIMITS, problem(128)).points
    lent = Lent(workers, lambda member, number, _: late.append((member, number)))
    return lent, late, lambda one, number: template.candidate(points[number], one.problem)


class TwoEvaluators(LandscapeWorkers):
    """The first two candidates have evaluators; whatever is there has ended when it is asked for."""

    def withdraw(self, numbers: Collection[int]) -> set[int]:
        given_up = {one[1] for one in self._waiting[2:] if one[1] in numbers}
        self._waiting = [one for one in self._waiting if one[1] not in given_up]
        return given_up


def test_what_no_evaluator_has_is_given_up_and_the_rest_comes_late(tmp_path: Path) -> None:
    lent, late, candidate = lending(tmp_path, TwoEvaluators(2))
    with Store(tmp_path / "evo.db") as store:
        old, new = (member(store, tmp_path, length) for length in (128, 512))
    lent.begin(old)
    for number in range(4):
        lent.submit(number, candidate(old, number))
    lent.close()
    lent.begin(new)
    lent.submit(7, candidate(new, 0))
    ended: list[tuple[int, Trial]] = []
    while len(ended) + len(late) < 3:
        ended += lent.wait(0.1)
    assert [(number, trial.candidate.problem) for number, trial in ended] == [(7, new.problem)]
    assert late == [(old, 0), (old, 1)]


class OneAtATime(TwoEvaluators):
    """Each wait ends the candidate that came first."""

    def wait(self, _timeout: float) -> list[tuple[int, Trial]]:
        ended, self._waiting = self._waiting[:1], self._waiting[1:]
        return [(number, evaluate(candidate)) for _, number, candidate, _ in ended]


def test_what_stays_is_evaluated_in_later_turns_which_begin_when_half_of_it_has_ended(tmp_path: Path) -> None:
    lent, late, candidate = lending(tmp_path, OneAtATime(8))
    with Store(tmp_path / "evo.db") as store:
        old, new = (member(store, tmp_path, length) for length in (128, 512))
    lent.begin(old, stay=True)
    for number in range(8):
        lent.submit(number, candidate(old, number))
    lent.close()
    assert not late
    lent.begin(new, stay=True)
    assert late == [(old, number) for number in range(3)], "half of the capacity of 10 is left"
    lent.settle()
    assert late == [(old, number) for number in range(8)]
    lent.begin(old, stay=True)
    for number in range(8):
        lent.submit(number, candidate(old, number))
    lent.close()
    lent.settle(at_once=True)
    assert late[8:] == [(old, 0), (old, 1)], "those that an evaluator had"


def test_towards_its_end_a_turn_has_no_more_under_way_than_will_end(tmp_path: Path) -> None:
    lent, _, candidate = lending(tmp_path, LandscapeWorkers(2))
    with Store(tmp_path / "evo.db") as store:
        one = member(store, tmp_path, 128)
    most = LandscapeWorkers(2).capacity
    lent.begin(one)
    lent.ends_at = time.monotonic()
    assert lent.capacity == most, "nothing has said yet how fast they end"
    for number in range(RATED):
        lent.submit(number, candidate(one, number))
        assert lent.wait(1.0)
    assert lent.capacity == 1
    lent.ends_at = time.monotonic() + LONG_S
    assert lent.capacity == most
    lent.begin(one, stay=True)
    assert lent.capacity == most, "such a turn has no end of its own"


def test_points_are_let_go_where_they_take_too_much_memory_and_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, said = run(tmp_path / "kept")
    assert all(one.nbytes for one in found.members)
    one = found.members[0]
    monkeypatch.setattr("evo.loop.turns.POINTS_BYTES", one.nbytes)
    again, said_again = run(tmp_path / "one")
    assert [bool(one.nbytes) for one in again.members].count(True) == 1
    assert said_again == said
    assert [one.times for one in again.members] == [one.times for one in found.members]


def test_what_comes_late_is_in_the_study_and_no_number_is_used_twice(tmp_path: Path) -> None:
    """Budgets of turns that are too short for a kernel: each ends when one is right, the others come late."""
    found, said = run(tmp_path, 0.5, seconds=0.3)
    assert len(said) >= 1
    with Store(tmp_path / "evo.db") as store:
        for one in found.members:
            if one.study is None:
                continue
            rows = store.rows(one.study)
            assert len({row.number for row in rows}) == len(rows) == len(one.points) >= 1
            assert one.times == {tried(row): row.score_us for row in rows if row.score_us is not None}


def test_a_template_that_loses_by_far_on_smaller_or_near_problems_is_left_out(tmp_path: Path) -> None:
    with Store(tmp_path / "evo.db") as store:
        members = {length: member(store, tmp_path, length) for length in (64, 128, 256, 1024, 16384)}
    slow, fast = ("slow", ("rows", "1")), ("fast", ("rows", "1"))
    members[128].times, members[128].best_us = {slow: 70.0, fast: 10.0}, 10.0
    assert losing(members[16384], [members[128]]) == {"slow"}, "it is larger"
    assert losing(members[64], [members[128]]) == {"slow"}, "it is near"
    members[1024].times, members[1024].best_us = {slow: 900.0, fast: 10.0}, 10.0
    assert losing(members[64], [members[1024]]) == set(), "it is far, and smaller"
    members[256].times, members[256].best_us = {slow: 20.0, fast: 10.0}, 10.0
    assert losing(members[1024], [members[256], members[128]]) == set(), "one of two has seen it do well"
    assert losing(members[16384], [members[128], members[1024], members[256]]) == {"slow"}, "the nearest tell"


def test_these_points_alone_are_tried(tmp_path: Path) -> None:
    with Store(tmp_path / "evo.db") as store:
        study, spaces = member(store, tmp_path / "t", 512).open((), True)
        chosen = [spaces["landscape"].feasible.points[n] for n in (5, 15, 30)]
        wanted = [Proposal("landscape", point) for point in chosen]
        study = replace(study, budget_s=30.0)
        result = search(study, store, spaces, ShapedWorkers(2), turn=Turn(wanted, these_alone=True))
        assert result.stopped == "tried"
        assert [dict(row.point) for row in sorted(store.rows(study), key=lambda r: r.number)] == chosen
