"""The command line as a person meets it: words in, words out, exit codes, nothing lost."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from evo import __version__
from evo.cli import main
from evo.cli.parse import parse_budget, parse_bytes, parse_problem
from evo.errors import UsageError
from evo.store import Store
from evo.study import Study
from evo.task import load_task
from evo.trial import (
    BufferArg,
    Candidate,
    Interval,
    LaunchConfig,
    Outcome,
    Problem,
    Resources,
    Timing,
    Trial,
)

PROBLEM = Problem("attention", {"B": 1, "H": 8, "L": 512, "D": 64}, "fp16", {"causal": False})
EVO = [sys.executable, "-c", "import sys; from evo.cli import main; sys.exit(main())"]
"""The installed command, without needing it on PATH."""


@dataclass(frozen=True)
class Said:
    """What a command answered."""

    code: int
    out: str
    err: str


Evo = Callable[..., Said]


@pytest.fixture
def evo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Evo:
    """Runs a command in an empty folder, in this process."""
    monkeypatch.chdir(tmp_path)
    for name in ("EVO_DATABASE", "CUDA_HOME", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)

    def run(*words: str) -> Said:
        capsys.readouterr()
        code = main(list(words))
        out, err = capsys.readouterr()
        return Said(code, out, err)

    return run


def trial(number: int, problem: Problem = PROBLEM, **fields: object) -> Trial:
    launch = LaunchConfig((8, 8, 1), (128, 1, 1), 16384 + number, (BufferArg("q"),))
    source = f"// evo point {number}\n"
    candidate = Candidate(problem, "flash_mma", {"bm": 64, "at": number}, source, "attention", launch)
    return Trial(candidate, **fields)  # type: ignore[arg-type]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Two studies: one measured on a GPU, one on the emulator, with failures."""
    path = tmp_path / "runs" / "evo.db"
    with Store(path) as store:
        measured = store.create(Study("mission-1", PROBLEM, "cuda:0", "H200", ("flash_mma",), 300.0))
        for number, median_us in enumerate((9.0, 8.0, 8.5)):
            timing = Timing(
                (median_us,) * 3,
                median_us,
                Interval(median_us - 0.1, median_us + 0.1),
                "warm",
                {"flash": 10.27, "cudnn": 9.1},
                9.1 / median_us,
                Interval(1.0, 1.2),
            )
            resources = Resources(128, 0, 0, 0)
            store.add(
                measured,
                number,
                trial(
                    number, outcome=Outcome.TIMED, timing=timing, resources=resources, device="NVIDIA H200"
                ),
            )
        causal = PROBLEM.replace(L=1024, causal=True)
        emulated = store.create(Study("laptop-1", causal, "emulator", "L4", ("flash_mma",), 120.0))
        green = {
            "outcome": Outcome.GREEN,
            "estimate_us": 31.0,
            "estimate_gpu": "L4",
            "device": "emulator (L4)",
        }
        store.add(emulated, 0, trial(10, causal, **green))
        store.add(
            emulated,
            1,
            trial(11, causal, outcome=Outcome.RED, reason="race", detail="smem 0x40", where="a.cu:7"),
        )
    return path


# ---- words


@pytest.mark.parametrize(
    ("text", "rate", "seconds"),
    [
        ("14h", None, 50400),
        ("90m", None, 5400),
        ("45s", None, 45),
        ("1h30m", None, 5400),
        ("1.5h", None, 5400),
        (" 2M ", None, 120),
        ("1d", None, 86400),
        ("2min", None, 120),
        ("$7.14", 0.51, 50400),
    ],
)
def test_budgets(text: str, rate: float | None, seconds: float) -> None:
    assert parse_budget(text, rate) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    ["", "14", "h", "1x", "-2m", "$-7", "$", "0s", "0h0m", "1m2h", "1e3h", "nan", "infh", "--", "99999999d"],
)
def test_malformed_budgets_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="budget"):
        parse_budget(text, 0.51)


def test_money_needs_the_price_of_an_hour() -> None:
    with pytest.raises(UsageError, match="price of an hour"):
        parse_budget("$7", None)


@pytest.mark.parametrize(
    ("text", "nbytes"), [("48K", 49152), ("99kb", 101376), ("101376", 101376), ("0.5KiB", 512)]
)
def test_sizes(text: str, nbytes: int) -> None:
    assert parse_bytes(text) == nbytes


@pytest.mark.parametrize("text", ["", "K", "-1K", "0", "48 apples", "1e3", "0x10"])
def test_malformed_sizes_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="malformed size"):
        parse_bytes(text)


def test_problems_by_shape_and_by_name() -> None:
    task = load_task("attention")
    assert parse_problem(task, None, None, False).key == "attention B=1 H=8 L=512 D=64 causal=0 fp16"
    assert parse_problem(task, "mission", "bf16", True).key == "attention B=1 H=8 L=512 D=64 causal=1 bf16"
    assert (
        parse_problem(task, "2,16,4096,128", None, False).key
        == "attention B=2 H=16 L=4096 D=128 causal=0 fp16"
    )
    with pytest.raises(UsageError, match="10 problems"):
        parse_problem(task, "seeds", None, False)


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
        timeout=60,
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
        timeout=60,
        check=True,
    )
    assert done.stderr == "False\n"


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
        timeout=60,
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
        timeout=60,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]", done.stdout)


