"""The journey of other people's tasks: every command serves the toys, from a folder outside the tree."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from command import ROOT, Evo

pytestmark = pytest.mark.nvcc

TOYS = {
    "row_sum": ("warp", "33", []),
    "extremes": ("warp", "5,40", []),
    "scale": ("grid", "500", ["--negate", "--flag", "bias=2"]),
}
"""Task -> its template, a small shape, flags."""


@pytest.mark.parametrize(
    "task",
    # the suites of evo.testing see row_sum in each run
    [pytest.param(task, marks=pytest.mark.slow) if task == "row_sum" else task for task in TOYS],
)
def test_every_command_serves_a_toy(evo: Evo, tmp_path: Path, task: str) -> None:
    template, shape, flags = TOYS[task]
    folder = tmp_path / "somewhere" / "kernels"
    shutil.copytree(ROOT / "tests" / "toys" / task, folder / task)
    templates = ["--templates", str(folder)]
    problem = ["--shape", shape, *flags]

    def told(*words: str, code: int = 0) -> str:
        said = evo(*words)
        assert said.code == code, f"evo {' '.join(words)}: {said.err}"
        return said.out

    spaces = json.loads(told("space", task, *templates, *problem, "--json"))
    assert [space["template"] for space in spaces] == [template]
    words = ["--device", "emulator", "--budget", "5m", "--workers", "1", "--json"]
    ranked = json.loads(told("search", task, *templates, *problem, *words))
    assert len(ranked) == min(10, spaces[0]["feasible"])
    study, best = ranked[0]["study"], f"{ranked[0]['study']}/{ranked[0]['number']}"
    assert study == f"{task}-1"
    # from here on the study knows its folder
    assert json.loads(told("resume", study, "--budget", "+1s", "--json")) == ranked
    board = json.loads(told("leaderboard", "--task", task, "--shape", shape, "--json"))
    assert [row["number"] for row in board][:10] == [row["number"] for row in ranked]
    assert 'extern "C" __global__' in told("show", best, "--source")
    assert "GREEN" in told("show", best)
    assert template in told("insights", study, "--json")
    assert json.loads(told("ablate", best, "--json", "--workers", "1"))
    assert "the model says: bound by" in told("profile", best)
    assert told("replay", best).startswith("same source and launch\nthen: GREEN ~")
    assert json.loads(told("emulate", best, "--json"))["runs"]
    told("report", study, "-o", "report.html")
    assert task in (tmp_path / "report.html").read_text()
    audited = json.loads(told("audit", task, *templates, *problem, "--points", "4", "--jobs", "1", "--json"))
    assert audited["false_feasible"] == 0
    told("gate", task, *templates, "--self-test", code=2)
    words = ["--mutants", "12", "--jobs", "1", "--json"]
    mutants = json.loads(told("gate", task, *templates, *problem, "--mutate", template, *words))
    assert mutants["refused"] >= 4
    assert mutants["score_of_different"] == 1, "a mutant that computes something else is not refused"
    told("promote", best, code=2)
    told("champion", task, *templates, *problem, code=4)
    assert not (tmp_path / "kernels").exists()
    folder.rename(
        tmp_path / "moved"
    )  # what the database holds is still told; what needs the task says its folder
    for words in (["show", best], ["leaderboard", "--study", study], ["studies"]):
        told(*words)
    for words in (
        ["resume", study, "--budget", "+1s"],
        ["replay", best],
        ["ablate", best],
        ["profile", best],
    ):
        said = evo(*words)
        assert (said.code, f"there is no folder {folder}" in said.err) == (2, True), f"{words}: {said.err}"
