"""CONFIRMED: the loop with a real database and real kills; times are simulated (finals.py), but on a GPU."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from finals import SimulatedWorker
from landscape import PROBLEM, LandscapeWorkers, new_study, spaces_of
from rich.console import Console
from test_timing_gpu import needs_gpu

import evo.confirm
from evo.cli.explain import ended
from evo.confirm import confirm, reserve_s
from evo.confirm.rounds import IMPATIENT
from evo.confirm.worker import WorkerProcess
from evo.errors import MachineError
from evo.loop import Progress, search
from evo.report.confirmed import confirmation_tables, unconfirmed_lines, why_none
from evo.report.trial import trial_page
from evo.store import Confirmation, Store
from evo.study import Study
from evo.timing.statistics import FEWEST_ROUNDS, LEVEL
from evo.trial import Round


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with a study that was searched, and not confirmed."""
    folder = tmp_path_factory.mktemp("searched")
    with Store(folder / "evo.db") as store:
        study = store.create(new_study(strategy="random"))
        search(study, store, spaces_of(folder / "t"), LandscapeWorkers())
    return folder / "evo.db"


@pytest.fixture
def database(searched: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "evo.db"
    copy.write_bytes(searched.read_bytes())
    return copy


def confirmed(
    database: Path, worker: SimulatedWorker, top: int = 3, afresh: bool = False, said: list[str] | None = None
) -> Confirmation:
    lines = [] if said is None else said
    with Store(database) as store:
        found = confirm(
            store.study("land-1"), store, worker, top=top, afresh=afresh, watch=lambda s: lines.append(s.text)
        )
    assert found is not None
    return found


# ---- what a confirmation does


def test_the_best_are_gated_thoroughly_and_timed_beside_the_baselines(database: Path) -> None:
    worker = SimulatedWorker()
    found = confirmed(database, worker)
    assert found.status == "finished"
    assert [f.outcome for f in found.finalists] == ["GREEN"] * 3
    assert worker.expected == [f.name for f in found.finalists]
    assert worker.asked == [f"gate {f.name} thoroughly" for f in found.finalists]
    best = found.finalists[0].standings["warm"]
    assert best.median_us == pytest.approx(5.0, rel=0.01)
    assert best.interval.low < best.median_us < best.interval.high
    assert (best.versus, best.verdict) == ("cudnn", "faster")
    assert best.speedup == pytest.approx(1.5, rel=0.01)
    cold = found.finalists[0].standings["cold"]
    assert cold.median_us == pytest.approx(5 * np.exp(0.3), rel=0.01)
    assert set(found.baselines["warm"]) == {"cudnn", "flash", "math"}
    assert found.kernels == {"cudnn": ["cudnn_sdpa_kernel"]}
    assert found.skipped == {"flex": "does not compile"}
    assert unconfirmed_lines(found) == ["baselines not timed: flex: does not compile"]
    with Store(database) as store:
        taken = store.confirmations.rounds(found, "warm")
        assert len(taken) == evo.confirm.ROUNDS["warm"]
        assert len({r.seed for r in taken}) == len(taken)
        assert {len(s) for r in taken for own in r.samples_us.values() for s in own.values()} == {6}
        assert taken[0].clocks == {"sm_mhz": 1980.0}


def test_finalists_are_distinct_programs(database: Path) -> None:
    """`hint` changes the source but no machine code: two points that differ in it are one contender."""
    with Store(database) as store:
        numbers = store.confirmations.contenders(store.study("land-1"), 12)
        codes = [store.trial(f"land-1/{n}").machine_code for n in numbers]
    assert len(numbers) == 12
    assert len(set(codes)) == 12


def test_one_that_fails_the_thorough_gate_is_replaced_and_leaves_the_leaderboard(database: Path) -> None:
    with Store(database) as store:
        best = store.leaderboard(limit=1)[0]
    name = f"{best.study}/{best.number}"
    found = confirmed(database, SimulatedWorker(red=[name]))
    assert [(f.outcome, f.reason) for f in found.finalists] == [("RED", "row error")] + [("GREEN", "")] * 3
    with Store(database) as store:
        assert all(row.number != best.number for row in store.leaderboard(limit=1000))
        assert best.number not in store.confirmations.contenders(store.study("land-1"), 100)
        assert store.confirmations.refused(store.study("land-1")) == {best.number: ("RED", "row error")}
        rows, failures = ended(store, store.study("land-1"))
    assert {r.score_us for r in rows if r.number == best.number} == {None}
    assert [f.reason for f in failures if f.example == best.number] == [
        "row error (when it was to be CONFIRMED)"
    ]
    assert "Finalists that were refused" in [t.title for t in confirmation_tables(found)]


def test_one_that_is_not_clean_under_the_sanitizer_is_out(database: Path) -> None:
    with Store(database) as store:
        first = store.confirmations.contenders(store.study("land-1"), 1)[0]
    found = confirmed(database, SimulatedWorker(dirty=[f"land-1/{first}"]))
    assert [f.outcome for f in found.finalists] == ["RED", "GREEN", "GREEN"]
    assert {f.sanitizer for f in found.green} == {"clean: memcheck"}
    assert "memcheck" in found.finalists[0].reason


def test_each_finalist_keeps_the_newest_confirmation_that_it_was_in(database: Path) -> None:
    """A second one, of the best alone, does not make the others unconfirmed."""
    three = confirmed(database, SimulatedWorker())
    one = confirmed(database, SimulatedWorker(), top=1, afresh=True)
    (best,), others = one.finalists, three.finalists[1:]
    with Store(database) as store:
        study, about = store.study("land-1"), store.confirmations.about
        assert [about(study, f.trial) for f in (best, *others)] == [one, three, three]
        never = store.trial(f"land-1/{store.confirmations.contenders(study, 9)[-1]}")
        assert about(study, never.id) == one


def test_one_that_falls_in_a_round_is_out_and_the_others_go_on(database: Path) -> None:
    with Store(database) as store:
        second = store.confirmations.contenders(store.study("land-1"), 2)[1]
    said: list[str] = []
    found = confirmed(database, SimulatedWorker(falls=(f"land-1/{second}", 4)), said=said)
    assert [f.outcome for f in found.finalists] == ["GREEN", "RED", "GREEN"]
    assert [line for line in said if "refused" in line] == [f"#{second} is refused: RED row error"]
    assert why_none("land-1", [found]) == f"land-1/{second} was refused when it was confirmed: RED row error"
    assert why_none("land-1", [found, found]) == why_none("land-1", [found])  # on two GPUs alike
    assert all("warm" in f.standings for f in found.green)


def test_a_round_that_kills_the_process_is_held_again_by_finalists_that_passed_again(database: Path) -> None:
    worker = SimulatedWorker(dies=[2])
    found = confirmed(database, worker)
    assert found.status == "finished"
    assert worker.asked[3:] == [f"gate {f.name} quickly" for f in found.finalists]
    with pytest.raises(MachineError, match="worker dies"):
        confirmed(database, SimulatedWorker(dies=list(range(100))), afresh=True)


def test_a_finished_confirmation_is_not_repeated_unless_asked(database: Path) -> None:
    first = confirmed(database, SimulatedWorker())
    untouched = SimulatedWorker()
    assert confirmed(database, untouched).id == first.id
    assert not untouched.asked
    again = confirmed(database, SimulatedWorker(), afresh=True)
    assert again.id > first.id
    assert again.seed != first.seed


def test_a_study_without_timed_trials_has_nothing_to_confirm(tmp_path: Path) -> None:
    with Store(tmp_path / "evo.db") as store:
        assert confirm(store.create(new_study()), store, SimulatedWorker()) is None


# ---- the leaderboard


def test_confirmed_rows_come_first_and_ties_share_a_rank(database: Path) -> None:
    found = confirmed(database, SimulatedWorker(alike=5.0), top=4)
    with Store(database) as store:
        rows = store.leaderboard(limit=10)
        view = store._database.read(
            lambda c: c.exec_driver_sql(
                "SELECT rank, kind, number FROM leaderboard ORDER BY rank, median_us, trial LIMIT 14"
            ).all()
        )
    assert [row.kind for row in rows] == ["confirmed"] * 4 + ["measured"] * 10
    ordered = sorted(found.green, key=lambda f: f.standings["warm"].median_us)
    assert [row.number for row in rows[:4]] == [f.number for f in ordered]
    for row in rows[:4]:
        assert row.rank == 1 + sum((o.high_us or 0) < (row.low_us or 0) for o in rows[:4])
    assert rows[0].rank == rows[1].rank == 1, "they are alike"
    assert rows[4].rank == 5, "the best that is not CONFIRMED comes after all that are"
    assert sorted(map(tuple, view)) == sorted((r.rank, r.kind, r.number) for r in rows)
    assert rows[0].level == LEVEL
    assert rows[0].search_us != rows[0].median_us


def test_the_page_of_a_trial_says_what_confirmed_found(database: Path) -> None:
    found = confirmed(database, SimulatedWorker(), top=2)
    best = found.green[0]
    with Store(database) as store:
        stored, verdict = store.trial(best.name), store.confirmations.verdict(best.trial)
        assert store.confirmations.verdict(store.trial("land-1/0").id) is None
    assert verdict == (found, best)
    page = trial_page(stored, Console(width=160, file=io.StringIO()), verdict)
    lines = [line for line in page.splitlines() if line.startswith("CONFIRMED")]
    assert len(lines) == 2
    said = r"µs, 99% CI \[.*\], worst of normal, sharp, 1\.[45]\dx \[.*\] cudnn on \w+, warm L2: faster"
    assert re.search(said, lines[0])
    assert "clean: memcheck" in page
    assert re.search(r"^beside it +cudnn 7\.\d+ µs, flash 8\.\d+ µs, math 6\d\.\d µs$", page, re.MULTILINE)
    assert re.search(r"^cudnn ran +cudnn_sdpa_kernel$", page, re.MULTILINE)
    assert re.search(r"^not timed +flex: does not compile$", page, re.MULTILINE)


# ---- killed, ended early, in a search


def test_a_killed_confirmation_goes_on_where_it_stood(database: Path) -> None:
    script = Path(__file__).with_name("finals.py")
    command = [sys.executable, str(script), str(database), "land-1", "0.05"]
    environment = {**os.environ, "PYTHONPATH": str(script.parents[1])}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    said = []
    while "warm round 8 of" not in (line := process.stdout.readline()):
        assert line
        said.append(line)
    process.kill()
    process.communicate()
    with Store(database) as store:
        cut = store.confirmations.newest(store.study("land-1"))
        assert cut is not None
        assert cut.status == "running"
        before = store.confirmations.rounds(cut, "warm")
    assert len(before) >= 7
    rest = subprocess.run(command, capture_output=True, text=True, env=environment, check=True, timeout=300)
    steps = rest.stdout.splitlines()
    assert steps[0] == f"warm round {len(before) + 1} of {evo.confirm.ROUNDS['warm']}", "no gate is repeated"
    assert steps[-1] == "finished"
    with Store(database) as store:
        whole = store.confirmations.newest(store.study("land-1"))
        assert whole is not None
        assert (whole.id, whole.status, whole.seed) == (cut.id, "finished", cut.seed)
        after = store.confirmations.rounds(whole, "warm")
    assert after[: len(before)] == before
    assert len(after) == evo.confirm.ROUNDS["warm"]


def test_a_search_killed_in_the_middle_of_confirmed_is_resumed_there(tmp_path: Path) -> None:
    """SIGKILL for `evo resume` while it confirms, then `evo resume`: real processes, the real command."""
    database, spaces = tmp_path / "evo.db", spaces_of(tmp_path / "t")
    folders = (str(tmp_path / "t"),)
    with Store(database) as store:
        store.create(replace(new_study(budget_s=600), templates=tuple(spaces), folders=folders))
    script = Path(__file__).with_name("finals.py")
    words = ["evo", "0.05", "resume", "land-1", "--database", str(database)]
    environment = {**os.environ, "PYTHONPATH": str(script.parents[1])}

    def rounds() -> list[Round]:
        with Store(database) as store:
            found = store.confirmations.newest(store.study("land-1"))
            return store.confirmations.rounds(found, "warm") if found else []

    process = subprocess.Popen([sys.executable, str(script), *words], stderr=subprocess.PIPE, env=environment)
    deadline = time.monotonic() + 300
    while len(rounds()) < 5:
        assert process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.kill()
    process.communicate()
    before = rounds()
    with Store(database) as store:
        study = store.study("land-1")
        cut, searched = store.confirmations.newest(study), store.rows(study)
    assert cut is not None
    assert (cut.status, study.status) == ("running", "interrupted")
    assert 5 <= len(before) < evo.confirm.ROUNDS["warm"]
    command = [sys.executable, str(script), *words]
    rest = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=True)
    assert "CONFIRMED" in rest.stdout.splitlines()[0]
    with Store(database) as store:
        study = store.study("land-1")
        whole = store.confirmations.newest(study)
        assert whole is not None
        assert (whole.id, whole.seed, whole.status) == (cut.id, cut.seed, "finished")
        assert store.rows(study) == searched, "nothing is searched again"
    assert [f.number for f in whole.finalists] == [f.number for f in cut.finalists]
    assert rounds()[: len(before)] == before
    assert len(rounds()) == evo.confirm.ROUNDS["warm"]


