"""`evo search --shapes`: several problems at once, from the command to the portfolio."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from command import ROOT, Evo
from test_cuda import needs_gpu

import evo as evo_package
from evo.store import Store

pytestmark = pytest.mark.nvcc

TOYS = ["--templates", str(ROOT / "tests" / "toys")]
HOW = ["--device", "emulator", "--workers", "1", "--budget", "10m"]


def test_a_malformed_shape_says_how_several_are_given(evo: Evo) -> None:
    said = evo("search", "row_sum", *TOYS, *HOW, "--shapes", "33 44x")
    assert said.code == 2
    assert said.err.startswith("error: malformed shape: 33 44x\nhint: --shapes takes one shape and may be ")
    assert "a file with a shape on each line; whole numbers: N as in 200" in said.err


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
    assert "1 kernel serves 3 problems: it loses" in said.err

    again = evo(*words, "--study", "row_sum-shapes-1")
    assert again.code == 0, again.err
    assert "first round" not in again.err
    assert json.loads(again.out) == json.loads(said.out), "a set that goes on keeps its number of kernels"
    three = evo(*words, "--study", "row_sum-shapes-1", "--portfolio", "3")
    assert evo_package.load_studies("row_sum-shapes-1", database=tmp_path / "runs/evo.db").most == 3
    assert len(json.loads(three.out)["kernels"]) == 3
    assert evo(*words, "--study", "row_sum-shapes-1", "--portfolio", "1").out == said.out

    found = evo_package.load_studies("row_sum-shapes-1", database=tmp_path / "runs/evo.db")
    assert [dict(row) for row in rows_of(found.problems())] == problems
    assert [row["problems"] for row in rows_of(found.kernels())] == [3]
    assert [one.name for one in found.studies] == [row["study"] for row in problems]
    row_sum = evo_package.kernel(found, device="emulator")
    x = torch.arange(33.0 * 96).view(33, 96)
    assert torch.equal(row_sum(x), x.sum(-1))
    told = row_sum.explain(x)
    assert told.decision.kernel.startswith("row_sum-shapes-1-1/")
    assert "its portfolio's kernel takes 1." in told.decision.why
    elsewhere = str(row_sum.explain(torch.zeros(40, 96)))
    assert elsewhere.startswith("row_sum N=40 fp32 on L4: row_sum-shapes-1-1/"), elsewhere
    assert "one chosen without it takes" in elsewhere

    told_by = ["champion", "--study", "row_sum-shapes-1", "--shape", "40", "--gpu", "L4", "--explain"]
    listed = json.loads(evo(*told_by, "--json").out)
    assert [row["serves"] for row in listed] == [True] * 3
    assert listed[0]["regret"] >= 1
    assert listed[0]["left_out_regret"] >= 1

    name = ["--study", "row_sum-shapes-1"]
    other = evo("search", "row_sum", *TOYS, *HOW, "--shapes", "7", "--shapes", "8", *name)
    assert other.code == 2
    assert "study row_sum-shapes-1-1 searches row_sum N=33" in other.err


def test_each_gpu_searches_a_part_of_the_problems(evo: Evo, tmp_path: Path) -> None:
    words = ["search", "row_sum", *TOYS, "--device", "emulator", "--budget", "10m", "--gpus", "0,1", "--json"]
    words += [word for length in (33, 5, 200) for word in ("--shapes", str(length))]
    said = evo(*words, "--workers", "2", "--portfolio", "1")
    assert said.code == 0, said.err
    kernels, problems = json.loads(said.out).values()
    assert [row["problems"] for row in kernels] == [3], "one kernel serves all parts"
    assert [row["problem"].split()[1] for row in problems] == ["N=33", "N=5", "N=200"]
    assert "emulator:0: row_sum N=5 fp32: first round, 1 of 1" in said.err
    assert "emulator:1: row_sum N=33 fp32: first round" in said.err
    with Store(tmp_path / "runs" / "evo.db") as store:
        on = {study.name: study.devices[0] for study in store.studies()}
    assert on == {f"row_sum-shapes-1-{n}": f"emulator:{n % 2}" for n in (1, 2, 3)}

    again = evo(*words, "--workers", "2", "--study", "row_sum-shapes-1")
    assert again.code == 0, again.err
    assert "first round" not in again.err
    few = evo(*words, "--workers", "1")
    assert few.code == 2
    assert "2 GPUs need as many workers" in few.err


def test_times_of_another_gpu_are_told_of(evo: Evo) -> None:
    words = ["search", "row_sum", *TOYS, "--shapes", "33", "--shapes", "5", "--study", "rows"]
    words += ["--device", "emulator", "--workers", "1", "--budget", "10m"]
    said = "measured what is there, and this is another GPU of that model"
    first = evo(*words, "--gpus", "1")
    assert first.code == 0, first.err
    assert said not in first.err
    assert said not in evo(*words, "--gpus", "1").err
    assert f"emulator:1 {said}" in evo(*words, "--gpus", "2").err


def test_a_part_that_nothing_serves_leaves_the_others_what_they_found(evo: Evo, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "tests" / "toys" / "row_sum", tmp_path / "own" / "row_sum")
    with (tmp_path / "own" / "row_sum" / "warp.py").open("a") as template:
        template.write('\n\ndef supports(problem):\n    return "too long" if problem["N"] > 100 else None\n')
    words = ["search", "row_sum", "--templates", "own", "--device", "emulator", "--gpus", "0,1", "--json"]
    words += ["--workers", "2", "--budget", "10m"]
    said = evo(*words, "--shapes", "33", "--shapes", "200")
    assert said.code == 0, said.err
    assert [row["problem"].split()[1] for row in json.loads(said.out)["problems"]] == ["N=33"]
    assert "no correct kernel for 1 problems: row_sum N=200 fp32" in said.err
    said = evo(*words, "--shapes", "300", "--shapes", "200")
    assert said.code == 4
    assert said.err.splitlines()[-2] == "error: none of 2 problems has a correct kernel"


def test_a_short_budget_is_told_of_before_the_first_turn(evo: Evo) -> None:
    where = [*TOYS, "--device", "emulator", "--workers", "1", "--shapes", "33", "--shapes", "5"]
    said = evo("search", "row_sum", *where, "--budget", "8s")
    assert said.code == 0, said.err
    told = said.err.index("--budget 12s is not; last in line: row_sum N=5")
    assert told < said.err.index("first round")


def rows_of(found: Any) -> list[dict[str, Any]]:
    """A DataFrame, or a list of dicts."""
    return found.to_dict("records") if hasattr(found, "to_dict") else found  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--shapes", "33"], "--shapes names 1 problems"),
        (["--shapes", "33", "--shapes", "5", "--shape", "5"], "--shapes names the problems"),
        (["--shapes", "33", "--shapes", "many"], "error: "),
        (["--shapes", "33", "--shapes", "5", "--portfolio", "0"], "portfolio"),
        (["--shapes", "33", "--shapes", "5", "--own", "1,3"], "not numbers of problems: 1,3"),
    ],
)
def test_a_wrong_request_costs_nothing(evo: Evo, tmp_path: Path, words: list[str], error: str) -> None:
    said = evo("search", "row_sum", *TOYS, *HOW, *words)
    assert said.code == 2
    assert error in said.err
    assert not (tmp_path / "runs").exists()


@needs_gpu
def test_products_of_many_sizes_are_timed_and_served_on_a_gpu(evo: Evo, tmp_path: Path) -> None:
    """A minute and a half: from a small product to one of a million times the work."""
    shapes = ("64,64,64,1", "512,1024,256,1", "1024,1024,1024,1", "4096,128,2048,1", "2048,4096,4096,1")
    (tmp_path / "shapes.txt").write_text("\n".join((*shapes, "8192,8192,4096,1")))
    words = ["search", "gemm", "--shapes", "shapes.txt", "--budget", "60s", "--portfolio", "3", "--json"]
    said = evo(*words, "--device", "cuda:0")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert all(row["median_us"] for row in found["problems"])
    assert 1 <= len(found["kernels"]) <= 3
    with Store(tmp_path / "runs" / "evo.db") as store:
        studies = store.studies()
        assert all(store.count(study)["TIMED"] >= 3 for study in studies)
