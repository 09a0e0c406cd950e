"""Times on several timing inputs, as they are read."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rows import MEASURED
from test_report import CANDIDATE, GROUPS, console, stored, text
from times import timing_on

from evo.report.leaderboard import leaderboard_records, leaderboards
from evo.report.trial import trial_page, trial_record
from evo.store import LeaderboardRow
from evo.trial import Outcome, Trial

ON_FOUR = {"normal": 3.41, "sharp": 5.46, "sink": 5.45, "growing": 5.44}


def on_inputs(
    number: int, times_us: dict[str, float], ranking: str = "worst", kind: str = "measured"
) -> LeaderboardRow:
    """A row of a kernel that was timed on some of four inputs."""
    timed = timing_on(times_us, {"cudnn": 9.1, "flash": 10.27}, ranking, 4)
    return replace(
        MEASURED,
        number=number,
        kind=kind,
        median_us=timed.median_us,
        speedup=timed.speedup,
        speedup_low=timed.speedup,
        speedup_high=timed.speedup,
        on=timed.on,
        ranking=ranking,
        times=timed.times,
        timing_inputs=4,
    )


def test_a_kernel_that_depends_on_its_data_is_marked_with_its_range() -> None:
    sure, bet = on_inputs(1, dict.fromkeys(ON_FOUR, 3.57)), on_inputs(2, ON_FOUR)
    (table,) = leaderboards([sure, bet], GROUPS)
    title, heading, *rows = text(table, 250).splitlines()
    assert title.endswith("not CONFIRMED · worst of normal, sharp, sink, growing")
    assert "inputs" in heading.split()
    assert "data-dependent" not in rows[0]
    assert "5.46 µs" in rows[1]
    assert "data-dependent 3.41 to 5.46" in rows[1]
    assert "1.67x [1.67, 1.67] cudnn on sharp" in rows[1], "the smallest of its speedups"
    one, two = leaderboard_records([sure, bet], GROUPS).records
    assert (one["data_dependent"], two["data_dependent"]) == (False, True)
    assert two["sdpa_speedup"] == pytest.approx(9.1 / 5.46), "over the fastest SDPA on the same inputs"
    (table,) = leaderboards([sure])
    assert "inputs" not in text(table, 250).splitlines()[1].split()


def test_a_loser_says_on_how_many_inputs_it_was_timed() -> None:
    (table,) = leaderboards([on_inputs(1, dict.fromkeys(ON_FOUR, 3.57)), on_inputs(2, {"normal": 3.9})])
    rows = text(table, 250).splitlines()[2:]
    assert ["timed on 1 of 4 inputs" in row for row in rows] == [False, True]
    (table,) = leaderboards([on_inputs(2, {"normal": 3.9}, kind="confirmed")])
    assert "1 of 4" not in text(table, 250), "how many the search had is no matter any more"


def test_times_of_different_rankings_are_never_in_one_table() -> None:
    rows = [on_inputs(1, ON_FOUR), on_inputs(2, ON_FOUR, "mean"), on_inputs(3, ON_FOUR, "sink")]
    rows.append(on_inputs(4, {"plain": 3.41}, "plain"))
    titles = [text(table, 250).splitlines()[0].rpartition(" · ")[2] for table in leaderboards(rows)]
    names = "normal, sharp, sink, growing"
    assert titles == [f"worst of {names}", f"mean of {names}", "on sink inputs", "on plain inputs alone"]


def test_the_page_of_a_trial_has_its_time_on_each_input() -> None:
    bet = Trial(CANDIDATE, Outcome.TIMED, timing=timing_on(ON_FOUR, {"cudnn": 9.1}))
    page = trial_page(stored(bet), console(160))
    assert (
        "5.46 µs, 95% CI [5.43, 5.49], worst of normal, sharp, sink, growing (data-dependent 3.41 to" in page
    )
    assert "on growing  5.44 µs" in page
    loser = Trial(CANDIDATE, Outcome.TIMED, timing=timing_on({"normal": 3.9}, {"cudnn": 9.1}, inputs=4))
    page = trial_page(stored(loser), console(160))
    assert "timed on   1 of 4 inputs: it had lost by then" in page
    assert trial_record(stored(bet))["timing"]["times"]["sharp"]["median_us"] == 5.46
