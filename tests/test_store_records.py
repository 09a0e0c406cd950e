"""What goes into the store comes out again, on SQLite and on PostgreSQL."""

from __future__ import annotations

import dataclasses
import math

import pytest
from times import timing, timing_on
from trials import PROBLEM, candidate, estimated, failed, study, timed

from evo.errors import StoreError, UnknownName, UsageError
from evo.store import Store, TrialRow
from evo.trial import (
    CaseError,
    Extent,
    Interval,
    Outcome,
    Trial,
)


@pytest.mark.parametrize(
    "trial",
    [
        timed(),
        timed(resources=None, machine_code="", errors=()),
        estimated(1, 12.5),
        dataclasses.replace(failed(2, Outcome.RED, "row error"), detail="fine"),
        timed(timing=timing_on({"normal": 3.5, "sharp": 5.5}, {"cudnn": 9.0, "flash": 10.0}, "sharp", 4)),
        timed(timing=timing_on({"normal": 3.5, "sharp": 3.75}, {}, "mean")),
        timed(extent=Extent({"tile": (3, 4), "ragged": (0, 24)}, 0.125, ("ragged: 24 cases, over budget",))),
    ],
)
def test_a_trial_comes_back_as_it_was(store: Store, trial: Trial) -> None:
    mine = store.create(study(ranking=trial.timing.ranking if trial.timing else "worst"))
    store.add(mine, 7, trial)
    stored = store.trial("mission-1/7")
    assert stored == trial
    assert stored.candidate.problem.key == PROBLEM.key
    assert list(stored.candidate.point) == list(trial.candidate.point), "the order of the parameters renders"
    assert store.trial(stored.id) == stored
    assert store.rows(mine) == [TrialRow.of(7, trial)]


def test_a_trial_of_another_problem_keeps_it(store: Store) -> None:
    mine = store.create(study())
    other = PROBLEM.replace(L=2048, causal=True)
    store.add(mine, 0, timed(candidate=candidate(problem=other)))
    assert store.trial("mission-1/0").candidate.problem == other


def test_a_study_comes_back_as_it_was(store: Store) -> None:
    first = study(
        smem_limit=49152,
        target="sm_89",
        rate=0.51,
        folders=("/some/folder", "/another"),
        warm_start={"earlier": 3},
        versions={"evo": "0.1"},
        seed=2**40,
        accept_unproven=True,
        ranking="sharp",
        portfolio=4,
    )
    made = store.create(first)
    assert dataclasses.replace(made, id=0, created="") == first
    store.set_baselines(made, {"cudnn": 9.1})
    again = store.claim(made, 1, 240.0)
    assert again.rate == 0.51
    again = store.claim(made, 1, rate=0.6)
    assert (again.budget_s, again.baselines_us, again.rate) == (240.0, {"cudnn": 9.1}, 0.6)
    store.create(study("mission-2"))
    assert [s.name for s in store.studies()] == ["mission-1", "mission-2"]
    assert store.unused_name("mission") == "mission-3"


def test_rejects_names(store: Store) -> None:
    store.create(study())
    with pytest.raises(UsageError, match="already"):
        store.create(study())
    for name in ("", "a/b", " a", "12"):
        with pytest.raises(UsageError, match="unusable"):
            store.create(study(name))
    with pytest.raises(UnknownName) as caught:
        store.study("mision-1")
    assert "did you mean mission-1?" in caught.value.hint
    with pytest.raises(UnknownName, match="unknown study"):
        store.trial("nothing/1")
    with pytest.raises(UnknownName, match="unknown trial"):
        store.trial("mission-1/1")
    with pytest.raises(UsageError, match="malformed trial"):
        store.trial("mission-1/x")
    with pytest.raises(UnknownName):
        store.leaderboard(study="nothing")


def test_a_number_is_recorded_once(store: Store) -> None:
    mine = store.create(study())
    store.add(mine, 0, timed())
    with pytest.raises(StoreError):
        store.add(mine, 0, timed(1))
    assert [row.machine_code for row in store.rows(mine)] == ["code 0"]
    store.add(
        mine, 1, timed(1)
    )  # what the failed transaction had inserted besides is not assumed to be there
    assert store.trial("mission-1/1") == timed(1)


def test_another_visit_changes_what_it_found_and_nothing_else(store: Store) -> None:
    mine, other = store.create(study()), store.create(study("other-1"))
    store.add(mine, 0, timed(0, 7.0))
    store.add(mine, 1, timed(1, 6.0))
    store.add(mine, 2, timed(2, 6.0), same_as=1)
    store.add(other, 1, timed(5, 9.0))
    before = {name: store.trial(name) for name in ("mission-1/0", "mission-1/1", "mission-1/2", "other-1/1")}
    found = before["mission-1/1"]
    assert found.timing
    more = timing((8.0,) * 6, 8.0, Interval(7.5, 8.5), {"cudnn": 9.1}, 1.1, clocks={"sm_mhz": 1900.0})
    again = dataclasses.replace(found, timing=more, evaluations=2, seconds={"gate": 99.0}, device="another")
    store.revise(mine, [1, 2], again, 12.5)
    for name, number in (("mission-1/1", 1), ("mission-1/2", 2)):
        was, now = before[name], store.trial(name)
        assert now == dataclasses.replace(was, timing=more, evaluations=2)
        assert (now.id, now.number, now.created) == (was.id, number, was.created)
    assert [r.number for r in store.leaderboard(study="mission-1")] == [0, 1]
    assert store.study("mission-1").spent_s == 12.5

    errors = (CaseError(PROBLEM.key, "normal", 9, 0.5, 0.02),)
    red = dataclasses.replace(
        found, outcome=Outcome.RED, reason="race", detail="two", where="k.cu:3", errors=errors, timing=None
    )
    store.revise(mine, [1, 2], dataclasses.replace(red, seconds={"gate": 99.0}), 13.0)
    assert store.trial("mission-1/1") == red
    assert [r.number for r in store.leaderboard(study="mission-1")] == [0]
    assert [(f.reason, f.count) for f in store.failures(mine)] == [("race", 2)]
    assert [row.median_us for row in store.rows(mine)] == [7.0, None, None]
    for name in ("mission-1/0", "other-1/1"):
        assert store.trial(name) == before[name]


def test_numbers_that_are_none_are_null(store: Store) -> None:
    mine = store.create(study())
    errors = (
        CaseError(PROBLEM.key, "normal", 0, math.nan, 0.02),
        CaseError(PROBLEM.key, "huge", 0, 0.5, 0.02),
    )
    store.add(mine, 0, dataclasses.replace(failed(0, Outcome.RED, "row error"), errors=errors))
    stored = store.trial("mission-1/0")
    assert [e.row_error for e in stored.errors] == [math.inf, 0.5]
    for wrong in (math.inf, -1.0, 0.0):
        with pytest.raises(StoreError):
            store.add(mine, 1, timed(1, median_us=wrong))
        with pytest.raises(StoreError):
            store.add(mine, 1, estimated(1, wrong))
    with pytest.raises(Exception, match="JSON compliant"):
        store.add(mine, 1, timed(1, seconds={"gate": math.nan}))
    assert len(store.rows(mine)) == 1
