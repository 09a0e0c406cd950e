"""What limits a kernel: ncu's pages are read, its failures told, and without it something is still said."""

from __future__ import annotations

import json
import stat
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from evo.cache import default_folder
from evo.cli import main
from evo.compile import find_tool, toolkits
from evo.device.driver import gpu_at, gpu_names
from evo.errors import MachineError
from evo.evaluate import EvaluatorSpec
from evo.explain import ncu
from evo.explain.artifacts import read_artifacts
from evo.explain.counters import UNITS, measured_numbers, measured_stalls, measured_units
from evo.explain.profiling import Profile, profile, verdict_of
from evo.gpu import KNOWN_GPUS, Limits
from evo.report.profile import profile_text
from evo.store import Store
from evo.study import Setup, Study
from evo.task import load_task
from evo.template import load_template
from evo.trial import Outcome, Problem, Trial

FOLDER = Path(__file__).parent / "templates"
TINY = Problem("attention", {"B": 1, "H": 2, "L": 32, "D": 32}, "fp16", {"causal": False})
SHAPE = {"ctas": 128.0, "threads": 128.0, "ctas_an_sm": 2.0, "spill_bytes": 0.0, "sms_used_percent": 100.0}


@pytest.fixture
def database(tmp_path: Path) -> Path:
    template = load_template(load_task("attention", [FOLDER]), "naive", [FOLDER])
    candidate = template.candidate({"rows": 32, "unroll": 4, "dead": 0}, TINY)
    path = tmp_path / "evo.db"
    with Store(path) as store:
        asked = Study("tiny", TINY, "emulator", "L4", ("naive",), 60.0, folders=(str(FOLDER),))
        study = store.create(asked)
        green = Trial(candidate, Outcome.GREEN, estimate_us=9.0, estimate_gpu="L4", device="emulator (L4)")
        store.add(study, 7, green)
    return path


def page_of(template: str) -> str:
    """What ncu 2025.3 wrote about one launch on an H200 at the mission shape: of 2,200 columns, some 60."""
    return (Path(__file__).parent / "ncu" / f"{template}-h200.csv").read_text()


def test_a_page_of_an_h200_is_read() -> None:
    metrics = ncu.metrics_of(page_of("flash_wgmma_split"))
    assert ncu.value(metrics, r"gpu__time_duration\.sum") == 5504.0
    assert "Block Size" not in metrics
    units = measured_units(metrics)
    assert units["Tensor Cores"] == 11.45
    assert units["DRAM"] < 1
    assert set(units) == set(UNITS)
    numbers = measured_numbers(metrics)
    assert numbers["active_percent"] == pytest.approx(56, abs=0.1)
    assert numbers["sm_ghz"] == pytest.approx(1.576, abs=0.001)
    assert numbers["bank_conflicts_load"] == 0
    stalls = measured_stalls(metrics)
    assert list(stalls)[:2] == ["wait", "long_scoreboard"]
    assert sum(stalls.values()) == pytest.approx(1)
    assert "selected" not in stalls
    said, evidence = verdict_of(units, stalls, SHAPE | numbers, True, "")
    assert said == "bound by latency: 44 % of the time no warp is there (launch and end)"
    assert "an SM has warps in 56 % of the cycles" in evidence


def test_conflicts_and_waits_of_another_kernel() -> None:
    metrics = ncu.metrics_of(page_of("flash_mma"))
    numbers = measured_numbers(metrics)
    assert (numbers["bank_conflicts_load"], numbers["bank_conflicts_store"]) == (4834.0, 3699.0)
    assert measured_stalls(metrics)["membar"] > 0.1
    assert ncu.value(metrics, r"nothing", r"sm__throughput.*") == 26.61
    assert ncu.value(metrics, r"nothing") is None


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", "counters are locked"),
        ("==ERROR== Failed to initialize the profiler: LibraryNotLoaded", "profiling library is not there"),
        ("==WARNING== No kernels were profiled.", "saw no launch of the kernel"),
        ("==ERROR== The application returned an error code (1).", "The application returned an error code"),
        ("", "it said nothing"),
    ],
)
def test_a_failure_of_ncu_is_told_in_words(said: str, message: str) -> None:
    error = ncu.ncu_error(said)
    assert message in error.message
    assert error.hint
    with pytest.raises(MachineError, match=message):
        ncu.metrics_of(said)


def test_the_busiest_unit_is_the_bound() -> None:
    said, evidence = verdict_of(
        {"SM (its busiest part)": 71.0, "Tensor Cores": 70.0, "L2": 20.0}, {}, SHAPE, True, ""
    )
    assert said == "bound by Tensor Cores"
    assert evidence[0] == "SM (its busiest part) at 71 % of its peak"
    said, _ = verdict_of({"SM": 20.0, "L2": 30.0}, {"long_scoreboard": 0.5, "wait": 0.2}, SHAPE, True, "")
    assert said == "bound by latency: it waits for loads from global or local memory"
    said, evidence = verdict_of({"SM": 20.0}, {}, {**SHAPE, "sms_used_percent": 24.0}, True, "")
    assert said == "too few CTAs: SMs are idle"
    assert "24 % of the SMs have one" in evidence
    assert verdict_of({}, {}, SHAPE, False, "")[0].startswith("not known")


