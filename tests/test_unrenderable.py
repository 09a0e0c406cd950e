"""Templates that fail at some points: these are trials like others, and the search goes on."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

import landscape
import pytest
from command import SMALL, Evo, altered, evo_running, rows
from landscape import (
    LIMITS,
    PROBLEM,
    SOURCE,
    LandscapeWorkers,
    enough,
    new_study,
    sequence,
    write_template,
)

from evo.errors import BadTemplate, Unrenderable
from evo.evaluate import Program
from evo.loop import SearchSpace, search, search_spaces
from evo.loop.loop import UNRENDERABLE_IN_A_ROW
from evo.store import Store
from evo.strategy.evolution.features import Features
from evo.task import load_task
from evo.trial import Outcome, body_of

SPACE = landscape.SPACE.replace("(0, 1)", "(0,)")
SIZE = landscape.SIZE // 4
AT = "(p.rows == 32) & (p.columns == 32) & (p.stages == 2)"
"""The points at which the templates of this file fail."""
FAILING = 2


def _searched(folder: Path, space: str = SPACE, text: str = SOURCE) -> dict[str, SearchSpace]:
    template = write_template(folder, space=f"import numpy as np\n{space}", source=text)
    return search_spaces([template], LIMITS, PROBLEM)


RULE = "    return p.rows * p.columns <= 8192\n"
DERIVED = "    return {}\n"
THREADS = "def threads(p, problem):\n    return p.rows"
SMEM = "def smem_bytes(p, problem):\n"
LAUNCH = "def launch(p, problem, gpu):\n"
EMPTY = f"{LAUNCH}    if {AT}: return LaunchConfig"
RAISING: dict[str, tuple[str, str, str]] = {
    "a rule": (RULE, f"    assert not np.any({AT}), 'no'\n{RULE}", "rule area failed: AssertionError: no"),
    "derived": (DERIVED, f"    return {{}}[1] if {AT} else {{}}\n", "KeyError: N"),
    "a value": (DERIVED, f"    return {{'x': b'1'}} if {AT} else {{}}\n", "derived x is bytes"),
    "no values": (DERIVED, f"    return 7 if {AT} else {{}}\n", "TypeError: "),
    "a name": (DERIVED, f"    return {{'rows': 1}} if {AT} else {{}}\n", "derived values named like"),
    "launch": (LAUNCH, f"{LAUNCH}    1 // (not ({AT}))\n", "ZeroDivisionError: "),
    "bytes": (LAUNCH, f"{EMPTY}((b'1', 1, 1), (1, 1, 1), 0, ())\n", "TypeError: "),
    "beyond": (LAUNCH, f"{EMPTY}((9**99, 1, 1), (1, 1, 1), 0, ())\n", "launch with N"),
    "nothing": (LAUNCH, f"{LAUNCH}    if {AT}: return None\n", "launch gave NoneType"),
    "threads": (THREADS, f"{THREADS} + 1 * ({AT})", "launch has threads N, the model threads() says N"),
    "a text": (THREADS, f"{THREADS} if not np.all({AT}) else 'x'", "ValueError: "),
    "smem_bytes": (
        SMEM,
        f"{SMEM}    if np.any({AT}): open('/')\n",
        "rule shared_memory failed: IsADirectory",
    ),
}


@pytest.mark.parametrize(("old", "new", "reason"), RAISING.values(), ids=RAISING.keys())
def test_a_template_that_raises_at_some_points_is_searched_on(
    tmp_path: Path, old: str, new: str, reason: str
) -> None:
    assert SPACE.count(old) == 1
    spaces = _searched(tmp_path, SPACE.replace(old, new))
    workers = LandscapeWorkers()
    with Store(tmp_path / "evo.db") as store:
        study = store.create(new_study(strategy="evo" if "smem" in old else "random", seed=3))
        result = search(study, store, spaces, workers)
        assert result.stopped == "exhausted"
        assert len(store.rows(study)) == SIZE
        found = [row for row in store.rows(study) if row.outcome is Outcome.UNRENDERABLE]
        assert len(found) == FAILING
        for row in found:
            assert (row.point["rows"], row.point["columns"], row.point["stages"]) == (32, 32, 2)
            assert (row.score_us, row.same_as) == (None, None)
        trial = store.trial(f"land-1/{found[0].number}")
        file, _, line = trial.where.rpartition(":")
        assert file == f"{tmp_path}/attention/landscape.py"
        assert trial.reason.startswith(f"landscape.py:{line}: {reason}")
        assert trial.detail
        assert trial.candidate.source.startswith("// evo ")
        assert not body_of(trial.candidate.source)
        failures = [f for f in store.failures(study) if f.outcome == "UNRENDERABLE"]
        assert sum(failure.count for failure in failures) == FAILING
        assert store.count(study)["UNRENDERABLE"] == FAILING
        assert result.progress.outcomes["UNRENDERABLE"] == FAILING
    assert len(workers.submitted) <= SIZE - FAILING


def test_the_text_that_raises_is_told_by_its_line(tmp_path: Path) -> None:
    text = (
        SOURCE + "//% if rows == 32 and columns == 32 and stages == 2\n// {{ 1 // (rows - 32) }}\n//% endif\n"
    )
    with Store(tmp_path / "evo.db") as store:
        study = store.create(new_study(strategy="random"))
        search(study, store, _searched(tmp_path, text=text), LandscapeWorkers())
        found = [row.number for row in store.rows(study) if row.outcome is Outcome.UNRENDERABLE]
        assert len(found) == FAILING
        trial = store.trial(f"land-1/{found[0]}")
    assert trial.where == f"{tmp_path}/attention/landscape.cu.jinja:{SOURCE.count(chr(10)) + 2}"
    assert trial.detail == "ZeroDivisionError: integer division or modulo by zero"


def test_the_same_points_follow_when_a_search_is_resumed(tmp_path: Path) -> None:
    spaces = _searched(tmp_path, SPACE.replace(DERIVED, f"    return {{}}[1] if {AT} else {{}}\n"))
    with Store(tmp_path / "whole.db") as store:
        study = store.create(new_study(seed=5))
        search(study, store, spaces, LandscapeWorkers())
        whole = sequence(store, study)
    assert "UNRENDERABLE" in {outcome for *_, outcome in whole}
    with Store(tmp_path / "parts.db") as store:
        study = store.create(new_study(seed=5))
        for trials in (15, 40, 70):
            assert search(study, store, spaces, LandscapeWorkers(), enough(trials)).stopped == "interrupted"
        assert search(study, store, spaces, LandscapeWorkers()).stopped == "exhausted"
        assert sequence(store, study) == whole


def test_ten_in_a_row_end_the_search_until_the_template_is_mended(tmp_path: Path) -> None:
    broken = SPACE.replace(DERIVED, "    return {'x': {64: 0}[p.rows]}\n")
    with Store(tmp_path / "evo.db") as store:
        study = store.create(new_study(strategy="random"))
        spaces = _searched(
            tmp_path, broken.replace("(16, 32, 64, 128), 64)", "(16, 32, 64, 128, *range(129, 400)), 64)")
        )
        with pytest.raises(BadTemplate, match=r"landscape\.py:\d+: KeyError: .*10 points in a row") as caught:
            search(study, store, spaces, LandscapeWorkers())
        assert caught.value.hint == "mend the template, then: evo resume land-1"
        assert caught.value.exit_code == 2
        assert store.study("land-1").status == "failed"
        before = store.rows(study)
        assert [row.outcome for row in before[-10:]] == ["UNRENDERABLE"] * UNRENDERABLE_IN_A_ROW
        assert len(before) < UNRENDERABLE_IN_A_ROW + 10
        with pytest.raises(BadTemplate):  # a resumed one looks again, at other points
            search(store.study("land-1"), store, spaces, LandscapeWorkers())
        assert len(store.rows(study)) > len(before)
        result = search(store.study("land-1"), store, _searched(tmp_path), LandscapeWorkers())
        assert result.stopped == "exhausted"
        assert result.best


def test_a_rule_that_is_broken_everywhere_ends_it_before_it_begins(tmp_path: Path) -> None:
    for broken in (
        "p.stage == 1",
        "(p.rows > 16) and (p.rows < 64)",
        "1 // (p.rows - 64) > 0 if p.rows.sum() else 0",
    ):
        with pytest.raises(BadTemplate, match=r"landscape\.py:\d+: "):
            _searched(tmp_path, SPACE.replace("p.rows * p.columns <= 8192", broken))


def test_the_features_of_other_points_stay(tmp_path: Path) -> None:
    fine = _searched(tmp_path / "a")["landscape"].feasible
    failing = _searched(tmp_path / "b", SPACE.replace(SMEM, f"{SMEM}    assert not np.any({AT})\n"))[
        "landscape"
    ].feasible
    assert (fine.indices == failing.indices).all()
    one, other = Features(fine)(fine.indices), Features(failing)(failing.indices)
    differing = (one != other).any(axis=1)
    assert 0 < differing.sum() <= FAILING


def test_what_fails_in_an_evaluator_is_the_trials_too(tmp_path: Path) -> None:
    """The gate's other problems are rendered there, and the tiles are asked."""
    tiles = "\ndef tiles(p, problem):\n    return (p.rows, 7 // (p.stages - 2))\n"
    supports = "\ndef supports(problem):\n    return None if problem['L'] > 100 else 1 // 0\n"
    template = write_template(tmp_path, space=SPACE + tiles + supports)
    program = Program(load_task("attention", (tmp_path,)), (tmp_path,), template.gpu, LIMITS)
    candidate = template.candidate(template.space.default, PROBLEM)
    with pytest.raises(Unrenderable, match="ZeroDivisionError") as caught:
        program.tiles(candidate)
    assert caught.value.outcome == Outcome.UNRENDERABLE
    with pytest.raises(Unrenderable, match="ZeroDivisionError"):
        program.sibling(candidate, PROBLEM.replace(L=17))


