"""`evo search --shapes`: several problems at once, from the command to the portfolio."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import ROOT, Evo

pytestmark = pytest.mark.nvcc

TOYS = ["--templates", str(ROOT / "tests" / "toys")]
HOW = ["--device", "emulator", "--workers", "1", "--budget", "10m"]


def test_problems_of_a_file_are_searched_and_served_by_a_portfolio(evo: Evo, tmp_path: Path) -> None:
    (tmp_path / "rows.txt").write_text("# rows\n33\n\n5   # few\n")
    words = ["search", "row_sum", *TOYS, *HOW, "--shapes", "rows.txt", "--shapes", "small", "--json"]
    said = evo(*words, "--portfolio", "1")
    assert said.code == 0, said.err
    kernels, problems = json.loads(said.out).values()
    assert len(kernels) == 1
    assert kernels[0]["template"] == "warp"
    assert kernels[0]["problems"] == 3
    assert [row["study"] for row in problems] == [f"row_sum-shapes-1-{n}" for n in (1, 2, 3)]
    assert [row["problem"].split()[1] for row in problems] == ["N=33", "N=5", "N=200"]
    assert all(row["kernel"] == 1 and row["regret"] >= 1 and row["estimate_us"] > 0 for row in problems)
    assert "first round, 3 of 3" in said.err

    again = evo(*words, "--study", "row_sum-shapes-1")
    assert again.code == 0, again.err
    assert "first round" not in again.err
    assert len(json.loads(again.out)["kernels"]) <= 3, "what was found follows from the database"

    name = ["--study", "row_sum-shapes-1"]
    other = evo("search", "row_sum", *TOYS, *HOW, "--shapes", "7", "--shapes", "8", *name)
    assert other.code == 2
    assert "study row_sum-shapes-1-1 searches row_sum N=33" in other.err


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--shapes", "33"], "--shapes names 1 problems"),
        (["--shapes", "33", "--shapes", "5", "--shape", "5"], "--shapes names the problems"),
        (["--shapes", "33", "--shapes", "many"], "error: "),
        (["--shapes", "33", "--shapes", "5", "--portfolio", "0"], "portfolio"),
    ],
)
def test_a_wrong_request_costs_nothing(evo: Evo, tmp_path: Path, words: list[str], error: str) -> None:
    said = evo("search", "row_sum", *TOYS, *HOW, *words)
    assert said.code == 2
    assert error in said.err
    assert not (tmp_path / "runs").exists()