@pytest.mark.nvcc
@pytest.mark.skipif(not toolkits(), reason="there is no CUDA compiler here")
def test_without_a_gpu_the_compiler_and_the_emulator_tell(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs"
    assert main(["profile", "tiny/7", "--database", str(database), "--out", str(runs)]) == 0
    said = capsys.readouterr().out
    assert "the model says: bound by " in said
    assert "~" in said
    assert "no counters" in said
    ((found,), _) = read_artifacts(runs, "tiny", "profile", Profile.from_record)
    assert (found.kind, found.metrics, found.report) == ("modelled", {}, "")
    assert found.numbers["registers"] > 0
    assert found.numbers["threads"] == 32
    assert max(found.units.values()) == 100
    assert found.roofline is not None
    assert 0 < found.roofline.share < 1
    for width in (80, 200):
        page = profile_text(found, "text", Console(width=width, no_color=True))
        assert all(len(line) <= width for line in page.splitlines())
    assert main(["profile", "tiny/7", "--database", str(database), "--out", str(runs), "--json"]) == 0
    assert Profile.from_record(json.loads(capsys.readouterr().out)).units == found.units


def fake_ncu(folder: Path, script: str) -> Path:
    """A program in ncu's place: what it says is what a machine without counters says."""
    path = folder / "ncu"
    path.write_text(f"#!{sys.executable}\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.mark.nvcc
@pytest.mark.skipif(not toolkits(), reason="there is no CUDA compiler here")
def test_locked_counters_are_told_and_the_rest_is_shown(database: Path, tmp_path: Path) -> None:
    tool = fake_ncu(tmp_path, "print('==ERROR== ERR_NVGPUCTRPERM - no permission')\nraise SystemExit(1)")
    with Store(database) as store:
        stored, study = store.trial("tiny/7"), store.study("tiny")
    spec = EvaluatorSpec.of(Setup.of(study, default_folder()))
    found = profile(stored, spec, tool, tmp_path)
    assert found.kind == "modelled"
    assert "counters are locked" in found.absent
    assert "administrator" in found.absent
    assert not list(tmp_path.glob("*.pickle"))
    assert found.verdict.startswith("the model says")


@pytest.mark.nvcc
@pytest.mark.skipif(not toolkits(), reason="there is no CUDA compiler here")
def test_bank_conflicts_are_told_by_instruction(tmp_path: Path) -> None:
    """Without a swizzle `ldmatrix` reads eight rows from the same banks; with one it has no conflict."""
    template = load_template(load_task("attention"), "flash_mma")
    small = TINY.replace(L=64, D=64)
    gpu = KNOWN_GPUS["L4"]
    spec = EvaluatorSpec("attention", "emulator", gpu, Limits.of(gpu), default_folder())
    found = {}
    for swizzle in ("none", "xor"):
        candidate = template.candidate({**template.space.default, "swizzle": swizzle}, small)
        trial = Trial(candidate, Outcome.GREEN, estimate_us=9.0, estimate_gpu="L4", device="emulator (L4)")
        found[swizzle] = profile(replace(trial, study="s", number=1), spec, None, tmp_path)
    worst = {c.instruction: c for c in found["none"].conflicts}
    loads = next(c for name, c in worst.items() if name.startswith("ldmatrix"))
    assert loads.wavefronts == 8 * loads.ideal
    assert not any(c.instruction.startswith("ldmatrix") for c in found["xor"].conflicts)
    page = profile_text(found["none"], "text", Console(width=80, no_color=True))
    assert all(len(line) <= 80 for line in page.splitlines())
    assert "8.0x" in page


@pytest.mark.gpu
@pytest.mark.skipif(not gpu_names(), reason="there is no NVIDIA GPU here")
def test_ncu_looks_at_one_launch_on_a_gpu(database: Path, tmp_path: Path) -> None:
    tool = find_tool("ncu")
    if tool is None:
        pytest.skip("no ncu here: install nsight-compute")
    gpu = gpu_at(0)
    with Store(database) as store:
        stored = store.trial("tiny/7")
    cache = default_folder()
    spec = EvaluatorSpec("attention", "cuda:0", gpu, Limits.of(gpu), cache, folders=(FOLDER,))
    found = profile(stored, spec, tool, tmp_path)
    if found.absent:
        pytest.skip(found.absent)
    assert found.kind == "measured"
    assert found.us is not None
    assert 0.5 < found.us < 1000
    assert Path(found.report).stat().st_size > 1000
    assert set(found.units) >= {"SM (its busiest part)", "L2"}
    assert found.metrics["launch__registers_per_thread"] == found.numbers["registers"]