@pytest.mark.slow  # the others search the same templates in this process
@pytest.mark.nvcc
def test_a_real_search_goes_on_and_shows_them(tmp_path: Path, four_points: Path, evo: Evo) -> None:
    """At step 8 nothing can be rendered, at warps 2 only for the length that is searched."""
    change = (
        "def derived(p, problem):\n    1 // (p.step - 8)\n    1 // (p.warps - 2 + 5 * (problem['L'] == 16))"
    )
    words = altered(four_points, tmp_path, "row_warp.py", "def derived(p, problem):", change)
    done = evo("search", "--budget", "10m", *SMALL, *words, "--workers", "1")
    assert done.code == 0, done.err
    outcomes = dict(rows(tmp_path, "SELECT outcome, count(*) FROM trials GROUP BY outcome"))
    assert outcomes["UNRENDERABLE"] == 2 + 1
    assert set(outcomes) == {"GREEN", "UNRENDERABLE"}
    assert re.search(r"UNRENDERABLE +\d+ +#\d+ +row_warp\.py:\d+: ZeroDivisionError", done.err)
    ((number,),) = rows(tmp_path, "SELECT min(number) FROM trials WHERE outcome = 'UNRENDERABLE'")
    shown = evo("show", f"attention-1/{number}")
    assert shown.code == 0, shown.err
    assert "attention/row_warp.py:" in shown.out
    assert "ZeroDivisionError" in shown.out
    for words in (["studies"], ["insights", "attention-1"], ["report", "attention-1", "-o", "report.html"]):
        told = evo(*words)
        assert told.code == 0, told.err
    assert "UNRENDERABLE" in (tmp_path / "report.html").read_text()


@pytest.mark.nvcc
def test_ctrl_c_once_ends_a_search_whose_template_takes_for_ever(tmp_path: Path, row_warp: Path) -> None:
    words = altered(
        row_warp, tmp_path, "row_warp.cu.jinja", "{{ step }}", "{{ 10 | round(-step * 900000000) }}"
    )
    with evo_running(tmp_path, "search", "--budget", "10m", *SMALL, *words) as process:
        assert process.stderr is not None
        while "strategy evo" not in (said := process.stderr.readline()):
            assert said
        while not rows(tmp_path, "SELECT 1 FROM studies WHERE status = 'running'"):
            assert process.poll() is None
        time.sleep(1)  # now it renders
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=300)
    assert process.returncode == 130, err
    assert "go on with: evo resume attention-1" in err
    assert rows(tmp_path, "SELECT status FROM studies") == [("interrupted",)]