# ---- bad input: an error, a hint, an exit code, and nothing is lost


@pytest.mark.parametrize(
    ("words", "code", "error", "hint"),
    [
        (["bogus"], 2, "no such command 'bogus'", "evo --help"),
        (["leaderboard", "--limit", "x"], 2, "'--limit'", "evo leaderboard --help"),
        (["leaderboard", "--limit", "0"], 2, "'--limit'", "evo leaderboard --help"),
        (["leaderboard", "--study", "mision-1"], 2, "unknown study: mision-1", "did you mean mission-1?"),
        (
            ["leaderboard", "--shape", "1,8,513,64"],
            2,
            "unknown shape: 1,8,513,64",
            "known: 1,8,1024,64, 1,8,512,64",
        ),
        (["show", "mission-1/99"], 2, "unknown trial: mission-1/99", "evo leaderboard"),
        (["show", "nothing/1"], 2, "unknown study: nothing", "known: laptop-1, mission-1"),
        (["show", "mission-1"], 2, "malformed trial: mission-1", "STUDY/NUMBER"),
        (["resume", "mission-2"], 2, "unknown study: mission-2", "did you mean mission-1?"),
        (["resume", "laptop-1", "--budget", "-1h"], 2, "negative", "a budget is a time"),
        (["search"], 2, "missing option '--budget'", "evo search --help"),
        (["search", "gemm", "--budget", "2m"], 2, "unknown task: gemm", "known: attention"),
        (
            ["search", "--budget", "2m", "--template", "flash_mna"],
            2,
            "unknown template: flash_mna",
            "flash_mma?",
        ),
        (["search", "--budget", "2m", "--strategy", "tpx"], 2, "unknown strategy: tpx", "did you mean tpe?"),
        (["search", "--budget", "2m", "--target", "sm_99"], 2, "unknown target: sm_99", "sm_90a"),
        (["search", "--budget", "2m", "--gpu", "L5"], 2, "unknown gpu: L5", "L4"),
        (
            ["search", "--budget", "2m", "--gpu", "L4", "--target", "sm_90a"],
            2,
            "cannot run code for sm_90a",
            "target",
        ),
        (["search", "--budget", "2m", "--device", "tpu"], 2, "unknown device: tpu", "emulator"),
        (["search", "--budget", "2m", "--shape", "1,8,512"], 2, "malformed shape: 1,8,512", "B,H,L,D"),
        (
            ["search", "--budget", "2m", "--shape", "1,8,512,63"],
            2,
            "unsupported head dimension: 63",
            "D one of",
        ),
        (["search", "--budget", "2m", "--dtype", "fp8"], 2, "unsupported dtype: fp8", "fp16, bf16"),
        (["search", "--budget", "2m", "--smem-limit", "lots"], 2, "malformed size: lots", "48K"),
        (
            ["search", "--budget", "2m", "--smem-limit", "1K", "--template", "flash_mma"],
            2,
            "no point is feasible",
            "×",
        ),
        (["search", "--budget", "soon"], 2, "malformed budget: soon", "14h"),
        (["search", "--budget", "-2m"], 2, "negative", "14h"),
        (["search", "--budget", "$7"], 2, "price of an hour", "--rate"),
        (["search", "--budget", "2m", "--workers", "0"], 2, "'--workers'", "--help"),
        (
            ["search", "--budget", "2m", "--study", "mission-1", "--device", "emulator"],
            2,
            "there is a study mission-1 already",
            "evo resume mission-1",
        ),
        (
            ["search", "--budget", "2m", "--nvcc", "/nowhere/nvcc", "--device", "emulator"],
            3,
            "no CUDA compiler at /nowhere/nvcc",
            "nvcc",
        ),
        (["profile", "mission-1/0", "--ncu", "nowhere"], 2, "there is no nowhere", "--ncu"),
        (["bench", "--plot", "nowhere/a.svg"], 3, "there is no folder nowhere", "make it"),
        (["emulate", "nothing.cu", "--launch", "grid=1"], 2, "there is no file nothing.cu", "STUDY/NUMBER"),
        (["emulate", "nothing.cu"], 2, "there is no file nothing.cu", ".ptx"),
        (["emulate", "mission-1/0", "--entry", "x"], 2, "a trial has its own launch", "leave them out"),
    ],
)
@pytest.mark.usefixtures("database")
def test_a_wrong_request_is_told_and_costs_nothing(
    evo: Evo, words: Sequence[str], code: int, error: str, hint: str
) -> None:
    before = evo("leaderboard", "--json").out
    said = evo(*words)
    assert said.code == code, said.err
    assert said.out == ""
    first, second = said.err.splitlines()[-2:]
    assert first.startswith("error: ")
    assert error in first
    assert second.startswith("hint: ")
    assert hint in second
    assert evo("leaderboard", "--json").out == before
    assert len(evo("studies").out.splitlines()) == 3
