"""`evo search` and `evo resume` as a person runs them: real processes, the real compiler, the emulator."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evo.search import GRACE_S

ROOT = Path(__file__).parents[1]
EVO = [sys.executable, "-c", "import sys; from evo.cli import main; sys.exit(main())"]
SMALL = ["--shape", "1,1,16,32", "--device", "emulator"]
"""A problem of which the emulator does several a second."""
SYSTEM = "/usr/bin:/bin"

pytestmark = pytest.mark.nvcc


def run_evo(folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*EVO, *words], cwd=folder, env={**os.environ, **env}, capture_output=True, text=True, timeout=300,
        check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip


@contextlib.contextmanager
def evo_running(folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A command in a process group of its own, as a shell starts it; whatever is left of it is killed."""
    process = subprocess.Popen(
        [*EVO, *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        stdin=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    with process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def group_is_empty(group: int) -> bool:
    """Whether every process of a search is gone, or goes within a moment."""
    for _ in range(50):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


def trials(folder: Path, database: str = "runs/evo.db") -> list[tuple[int, str]]:
    with contextlib.closing(sqlite3.connect(folder / database)) as connection:
        return connection.execute("SELECT number, outcome FROM trials ORDER BY number").fetchall()


def wait_for_trials(folder: Path, count: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(sqlite3.Error):
            if len(trials(folder)) >= count:
                return
        time.sleep(0.1)
    pytest.fail(f"{count} trials never came: {process.stderr.read() if process.poll() is not None else ''}")  # type: ignore[union-attr]


@pytest.fixture(scope="module")
def row_warp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of templates that docs/your-own-template.md shows, made from its text."""
    folder = tmp_path_factory.mktemp("templates")
    (folder / "attention").mkdir()
    text = (ROOT / "docs" / "your-own-template.md").read_text()
    shown = re.findall(r"^`(row_warp\.[\w.]+)` .*?\n\n```\w+\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert [name for name, _ in shown] == ["row_warp.cu.jinja", "row_warp.py"]
    for name, content in shown:
        (folder / "attention" / name).write_text(content)
    return folder


def template_words(folder: Path) -> list[str]:
    return ["--templates", str(folder), "--template", "row_warp"]


def altered(row_warp: Path, folder: Path, file: str, old: str, new: str) -> list[str]:
    """The template of the tutorial with one thing changed."""
    made = folder / "templates"
    shutil.copytree(row_warp, made)
    path = made / "attention" / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    return template_words(made)


# ---- the main job


def test_the_template_of_the_tutorial_is_searched_until_nothing_is_left(
    tmp_path: Path, row_warp: Path
) -> None:
    done = run_evo(tmp_path, "search", "--budget", "10m", *SMALL, *template_words(row_warp), "--json")
    assert done.returncode == 0, done.stderr
    assert "every feasible point has been tried" in done.stderr
    assert [outcome for _, outcome in trials(tmp_path)] == ["GREEN"] * 20
    ranked = json.loads(done.stdout)
    assert len(ranked) == 10
    assert all(row["kind"] == "estimate" and row["estimate_gpu"] == "L4" for row in ranked)
    assert [row["estimate_us"] for row in ranked] == sorted(row["estimate_us"] for row in ranked)

    # what a person does next
    shown = run_evo(tmp_path, "show", "attention-1/0", "--source")
    assert shown.stdout.startswith("// evo ")
    assert 'extern "C" __global__' in shown.stdout
    assert ".visible .entry row_warp(" in run_evo(tmp_path, "show", "attention-1/0", "--ptx").stdout
    again = run_evo(tmp_path, "replay", "attention-1/0")
    assert again.returncode == 0, again.stderr
    assert again.stdout.startswith("same source and launch\nthen: GREEN ~")
    emulated = run_evo(tmp_path, "emulate", "attention-1/0", "--json")
    assert emulated.returncode == 0, emulated.stderr
    assert {run["schedule"] for run in json.loads(emulated.stdout)["runs"]} >= {"eager", "reversed"}
    resumed = run_evo(tmp_path, "resume", "attention-1", "--budget", "+1m", "--json")
    assert resumed.returncode == 0
    assert json.loads(resumed.stdout) == ranked
    assert len(trials(tmp_path)) == 20


def test_a_replay_says_when_the_template_renders_something_else(tmp_path: Path, row_warp: Path) -> None:
    words = altered(row_warp, tmp_path, "row_warp.cu.jinja", "Slow, right, and short.", "Slow and short.")
    assert run_evo(tmp_path, "search", "--budget", "10m", *SMALL, *words).returncode == 0
    shutil.copytree(row_warp, tmp_path / "templates", dirs_exist_ok=True)
    again = run_evo(tmp_path, "replay", "attention-1/0")
    assert again.returncode == 0
    assert again.stdout.startswith("the template renders another source")
    assert (
        "\n-// Attention with a warp a query: each lane owns D / 32 columns. Slow and short.\n"
        in again.stdout
    )


def test_a_wrong_kernel_is_red_and_nothing_found_is_said(tmp_path: Path, row_warp: Path) -> None:
    words = altered(row_warp, tmp_path, "row_warp.cu.jinja", "first < visible;", "first < visible - 1;")
    done = run_evo(tmp_path, "search", "--budget", "5m", *SMALL, *words)
    assert done.returncode == 4
    assert done.stdout == ""
    assert "error: none of" in done.stderr
    assert {outcome for _, outcome in trials(tmp_path)} == {"RED"}
    again = run_evo(tmp_path, "replay", "attention-1/0", "--json")
    assert again.returncode == 4
    then, now = json.loads(again.stdout)["then"], json.loads(again.stdout)["now"]
    assert now["where"] == then["where"]  # the case with its seed, and the first wrong element
    assert re.search(r"seed=\d+ schedule=\w+ launch=\d+: o\[\d+, \d+, \d+, \d+\]$", then["where"])
    assert (now["reason"], now["detail"], now["errors"]) == (then["reason"], then["detail"], then["errors"])
    rows(tmp_path, """UPDATE trials SET counters = '{"green_visits": 2}'""")
    third = json.loads(run_evo(tmp_path, "replay", "attention-1/0", "--json").stdout)["now"]
    seeds = {e["seed"] for e in now["errors"]}, {e["seed"] for e in third["errors"]}
    assert third["outcome"] == "RED"
    assert seeds[0].isdisjoint(seeds[1]), "a third visit's inputs"


def test_a_budget_is_kept_to(tmp_path: Path) -> None:
    begin = time.monotonic()
    done = run_evo(tmp_path, "search", "--budget", "20s", *SMALL)
    spent = float(re.search(r"in (\d+) s$", done.stderr.strip())[1])  # type: ignore[index]
    assert done.returncode == 0, done.stderr
    assert 20 <= spent <= 20 + GRACE_S + 10  # what is under way gets a moment, a busy machine another
    assert time.monotonic() - begin < 200  # building the emulator may come before the search


def test_plain_lines_on_stderr_and_the_leaderboard_on_stdout(tmp_path: Path, row_warp: Path) -> None:
    done = run_evo(tmp_path, "search", "--budget", "5m", *SMALL, *template_words(row_warp))
    assert "row_warp: 20 points, 20 feasible" in done.stderr
    assert re.search(r"^\d+ s of 5 min 00 s  \d+ trials \(\d+/min\)", done.stderr, re.MULTILINE)
    assert done.stdout.startswith(
        "attention B=1 H=1 L=16 D=32 causal=0 fp16 · emulator (L4) · times are estimates"
    )
    assert "\x1b" not in done.stdout + done.stderr


def test_the_live_view_on_a_terminal(tmp_path: Path, row_warp: Path) -> None:
    words = ["search", "--budget", "5m", *SMALL, *template_words(row_warp), "--rate", "0.51"]
    command = " ".join(f"'{word}'" for word in [*EVO, *words])
    done = subprocess.run(
        ["script", "-qec", f"stty cols 100; {command}", "/dev/null"], cwd=tmp_path,
        env={**os.environ, "TERM": "xterm-256color"}, capture_output=True, text=True, timeout=240, check=True,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    shown = re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", done.stdout)
    for label in ("budget", "trials", "best", "workers"):
        assert re.search(rf"^{label}\b", shown, re.MULTILINE)
    assert "$0.0" in shown
    assert "20 · " in shown


# ---- interruptions


def test_ctrl_c_once_finishes_and_says_how_to_go_on(tmp_path: Path) -> None:
    with evo_running(tmp_path, "search", "--budget", "10m", *SMALL, "--workers", "2") as process:
        wait_for_trials(tmp_path, 3, process)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of the group
        out, err = process.communicate(timeout=60)
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


def test_ctrl_c_twice_stops_at_once_and_loses_nothing(tmp_path: Path) -> None:
    with evo_running(tmp_path, "search", "--budget", "10m", *SMALL, "--workers", "2") as process:
        wait_for_trials(tmp_path, 3, process)
        before = trials(tmp_path)
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=60)
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


def rows(folder: Path, query: str) -> list[tuple[Any, ...]]:
    with contextlib.closing(sqlite3.connect(folder / "runs/evo.db")) as connection, connection:
        return connection.execute(query).fetchall()


# ---- broken templates and broken machines


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (("row_warp.cu.jinja", "{{ step }}", "{{ step"), r"row_warp\.cu\.jinja:\d+: "),
        (
            ("row_warp.cu.jinja", "{{ step }}", "{{ stage }}"),
            r"row_warp\.cu\.jinja:7: hole stage has neither",
        ),
        (
            ("row_warp.py", "def threads(p, problem):", "def threads(p, problem)"),
            r"row_warp\.py:\d+: expected ':'",
        ),
        (
            ("row_warp.py", "p.step <= problem", "p.stage <= problem"),
            r"row_warp\.py:\d+: .*no parameter stage",
        ),
        (
            ("row_warp.py", "return p.step <=", "return p.step >"),
            "no point is feasible: the rules reject all 20",
        ),
        (("row_warp.py", "block=(threads(p, problem), 1, 1)", "block=(32, 1, 1)"), "launch has threads 32"),
        (("row_warp.py", 'ENTRY = "row_warp"', 'ENTRY = "warp_row"'), "no function warp_row"),
    ],
)
def test_a_broken_template_is_told_with_file_and_line(
    tmp_path: Path, row_warp: Path, change: tuple[str, str, str], error: str
) -> None:
    done = run_evo(tmp_path, "search", "--budget", "2m", *SMALL, *altered(row_warp, tmp_path, *change))
    assert done.returncode == 2, done.stderr
    assert re.search(f"^error: .*{error}", done.stderr, re.MULTILINE), done.stderr
    assert re.search("^hint: .", done.stderr, re.MULTILINE)
    assert "Traceback" not in done.stderr


def test_a_template_that_never_compiles_ends_the_search(tmp_path: Path, row_warp: Path) -> None:
    words = altered(row_warp, tmp_path, "row_warp.cu.jinja", "exp2f(", "exp3f(")
    done = run_evo(tmp_path, "search", "--budget", "10m", *SMALL, *words)
    assert done.returncode == 4
    assert "UNCOMPILABLE" in done.stderr
    assert "exp3f" in run_evo(tmp_path, "show", "attention-1/0").stdout
    assert {outcome for _, outcome in trials(tmp_path)} == {"UNCOMPILABLE"}


def test_no_compiler(tmp_path: Path) -> None:
    """PATH without nvcc, and a Python that finds no wheels of one."""
    if shutil.which("nvcc", path=SYSTEM):
        pytest.skip("the system's own folders have an nvcc")
    blind = tmp_path / "blind" / "nvidia"
    blind.mkdir(parents=True)
    (blind / "__init__.py").touch()
    done = run_evo(tmp_path, "search", "--budget", "2m", *SMALL, PATH=SYSTEM, PYTHONPATH=str(blind.parent))
    assert done.returncode == 3, done.stderr
    assert "error: no CUDA compiler found" in done.stderr
    assert "hint: pip install" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_a_database_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run_evo(tmp_path, "search", "--budget", "2m", *SMALL, "--database", "file/evo.db")
    assert done.returncode == 3, done.stderr
    assert "error: " in done.stderr
    assert "file/evo.db" in done.stderr
    assert "hint: " in done.stderr


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 320 KB."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=320k", "tmpfs", str(folder)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a tmpfs cannot be mounted here (it takes root)")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_keeps_what_was_recorded(tmp_path: Path, tiny_disk: Path) -> None:
    done = run_evo(tmp_path, "search", "--budget", "3m", *SMALL, "--database", "tiny/evo.db")
    assert done.returncode == 3, done.stderr
    assert "the disk is full" in done.stderr
    assert "evo resume" in done.stderr
    assert "Traceback" not in done.stderr
    kept = tmp_path / "kept.db"
    shutil.copy(tiny_disk / "evo.db", kept)
    for suffix in ("-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            shutil.copy(tiny_disk / f"evo.db{suffix}", f"{kept}{suffix}")
    assert len(trials(tmp_path, "kept.db")) > 0


def test_doctor_finds_what_is_there_and_what_is_not(tmp_path: Path) -> None:
    done = run_evo(tmp_path, "doctor", "--json")
    findings = {f["check"]: f for f in json.loads(done.stdout)}
    assert done.returncode == 0, done.stdout
    assert findings["compiler"]["status"] == "works"
    assert not (tmp_path / "runs").exists()
    (tmp_path / "file").touch()
    broken = run_evo(tmp_path, "doctor", "--database", "file/evo.db", PATH="/nowhere")
    assert broken.returncode == 3
    for line in broken.stdout.splitlines():
        if re.search(r"^(host compiler|database) ", line):
            assert re.search(r"absent|broken", line)


@pytest.mark.slow
def test_the_gate_is_tried_on_planted_kernels(tmp_path: Path) -> None:
    cheats = ROOT / "tests" / "cheats"
    shutil.copytree(cheats / "include", tmp_path / "zoo" / "include")
    shutil.copy(cheats / "guess_zeros.cu", tmp_path / "zoo")
    done = run_evo(tmp_path, "gate", "--self-test", "--device", "emulator", "--zoo", "zoo")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^ok +guess_zeros +RED ", done.stdout, re.MULTILINE)
    assert done.stdout.splitlines()[-1].startswith(
        "1 of 1 planted kernels refused (1 for the expected reason)"
    )
    assert run_evo(tmp_path, "gate").returncode == 2
    assert (
        run_evo(tmp_path, "gate", "--self-test", "--device", "emulator", "--zoo", "nowhere").returncode == 2
    )
