"""The command line makes its options from the task that a command names; tasks of other people are served."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from command import ROOT, Evo

from evo.store import Store
from evo.study import Study
from evo.trial import Problem

TOYS = ROOT / "tests" / "toys"
TOY = ["--templates", str(TOYS)]


def options(help_text: str) -> set[str]:
    """The options of a help page."""
    return set(re.findall(r"^│ (?:\*  )?\s*(--[\w-]+)", help_text, re.MULTILINE))


@pytest.mark.parametrize("command", ["search", "space", "champion", "bench", "gate", "audit"])
def test_every_command_that_takes_a_problem_speaks_of_its_task(evo: Evo, command: str) -> None:
    own, toy, plain = (evo(command, *words, "--help") for words in ([], ["scale", *TOY], ["row_sum", *TOY]))
    assert (own.code, toy.code, plain.code) == (0, 0, 0)
    assert options(own.out) - options(plain.out) == {"--causal"}
    assert options(toy.out) - options(plain.out) == {"--negate", "--bias"}
    assert "A query sees no later keys." in own.out
    assert "B,H,L,D" in own.out
    assert "fp32|fp16" in toy.out
    assert "negate, bias" in re.sub(r"\s+", " ", toy.out)
    assert "B,H,L,D" not in plain.out


def test_the_folders_of_templates_may_come_from_the_environment(
    evo: Evo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shutil.copytree(TOYS / "row_sum", tmp_path / "more" / "mine")
    task = tmp_path / "more" / "mine" / "task.py"
    task.write_text(task.read_text().replace('"row_sum"', '"mine"'))
    monkeypatch.setenv("EVO_TEMPLATES", f"{TOYS}:{tmp_path / 'more'}")
    assert "--negate" in options(evo("space", "scale", "--help").out)
    assert json.loads(evo("space", "mine", "--json").out)[0]["template"] == "warp"


def test_flags_are_set_by_their_own_option_or_by_name(evo: Evo, tmp_path: Path) -> None:
    """What a flag is set to shows in the problem that is asked for."""

    def problem(*words: str) -> str:
        said = evo("champion", "scale", *TOY, *words)
        assert said.code == 4, said.err
        found = re.match(r"error: no champion serves scale N=3000 (.*) fp32 on ", said.err)
        assert found
        return found[1]

    assert problem() == "negate=0 bias=1"
    assert problem("--negate") == problem("--flag", "negate") == problem("--flag", "negate=true")
    assert problem("--negate", "--flag", "bias=2") == "negate=1 bias=2"
    assert problem("--flag", "bias=2", "--flag", "bias=0") == "negate=0 bias=0"
    assert problem("--bias", "2", "--negate") == "negate=1 bias=2"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        (["scale", *TOY, "--flag", "bias"], "flag bias needs a value", "--flag bias=0"),
        (["scale", *TOY, "--flag", "bias=7"], "flag bias cannot be 7", "0, 1, 2"),
        (["scale", *TOY, "--bias", "7"], "flag bias cannot be 7", "0, 1, 2"),
        (["scale", *TOY, "--shape", "K=7"], "unknown size: K", "N as in 3000, or some by name: N="),
        (["scale", *TOY, "--flag", "sign"], "unknown flag: sign", "negate, bias"),
        (["row_sum", *TOY, "--flag", "negate"], "unknown flag: negate", "row_sum has no flags"),
        (["row_sum", *TOY, "--negate"], "no such option: --negate", "evo space --help"),
        (["row_sum", *TOY, "--shape", "1,2"], "malformed shape: 1,2", "N as in 200"),
        (["row_sum", *TOY, "--dtype", "fp16"], "unsupported dtype: fp16", "one of fp32"),
        (["row_sum", *TOY, "--dtype", "float32"], "unsupported dtype: float32", "did you mean fp32?"),
        (["row_sum", *TOY, "--dtype", "torch.float"], "unsupported dtype: torch.float", "did you mean fp32?"),
        (["row_sum", *TOY, "--dtype", "half"], "unsupported dtype: half", "half is fp16; one of fp32"),
        (["row_sum", *TOY, "--dtype", "double"], "unsupported dtype: double", "double is fp64; one of fp32"),
        (["attention", "--dtype", "float16"], "unsupported dtype: float16", "did you mean fp16?"),
        (["attention", "--dtype", "bfloat16"], "unsupported dtype: bfloat16", "did you mean bf16?"),
        (["attention", "--dtype", "fp64"], "unsupported dtype: fp64", "hint: one of fp16, bf16"),
        (["row_sum", *TOY, "--shape", "N=1e6"], "malformed shape: N=1e6", "write N=1000000; whole numbers"),
        (["row_sum", *TOY, "--shape", "1_000"], "malformed shape: 1_000", "write 1000; whole numbers"),
        (["row_sum", *TOY, "--shape", "2**20"], "malformed shape: 2**20", "write 1048576; whole numbers"),
        (["row_sum", *TOY, "--shape", "1.5"], "malformed shape: 1.5", "hint: whole numbers: N as in 200"),
        (["attention", "--shape", "1x8x4K x64"], "malformed shape", "write 1,8,4096,64 or 1,8,4000,64; "),
        (["attention", "--shape", "D=64,L=1e3"], "malformed shape", "write D=64,L=1000; whole numbers"),
        (["row_sun", *TOY, "--negate"], "unknown task: row_sun", "did you mean row_sum?"),
        (["scale", "--templates", "nowhere", "--negate"], "nowhere", "put it back"),
    ],
)
def test_what_a_task_does_not_know_is_refused(evo: Evo, words: list[str], error: str, hint: str) -> None:
    said = evo("space", *words)
    assert said.code == 2
    first, second = said.err.splitlines()
    assert error in first
    assert hint in second


def test_a_broken_task_is_told_by_every_command_but_its_help_is_there(evo: Evo, tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "task.py").write_text("TASK = 1 / 0\n")
    words = ["broken", "--templates", str(tmp_path)]
    said = evo("space", *words, "--wide")
    assert said.code == 2
    assert re.search(r"^error: .*task\.py:1: ZeroDivisionError", said.err)
    assert evo("space", *words, "--help").code == 0


def test_a_flag_that_is_true_by_default_can_be_turned_off(evo: Evo, tmp_path: Path) -> None:
    shutil.copytree(TOYS / "scale", tmp_path / "scale")
    task = tmp_path / "scale" / "task.py"
    task.write_text(task.read_text().replace("Flag(meaning=", "Flag(True, meaning="))
    words = ["champion", "scale", "--templates", str(tmp_path)]
    assert "N=3000 negate=0" in evo(*words, "--no-negate", "--shape", "3000").err
    assert "N=3000 negate=1" in evo(*words, "--shape", "3000").err


def test_a_study_whose_folder_was_moved_says_which(evo: Evo, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    problem = Problem("row_sum", {"N": 200}, "fp32")
    with Store(tmp_path / "runs" / "evo.db", create=True) as store:
        store.create(Study("s", problem, "emulator", "L4", ("warp",), 60.0, folders=(str(gone),)))
    for command in ("resume", "insights", "report"):
        said = evo(command, "s")
        assert said.code == 2, command
        assert said.err.splitlines()[0] == f"error: there is no folder {gone}"
    assert "s" in evo("studies").out


def test_a_task_without_planted_kernels_says_so(evo: Evo) -> None:
    said = evo("gate", "row_sum", *TOY, "--self-test")
    assert said.code == 2
    assert said.err.startswith("error: task row_sum has no planted kernels\nhint: ")
