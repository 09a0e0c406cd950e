"""Every command of the command line serves the examples, named by their folder and by a study of theirs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from command import ROOT, Evo
from test_examples import TINY

from evo.cli.app import app

pytestmark = pytest.mark.nvcc

FOUR_POINTS = """
from dataclasses import replace

_few = [replace(p, values=p.values[: 2 if i < 2 else 1]) for i, p in enumerate(TEMPLATE.space.parameters)]
TEMPLATE = replace(TEMPLATE, space=replace(TEMPLATE.space, parameters=tuple(_few)))
"""
"""What an example's Python file ends with here: a study of it is over soon."""
COMMANDS = (
    *("ablate", "audit", "bench", "champion", "confirm", "doctor", "emulate", "export", "gate", "insights"),
    *("leaderboard", "new", "profile", "promote", "replay", "report", "resume", "search", "show", "space"),
    *("studies", "try"),
)
ELSEWHERE = ("database", "import", "worker")
"""Commands that need files or machines of their own: other tests."""


def test_every_command_is_known_here() -> None:
    named = {
        command.name or command.callback.__name__ for command in app.registered_commands if command.callback
    }
    assert {name.rstrip("_") for name in named} <= {*COMMANDS, *ELSEWHERE}


@pytest.mark.slow  # test_cli_toys tells the same of a task with two outputs, and of one in place, in each run
@pytest.mark.parametrize("name", TINY)
def test_every_command_serves_an_example(evo: Evo, tmp_path: Path, name: str) -> None:
    problem, used = ["--shape", TINY[name]], set()
    shutil.copytree(ROOT / "examples" / name, tmp_path / "few" / name)
    python = tmp_path / "few" / name / f"{name}.py"
    python.write_text(python.read_text() + FOUR_POINTS)
    task = python.with_name("task.py")
    task.write_text(f'{task.read_text()}TASK.problems = {{"tiny": (TASK.problem("{TINY[name]}"),)}}\n')
    examples = ["--templates", str(tmp_path / "few")]

    def told(*words: str, code: int = 0) -> str:
        used.add(words[0])
        said = evo(*words)
        assert said.code == code, f"evo {' '.join(words)}: {said.err}"
        assert "Traceback" not in said.err
        return said.out

    assert [
        space["feasible"] for space in json.loads(told("space", name, *examples, *problem, "--json"))
    ] == [4]
    words = ["--device", "emulator", "--budget", "5m", "--study", "s", "--workers", "1", "--json"]
    ranked = json.loads(told("search", name, *examples, *problem, *words))
    assert len(ranked) == 4, "not all are GREEN"
    best = f"s/{ranked[0]['number']}"
    assert json.loads(told("resume", "s", "--budget", "+1s", "--json")) == ranked
    assert json.loads(told("leaderboard", "--study", "s", "--json"))
    assert json.loads(told("studies", "--json"))[0]["problem"].startswith(f"{name} ")
    assert name in told("show", best)
    assert f"void {name}(" in told("show", best, "--source") or "__global__" in told("show", best, "--source")
    assert told("insights", "s", "--json")
    assert told("ablate", best, "--json", "--workers", "1")
    assert "bound by" in told("profile", best)
    assert "same source and launch" in told("replay", best)
    assert json.loads(told("emulate", best, "--json"))["runs"]
    told("report", "s", "-o", "report.html")
    assert name in (tmp_path / "report.html").read_text()
    told("export", "--optuna", "s", "optuna.db")
    assert (tmp_path / "optuna.db").is_file()
    told("confirm", "s", code=2)  # estimates
    told("promote", best, code=2)  # not CONFIRMED
    told("champion", name, *examples, *problem, code=4)
    told("bench", name, *examples, "--shapes", TINY[name], "--device", "emulator", code=3)
    point = [f"{name}={value}" for name, value in ranked[0]["point"].items()]
    assert json.loads(told("try", name, *point, *examples, *problem, "--device", "emulator", "--json"))
    words = ["--points", "4", "--jobs", "1", "--device", "emulator", "--json"]
    assert json.loads(told("audit", name, *examples, *problem, *words))["false_feasible"] == 0
    words = ["--mutants", "6", "--jobs", "1", "--json"]
    assert json.loads(told("gate", name, *examples, *problem, "--mutate", name, *words))["refused"] >= 1
    zoo = tmp_path / "zoo"
    zoo.mkdir()
    shutil.copy(sorted((ROOT / "examples" / name / "cheats").glob("*.cu"))[-1], zoo)
    words = ["--self-test", "--zoo", str(zoo), "--device", "emulator", "--json"]
    assert all(found["right"] for found in json.loads(told("gate", name, *examples, *words)))
    told("new", "copied", "--from", str(ROOT / "examples" / name / f"{name}.cu"))
    told("doctor", "--json")
    assert used == set(COMMANDS)
