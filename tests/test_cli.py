"""The command line as a person meets it: words in, words out, exit codes, nothing lost."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from command import EVO, Evo, Said

from evo.version import __version__

# ---- the commands that look


def test_version(evo: Evo) -> None:
    assert evo("--version") == Said(0, f"evo {__version__}\n", "")


def test_no_words_at_all_show_the_commands(evo: Evo) -> None:
    said = evo()
    assert said.code == 0
    for command in ("search", "resume", "leaderboard", "show", "replay", "doctor", "emulate", "space"):
        assert re.search(rf"^\W*{command}\b", said.out, re.MULTILINE)
    assert "Exit codes" in said.out


@pytest.mark.parametrize(
    "command",
    ["search", "resume", "space", "leaderboard", "studies", "show", "replay", "emulate", "gate", "doctor"],
)
def test_every_command_explains_itself_within_80_columns(
    evo: Evo, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    said = evo(command, "--help")
    assert said.code == 0
    assert max(len(line) for line in said.out.splitlines()) <= 80
    undocumented = re.findall(r"^│ (?:\*  )?\s*(--[\w-]+)\s+\S*\s*│$", said.out, re.MULTILINE)
    assert not undocumented


@pytest.mark.usefixtures("database")
def test_leaderboard_shows_each_problem_and_device(evo: Evo) -> None:
    said = evo("leaderboard")
    assert said.code == 0
    assert said.err == ""
    tables = said.out.split("\n\n")
    assert len(tables) == 2
    measured = next(t for t in tables if "H200" in t)
    assert [line.split()[1] for line in measured.splitlines()[2:]] == [
        "mission-1/1",
        "mission-1/2",
        "mission-1/0",
    ]
    assert "~31.0 µs" in next(t for t in tables if "emulator" in t)


@pytest.mark.usefixtures("database")
def test_leaderboard_for_programs(evo: Evo) -> None:
    records = json.loads(evo("leaderboard", "--json").out)
    assert {r["study"]: r["kind"] for r in records} == {"mission-1": "measured", "laptop-1": "estimate"}
    rows = list(csv.DictReader(io.StringIO(evo("leaderboard", "--csv", "--study", "mission-1").out)))
    assert [row["median_us"] for row in rows] == ["8.0", "8.5", "9.0"]
    markdown = evo("leaderboard", "--markdown", "--gpu", "h200").out.splitlines()
    assert markdown[0].startswith("**attention")
    assert markdown[3].startswith("|--:|")
    assert evo("leaderboard", "--json", "--csv").code == 2


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--limit", "1"], ["laptop-1", "mission-1"]),
        (["--shape", "1,8,512,64"], ["mission-1"] * 3),
        (["--shape", "1,8,1024,64"], ["laptop-1"]),
        (["--template", "wmma"], []),
        (["--gpu", "L4"], ["laptop-1"]),
        (["--study", "laptop-1"], ["laptop-1"]),
        (["--task", "gemm"], []),
    ],
)
@pytest.mark.usefixtures("database")
def test_leaderboard_is_filtered(evo: Evo, words: Sequence[str], found: Sequence[str]) -> None:
    said = evo("leaderboard", "--json", *words)
    assert said.code == 0
    assert sorted(r["study"] for r in json.loads(said.out)) == list(found)


@pytest.mark.usefixtures("database")
def test_an_empty_leaderboard_says_so_on_stderr(evo: Evo) -> None:
    said = evo("leaderboard", "--template", "wmma")
    assert (said.code, said.out) == (0, "")
    assert "evo studies" in said.err


@pytest.mark.usefixtures("database")
def test_studies(evo: Evo) -> None:
    said = evo("studies")
    assert [line.split()[0] for line in said.out.splitlines()] == ["study", "mission-1", "laptop-1"]
    assert [r["outcomes"] for r in json.loads(evo("studies", "--json").out)] == [
        {"TIMED": 3},
        {"GREEN": 1, "RED": 1},
    ]


@pytest.mark.usefixtures("database")
def test_show_prints_the_page_the_source_or_json(evo: Evo) -> None:
    assert "8.00 µs" in evo("show", "mission-1/1").out
    page = evo("show", "laptop-1/1").out
    for words in ("RED", "race", "smem 0x40", "a.cu:7"):
        assert words in page
    assert evo("show", "mission-1/1", "--source").out == "// evo point 1\n"
    assert json.loads(evo("show", "mission-1/1", "--json").out)["timing"]["median_us"] == 8.0
    assert evo("show", "mission-1/1", "--json", "--source").code == 2


def test_the_database_may_come_from_the_environment(
    evo: Evo, database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.rename(tmp_path / "elsewhere.db")
    assert evo("studies").code == 3
    monkeypatch.setenv("EVO_DATABASE", str(tmp_path / "elsewhere.db"))
    assert "mission-1" in evo("studies").out


def test_a_broken_pipe_is_no_error(database: Path) -> None:
    command = (
        f"{sys.executable} -c 'import sys; from evo.cli import main; sys.exit(main())' leaderboard --json"
    )
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} | head -c 1"],
        cwd=database.parent.parent,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "[", "")


@pytest.mark.parametrize("words", [["--help"], ["leaderboard"], ["studies"], ["search", "--help"]])
def test_commands_that_look_never_import_torch(database: Path, words: Sequence[str]) -> None:
    code = "import sys; from evo.cli import main; main(); print('torch' in sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=database.parent.parent,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert done.stderr == "False\n"


def test_a_search_leaves_torch_to_its_evaluators() -> None:
    """They import it at the same time as the search gets ready; both would take as long as all else."""
    code = "import sys; import evo.api.search, evo.compile, evo.loop.loop; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_search_begins_without_what_its_insights_need() -> None:
    """With it Optuna imports scikit-learn, where that is installed: more than a second."""
    modules = "evo.api.running, evo.loop, evo.report.live, evo.report.overview"
    code = f"import sys; import {modules}; print('optuna.importance' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_shell_completes_the_names_of_studies(database: Path) -> None:
    environment = {
        **os.environ,
        "_EVO_COMPLETE": "complete_bash",
        "COMP_WORDS": "evo resume ",
        "COMP_CWORD": "2",
    }
    done = subprocess.run(
        EVO,
        cwd=database.parent.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout.split() == ["mission-1", "laptop-1"]


@pytest.mark.parametrize(
    ("words", "env"),
    [
        (["leaderboard"], {"NO_COLOR": "1"}),
        (["leaderboard"], {"TERM": "dumb"}),
        (["--help"], {"NO_COLOR": "1"}),
    ],
)
def test_no_colour_where_none_is_wanted(database: Path, words: Sequence[str], env: dict[str, str]) -> None:
    """On a real pseudo-terminal."""
    command = " ".join([sys.executable, "-c", "'from evo.cli import main; main()'", *words])
    done = subprocess.run(
        ["script", "-qec", command, "/dev/null"],
        cwd=database.parent.parent,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]", done.stdout)
