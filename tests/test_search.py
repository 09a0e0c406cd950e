"""The loop, with a real database and real processes; compiling and running are simulated (landscape.py)."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from landscape import (
    BEST_US,
    LIMITS,
    PROBLEM,
    SIZE,
    SOURCE,
    SPACE,
    TASK,
    LandscapeWorkers,
    enough,
    evaluate,
    new_study,
    sequence,
    spaces_of,
    write_template,
)

import evo.loop.loop
import evo.loop.proposals
from evo.cache import default_folder
from evo.errors import NothingFound, StoreError, UnknownName, UsageError
from evo.evaluate.pool import Pool
from evo.loop import Progress, SearchSpace, Turn, search, search_spaces
from evo.store import Store
from evo.strategy import make_strategy
from evo.study import Study
from evo.template import load_template
from evo.trial import Candidate, Outcome, Trial

LATE_S = 30.0  # so much later than its budget may a search end on a busy machine


@pytest.fixture
def spaces(tmp_path: Path) -> dict[str, SearchSpace]:
    return spaces_of(tmp_path / "templates")


# ---- what a search does


def test_a_search_ends_when_everything_is_tried(tmp_path: Path, spaces: dict[str, SearchSpace]) -> None:
    seen: list[Progress] = []
    workers = LandscapeWorkers()
    with Store(tmp_path / "evo.db") as store:
        result = search(store.create(new_study()), store, spaces, workers, seen.append)
        rows = store.rows(result.study)
    feasible = spaces["landscape"].feasible
    assert (result.stopped, result.study.status) == ("exhausted", "exhausted")
    assert sorted(map(str, (dict(r.point) for r in rows))) == sorted(map(str, map(dict, feasible.points)))
    assert [r.number for r in rows] == list(range(feasible.count))
    assert result.best[0].median_us == BEST_US
    assert result.study.baselines_us == {"sdpa": 7.5}
    assert 0 < result.study.spent_s < result.study.budget_s
    assert workers.closed
    last = seen[-1]
    assert last.trials == feasible.count
    assert last.correct == last.outcomes["TIMED"]
    assert last.best is not None
    assert last.best.median_us == BEST_US
    assert last.per_minute > 0
    assert sorted(p.latest.number for p in seen if p.latest) == list(range(feasible.count))
    assert [f.reason for f in result.failures] == ["row error", "too much of it"]
    assert {r.number for r in rows if not r.outcome.correct} >= {f.example for f in result.failures}


def test_a_search_ends_when_nothing_more_is_expected(
    tmp_path: Path, spaces: dict[str, SearchSpace], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long before everything is tried; with its optimum."""
    monkeypatch.setattr("evo.loop.stopping.STOPPING_TRIALS", 60)
    with Store(tmp_path / "evo.db") as store:
        study = store.create(replace(new_study(workers=3), device="cuda:0", until="converged"))
        result = search(study, store, spaces, LandscapeWorkers(3), patience=10)
        found = len(store.rows(result.study))
    assert (result.stopped, result.study.status) == ("converged", "converged")
    assert result.best[0].median_us == BEST_US
    assert 60 <= found < SIZE


def test_the_default_comes_first_then_points_far_from_it(
    tmp_path: Path, spaces: dict[str, SearchSpace]
) -> None:
    """What the space is like follows from a design that fills it, not from the neighbours of one point."""
    with Store(tmp_path / "evo.db") as store:
        study = store.create(new_study())
        search(study, store, spaces, LandscapeWorkers(seconds=0.001), enough(25))
        rows = store.rows(study)
    space = spaces["landscape"].template.space
    assert rows[0].point == space.default
    differing = [sum(r.point[n] != v for n, v in space.default.items()) for r in rows[1:8]]
    assert sum(differing) > 3 * len(differing)


def test_the_first_batches_are_small(tmp_path: Path) -> None:
    """Of several templates nothing is asked for before a default is known. Of the strategy's proposals there
    are never more under way than trials are known."""
    templates = [write_template(tmp_path), write_template(tmp_path, "second", source=SOURCE + "// 2\n")]
    spaces = search_spaces(templates, LIMITS, PROBLEM)
    workers = LandscapeWorkers(20, 0.01)
    known: list[int] = []
    with Store(tmp_path / "evo.db") as store:
        study = store.create(new_study(workers=20))
        end = enough(50)

        def watch(progress: Progress) -> None:
            if progress.latest is not None:
                known.append(len(workers.submitted))
            end(progress)

        search(study, store, spaces, workers, watch)
    assert known[0] == known[1] == 2, "both defaults, and nothing else until both are known"
    assert all(submitted <= 2 * (n + 1) + 1 for n, submitted in enumerate(known[:8]))


