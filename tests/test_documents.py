"""What the documents say can be done: their commands exist, their files exist, and they stay short."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
from command import Evo

from evo.cli.app import app
from evo.store import Store

ROOT = Path(__file__).parents[1]
FOLDERS = ("", "docs/", "kernels/", "benchmarks/")
DOCUMENTS = sorted(path for folder in FOLDERS for path in ROOT.glob(f"{folder}*.md"))
MOST_WORDS = 10_000
"""Of docs/, all pages together."""


def commands(text: str) -> list[str]:
    """Every command of evo in the code blocks of a document."""
    lines = re.findall(r"^(?:    )?(?:\$ )?(.*\bevo [a-z].*)$", "\n".join(code_blocks(text)), re.MULTILINE)
    parts = [
        part.strip() for line in lines for part in re.split(r"&&|\|", line.split("  #")[0].split(" # ")[0])
    ]
    return [part for part in parts if part.startswith("evo ")]


def code_blocks(text: str) -> list[str]:
    """Fenced and indented code, with continued lines joined."""
    fenced = re.findall(r"^```\w*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    indented = re.findall(
        r"^    \S.*(?:\n    .*)*", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), re.M
    )
    return [re.sub(r"\\\n\s*", "", block) for block in fenced + indented]


FOUND = [(page.name, command) for page in DOCUMENTS for command in commands(page.read_text())]


def test_there_are_commands_to_check() -> None:
    assert len(FOUND) > 40
    assert ("README.md", "evo confirm long-one --top 5") in FOUND


@pytest.mark.parametrize(("page", "command"), FOUND, ids=[f"{page}: {command}" for page, command in FOUND])
def test_a_command_of_a_document_is_understood(page: str, command: str) -> None:  # noqa: ARG001
    """Its name, its options and their values: nothing runs."""
    name, *words = shlex.split(command)[1:]
    group: Any = typer.main.get_command(app)
    group.commands[name].make_context(name, words)


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_that_a_document_names_exists(page: Path) -> None:
    text = page.read_text()
    named = re.findall(r"`((?:evo|docs|lab|tests|kernels|templates|benchmarks)/[\w./-]*)`", text)
    pictures = [
        f"{page.parent.relative_to(ROOT)}/{path}" for path in re.findall(r'src(?:set)?="([^"]+)"', text)
    ]
    figures = page.parent.name == "benchmarks"
    results = [
        name for name in re.findall(r"`([\w.-]+\.json)`", text) if figures or re.search("-h[12]00", name)
    ]
    found = {path.name for folder in ("benchmarks", "lab") for path in (ROOT / folder / "results").iterdir()}
    assert [path for path in named + pictures if not (ROOT / path).exists()] == []
    assert set(results) <= found


def test_the_pages_for_users_are_short() -> None:
    words = {path.name: len(path.read_text().split()) for path in ROOT.glob("docs/*.md")}
    words.pop("lab-notes.md", None)
    assert sum(words.values()) <= MOST_WORDS, words


def test_the_layers_of_the_contributing_page_are_those_that_are_checked() -> None:
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    checked = [set(layer.split(" | ")) for layer in contract["layers"] if layer != "__main__"]
    text = (ROOT / "CONTRIBUTING.md").read_text()
    block = re.search(r"## The layers.*?```\n(.*?)```", text, re.DOTALL)
    assert block
    shown = [set(re.split(r"  +", line)[0].split(" | ")) for line in block[1].splitlines()]
    assert shown == checked


def test_the_questions_of_the_database_page_can_be_asked(tmp_path: Path) -> None:
    questions = re.findall(r'"(SELECT .*)"', (ROOT / "docs" / "database.md").read_text())
    assert len(questions) == 3
    Store(tmp_path / "evo.db").close()
    with contextlib.closing(sqlite3.connect(tmp_path / "evo.db")) as connection:
        for question in questions:
            assert connection.execute(question).fetchall() in ([], [(None, None)])


def test_the_columns_of_the_views_are_those_of_the_database_page(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "database.md").read_text()
    table = text[text.index("`leaderboard`:") : text.index("`failures`:")]
    rows = re.findall(r"^\| (?!column|-)([^|]+) \|", table, re.MULTILINE)
    sentence = re.search(r"`failures`: [^:]*: ([^.]*)\.", text)
    assert sentence
    told = {"leaderboard": ", ".join(rows), "failures": re.sub(r"\([^)]*\)", "", sentence[1])}
    Store(tmp_path / "evo.db").close()
    with contextlib.closing(sqlite3.connect(tmp_path / "evo.db")) as connection:
        for view, names in told.items():
            columns = {row[1] for row in connection.execute(f"PRAGMA table_info({view})")}
            assert {name.strip() for name in names.split(",")} <= columns


OWN_KERNEL = ROOT / "docs" / "your-own-kernel.md"


def test_the_files_of_rms_norm_are_those_of_the_examples() -> None:
    shown = re.findall(r"^```python\n(.*?)^```$", OWN_KERNEL.read_text(), re.MULTILINE | re.DOTALL)
    assert shown == [
        (ROOT / "examples" / "rms_norm" / name).read_text() for name in ("task.py", "rms_norm.py")
    ]


def run(folder: Path, *words: str) -> str:
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_kernel_of_the_page_on_your_own_kernel_is_searched(evo: Evo) -> None:
    def told(*words: str) -> str:
        said = evo(*words)
        assert said.code == 0, said.err
        return said.out

    text = OWN_KERNEL.read_text()
    (saxpy,) = re.findall(r"^`saxpy.cu` .*?\n\n```cuda\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    Path("saxpy.cu").write_text(saxpy)
    commands = re.findall(r"^(evo \w+ saxpy.*?)(?:  +#.*)?$", text, re.MULTILINE)
    assert [command.split()[1] for command in commands] == ["new", "try", "search"]
    for command in commands[:2]:
        told(*command.split()[1:])
    words = ["--shape", "1000", "--workers", "1", "--json", "--budget", "5m"]  # a machine may be busy
    assert len(json.loads(told(*commands[2].split()[1:], *words))) == 10


@pytest.mark.nvcc
def test_the_script_of_the_page_from_kernel_tuner_becomes_correct_kernels(evo: Evo, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "from-kernel-tuner.md").read_text()
    (script,) = re.findall(r"^`scale.py` .*?\n\n```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (tmp_path / "scale.py").write_text(script)
    first, _search = re.findall(r"^(evo \w+ .*?)(?:  +#.*)?$", text, re.MULTILINE)
    made = evo(*first.split()[1:])
    assert made.code == 0, made.err
    assert all(name in made.out for name in ("task.py", "scale.cu", "scale.py"))
    tried = evo("try", "scale", "per_thread=4", "--shape", "700", "--device", "emulator", "--json")
    assert (tried.code, json.loads(tried.out)["outcome"]) == (0, "GREEN"), tried.err


@pytest.mark.slow  # test_testing runs the same suites
def test_the_suites_of_the_page_on_extending_pass(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples" / "rms_norm", tmp_path / "tasks" / "rms_norm")
    text = (ROOT / "docs" / "extending.md").read_text()
    shown = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(shown) == 3
    for number, content in enumerate(shown):
        (tmp_path / "tasks" / f"test_{number}.py").write_text(content)
    assert re.search(r"\b[3-9]\d passed", run(tmp_path, "pytest", "-q", "-p", "no:cacheprovider", "."))
