"""The benchmarks: each can be listed, imported and asked for help, and a result says what it depends on."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from argparse import ArgumentParser
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil
import pytest
import torch

from benchmarks import measure, record, run
from benchmarks.gate.mutation import checking, checks_digest
from benchmarks.gate.mutation_judged import judged
from benchmarks.gemm.many_shapes import SHAPES, drawn, pack, spent, unpack
from benchmarks.picture import GROUPS, picture, slowdowns
from benchmarks.search.methodology import RandomBaseline, Trajectory
from evo.device.emulator import cpu_instructions
from evo.store import Store
from evo.study import Study
from evo.task import load_task

ROOT = Path(__file__).parents[1]
FILES = sorted([*ROOT.glob("benchmarks/results/*.json"), *ROOT.glob("lab/results/*.json")])
GPUS = ("NVIDIA H200", "NVIDIA H100 80GB HBM3", "none")
"""What results were measured on."""
UNKNOWN = "not recorded"
NAMES = sorted(run.benchmarks())


def of_tree(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", FILES, ids=of_tree)
def test_a_committed_result_says_what_it_depends_on(path: Path) -> None:
    """Every field is there and has a form; an older result may say that a field was not recorded."""
    result: dict[str, Any] = json.loads(path.read_text())
    assert tuple(result) == record.FIELDS
    for field in ("gpu", "protocol", "command"):
        assert isinstance(result[field], str)
        assert result[field] not in ("", UNKNOWN), field
    assert result["cpu"]
    assert result["driver"]
    assert result["versions"] == UNKNOWN or all(isinstance(v, str) for v in result["versions"].values())
    assert re.fullmatch(rf"[0-9a-f]{{40}}|{UNKNOWN}.*", result["commit"])
    assert result["clean"] in (True, False, UNKNOWN)
    assert datetime.fromisoformat(result["date"])
    assert isinstance(result["results"], dict)
    assert result["results"]


@pytest.mark.parametrize("path", FILES, ids=of_tree)
def test_a_result_of_a_gpu_names_it(path: Path) -> None:
    gpu = json.loads(path.read_text())["gpu"]
    assert ("h200" in path.stem) <= (gpu == "NVIDIA H200")


def argued(name: str) -> tuple[int, int, list[dict[str, Any]]]:
    """How many mutants a result has, how many of them the check for candidates refused, and the survivors,
    each with the argument that is written down today, or none."""
    kernels = json.loads((ROOT / "benchmarks" / "results" / name).read_text())["results"]["kernels"]
    executed, refused = (sum(kernel[what] for kernel in kernels) for what in ("executed", "refused"))
    survivors = [{**s, "template": kernel["template"]} for kernel in kernels for s in kernel["survivors"]]
    assert executed == refused + len(survivors)
    assert not any(kernel["left"] for kernel in kernels)
    for survivor in survivors:
        assert (survivor["equal"], survivor.get("why")) == (judged(survivor) or (None, None)), survivor[
            "before"
        ]
    return executed, refused, survivors


def test_no_wrong_mutant_of_the_fast_templates_passes_as_a_finalist() -> None:
    """Each survivor has the argument that is written down today, or is refused at each of 12 seeds."""
    executed, refused, survivors = argued("mutation.json")
    assert executed >= 800
    wrong = [survivor["finalists"] for survivor in survivors if not survivor["equal"]]
    assert len(wrong) <= 0.01 * executed
    assert all(len(verdicts) == 12 and "GREEN" not in verdicts.values() for verdicts in wrong)
    said = re.sub(r"\s+", " ", (ROOT / "docs" / "gate.md").read_text())
    assert f"Of {executed} mutants" in said
    assert f"refused {refused}; {len(survivors) - len(wrong)} are equal" in said
    assert f"refuses the {len(wrong)} others" in said


def test_of_the_mutants_of_row_kernels_only_what_is_known_passes_as_a_finalist() -> None:
    executed, _, survivors = argued("mutation-rows.json")
    assert executed >= 550
    wrong = [survivor for survivor in survivors if not survivor["equal"]]
    assert len(wrong) <= 0.02 * executed
    assert all(len(survivor["finalists"]) == 12 for survivor in wrong)
    passed = {(s["template"], s["kind"]) for s in wrong if "GREEN" in s["finalists"].values()}
    assert passed == KNOWN_TO_PASS


KNOWN_TO_PASS = {("row_cluster", "factor twice"), ("row_registers", "constant doubled")}
"""Mutants that are within what numbers may be off: a logarithm by 2.5e-6; one element in 16 of a bias by its
last bit."""


def test_verdicts_on_mutants_are_kept_no_longer_than_the_gate_and_the_task() -> None:
    """The pattern of file names fitted no Python: what had been tried outlived changes of the gate."""
    found = {path.relative_to(ROOT).as_posix() for path in checking("softmax")}
    assert found >= {"evo/gate/cases.py", "evo/task/traits.py", "templates/softmax/task.py"}
    assert found >= {"templates/include/row/row_task.py"}
    assert any(name.startswith("evo/device/") and name.endswith(".cpp") for name in found)
    assert not any("cheats" in name or "attention" in name for name in found)
    assert checks_digest("softmax") != checks_digest("rmsnorm")


@pytest.mark.parametrize("name", NAMES)
def test_every_benchmark_can_be_imported_and_told_its_options(name: str) -> None:
    if name == "emulator/conformance":
        sys.path.insert(0, str(ROOT / "tests"))
    benchmark = run.load(name)
    assert benchmark.PROTOCOL
    assert benchmark.GPU in (True, False)
    benchmark.options(ArgumentParser())
    assert callable(benchmark.run)


def test_all_benchmarks_are_listed_with_a_line_each() -> None:
    done = subprocess.run(
        [sys.executable, "benchmarks/run.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == NAMES
    assert all(len(line.split()) > 4 for line in lines)
    assert {"search/throughput", "gate/zoo", "timing/planted", "emulator/speed", "attention/bench"} <= {
        *NAMES
    }


MADE_FROM_A_STUDY = {"leaderboard.json"}
"""Results that `benchmarks/readme.py record` writes."""


def test_each_result_is_listed_with_what_measures_it() -> None:
    listed = measure.listed()
    names = {path.name for path in FILES if path.parent.parent.name == "benchmarks"} - MADE_FROM_A_STUDY
    assert names <= {one.file(gpu) for one in listed for gpu in GPUS}
    for one in listed:
        name, *words = one.words("state", "out.json")
        parser = ArgumentParser(exit_on_error=False)
        parser.add_argument("--out")
        run.load(name).options(parser)
        parser.parse_args(words)
        assert one.minutes > 0


@pytest.mark.nvcc
def test_what_a_machine_can_measure_is_measured_once(tmp_path: Path) -> None:
    command = [sys.executable, "benchmarks/measure.py", "--out", str(tmp_path), "gemm-emulated", "imports"]
    for said in (r"\d+ s", "is there"):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=300)
        assert re.search(rf"^gemm-emulated: {said}$", done.stdout, re.M), done.stdout + done.stderr
        assert "imports: by hand: needs copies" in done.stdout
    result = json.loads((tmp_path / "gemm-emulated.json").read_text())
    assert tuple(result) == record.FIELDS
    again = "python benchmarks/run.py gemm/emulated --out benchmarks/results/gemm-emulated.json"
    assert result["command"] == again
    late = [*command[:-2], "--minutes", "0.1", "scale"]
    done = subprocess.run(late, cwd=ROOT, capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout == "scale: not begun: takes 40 min, 0.1 are left\n"


def test_a_benchmark_without_time_is_interrupted(tmp_path: Path) -> None:
    space = "benchmarks/spaces/attention-flash_mma-H200.json.xz"
    endless = measure.Result("endless", f"search/replay {space} --strategies evo --repeats 100000", 1)
    assert measure.measure(endless, tmp_path, "none", time.monotonic() + 4) == "interrupted: no time is left"
    assert not list(tmp_path.glob("endless.json"))
    running = [p for p in psutil.process_iter(["cmdline"]) if "100000" in (p.info["cmdline"] or ())]
    assert not running


def test_a_result_names_the_gpu_that_measured_it() -> None:
    one = measure.Result("gate-cost", "gate/cost", 2, gpus=1)
    assert one.file("NVIDIA H200") == "gate-cost-h200.json"
    assert one.file("NVIDIA GeForce RTX 4090") == "gate-cost-4090.json"
    assert one.why_not([]) == "needs 1 GPU"
    assert one.why_not(["NVIDIA H200"]) == ""
    without = measure.Result("host-cost-cpu", "leaving/host_cost", 1, without=True)
    assert without.why_not(["NVIDIA H200"]) == "is measured without a GPU"


def test_a_name_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["gate/absent"]) == 2
    assert "no benchmark gate/absent" in capsys.readouterr().err


def test_a_replay_runs_and_its_result_has_all_fields(tmp_path: Path) -> None:
    """The whole way, in a process of its own: a recorded space, two searches, a file."""
    space, out = "benchmarks/spaces/attention-flash_mma-H200.json.xz", tmp_path / "replay.json"
    words = ["search/replay", space, "--strategies", "random", "--repeats", "2", "--processes", "1"]
    command = [sys.executable, "benchmarks/run.py", *words, "--out", str(out)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=300)
    result = json.loads(out.read_text())
    assert tuple(result) == record.FIELDS
    assert result["command"] == f"python benchmarks/run.py {' '.join(words)} --out {out}"
    assert result["gpu"] == result["driver"] == "none"
    assert set(result["versions"]) >= {"python", "evo", "numpy", "compiler"}
    score = result["results"]["by_strategy"]["random"]["attention-flash_mma-H200"]
    assert score["repeats"] == 2
    assert score["evaluations"] > 100


@pytest.mark.nvcc
def test_the_speed_of_the_emulator_is_measured(tmp_path: Path) -> None:
    """One small kernel on the emulator as it is built here, in this process."""
    out = tmp_path / "speed.json"
    words = ["--kernels", "scalar", "--shapes", "1,1,64,64", "--repeats", "1", "--no-build-time"]
    run.main(["emulator/speed", *words, "--builds", cpu_instructions(), "--out", str(out)])
    (row,) = json.loads(out.read_text())["results"]["kernels"]
    assert 0 < row["unchecked_s"] < 60
    assert row["instructions"] > 1000
    assert 0 < row["row_error"] < 1e-3


@pytest.mark.nvcc
@pytest.mark.slow
def test_a_shape_has_a_row_though_parts_of_it_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no GPU, the search has estimates, and nothing is timed."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    out = tmp_path / "rows.json"
    words = ["rows/shapes", "--quick", "--budget", "2s", "--only"]
    run.main([*words, "rmsnorm 1,64 bf16", "--out", str(out)])
    (row,) = json.loads(out.read_text())["results"]["shapes"].values()
    assert row["bytes"] == 3 * 64 * 2
    assert row["trials"] >= 1
    assert 0 <= row["best"]["number"] < row["trials"]
    assert row["seconds"]["gate"] > 0
    assert "ended with 3" in row["failed"]["bench"]


def test_rounds_that_conclude_nothing_are_refused_before_a_search(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run.main(["rows/shapes", "--rounds", "9"])
    assert "9 rounds conclude nothing: 10 at least" in capsys.readouterr().err


SMALL = (
    "gate/cost --points 2 --passes 1 --profiled 1",
    "gate/false_alarms --task attention --seeds 4 --points 1 --jobs 4",
    "gate/validity --template flash_mma --points 4",
    "leaving/host_cost --rounds 2",
    "leaving/llama --rounds 2",
    "leaving/mission --rounds 2",
    "leaving/times --rounds 2",
    "search/seeds --seeds 1 --trials 12 --budget 20 --template flash_mma",
    "search/throughput --budget 15 --faulty 8",
    "timing/captured --budget 30s --template flash_mma --layers 2",
    "timing/cost --times 1",
    "timing/node",
    "timing/planted --comparisons 5",
    "timing/self_comparison --comparisons 5",
    "timing/timers --shape 1,8,512,64",
)
"""Benchmarks that take seconds when they are asked for little."""


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize("words", SMALL, ids=[words.split()[0] for words in SMALL])
def test_a_benchmark_of_the_gpu_runs(words: str, tmp_path: Path) -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs an NVIDIA GPU")
    out = tmp_path / "result.json"
    command = [sys.executable, "benchmarks/run.py", *words.split(), "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(out.read_text())
    assert tuple(result) == record.FIELDS
    assert result["gpu"].startswith("NVIDIA")
    assert result["results"]


# ---- record.py


def git(folder: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b.example", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


def test_the_commit_is_what_git_says(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "a").write_text("1")
    git(tmp_path, "add", "a")
    git(tmp_path, "commit", "-qm", "one")
    commit = git(tmp_path, "rev-parse", "HEAD")
    assert record.commit_and_clean(tmp_path) == (commit, True)
    (tmp_path / ".commit").write_text("0" * 40)
    assert record.commit_and_clean(tmp_path) == (commit, True), "git knows better than the file"
    (tmp_path / "a").write_text("2")
    assert record.commit_and_clean(tmp_path) == (commit, False)


def test_a_copy_without_git_has_the_commit_in_a_file(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"neither \.git nor \.commit"):
        record.commit_and_clean(tmp_path)
    (tmp_path / ".commit").write_text("1" * 40 + "-dirty\n")
    assert record.commit_and_clean(tmp_path) == ("1" * 40, False)
    (tmp_path / ".commit").write_text("not a commit\n")
    with pytest.raises(SystemExit, match="not a commit"):
        record.commit_and_clean(tmp_path)


def test_a_result_is_written_whole_and_with_all_fields(tmp_path: Path) -> None:
    path = tmp_path / "new" / "result.json"
    record.write(path, record.record({"µs": 1.5}, "a\n   protocol", "a command", on_gpu=False))
    written = json.loads(path.read_text(encoding="utf-8"))
    assert tuple(written) == record.FIELDS
    assert written["protocol"] == "a protocol"
    assert written["results"] == {"µs": 1.5}
    assert datetime.fromisoformat(written["date"]).utcoffset() is not None
    assert [file.name for file in path.parent.iterdir()] == ["result.json"]


# ---- the score of a search


def scores(order: npt.NDArray[np.intp], times_ms: npt.NDArray[np.float64]) -> float:
    """The mean of P of one search that tries the points in this order, a second each."""
    baseline = RandomBaseline(times_ms, np.ones(len(times_ms)))
    trajectory = Trajectory(np.arange(1.0, len(order) + 1), times_ms[order])
    return float(baseline.performance([trajectory]).mean())


def test_a_search_that_finds_the_optimum_at_once_scores_one_and_random_search_zero() -> None:
    rng = np.random.default_rng(0)
    times_ms = rng.permutation(np.linspace(1.0, 2.0, 1000))
    fastest_first = np.argsort(times_ms)
    assert scores(fastest_first, times_ms) == pytest.approx(1.0, abs=0.01)
    baseline = RandomBaseline(times_ms, np.ones(1000))
    many = [Trajectory(np.arange(1.0, 1001), rng.permutation(times_ms)) for _ in range(400)]
    assert float(baseline.performance(many).mean()) == pytest.approx(0.0, abs=0.1)
    assert scores(fastest_first[::-1], times_ms) < -1


# ---- the README's picture


def test_a_bar_is_the_fastest_of_its_group_by_our_time() -> None:
    times = {"champion/sm_90a": 2.0, "cudnn": 6.0, "sdpa": 5.0, "triton": 3.0}
    sheet: dict[str, Any] = {
        "entrants": ["champion/sm_90a"],
        "standings": {name: {"median_us": us} for name, us in times.items()},
    }
    sdpa, compiled, _ = GROUPS
    assert slowdowns(sheet) == {sdpa: 2.5, compiled: 1.5}
    for name, standing in sheet["standings"].items():
        standing["times"] = {
            "normal": {"median_us": standing["median_us"]},
            "sharp": {"median_us": standing["median_us"] * (1.25 if name in sheet["entrants"] else 1)},
        }
    assert slowdowns(sheet) == {sdpa: 2.0, compiled: 1.2}, "on the input where we are slowest"
    sheets = [{**sheet, "problem": f"causal={mask}", "shape": "1,8,512,64"} for mask in (0, 1)]
    drawn_now = picture({"gpu": "H200", "results": {"sheets": sheets}}, "light")
    assert [group in drawn_now for group in GROUPS] == [True, True, False], "those that took part"


def test_the_listed_shapes_are_those_that_are_drawn() -> None:
    shapes = [line for line in SHAPES.read_text().splitlines() if not line.startswith("#")]
    assert shapes == drawn(200, seed=0)
    sizes = [int(size) for shape in shapes for size in shape.split(",")[:3]]
    assert min(sizes) == 64
    assert max(sizes) > 15_000


def test_what_calls_of_a_benchmark_share_travels(tmp_path: Path) -> None:
    here, there, state = (tmp_path / name for name in ("here", "there", "state"))
    here.mkdir()
    there.mkdir()
    with Store(str(here / "evo.db")) as store:
        store.create(Study("a", load_task("gemm").example, "none", "H200", ("scalar",), 9.0, spent_s=3.0))
    (here / "compared.json").write_text("{}")
    pack(here, state)
    assert {path.name for path in state.iterdir()} == {"evo.db.xz.0", "compared.json"}
    unpack(state, there)
    assert spent(there) == spent(here) == {"spent_s": 3.0, "trials": 0}