def test_where_time_is_short_fewer_finalists_are_gated_but_all_rounds_are_held(database: Path) -> None:
    needed: list[float] = []

    def over(needs_s: float) -> bool:
        needed.append(needs_s)
        return needs_s > 0

    with Store(database) as store:
        study = store.study("land-1")
        found = confirm(study, store, SimulatedWorker(seconds=0.01), top=3, over=over)
        assert found is not None
        assert 6.01 <= needed[1] < 11, "for rounds, and for as long a gate as the first one"
        assert len(found.finalists) == 1
        assert len(store.confirmations.rounds(found, "warm")) == evo.confirm.ROUNDS["warm"]
    assert found.green[0].standings["warm"].verdict == "faster"
    assert found.green[0].sanitizer == ""


def test_where_there_is_no_time_for_any_finalist_it_is_not_finished(database: Path) -> None:
    with Store(database) as store:
        study = store.study("land-1")
        cut = confirm(study, store, SimulatedWorker(), top=3, over=lambda _: True)
        assert cut is not None
        assert (cut.status, cut.finalists) == ("running", ())
        assert unconfirmed_lines(cut) == ["CONFIRMED is not finished; go on with: evo confirm land-1 --top 3"]
        whole = confirm(study, store, SimulatedWorker(), top=3)
        assert whole is not None
        assert (whole.id, whole.status, len(whole.green)) == (cut.id, "finished", 3)


