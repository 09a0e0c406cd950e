"""A kernel that is 30 % slower on one timing input: ranked by it and marked, from the search to CONFIRMED.

The workers are those of the landscape; what they say of one point is planted."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from finals import SimulatedWorker
from landscape import BEST_US, LandscapeWorkers, evaluate, new_study, spaces_of
from rich.console import Console
from times import timing_on

from evo.confirm import confirm
from evo.confirm.champions import promote
from evo.gpu import KNOWN_GPUS
from evo.loop import search
from evo.report.confirmed import confirmation_tables
from evo.report.leaderboard import leaderboards
from evo.store import Store
from evo.task import load_task
from evo.timing.inputs import InputSets
from evo.timing.stopwatch import TimingSettings
from evo.trial import Candidate, Trial

BASELINES = {"sdpa": 7.5}


def bets(candidate: Candidate) -> bool:
    """Whether it is one of the points that take least on noise: rows=128, columns=64, stages=3, wide."""
    trial = evaluate(candidate)
    return trial.timing is not None and trial.timing.median_us == BEST_US


def timed(candidate: Candidate) -> Trial:
    """Every kernel takes the same on all inputs, but those that bet: 30 % more on `sharp`."""
    trial = evaluate(candidate)
    if trial.timing is None:
        return trial
    us = trial.timing.median_us
    times = {"normal": us, "sharp": 1.3 * us if bets(candidate) else us}
    return replace(trial, timing=timing_on(times, BASELINES))


class Betting(LandscapeWorkers):
    """The landscape, on two timing inputs."""

    def wait(self, timeout: float) -> list[tuple[int, Trial]]:
        return [(number, timed(trial.candidate)) for number, trial in super().wait(timeout)]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bets")
    with Store(folder / "evo.db") as store:
        spaces = spaces_of(folder / "t")
        result = search(store.create(new_study(budget_s=120)), store, spaces, Betting())
        assert result.stopped == "exhausted"
    return folder / "evo.db"


def text(table: object) -> str:
    return table.render("text", Console(width=250, file=io.StringIO()))  # type: ignore[attr-defined,no-any-return]


def test_a_search_ranks_it_by_the_input_on_which_it_is_slow(database: Path) -> None:
    with Store(database) as store:
        board = store.leaderboard(study="land-1", limit=400)
        rows = {row.number: row for row in store.rows(store.study("land-1"))}
        candidates = {row.number: store.trial(f"land-1/{row.number}").candidate for row in board}
    bet = [row for row in board if bets(candidates[row.number])]
    assert bet
    assert all(rows[row.number].score_us == pytest.approx(1.3 * BEST_US) for row in bet)
    faster = [row for row in board if (row.median_us or 0) < 1.3 * BEST_US]
    assert len(faster) >= 5
    assert {row.rank for row in bet} == {len(faster) + 1}, "on noise alone they were the first"
    assert not bets(candidates[board[0].number])
    (table,) = leaderboards(board)
    lines = text(table).splitlines()
    assert lines[0].endswith("worst of normal, sharp")
    marked = [line for line in lines if "data-dependent 5.00 to 6.50" in line]
    assert len(marked) == len(bet)
    assert all("1.15x" in line and "sdpa on sharp" in line for line in marked)


def test_confirmed_ranks_and_marks_it_too(database: Path, tmp_path: Path) -> None:
    copy = tmp_path / "evo.db"
    copy.write_bytes(database.read_bytes())
    with Store(copy) as store:
        study = store.study("land-1")
        first = store.confirmations.contenders(study, 1)[0]
        worker = SimulatedWorker(alike=5.0, slower={(f"land-1/{first}", "sharp"): 1.3})
        found = confirm(study, store, worker, top=3)
        assert found is not None
        bet, *sure = found.green
        warm = bet.standings["warm"]
        assert warm.median_us == pytest.approx(6.5, rel=0.01)
        assert warm.varies
        assert (warm.on, warm.versus) == ("sharp", "cudnn")
        assert warm.speedup == pytest.approx(7.5 / 6.5, rel=0.01)
        assert all(f.standings["warm"].median_us == pytest.approx(5.0, rel=0.01) for f in sure)
        board = store.leaderboard(study="land-1", limit=3)
        assert [row.number for row in board[:3]][-1] == first
        assert text(confirmation_tables(found)[0]).count("data-dependent") == 1
        assert sum("data-dependent" in line for line in text(leaderboards(board)[0]).splitlines()) == 1
        champion = promote(store.trial(bet.name), study, found, "sm_89", tmp_path / "kernels")
    assert champion.record["confirmed"]["standings"]["warm"]["times"]["normal"]["median_us"] < 5.1
    assert champion.ranking == "worst"


# ---- what the sets hold


class OnHost:
    """As much of a device as sets of inputs need, on the CPU."""

    torch_device, gpu, free_bytes = "cpu", KNOWN_GPUS["H200"], None

    def finish(self) -> None: ...


def test_sets_hold_one_timing_input_after_the_other_in_the_same_buffers() -> None:
    task = load_task("attention")
    problem = task.problem("1,2,48,32")
    sets = InputSets(OnHost(), task, problem, TimingSettings(), 7)  # type: ignore[arg-type]
    assert len(sets) == 4
    read = sets.of_baseline(lambda inputs: {name: t.clone() for name, t in inputs.items()})
    where = [[t.data_ptr() for t in call.args[0].values()] for call in read]  # type: ignore[attr-defined]
    for name in (*sets.names, "normal"):
        sets.fill(name)
        for which, call in enumerate(read):
            wanted = task.timing_tensors(problem, name, 7 + which, "cpu")
            assert all(torch.equal(tensor, wanted[buffer]) for buffer, tensor in call().items()), name
    assert where == [[t.data_ptr() for t in call.args[0].values()] for call in read]  # type: ignore[attr-defined]
