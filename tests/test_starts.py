"""A search that has converged starts again elsewhere while it has time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from landscape import BEST_US, SIZE, LandscapeWorkers, new_study, sequence, spaces_of

from evo.loop import SearchSpace, search
from evo.loop.starts import starts_of
from evo.report.overview import starts_text
from evo.store import Store
from evo.study import Study
from evo.trial import Trial

LONG = 12
"""Proposals in a row that expect nothing, after which a start has converged here."""


@pytest.fixture
def spaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, SearchSpace]:
    monkeypatch.setattr("evo.loop.stopping.STOPPING_TRIALS", 40)
    return spaces_of(tmp_path)


def on_gpu(**changes: object) -> Study:
    return replace(new_study(), device="cuda:0", **changes)  # type: ignore[arg-type]


class Killed(LandscapeWorkers):
    """Workers whose search is killed after so many results."""

    def __init__(self, results: int) -> None:
        super().__init__()
        self._left = results

    def wait(self, timeout: float) -> list[tuple[int, Trial]]:
        self._left -= 1
        if self._left < 0:
            raise KeyboardInterrupt
        return super().wait(timeout)


@pytest.mark.parametrize("workers", [1, 3])
def test_a_search_starts_again_and_says_what_each_start_found(
    tmp_path: Path, spaces: dict[str, SearchSpace], workers: int
) -> None:
    with Store(tmp_path / "evo.db") as store:
        study = store.create(on_gpu(workers=workers))
        result = search(study, store, spaces, LandscapeWorkers(workers), patience=LONG)
        rows = {row.number: row for row in store.rows(study)}
    assert result.stopped == "exhausted", "it used all the time that it had"
    assert len({tuple(row.point.items()) for row in rows.values()}) == len(rows), "no point twice"
    starts = list(result.starts)
    assert [start.first for start in starts] == [0, *result.study.starts]
    assert len(starts) > 2
    assert all(start.trials >= 40 for start in starts[:-1])
    assert sum(start.trials for start in starts) == len(rows)
    bests = [start.best.score_us for start in starts if start.best and start.best.score_us]
    assert min(bests) == BEST_US
    assert len(starts_text(starts)) == len(starts)
    assert starts_text(starts_of(rows, ())) == []


@pytest.mark.parametrize("until", ["converged", "budget"])
def test_a_search_without_a_gpu_or_until_it_has_converged_ends(
    tmp_path: Path, spaces: dict[str, SearchSpace], until: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a GPU times are estimates: more of them would tell nothing."""
    monkeypatch.setattr("evo.loop.stopping.STOPPING_ESTIMATES", 40)
    device = "cuda:0" if until == "converged" else "emulator"
    with Store(tmp_path / "evo.db") as store:
        study = store.create(on_gpu(until=until))
        result = search(replace(study, device=device), store, spaces, LandscapeWorkers(), patience=LONG)
        count = len(store.rows(study))
    assert result.stopped == "converged"
    assert result.study.starts == ()
    assert 40 <= count < SIZE


@pytest.mark.parametrize("workers", [1, 3])
def test_a_search_has_as_many_trials_as_it_was_told(
    tmp_path: Path, spaces: dict[str, SearchSpace], workers: int
) -> None:
    """Also one that starts again, is killed and goes on, and is told of fewer than it has, then of more."""
    with Store(tmp_path / "whole.db") as store:
        study = store.create(on_gpu(workers=workers))
        search(study, store, spaces, LandscapeWorkers(workers), patience=LONG)
        whole = sequence(store, study)
    with Store(tmp_path / "evo.db") as store:
        study = store.create(on_gpu(workers=workers, until="60"))
        with pytest.raises(KeyboardInterrupt):
            search(study, store, spaces, Killed(5), patience=LONG)
        for until, count in (("60", 60), ("7", 60), ("64", 64)):
            again = replace(store.study(study.name), until=until)
            result = search(again, store, spaces, LandscapeWorkers(workers), patience=LONG)
            rows = store.rows(study)
            assert (result.stopped, result.study.status, result.study.until) == ("trials", "finished", until)
            assert sorted(row.number for row in rows) == list(range(count))
        assert result.study.starts, "it had converged"
        if workers == 1:
            assert sequence(store, study) == whole[:64]


def test_a_killed_search_goes_on_in_the_start_that_it_was_in(
    tmp_path: Path, spaces: dict[str, SearchSpace]
) -> None:
    with Store(tmp_path / "one.db") as store:
        study = store.create(on_gpu(lookahead=3))
        result = search(study, store, spaces, LandscapeWorkers(), patience=LONG)
        whole, starts = sequence(store, study), result.study.starts
    with Store(tmp_path / "two.db") as store:
        study = store.create(on_gpu(lookahead=3))
        for results in (starts[1] + 7 - starts[0], 5):
            with pytest.raises(KeyboardInterrupt):
                search(store.study(study.name), store, spaces, Killed(results), patience=LONG)
        killed_in = store.study(study.name).starts
        assert killed_in, "it was killed in a later start"
        search(store.study(study.name), store, spaces, LandscapeWorkers(), patience=LONG)
        again = sequence(store, study)
    known = starts[len(killed_in)] if len(killed_in) < len(starts) else len(whole)
    assert again[:known] == whole[:known]