def test_other_versions_begin_another_confirmation(database: Path) -> None:
    with Store(database) as store:
        study = store.study("land-1")
        held = iter([False] * 8 + [True] * 100)
        cut = confirm(study, store, SimulatedWorker(), top=3, over=lambda _: next(held))
        assert cut is not None
        assert cut.status == "running"
        assert len(store.confirmations.rounds(cut, "warm")) < FEWEST_ROUNDS
        other = confirm(study, store, SimulatedWorker(versions={"x": "2"}), top=3)
        assert other is not None
        assert other.id != cut.id
        assert store.confirmations.get(cut.id).status == "given up"


def test_a_search_keeps_a_reserve_and_confirms_within_it(tmp_path: Path) -> None:
    seen: list[Progress] = []
    worker = SimulatedWorker()
    with Store(tmp_path / "evo.db") as store:
        study = store.create(new_study(budget_s=12.0, strategy="random"))
        given: list[float] = []

        def appear(left_s: float) -> SimulatedWorker:
            given.append(left_s)
            assert "confirming" not in {p.phase for p in seen}, "it prepares itself while the search goes on"
            return worker

        workers = LandscapeWorkers(seconds=0.1)
        result = search(study, store, spaces_of(tmp_path / "t"), workers, seen.append, appear)
    assert 12.0 * 0.7 < result.study.spent_s < 12.0 + 30.0, "a busy machine is late"
    assert reserve_s(12.0) == 3.0
    assert 0 < given[0] <= 3.0
    assert result.stopped == "budget"
    assert result.confirmation is not None
    assert result.best[0].kind == "confirmed"
    assert worker.expected
    assert all(len(set(seeds)) == 1 for seeds in worker.seeds.values()), "what was checked ahead is asked for"
    steps = [p.step for p in seen if p.phase == "confirming"]
    assert steps[0].startswith("gating finalist 1 of 5")
    assert any(step.startswith("warm round") for step in steps)