@pytest.mark.parametrize("workers", [1, 3])
def test_a_trial_is_stored_before_the_strategy_learns_of_it(
    tmp_path: Path, spaces: dict[str, SearchSpace], workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(tmp_path / "evo.db") as store, Store(tmp_path / "evo.db") as reader:
        study = store.create(new_study(workers=workers))

        def spying(*asked: Any) -> Any:
            strategy = make_strategy(*asked)
            ask = strategy.ask

            def checked(history: Any, pending: Any, number: int) -> Any:
                stored = {str(dict(row.point)) for row in reader.rows(study)}
                assert {str(dict(t.point)) for t in history} <= stored
                return ask(history, pending, number)

            strategy.ask = checked  # type: ignore[method-assign]
            return strategy

        monkeypatch.setattr(evo.loop.proposals, "make_strategy", spying)
        search(study, store, spaces, LandscapeWorkers(workers, 0.001), enough(60))
        assert len(store.rows(study)) >= 60


def test_the_same_program_is_not_run_twice(tmp_path: Path, spaces: dict[str, SearchSpace]) -> None:
    workers = LandscapeWorkers()
    with Store(tmp_path / "evo.db") as store:
        result = search(store.create(new_study(strategy="random")), store, spaces, workers)
        rows = store.rows(result.study)
        twins = [row for row in rows if row.same_as is not None]
        # `ghost` doubles the space, but the source does not know it; a few pairs are under way at once
        assert len(workers.submitted) < 0.6 * len(rows)
        assert len(twins) == len(rows) - len(workers.submitted)
        for row in twins[:20]:
            first, copy = (store.trial(f"land-1/{n}") for n in (row.same_as, row.number))
            assert first.timing == copy.timing
            assert first.candidate.source.partition("\n\n")[2] == copy.candidate.source.partition("\n\n")[2]
            assert copy.same_as == first.number
        assert not {r.number for r in store.leaderboard(limit=1000)} & {r.number for r in twins}


def test_dead_parameters_are_reported_by_name(tmp_path: Path, spaces: dict[str, SearchSpace]) -> None:
    with Store(tmp_path / "evo.db") as store:
        study = store.create(new_study())
        result = search(study, store, spaces, LandscapeWorkers(), enough(100))
    assert {(d.template, d.name) for d in result.dead} == {("landscape", "hint"), ("landscape", "ghost")}
    assert all(d.pairs >= 1 for d in result.dead)


# ---- budget


def test_a_budget_ends_a_search_and_more_of_it_continues(
    tmp_path: Path, spaces: dict[str, SearchSpace]
) -> None:
    with Store(tmp_path / "evo.db") as store:
        study = store.create(new_study(budget_s=1.0, workers=2, strategy="random"))
        began = time.monotonic()
        result = search(study, store, spaces, LandscapeWorkers(2, 0.02))
        assert time.monotonic() - began < 1.0 + LATE_S
        assert (result.stopped, result.study.status) == ("budget", "finished")
        assert 1.0 <= result.study.spent_s < 1.0 + LATE_S
        first = sequence(store, study)
        again = search(study, store, spaces, LandscapeWorkers(2, 0.02))
        assert (again.stopped, sequence(store, study)) == ("budget", first), "nothing is left"
        more = replace(study, budget_s=result.study.spent_s + 1.0)
        result = search(more, store, spaces, LandscapeWorkers(2, 0.02))
        longer = sequence(store, study)
        assert longer[: len(first)] == first
        assert len(longer) > len(first)
        assert more.budget_s <= result.study.spent_s < more.budget_s + LATE_S


def test_a_search_does_not_wait_for_what_never_ends(tmp_path: Path, spaces: dict[str, SearchSpace]) -> None:
    with Store(tmp_path / "evo.db") as store:
        began = time.monotonic()
        study, workers = store.create(new_study(budget_s=0.3)), LandscapeWorkers(1, 1000.0)
        with pytest.raises(NothingFound, match=r"no candidate was finished in .*\nhint: evo resume land-1"):
            search(study, store, spaces, workers, turn=Turn(grace_s=0.3))
        assert time.monotonic() - began < 100, "a worker takes 1000 s"


# ---- what can go wrong


def test_nothing_found_says_why(
    tmp_path: Path, spaces: dict[str, SearchSpace], monkeypatch: pytest.MonkeyPatch
) -> None:
    def red(candidate: Candidate) -> Trial:
        return Trial(candidate, Outcome.RED, "race", device="none")

    monkeypatch.setattr("landscape.evaluate", red)
    with Store(tmp_path / "evo.db") as store:
        with pytest.raises(NothingFound, match=f"none of {SIZE}") as caught:
            search(store.create(new_study(strategy="random")), store, spaces, LandscapeWorkers())
        assert caught.value.hint == f"{SIZE} × RED race; evo show land-1/0 says where"


def test_what_never_compiles_is_given_up(
    tmp_path: Path, spaces: dict[str, SearchSpace], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(candidate: Candidate) -> Trial:
        return Trial(candidate, Outcome.UNCOMPILABLE, "no such header", device="none")

    monkeypatch.setattr("landscape.evaluate", broken)
    workers = LandscapeWorkers()
    with Store(tmp_path / "evo.db") as store:
        with pytest.raises(NothingFound) as caught:
            search(store.create(new_study()), store, spaces, workers)
        assert "no such header" in caught.value.hint
        assert store.study("land-1").status == "failed"
        assert len(store.rows(store.study("land-1"))) < evo.loop.loop.UNCOMPILABLE_TRIALS + 10


def test_our_own_bug_stops_the_search(
    tmp_path: Path, spaces: dict[str, SearchSpace], monkeypatch: pytest.MonkeyPatch
) -> None:
    def bug(candidate: Candidate) -> Trial:
        if candidate.point["stages"] == 3:
            raise ZeroDivisionError
        return evaluate(candidate)

    monkeypatch.setattr("landscape.evaluate", bug)
    workers = LandscapeWorkers()
    with Store(tmp_path / "evo.db") as store:
        with pytest.raises(ZeroDivisionError):
            search(store.create(new_study()), store, spaces, workers)
        assert store.study("land-1").status == "failed"
        assert workers.closed


def test_unknown_strategy_leaves_the_study_free(tmp_path: Path, spaces: dict[str, SearchSpace]) -> None:
    with Store(tmp_path / "evo.db") as store:
        study = store.create(new_study(strategy="genius"))
        with pytest.raises(UnknownName, match="unknown strategy: genius"):
            search(study, store, spaces, LandscapeWorkers())
        assert store.study("land-1").status == "failed"


def test_search_spaces_refuses_what_cannot_be_searched(tmp_path: Path) -> None:
    nothing = write_template(tmp_path, "nothing", SPACE.replace("<= 8192", "<= 1"))
    with pytest.raises(UsageError, match="no point is feasible") as caught:
        search_spaces([nothing], LIMITS, PROBLEM)
    assert "384 × rows times columns" in caught.value.hint
    newer = write_template(tmp_path, "newer", SPACE.replace("sm_80", "sm_90a"))
    with pytest.raises(UsageError, match="no template serves") as caught:
        search_spaces([newer], LIMITS, PROBLEM)
    assert "sm_90a" in caught.value.hint
    fine = write_template(tmp_path)
    assert list(search_spaces([nothing, newer, fine], LIMITS, PROBLEM)) == ["landscape"]


def test_an_edited_template_does_not_confuse_a_resumed_study(tmp_path: Path) -> None:
    with Store(tmp_path / "evo.db") as store:
        study = store.create(new_study())
        search(study, store, spaces_of(tmp_path / "a"), LandscapeWorkers(seconds=0.001), enough(60))
        before = sequence(store, study)
        edited = write_template(
            tmp_path / "b",
            space=SPACE.replace("(1, 2, 3), 2", "(2, 3, 5), 3"),
            source=SOURCE.replace("void landscape", "void landscape"),
        )
        result = search(study, store, search_spaces([edited], LIMITS, PROBLEM), LandscapeWorkers())
        after = sequence(store, study)
    assert result.stopped == "exhausted"
    assert after[: len(before)] == before
    points = [str(point) for _, _, point, _ in after]
    assert len(points) == len(set(points))


def test_a_full_disk_ends_the_search_and_loses_nothing(
    tmp_path: Path, spaces: dict[str, SearchSpace]
) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", small], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("cannot mount a small file system here (needs root)")
    announced: list[int] = []
    try:
        with Store(small / "evo.db") as store:
            study = store.create(new_study())
            with pytest.raises(StoreError, match="disk is full") as caught:
                search(
                    study,
                    store,
                    spaces,
                    LandscapeWorkers(),
                    lambda p: announced.append(p.latest.number) if p.latest else None,
                )
            assert "evo resume" in caught.value.hint
        assert len(announced) > 10
        subprocess.run(["mount", "-o", "remount,size=50m", small], check=True)
        with Store(small / "evo.db") as store:
            assert [r.number for r in store.rows(study)] == sorted(announced)
            assert search(store.study("land-1"), store, spaces, LandscapeWorkers()).stopped == "exhausted"
            assert len(store.rows(study)) == SIZE
    finally:
        subprocess.run(["umount", small], check=True)


@pytest.mark.slow
def test_five_thousand_trials_stay_small_and_fast(tmp_path: Path) -> None:
    """Under 1 GB resident and 20 KB of disk a trial; a proposal and its record stay below 30 ms
    (of processor time: the machine may be busy)."""
    wide = SPACE.replace("(0, 1), 0", "tuple(range(60)), 0", 1)
    script = f"""
import sys, time
from dataclasses import replace
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parent)!r})
from landscape import *
folder = Path(sys.argv[1])
template = write_template(folder, space={wide!r}, source=SOURCE + "// a long comment\\n" * 1500)
spaces = search_spaces([template], LIMITS, PROBLEM)
done = []
class Enough(Exception): pass
def watch(progress):
    done.append(time.process_time())
    if progress.trials >= 5000: raise Enough
with Store(folder / "evo.db") as store:
    asked = replace(new_study(budget_s=1e6), device="cuda:0")  # one that starts again when it has converged
    try: sys.exit(search(store.create(asked), store, spaces, LandscapeWorkers(), watch).stopped)
    except Enough: pass
    began = time.process_time(); store.leaderboard(study="land-1"); asked = time.process_time() - began
    began = time.process_time(); store.rows(store.study("land-1")); read = time.process_time() - began
disk = sum(f.stat().st_size for f in folder.glob("evo.db*"))
status = Path("/proc/self/status").read_text()  # ru_maxrss would begin with the memory of pytest's process
memory = int(status.split("VmHWM:")[1].split()[0]) / 1024
print(memory, disk / 5000, (done[-1] - done[-500]) / 500 * 1e3, asked, read)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    mib, bytes_a_trial, ms_a_trial, leaderboard_s, rows_s = map(float, done.stdout.split())
    assert mib < 1024
    assert bytes_a_trial < 20_000
    assert ms_a_trial < 30
    assert leaderboard_s < 0.2
    assert rows_s < 1.0


# ---- the whole engine


@pytest.mark.slow
@pytest.mark.nvcc
def test_a_search_on_the_emulator_finds_and_ranks_kernels(tmp_path: Path) -> None:
    """Real template, compiler, emulator, gate and processes."""
    from evo.evaluate import EvaluatorSpec
    from evo.gpu import KNOWN_GPUS

    gpu = KNOWN_GPUS["L4"]
    template = load_template(TASK, "flash_mma")
    spaces = search_spaces([template], LIMITS, PROBLEM)
    spec = EvaluatorSpec("attention", "emulator", gpu, LIMITS, default_folder(), problem=PROBLEM)
    with Store(tmp_path / "evo.db") as store:
        study = store.create(Study("emu-1", PROBLEM, "emulator", "L4", ("flash_mma",), 45.0, workers=2))
        result = search(study, store, spaces, Pool(spec, 2))
        rows = store.rows(study)
        assert result.stopped == "budget"
        assert len(rows) >= 10
        assert sum(row.outcome is Outcome.GREEN for row in rows) >= 0.9 * len(rows)
        assert all(row.median_us is None for row in rows), "nothing is measured on an emulator"
        estimates = [ranked.estimate_us for ranked in result.best]
        assert estimates == sorted(estimates)  # type: ignore[type-var]
        assert 45.0 <= result.study.spent_s < 60.0
        again = store.trial(f"emu-1/{result.best[0].number}")
        assert template.candidate(again.candidate.point, PROBLEM).source == again.candidate.source
