"""Leaders that are visited again: who, how often, and what becomes of what is known of them."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from landscape import BEST_US, PROBLEM, SIZE, LandscapeWorkers, ground_of, new_study

from evo.search import Ground, Progress, search
from evo.search.remeasure import ENOUGH, MOST, Leaders
from evo.store import Store, TrialRow
from evo.timing.statistics import joined, median_interval
from evo.trial import Candidate, CaseError, Interval, LaunchConfig, Outcome, Timing, Trial


def timing(*samples_us: float, **more: object) -> Timing:
    median = statistics.median(samples_us)
    made = Timing(samples_us, median, Interval(min(samples_us), max(samples_us)), "warm")
    return replace(made, **more)  # type: ignore[arg-type]


def timed(number: int, *samples_us: float) -> Trial:
    candidate = Candidate(
        PROBLEM, "t", {"at": number}, f"//\n\n{number}", "k", LaunchConfig((1, 1, 1), (1, 1, 1), 0, ())
    )
    return Trial(candidate, Outcome.TIMED, timing=timing(*samples_us), seconds={"gate": 1.0})


class Known(dict[int, Trial]):
    """Trials by number; counts how often one was read."""

    read = 0

    def whole(self, number: int) -> Trial:
        self.read += 1
        return self[number]

    def leaders(self) -> Leaders:
        made = Leaders(self.whole)
        for number, trial in self.items():
            made.hear(TrialRow.of(number, trial))
        return made


# ---- two visits are one timing


def test_joined_samples_are_one_timing() -> None:
    one = timing(5.0, 6.0, 7.0, baselines_us={"sdpa": 8.0}, clocks={"sm_mhz": 1900.0},
                 speedup=2.0, speedup_interval=Interval(1.9, 2.1))  # fmt: skip
    two = timing(*[9.0] * 6, baselines_us={"sdpa": 9.0}, clocks={"sm_mhz": 1800.0},
                 speedup=1.0, speedup_interval=Interval(0.9, 2.0))  # fmt: skip
    both = joined(one, two)
    assert both.samples_us == one.samples_us + two.samples_us
    assert both.median_us == 9.0
    assert both.interval == median_interval(np.array(both.samples_us))
    assert (both.protocol, both.baselines_us) == ("warm", {"sdpa": 9.0})
    assert both.clocks == {"sm_mhz": 1800.0, "visits": 2.0}
    assert both.speedup == pytest.approx(2 ** (3 / 9))
    assert both.speedup_interval == Interval(0.9, 2.1)
    assert (one.visits, both.visits, joined(both, two).visits, joined(both, both).visits) == (1, 2, 3, 4)


def test_a_speedup_that_one_visit_lacks_is_the_other_ones() -> None:
    plain, ratio = timing(5.0), timing(5.0, speedup=2.0, speedup_interval=Interval(1.9, 2.1))
    for both in (joined(plain, ratio), joined(ratio, plain)):
        assert (both.speedup, both.speedup_interval) == (2.0, Interval(1.9, 2.1))
    assert joined(plain, plain).speedup is None


def test_protocols_are_never_joined() -> None:
    with pytest.raises(ValueError, match="cold samples cannot be joined with warm"):
        joined(timing(5.0, protocol="cold"), timing(5.0))


# ---- who is visited


def test_the_fewest_visits_come_first_then_the_better_time() -> None:
    known = Known({0: timed(0, 7.0), 1: timed(1, 5.0), 2: timed(2, 6.0)})
    leaders = known.leaders()
    assert leaders.next(()) == (1, known[1].candidate, 1)
    assert leaders.next({1}) == (2, known[2].candidate, 1)
    assert leaders.next({0, 1, 2}) is None
    again = leaders.again(1, timed(1, 8.0, 8.0))
    assert again == replace(known[1], timing=joined(known[1].timing, timing(8.0, 8.0)))  # type: ignore[arg-type]
    assert leaders.next(()) == (2, known[2].candidate, 1)
    leaders.again(2, timed(2, 6.0))
    leaders.again(0, timed(0, 7.0))
    assert leaders.next(()) == (2, known[2].candidate, 2), "6 µs; of 1 it is known by now that it takes 8"
    assert known.read == 3, "each is read once"


def test_enough_is_enough() -> None:
    leaders = Known({0: timed(0, *[5.0] * (ENOUGH - 1)), 1: timed(1, *[4.0] * ENOUGH)}).leaders()
    assert leaders.next(()) is not None
    assert leaders.next(())[0] == 0  # type: ignore[index]
    leaders.again(0, timed(0, 5.0))
    assert leaders.next(()) is None


def test_only_the_best_lead() -> None:
    known = Known({n: timed(n, 5.0 + n) for n in range(2 * MOST)})
    leaders = known.leaders()
    leaders.hear(TrialRow.of(100, timed(100, 1.0), same_as=3))
    leaders.hear(TrialRow.of(101, replace(timed(101, 1.0), outcome=Outcome.RED, timing=None)))
    leaders.hear(
        TrialRow.of(102, replace(timed(102, 1.0), outcome=Outcome.GREEN, timing=None, estimate_us=1.0))
    )
    busy: set[int] = set()
    while leader := leaders.next(busy):
        busy.add(leader[0])
    assert busy == set(range(MOST))
    known[103] = timed(103, 1.0)
    leaders.hear(TrialRow.of(103, known[103]))
    assert leaders.next(busy) == (103, known[103].candidate, 1)
    late = leaders.again(MOST - 1, timed(MOST - 1, 99.0))  # its visit was under way when it was pushed out
    assert late.timing
    assert late.timing.samples_us == (5.0 + MOST - 1, 99.0)
    busy.remove(MOST - 1)
    assert leaders.next(busy | {103}) is None


@pytest.mark.parametrize("outcome", [Outcome.HUNG, Outcome.CRASHED, Outcome.UNCOMPILABLE])
def test_who_hangs_once_leads_no_more_but_keeps_its_time(outcome: Outcome) -> None:
    known = Known({0: timed(0, 7.0), 1: timed(1, 5.0)})
    leaders = known.leaders()
    hung = replace(timed(1, 5.0), outcome=outcome, reason="deadline", timing=None)
    assert leaders.again(1, hung) == known[1]
    assert leaders.next(()) == (0, known[0].candidate, 1)
    assert leaders.next({0}) is None


def test_who_is_red_leads_no_more() -> None:
    known = Known({0: timed(0, 7.0), 1: timed(1, 5.0)})
    leaders = known.leaders()
    leaders.again(1, timed(1, 5.0))
    errors = (CaseError(PROBLEM.key, "normal", 9, 0.5, 0.02),)
    red = replace(timed(1, 5.0), outcome=Outcome.RED, reason="race", detail="two threads", where="k.cu:3",
                  errors=errors, timing=None, seconds={"gate": 2.0})  # fmt: skip
    fallen = leaders.again(1, red)
    assert fallen == replace(
        red,
        detail="(it had been GREEN 2 times before) two threads",
        counters={"green_visits": 2.0},
        seconds={"gate": 1.0},
    )
    assert leaders.next(()) == (0, known[0].candidate, 1)
    assert leaders.next({0}) is None


# ---- in a search


@pytest.fixture
def ground(tmp_path: Path) -> dict[str, Ground]:
    return ground_of(tmp_path / "templates")


def test_idle_workers_time_leaders_again(tmp_path: Path, ground: dict[str, Ground]) -> None:
    workers = LandscapeWorkers(3, 0.002, queued=0, waits=True)
    seen: list[Progress] = []
    with Store(tmp_path / "evo.db") as store:
        study = store.create(new_study(workers=3))
        result = search(study, store, ground, workers, seen.append)
        rows = {row.number: row for row in store.rows(study)}
        stored = {number: store.trial(f"land-1/{number}") for number, _ in workers.remeasured}
        board = store.leaderboard(study="land-1", limit=SIZE)
    assert (result.stopped, len(rows)) == ("exhausted", SIZE), "every point is tried all the same"
    assert result.progress.usage
    assert 50 < result.progress.usage.revisits <= len(workers.remeasured)

    fallen = [n for n, trial in stored.items() if trial.outcome is Outcome.RED]
    assert fallen
    for number in fallen:
        trial = stored[number]
        assert (trial.candidate.point["rows"], trial.candidate.point["columns"]) == (128, 64)
        assert trial.detail == "(it had been GREEN 2 times before) two threads"
        assert trial.counters["green_visits"] == 2
        twins = [row for row in rows.values() if row.same_as == number]
        assert all((row.outcome, row.reason, row.median_us) == ("RED", "race", None) for row in twins)
        assert [visit for n, visit in workers.remeasured if n == number] == [1, 2]
    assert not set(fallen) & {ranked.number for ranked in board}

    more = {n: t.timing for n, t in stored.items() if t.timing and t.timing.visits > 2}
    assert more
    for number, found in more.items():
        assert len(found.samples_us) == 20 * found.visits
        visits = [visit for n, visit in workers.remeasured if n == number]
        assert visits == list(range(1, len(visits) + 1)), "each visit has a seed of its own"
        assert found.visits in (len(visits), len(visits) + 1), "the last one may have been given up"
    final = result.progress
    assert final.outcomes == Counter(str(row.outcome) for row in rows.values())
    best = min(
        (row for row in rows.values() if row.score_us is not None), key=lambda row: row.score_us or 0.0
    )
    assert final.best
    assert final.best.median_us == best.median_us == board[0].median_us
    assert not any(p.latest and p.latest.number in fallen and p.latest.outcome is Outcome.RED for p in seen)


def test_a_best_that_falls_is_best_no_more(tmp_path: Path, ground: dict[str, Ground]) -> None:
    """Nobody but the best of the landscape takes 5 µs, and on its third visit it is RED."""
    shown: list[float | None] = []
    with Store(tmp_path / "evo.db") as store:
        study = store.create(new_study(workers=2))
        result = search(
            study,
            store,
            ground,
            LandscapeWorkers(2, 0.002, queued=0, waits=True),
            lambda p: shown.append(p.best.median_us if p.best else None),
        )
        assert result.best[0].median_us != BEST_US
    assert BEST_US in shown
    assert shown[-1] == result.best[0].median_us


class Enough(Exception):
    """Ends a search in the middle."""


def test_a_resumed_search_goes_on_with_its_leaders(tmp_path: Path, ground: dict[str, Ground]) -> None:
    def watch(progress: Progress) -> None:
        if progress.usage and progress.usage.revisits >= 20:
            raise Enough

    with Store(tmp_path / "evo.db") as store:
        study = store.create(new_study(workers=2))
        with pytest.raises(Enough):
            search(study, store, ground, LandscapeWorkers(2, 0.001, queued=0, waits=True), watch)
        known = {row.number: store.trial(f"land-1/{row.number}").timing for row in store.rows(study)}
        workers = LandscapeWorkers(2, 0.001, queued=0, waits=True)
        search(study, store, ground, workers)
    first = dict(reversed(workers.remeasured))
    again = {n: found.visits for n, found in known.items() if found and found.visits > 1 and n in first}
    assert again
    assert again == {number: first[number] for number in again}, "no seed is used twice"


def test_one_worker_never_visits_again(tmp_path: Path, ground: dict[str, Ground]) -> None:
    workers = LandscapeWorkers(1, waits=True)
    with Store(tmp_path / "evo.db") as store:
        search(store.create(new_study()), store, ground, workers)
    assert not workers.remeasured


def test_nobody_waits_for_a_visit_at_the_end(
    tmp_path: Path, ground: dict[str, Ground], monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = LandscapeWorkers._begin

    def slow(self: LandscapeWorkers, number: int, candidate: Candidate, visit: int = 0) -> None:
        begin(self, number, candidate, visit)
        if visit:
            self._waiting[-1] = (float("inf"), *self._waiting[-1][1:])

    monkeypatch.setattr(LandscapeWorkers, "_begin", slow)
    workers = LandscapeWorkers(3, 0.001, queued=0, waits=True)
    with Store(tmp_path / "evo.db") as store:
        result = search(store.create(new_study(workers=3)), store, ground, workers)
        assert workers.remeasured
        assert result.stopped == "exhausted"
        assert len(store.rows(result.study)) == SIZE