# ---- on a GPU


@needs_gpu
@pytest.mark.slow
def test_a_study_on_a_gpu_is_confirmed(tmp_path: Path) -> None:
    from evo.confirm.worker import WorkerSpec
    from evo.device.open import real_gpu
    from evo.evaluate import EvaluatorSpec
    from evo.evaluate.pool import Pool
    from evo.gpu import Limits
    from evo.loop import search_spaces
    from evo.study import templates_of
    from evo.task import load_task

    gpu = real_gpu("cuda:0")
    spec = EvaluatorSpec("attention", "cuda:0", gpu, Limits.of(gpu), tmp_path / "cache", problem=PROBLEM)
    templates = templates_of(load_task("attention"), ["flash_mma"], [])
    spaces = search_spaces(templates, spec.limits, PROBLEM)
    study = Study("gpu-1", PROBLEM, "cuda:0", gpu.name, ("flash_mma",), 15.0, workers=4)
    with Store(tmp_path / "evo.db") as store:
        search(store.create(study), store, spaces, Pool(spec, 4))
        with closing(WorkerProcess(WorkerSpec(spec, PROBLEM, patient=False))) as worker:
            found = confirm(store.study("gpu-1"), store, worker, top=2)
    assert found is not None
    assert found.status == "finished"
    assert all(f.standings["warm"].median_us < f.standings["cold"].median_us * 1.02 for f in found.green)
    assert found.kernels["flash"]
    assert "flex" in found.skipped
    assert set(found.skipped.values()) == {IMPATIENT}
