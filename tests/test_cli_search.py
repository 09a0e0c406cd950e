"""`evo search` and `evo resume` as a person runs them: real processes, the real compiler, the emulator."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from command import (
    EVO,
    SMALL,
    Evo,
    altered,
    evo_running,
    group_is_empty,
    rows,
    run_evo,
    template_words,
    trials,
    wait_for_trials,
)

from evo.loop import GRACE_S

pytestmark = pytest.mark.nvcc


# ---- the main job


@pytest.mark.slow  # test_documents searches the kernels of the pages
def test_the_template_of_the_examples_is_searched_until_nothing_is_left(
    tmp_path: Path, row_warp: Path, evo: Evo
) -> None:
    words = [*SMALL, *template_words(row_warp), "--rank", "sharp", "--workers", "1"]
    done = run_evo(tmp_path, "search", "--budget", "10m", *words, "--json")
    assert done.returncode == 0, done.stderr
    assert "strategy evo, seed 0, ranked by sharp" in done.stderr
    assert "every feasible point has been tried" in done.stderr
    assert [outcome for _, outcome in trials(tmp_path)] == ["GREEN"] * 20
    ranked = json.loads(done.stdout)
    assert len(ranked) == 10
    assert all(row["kind"] == "estimate" and row["estimate_gpu"] == "L4" for row in ranked)
    assert [row["estimate_us"] for row in ranked] == sorted(row["estimate_us"] for row in ranked)

    # what a person does next
    shown = evo("show", "attention-1/0", "--source")
    assert shown.out.startswith("// evo ")
    assert 'extern "C" __global__' in shown.out
    assert ".visible .entry row_warp(" in evo("show", "attention-1/0", "--ptx").out
    again = evo("replay", "attention-1/0")
    assert again.code == 0, again.err
    assert again.out.startswith("same source and launch\nthen: GREEN ~")
    emulated = evo("emulate", "attention-1/0", "--json")
    assert emulated.code == 0, emulated.err
    assert {run["schedule"] for run in json.loads(emulated.out)["runs"]} >= {"eager", "reversed"}
    resumed = evo("resume", "attention-1", "--budget", "+1m", "--json")
    assert resumed.code == 0
    assert "ranked by sharp" in resumed.err, "a study keeps its ranking"
    assert json.loads(resumed.out) == ranked
    assert len(trials(tmp_path)) == 20


def test_a_search_ends_with_so_many_trials(tmp_path: Path, row_warp: Path, evo: Evo) -> None:
    words = [*SMALL, *template_words(row_warp), "--workers", "1"]
    done = run_evo(tmp_path, "search", "--budget", "10m", "--until", "3", *words)
    assert done.returncode == 0, done.stderr
    assert "it has its 3 trials; to go on: evo resume attention-1 --until budget" in done.stderr
    again = evo("resume", "attention-1")
    assert (again.code, len(trials(tmp_path))) == (2, 3)
    assert again.err.startswith(
        "error: study attention-1 has its 3 trials\nhint: evo resume attention-1 --until 6"
    )
    assert evo("resume", "attention-1", "--until", "soon").code == 2
    more = evo("resume", "attention-1", "--until", "5")
    assert (more.code, len(trials(tmp_path))) == (0, 5), more.err
    assert evo("resume", "attention-1").code == 2, "a study keeps its end"


def test_a_wrong_kernel_is_red_and_nothing_found_is_said(tmp_path: Path, four_points: Path, evo: Evo) -> None:
    words = altered(four_points, tmp_path, "row_warp.cu.jinja", "first < visible;", "first < visible - 1;")
    done = run_evo(tmp_path, "search", "--budget", "5m", "--workers", "1", *SMALL, *words)
    assert done.returncode == 4
    assert done.stdout == ""
    assert "error: none of" in done.stderr
    assert {outcome for _, outcome in trials(tmp_path)} == {"RED"}
    again = evo("replay", "attention-1/0", "--json")
    assert again.code == 4
    then, now = json.loads(again.out)["then"], json.loads(again.out)["now"]
    assert now["where"] == then["where"]  # the case with its seed, and the first wrong element
    assert re.search(r"seed=\d+ schedule=\w+ launch=\d+: o\[\d+, \d+, \d+, \d+\]$", then["where"])
    assert (now["reason"], now["detail"], now["errors"]) == (then["reason"], then["detail"], then["errors"])
    rows(tmp_path, """UPDATE trials SET evaluations = 3""")
    third = json.loads(evo("replay", "attention-1/0", "--json").out)["now"]
    seeds = {e["seed"] for e in now["errors"]}, {e["seed"] for e in third["errors"]}
    assert third["outcome"] == "RED"
    assert seeds[0].isdisjoint(seeds[1]), "a third evaluation's inputs"


def test_a_budget_is_kept_to(tmp_path: Path) -> None:
    done = run_evo(tmp_path, "search", "--budget", "8s", "--workers", "1", *SMALL)
    spent = float(re.search(r"correct, in (\d+) s$", done.stderr, re.MULTILINE)[1])  # type: ignore[index]
    assert done.returncode == 0, done.stderr
    assert 8 <= spent <= 8 + GRACE_S + 20  # what is under way gets a moment, a busy machine another


def test_plain_lines_on_stderr_and_the_leaderboard_on_stdout(
    tmp_path: Path, four_points: Path, evo: Evo
) -> None:
    """And a replay says when the template renders something else since."""
    words = altered(four_points, tmp_path, "row_warp.cu.jinja", "Slow, right, and short.", "Slow and short.")
    done = run_evo(tmp_path, "search", "--budget", "5m", "--workers", "1", *SMALL, *words)
    assert done.returncode == 0
    assert "row_warp: 4 points, 4 feasible" in done.stderr
    assert re.search(r"^\d+ s of 5 min 00 s  \d+ trials \(\d+/min\)", done.stderr, re.MULTILINE)
    title = "attention B=1 H=1 L=16 D=32 causal=0 fp16 · emulator (L4) · times are guesses for L4"
    assert " ".join(done.stdout.split()).startswith(title)
    assert "\x1b" not in done.stdout + done.stderr

    shutil.copytree(four_points, tmp_path / "templates", dirs_exist_ok=True)
    again = evo("replay", "attention-1/0")
    assert again.code == 0
    assert again.out.startswith("the template renders another source")
    first_line = "// Attention with a warp a query: each lane owns D / 32 columns."
    assert f"\n-{first_line} Slow and short.\n" in again.out


def test_the_live_view_on_a_terminal(tmp_path: Path, four_points: Path) -> None:
    words = ["search", "--budget", "5m", "--workers", "1", "--rate", "0.51"]
    words += [*SMALL, *template_words(four_points)]
    command = " ".join(f"'{word}'" for word in [*EVO, *words])
    done = subprocess.run(
        ["script", "-qec", f"stty cols 100; {command}", "/dev/null"], cwd=tmp_path,
        env={**os.environ, "TERM": "xterm-256color"}, capture_output=True, text=True, timeout=300, check=True,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    shown = re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", done.stdout)
    for label in ("budget", "trials", "best", "workers"):
        assert re.search(rf"^{label}\b", shown, re.MULTILINE)
    assert "$0.0" in shown
    assert re.search(r"\b4 · ", shown)


# ---- interruptions


def test_ctrl_c_once_finishes_and_says_how_to_go_on(tmp_path: Path, row_warp: Path) -> None:
    words = [*SMALL, *template_words(row_warp), "--workers", "2"]
    with evo_running(tmp_path, "search", "--budget", "10m", *words) as process:
        wait_for_trials(tmp_path, 3, process)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of the group
        out, err = process.communicate(timeout=300)
        assert process.returncode == 130, err
        assert "go on with: evo resume attention-1" in err
        assert "Traceback" not in err
        assert out.startswith("attention B=1")
        assert group_is_empty(process.pid)
    before = trials(tmp_path)
    assert len(before) >= 3
    assert [status for (status,) in rows(tmp_path, "SELECT status FROM studies")] == ["interrupted"]
    with evo_running(tmp_path, "resume", "attention-1") as process:
        wait_for_trials(tmp_path, len(before) + 1, process)
    after = trials(tmp_path)
    assert after[: len(before)] == before or set(before) < set(after)
    assert len({number for number, _ in after}) == len(after) > len(before)


def test_ctrl_c_twice_stops_at_once_and_loses_nothing(tmp_path: Path, row_warp: Path) -> None:
    words = [*SMALL, *template_words(row_warp), "--workers", "2"]
    with evo_running(tmp_path, "search", "--budget", "10m", *words) as process:
        wait_for_trials(tmp_path, 3, process)
        before = trials(tmp_path)
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=300)
        assert process.returncode == 130, err
        assert "Traceback" not in err
        assert "evo resume attention-1" in err
        assert group_is_empty(process.pid)
    assert set(before) <= set(trials(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_twenty_kills_lose_nothing(tmp_path: Path, workers: str) -> None:
    """kill -9 of every process of a search, twenty times at random moments, each time resumed."""
    dice = random.Random(int(workers))
    words = ["--seed", "5", "--workers", workers]
    with evo_running(tmp_path, "search", "--budget", "10m", *SMALL, *words) as process:
        wait_for_trials(tmp_path, 1, process)
    seen = trials(tmp_path)
    for _ in range(19):
        with evo_running(tmp_path, "resume", "attention-1") as process:
            wait_for_trials(tmp_path, len(seen) + dice.randrange(4), process)
            time.sleep(dice.random())
        assert set(seen) <= set(trials(tmp_path)), "a finished trial was lost or changed"
        seen = trials(tmp_path)
    spent = rows(tmp_path, "SELECT spent_s FROM studies")[0][0]
    more = f"{int(spent) + 8}s"
    done = run_evo(tmp_path, "resume", "attention-1", "--budget", more)
    assert done.returncode == 0, done.stderr
    numbers = [number for number, _ in trials(tmp_path)]
    assert numbers == list(range(len(numbers))) or workers == "2"
    assert len(set(numbers)) == len(numbers)
    assert 19 < float(rows(tmp_path, "SELECT spent_s FROM studies")[0][0]) < float(more[:-1]) + GRACE_S + 10
    if workers == "2":
        return
    points = "SELECT template, point, outcome FROM trials ORDER BY number"
    killed = rows(tmp_path, points)
    alone = tmp_path / "alone"
    alone.mkdir()
    with evo_running(alone, "search", "--budget", "10m", *SMALL, *words) as process:
        wait_for_trials(alone, len(killed), process)
    assert rows(alone, points)[: len(killed)] == killed
