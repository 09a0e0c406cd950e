"""The best trials are measured again: which ones, how often, and what becomes of their results."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import times
from landscape import BEST_US, PROBLEM, SIZE, LandscapeWorkers, new_study, spaces_of

from evo.loop import Progress, SearchSpace, search
from evo.loop.remeasure import REMEASURED_TRIALS, SAMPLES_WANTED, BestTrials, Pace
from evo.store import Store, TrialRow
from evo.timing.statistics import joined, median_interval
from evo.trial import Candidate, CaseError, Interval, LaunchConfig, Outcome, Timing, Trial


def timing(*samples_us: float, **more: Any) -> Timing:
    """On one timing input."""
    around = Interval(min(samples_us), max(samples_us))
    return times.timing(samples_us, statistics.median(samples_us), around, **more)


def samples(timing: Timing) -> tuple[float, ...]:
    """Those of the only timing input."""
    return timing.times["normal"].samples_us


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

    def best(self) -> BestTrials:
        made = BestTrials(self.whole)
        for number, trial in self.items():
            made.add(TrialRow.of(number, trial))
        return made


# ---- two measurements are one timing


def test_joined_samples_are_one_timing() -> None:
    one = timing(
        5.0,
        6.0,
        7.0,
        baselines_us={"sdpa": 8.0},
        clocks={"sm_mhz": 1900.0},
        speedup=2.0,
        speedup_interval=Interval(1.9, 2.1),
    )
    two = timing(
        *[9.0] * 6,
        baselines_us={"sdpa": 9.0},
        clocks={"sm_mhz": 1800.0},
        speedup=1.0,
        speedup_interval=Interval(0.9, 2.0),
    )
    both = joined(one, two)
    assert samples(both) == samples(one) + samples(two)
    assert both.median_us == 9.0
    assert both.interval == median_interval(np.array(samples(both)))
    assert (both.protocol, both.baselines_us) == ("warm", {"sdpa": 9.0})
    assert both.clocks == {"sm_mhz": 1800.0}
    assert both.speedup == pytest.approx(2 ** (3 / 9))
    assert both.speedup_interval == Interval(0.9, 2.1)


def test_a_speedup_that_one_measurement_lacks_is_the_other_ones() -> None:
    plain, ratio = timing(5.0), timing(5.0, speedup=2.0, speedup_interval=Interval(1.9, 2.1))
    for both in (joined(plain, ratio), joined(ratio, plain)):
        assert (both.speedup, both.speedup_interval) == (2.0, Interval(1.9, 2.1))
    assert joined(plain, plain).speedup is None


def test_protocols_are_never_joined() -> None:
    with pytest.raises(ValueError, match="cold samples cannot be joined with warm"):
        joined(timing(5.0, protocol="cold"), timing(5.0))


def test_timings_on_several_inputs_are_joined_input_by_input() -> None:
    """A trial that lost when it was new has one input; measured again, it has all."""
    bound = times.timing_on({"normal": 4.0}, {"cudnn": 9.0}, inputs=3)
    whole = times.timing_on({"normal": 4.2, "sharp": 6.0, "sink": 4.1}, {"cudnn": 9.0})
    for both in (joined(bound, whole), joined(whole, bound)):
        assert list(both.times) == ["normal", "sharp", "sink"]
        assert [len(time.samples_us) for time in both.times.values()] == [10, 5, 5]
        assert both.median_us == 6.0
        assert both.complete
        assert both.varies
    assert not bound.complete
    assert joined(bound, bound).times.keys() == {"normal"}


# ---- which trials are measured again


def test_the_fewest_measurements_come_first_then_the_better_time() -> None:
    known = Known({0: timed(0, 7.0), 1: timed(1, 5.0), 2: timed(2, 6.0)})
    best = known.best()
    assert best.next(()) == (1, known[1].candidate, 1)
    assert best.next({1}) == (2, known[2].candidate, 1)
    assert best.next({0, 1, 2}) is None
    again = best.update(1, timed(1, 8.0, 8.0))
    more = joined(known[1].timing, timing(8.0, 8.0))  # type: ignore[arg-type]
    assert again == replace(known[1], timing=more, evaluations=2)
    assert best.next(()) == (2, known[2].candidate, 1)
    best.update(2, timed(2, 6.0))
    best.update(0, timed(0, 7.0))
    assert best.next(()) == (2, known[2].candidate, 2), "6 µs; of 1 it is known by now that it takes 8"
    assert known.read == 3, "each is read once"


def test_a_trial_with_enough_samples_is_not_measured_again() -> None:
    best = Known({0: timed(0, *[5.0] * (SAMPLES_WANTED - 1)), 1: timed(1, *[4.0] * SAMPLES_WANTED)}).best()
    assert best.next(()) is not None
    assert best.next(())[0] == 0  # type: ignore[index]
    best.update(0, timed(0, 5.0))
    assert best.next(()) is None


def test_a_bound_of_a_time_is_measured_again_however_many_samples_it_has() -> None:
    bound = replace(timed(0, *[5.0] * (SAMPLES_WANTED + 1)), evaluations=1)
    assert bound.timing
    known = Known({0: bound, 1: replace(bound, timing=replace(bound.timing, inputs=4))})
    assert known.best().next(()) is not None
    assert known.best().next(())[0] == 1  # type: ignore[index]


def test_a_second_has_so_many_measurements_whenever_they_are_asked_for() -> None:
    pace = Pace(0.25)
    assert [pace.allows(10.0) for _ in range(6)] == [True] * 5 + [False]  # a second's, and one
    assert [pace.allows(at) for at in (10.1, 10.3, 10.4, 10.5)] == [False, True, False, True]
    assert sum(pace.allows(20 + number / 100) for number in range(200)) == 12


def test_only_the_best_are_measured_again() -> None:
    known = Known({n: timed(n, 5.0 + n) for n in range(2 * REMEASURED_TRIALS)})
    best = known.best()
    best.add(TrialRow.of(100, timed(100, 1.0), same_as=3))
    best.add(TrialRow.of(101, replace(timed(101, 1.0), outcome=Outcome.RED, timing=None)))
    best.add(TrialRow.of(102, replace(timed(102, 1.0), outcome=Outcome.GREEN, timing=None, estimate_us=1.0)))
    busy: set[int] = set()
    while found := best.next(busy):
        busy.add(found[0])
    assert busy == set(range(REMEASURED_TRIALS))
    known[103] = timed(103, 1.0)
    best.add(TrialRow.of(103, known[103]))
    assert best.next(busy) == (103, known[103].candidate, 1)
    # it was being measured when it was pushed out
    late = best.update(REMEASURED_TRIALS - 1, timed(REMEASURED_TRIALS - 1, 99.0))
    assert late.timing
    assert samples(late.timing) == (5.0 + REMEASURED_TRIALS - 1, 99.0)
    busy.remove(REMEASURED_TRIALS - 1)
    assert best.next(busy | {103}) is None


@pytest.mark.parametrize("outcome", [Outcome.HUNG, Outcome.CRASHED, Outcome.UNCOMPILABLE])
def test_a_trial_that_hangs_once_keeps_its_time_and_is_not_measured_again(outcome: Outcome) -> None:
    known = Known({0: timed(0, 7.0), 1: timed(1, 5.0)})
    best = known.best()
    hung = replace(timed(1, 5.0), outcome=outcome, reason="deadline", timing=None)
    assert best.update(1, hung) == known[1]
    assert best.next(()) == (0, known[0].candidate, 1)
    assert best.next({0}) is None


def test_a_trial_that_is_red_is_not_measured_again() -> None:
    known = Known({0: timed(0, 7.0), 1: timed(1, 5.0)})
    best = known.best()
    best.update(1, timed(1, 5.0))
    errors = (CaseError(PROBLEM.key, "normal", 9, 0.5, 0.02),)
    red = replace(
        timed(1, 5.0),
        outcome=Outcome.RED,
        reason="race",
        detail="two threads",
        where="k.cu:3",
        errors=errors,
        timing=None,
        seconds={"gate": 2.0},
    )
    fallen = best.update(1, red)
    assert fallen == replace(
        red,
        detail="(it had been GREEN 2 times before) two threads",
        evaluations=3,
        seconds={"gate": 1.0},
    )
    assert best.next(()) == (0, known[0].candidate, 1)
    assert best.next({0}) is None


# ---- in a search


@pytest.fixture
def spaces(tmp_path: Path) -> dict[str, SearchSpace]:
    return spaces_of(tmp_path / "templates")


def test_idle_workers_time_the_best_again(
    tmp_path: Path, spaces: dict[str, SearchSpace], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evo.loop.loop.REMEASURED_EVERY_S", 0.0)
    workers = LandscapeWorkers(3, 0.002, queued=0, waits=True)
    seen: list[Progress] = []
    with Store(tmp_path / "evo.db") as store:
        study = store.create(new_study(workers=3))
        result = search(study, store, spaces, workers, seen.append)
        rows = {row.number: row for row in store.rows(study)}
        stored = {number: store.trial(f"land-1/{number}") for number, _ in workers.remeasured}
        board = store.leaderboard(study="land-1", limit=SIZE)
    assert (result.stopped, len(rows)) == ("exhausted", SIZE), "every point is tried all the same"
    assert result.progress.usage
    assert 50 < result.progress.usage.remeasured <= len(workers.remeasured)

    fallen = [n for n, trial in stored.items() if trial.outcome is Outcome.RED]
    assert fallen
    for number in fallen:
        trial = stored[number]
        assert (trial.candidate.point["rows"], trial.candidate.point["columns"]) == (128, 64)
        assert trial.detail == "(it had been GREEN 2 times before) two threads"
        assert trial.evaluations == 3
        twins = [row for row in rows.values() if row.same_as == number]
        assert all((row.outcome, row.reason, row.median_us) == ("RED", "race", None) for row in twins)
        assert [earlier for n, earlier in workers.remeasured if n == number] == [1, 2]
    assert not set(fallen) & {ranked.number for ranked in board}

    more = {n: trial for n, trial in stored.items() if trial.timing and trial.evaluations > 2}
    assert more
    for number, found in more.items():
        assert found.timing
        assert len(samples(found.timing)) == 20 * found.evaluations
        times = [earlier for n, earlier in workers.remeasured if n == number]
        assert times == list(range(1, len(times) + 1)), "each measurement has a seed of its own"
        assert found.evaluations in (len(times), len(times) + 1), "the last one may have been given up"
    final = result.progress
    assert final.outcomes == Counter(str(row.outcome) for row in rows.values())
    best = min(
        (row for row in rows.values() if row.score_us is not None), key=lambda row: row.score_us or 0.0
    )
    assert final.best
    assert final.best.median_us == best.median_us == board[0].median_us
    assert not any(p.latest and p.latest.number in fallen and p.latest.outcome is Outcome.RED for p in seen)


def test_a_best_that_falls_is_best_no_more(tmp_path: Path, spaces: dict[str, SearchSpace]) -> None:
    """Only the best point of the landscape takes 5 µs, and in its third measurement it is RED."""
    shown: list[float | None] = []
    with Store(tmp_path / "evo.db") as store:
        study = store.create(new_study(workers=2))
        result = search(
            study,
            store,
            spaces,
            LandscapeWorkers(2, 0.002, queued=0, waits=True),
            lambda p: shown.append(p.best.median_us if p.best else None),
        )
        assert result.best[0].median_us != BEST_US
    assert BEST_US in shown
    assert shown[-1] == result.best[0].median_us


class Enough(Exception):
    """Ends a search in the middle."""


def test_a_resumed_search_goes_on_measuring_its_best(tmp_path: Path, spaces: dict[str, SearchSpace]) -> None:
    def watch(progress: Progress) -> None:
        if progress.usage and progress.usage.remeasured >= 20:
            raise Enough

    with Store(tmp_path / "evo.db") as store:
        study = store.create(new_study(workers=2))
        with pytest.raises(Enough):
            search(study, store, spaces, LandscapeWorkers(2, 0.001, queued=0, waits=True), watch)
        known = {row.number: store.trial(f"land-1/{row.number}") for row in store.rows(study)}
        workers = LandscapeWorkers(2, 0.001, queued=0, waits=True)
        search(study, store, spaces, workers)
    first = dict(reversed(workers.remeasured))
    again = {n: trial.evaluations for n, trial in known.items() if trial.evaluations > 1 and n in first}
    assert again
    assert again == {number: first[number] for number in again}, "no seed is used twice"


def test_one_worker_never_measures_again(tmp_path: Path, spaces: dict[str, SearchSpace]) -> None:
    workers = LandscapeWorkers(1, waits=True)
    with Store(tmp_path / "evo.db") as store:
        search(store.create(new_study()), store, spaces, workers)
    assert not workers.remeasured


def test_a_search_does_not_wait_for_a_measurement_at_its_end(
    tmp_path: Path, spaces: dict[str, SearchSpace], monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = LandscapeWorkers._begin

    def slow(self: LandscapeWorkers, number: int, candidate: Candidate, earlier: int = 0) -> None:
        begin(self, number, candidate, earlier)
        if earlier:
            self._waiting[-1] = (float("inf"), *self._waiting[-1][1:])

    monkeypatch.setattr(LandscapeWorkers, "_begin", slow)
    workers = LandscapeWorkers(3, 0.001, queued=0, waits=True)
    with Store(tmp_path / "evo.db") as store:
        result = search(store.create(new_study(workers=3)), store, spaces, workers)
        assert workers.remeasured
        assert result.stopped == "exhausted"
        assert len(store.rows(result.study)) == SIZE
