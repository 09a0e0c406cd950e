"""The leaderboard and the other questions, on SQLite and on PostgreSQL."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
from pathlib import Path

import pytest
import sqlalchemy as sa
from postgres import empty_database
from times import timing_on
from trials import PROBLEM, candidate, estimated, failed, study, timed

from evo.store import Store
from evo.trial import Outcome, Resources


def test_leaderboard_ranks_measured_times_and_never_mixes_estimates_in(store: Store) -> None:
    mine, other = store.create(study()), store.create(study("other-1"))
    store.add(mine, 0, timed(0, 9.0))
    store.add(mine, 1, timed(1, 7.0, resources=Resources(128, 0, 0, 16)))
    store.add(mine, 2, estimated(2, 0.5))
    store.add(mine, 3, failed(3, Outcome.RED, "race"))
    store.add(mine, 4, timed(4, 6.0), same_as=1)
    store.add(other, 0, timed(5, 8.0))
    ranked = store.leaderboard()
    assert [(r.study, r.number) for r in ranked] == [
        ("mission-1", 1),
        ("other-1", 0),
        ("mission-1", 0),
        ("mission-1", 2),
    ]
    assert ranked[0].median_us == 7.0
    assert ranked[0].estimate_us is None
    assert ranked[0].baselines_us == {"cudnn": 9.1, "flash": 10.27}
    assert ranked[0].point == candidate(1).point
    assert (ranked[0].smem_bytes, ranked[0].static_smem_bytes) == (candidate(1).launch.smem_bytes, 16)
    assert ranked[3].median_us is None
    assert ranked[3].estimate_us == 0.5
    assert [r.number for r in store.leaderboard(study="mission-1", limit=1)] == [1, 2]
    assert [r.number for r in store.leaderboard(gpu="h200", limit=1)] == [1]
    assert [r.number for r in store.leaderboard(gpu="l4")] == [2]
    assert store.leaderboard(gpu="%") == []
    assert store.leaderboard(template="wmma") == []
    assert store.leaderboard(task="gemm") == []
    assert len(store.leaderboard(problem=PROBLEM.key, task="attention", template="flash_mma")) == 4
    assert store.count(mine) == {"TIMED": 3, "GREEN": 1, "RED": 1}


def test_times_of_different_rankings_are_ranked_apart(store: Store) -> None:
    """A study of before there were timing inputs has the best times of all: on noise alone."""
    rankings = ("plain", "worst", "sharp", "mean")
    kept = {ranking: store.create(study(f"{ranking}-1", ranking=ranking)) for ranking in rankings}
    plain = kept.pop("plain")
    for number in range(3):
        store.add(plain, number, timed(number, timing=timing_on({"plain": 3.0 + number}, BASELINES, "plain")))
    on_all = {"normal": 3.5, "sharp": 5.5, "sink": 4.5}
    for ranking, mine in kept.items():
        store.add(mine, 0, timed(10, timing=timing_on(on_all, BASELINES, ranking)))
        store.add(mine, 1, timed(11, timing=timing_on({"normal": 6.0}, BASELINES, ranking, inputs=3)))
    board = store.leaderboard(limit=2)
    assert [(row.ranking, row.rank, row.median_us) for row in board] == [
        ("worst", 1, 5.5),
        ("worst", 2, 6.0),
        ("mean", 1, 4.5),
        ("mean", 2, 6.0),
        ("sharp", 1, 5.5),
        ("sharp", 2, 6.0),
        ("plain", 1, 3.0),
        ("plain", 2, 4.0),
    ]
    first, second = board[:2]
    assert {on: time.median_us for on, time in first.times.items()} == on_all
    assert (first.on, first.versus, first.timing_inputs) == ("sharp", "cudnn", 3)
    assert first.speedup == pytest.approx(9.1 / 5.5)
    assert (list(second.times), second.timing_inputs) == (["normal"], 3)
    query = sa.text("SELECT ranking, rank, median_us FROM leaderboard WHERE number = 0 ORDER BY median_us")
    view = [tuple(row) for row in store._database.read(lambda c: c.execute(query).all())]
    assert view == [("plain", 1, 3.0), ("mean", 1, 4.5), *sorted(view[2:])]
    assert {row[:2] for row in view[2:]} == {("worst", 1), ("sharp", 1)}


BASELINES = {"cudnn": 9.1, "flash": 10.27}


def test_failures_are_counted_by_reason(store: Store) -> None:
    mine = store.create(study())
    for number, reason in enumerate(["race", "row error", "race"]):
        store.add(mine, number, failed(number, Outcome.RED, reason))
    store.add(mine, 9, timed(9))
    assert [dataclasses.astuple(f) for f in store.failures(mine)] == [
        ("RED", "race", 2, 0),
        ("RED", "row error", 1, 1),
    ]


def test_views_answer_the_command_line_while_a_search_writes(tmp_path: Path) -> None:
    if not shutil.which("sqlite3"):
        pytest.skip("no sqlite3 command")
    with Store(tmp_path / "evo.db") as store:
        mine = store.create(study())
        store.add(mine, 0, timed(0, 9.0))
        store.add(mine, 1, timed(1, 7.0))
        store.add(mine, 2, estimated(2, 0.5))
        store.add(mine, 3, failed(3, Outcome.HUNG, "no answer"))

        def ask(query: str) -> list[str]:
            command = ["sqlite3", str(tmp_path / "evo.db"), query]
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()

        ranks = ask(
            "SELECT rank, kind, number, median_us, estimate_us FROM leaderboard ORDER BY kind DESC, rank"
        )
        assert ranks == ["1|measured|1|7.0|", "2|measured|0|9.0|", "1|estimate|2||0.5"]
        assert ask("SELECT study, outcome, reason FROM failures") == ["mission-1|HUNG|no answer"]
        assert ask("SELECT point ->> 'swizzle' FROM leaderboard LIMIT 1") == ["xor"]


def test_views_on_postgresql(postgres: str) -> None:
    with Store(empty_database(postgres)) as store:
        mine = store.create(study())
        store.add(mine, 0, timed(0, 9.0))
        store.add(mine, 1, failed(1, Outcome.RED, "race"))
        query = sa.text("SELECT rank, kind, number, point->>'swizzle' FROM leaderboard")
        assert [tuple(r) for r in store._database.read(lambda c: c.execute(query).all())] == [
            (1, "measured", 0, "xor")
        ]
        assert len(store._database.read(lambda c: c.execute(sa.text("SELECT * FROM failures")).all())) == 1
