"""Searches that are killed, interrupted, resumed, or share a database: real processes, simulated kernels."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from landscape import BEST_US, FATAL, SIZE, LandscapeSpec, LandscapeWorkers, new_study, sequence, spaces_of

from evo.evaluate.pool import Pool
from evo.loop import SearchSpace, search
from evo.store import Store
from evo.strategy import STRATEGIES
from evo.trial import Outcome


@pytest.fixture
def spaces(tmp_path: Path) -> dict[str, SearchSpace]:
    return spaces_of(tmp_path / "templates")


def run(
    folder: Path, name: str, budget: float = 600, workers: int = 1, seconds: float = 0.004, **more: Any
) -> subprocess.Popen[str]:
    """Starts landscape.py. `pool`: with the real pool; other words go to Popen."""
    script = Path(__file__).with_name("landscape.py")
    pool = [more.pop("pool")] if "pool" in more else []
    words = [str(folder / "evo.db"), name, str(budget), str(workers), str(seconds), *pool]
    return subprocess.Popen(
        [sys.executable, str(script), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(script.parent.parent)},
        **more,
    )


def killed(process: subprocess.Popen[str], after: int, then_s: float) -> list[int]:
    """Kills a search some time after it announced `after` trials; the numbers of all that it announced."""
    assert process.stdout is not None
    head = "".join(process.stdout.readline() for _ in range(after))
    time.sleep(then_s)
    process.kill()
    rest, _ = process.communicate()
    # the last line may be cut off in the middle
    return [int(line) for line in (head + rest).split("\n")[:-1]]


OFTEN = ("evo",)
"""Strategies that are killed and resumed in each run of the tests; the others in slow ones. StrategyTests
sees of each, without processes, that it is a pure function of its history."""


@pytest.mark.parametrize(
    "strategy",
    [name if name in OFTEN else pytest.param(name, marks=pytest.mark.slow) for name in STRATEGIES],
)
def test_kill_and_resume_changes_nothing_with_one_worker(
    tmp_path: Path, spaces: dict[str, SearchSpace], strategy: str
) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    with Store(whole / "evo.db") as store:
        study = store.create(new_study(seed=5, budget_s=600, strategy=strategy))
        search(study, store, spaces, LandscapeWorkers())
        expected = sequence(store, study)

    broken = tmp_path / "broken"
    broken.mkdir()
    with Store(broken / "evo.db") as store:
        store.create(new_study(seed=5, budget_s=600, strategy=strategy))
    rng = random.Random(strategy)
    announced: set[int] = set()
    for _ in range(3):
        numbers = killed(run(broken, "land-1"), rng.randint(1, 30), rng.uniform(0.0, 0.05))
        assert not announced & set(numbers), "a finished trial was run again"
        announced |= set(numbers)
        with Store(broken / "evo.db") as store:
            study = store.study("land-1")
            found = sequence(store, study)
            assert announced <= {number for number, *_ in found}, "a finished trial was lost"
            assert study.status == "interrupted", "no process runs it"
    spent = study.spent_s
    assert spent > 0
    out, err = run(broken, "land-1", seconds=0).communicate()
    assert out.endswith("exhausted\n"), err
    with Store(broken / "evo.db") as store:
        assert sequence(store, study) == expected
        assert store.study("land-1").spent_s > spent


@pytest.mark.slow  # the next one kills a real pool
def test_kill_and_resume_loses_and_repeats_nothing_with_many_workers(tmp_path: Path) -> None:
    rng = random.Random(1)
    announced: list[int] = []
    for _ in range(3):
        announced += killed(
            run(tmp_path, "land-1", workers=4, seconds=0.02), rng.randint(1, 40), rng.uniform(0.0, 0.05)
        )
    out, err = run(tmp_path, "land-1", workers=4, seconds=0).communicate()
    assert out.endswith("exhausted\n"), err
    announced += [int(line) for line in out.splitlines()[:-1]]
    assert len(announced) == len(set(announced))
    with Store(tmp_path / "evo.db") as store:
        rows = store.rows(store.study("land-1"))
    assert [r.number for r in rows] == list(range(SIZE))
    assert len({str(dict(r.point)) for r in rows}) == SIZE
    assert set(announced) <= set(range(SIZE))


def test_ctrl_c_once_ends_cleanly(tmp_path: Path) -> None:
    process = run(tmp_path, "land-1", seconds=0.02)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert out.endswith("interrupted\n")
    with Store(tmp_path / "evo.db") as store:
        study = store.study("land-1")
        assert study.status == "interrupted"
        rows = store.rows(study)
    announced = [int(line) for line in out.splitlines()[:-1]]
    assert [r.number for r in rows] == [0, *announced]


def test_ctrl_c_twice_ends_at_once(tmp_path: Path) -> None:
    """Without a second one a search waits seconds for what is under way, and ends with 0."""
    process = run(tmp_path, "land-1", seconds=3)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None, "it waits for what is under way"
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "interrupted" not in out, "it did not wait until then"
    with Store(tmp_path / "evo.db") as store:
        assert store.study("land-1").status == "interrupted"


def test_two_searches_and_a_reader_share_a_database(tmp_path: Path) -> None:
    """Until both have found something, and the reader has looked often enough."""
    searches = [run(tmp_path, name, 600, workers, 0.01) for name, workers in (("land-1", 1), ("land-2", 2))]
    reads, found = 0, set[str]()
    while reads < 12 or len(found) < 2:
        assert any(process.poll() is None for process in searches) or len(found) == 2
        if (tmp_path / "evo.db").exists():
            with Store(tmp_path / "evo.db") as reader:
                found = {row.study for row in reader.leaderboard(limit=2000)}
                reads += 1
        time.sleep(0.02)
    for process in searches:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
        assert (process.returncode, err) == (0, ""), err
        assert out.endswith(("interrupted\n", "exhausted\n"))
    with Store(tmp_path / "evo.db") as store:
        assert {r.study for r in store.leaderboard(limit=2000)} == {"land-1", "land-2"}


@pytest.mark.slow  # test_store_processes claims studies in each run
def test_a_study_is_not_searched_twice_at_once(tmp_path: Path) -> None:
    first = run(tmp_path, "land-1", seconds=0.05)
    try:
        assert first.stdout is not None
        first.stdout.readline()
        second = run(tmp_path, "land-1")
        _, err = second.communicate()
        assert second.returncode == 2
        assert "is being searched" in err
        assert "Traceback" not in err
    finally:
        first.kill()
        first.communicate()


# ---- with the real pool


def test_a_real_pool_survives_candidates_that_kill(tmp_path: Path, spaces: dict[str, SearchSpace]) -> None:
    with Store(tmp_path / "evo.db") as store:
        study = store.create(new_study(workers=2, budget_s=600, strategy="random"))
        result = search(study, store, spaces, Pool(LandscapeSpec(fatal=(128, 64, 3, True)), 2))
        rows = store.rows(study)
    assert result.stopped == "exhausted"
    died = [row for row in rows if row.outcome is Outcome.CRASHED]
    assert {tuple(row.point[name] for name in FATAL) for row in died} == {(128, 64, 3, True)}
    assert len(died) == SIZE // 15 // 3 // 2, "what died is not taken for the result of a twin"
    assert len(rows) == SIZE
    assert result.best[0].median_us == BEST_US + 1


def test_kill_and_resume_with_a_real_pool(tmp_path: Path) -> None:
    rng = random.Random(2)
    with Store(tmp_path / "whole.db") as store:
        study = store.create(new_study(seed=5, budget_s=600))
        workers = LandscapeWorkers(queued=0)
        search(study, store, spaces_of(tmp_path / "templates"), workers)
        expected = sequence(store, study)
    for _ in range(2):
        killed(run(tmp_path, "land-1", seconds=0.0, pool="pool"), rng.randint(1, 60), rng.uniform(0.0, 0.05))
    out, err = run(tmp_path, "land-1", seconds=0.0, pool="pool").communicate()
    assert out.endswith("exhausted\n"), err
    with Store(tmp_path / "evo.db") as store:
        assert sequence(store, store.study("land-1")) == expected


def test_ctrl_c_with_a_real_pool(tmp_path: Path) -> None:
    """As a terminal does it: the signal goes to every process of the group."""
    process = run(tmp_path, "land-1", workers=2, seconds=0.1, pool="pool", start_new_session=True)
    assert process.stdout is not None
    process.stdout.readline()
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (0, "")
    assert out.endswith("interrupted\n")
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
    with Store(tmp_path / "evo.db") as store:
        assert {r.outcome for r in store.rows(store.study("land-1"))} <= {"TIMED", "UNCOMPILABLE", "RED"}
