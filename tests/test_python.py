"""`import evo` in Python: what is promised, what it costs, and a search on the emulator."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from command import ROOT

import evo
from evo.cli import search as commands
from evo.errors import EvoError, NothingFound, UnknownName, UsageError
from evo.evaluate import EvaluatorSpec
from evo.study import Setup
from evo.study import Study as Record
from evo.task import load_task

TOYS = ROOT / "tests/toys"


@pytest.mark.parametrize("name", [name for name in evo.__all__ if name != "__version__"])
def test_a_public_name_is_documented(name: str) -> None:
    found = getattr(evo, name)
    assert inspect.getdoc(found)
    assert f"`{name}`" in (ROOT / "docs/python.md").read_text()
    for member, value in vars(found).items() if inspect.isclass(found) else ():
        if not member.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
            assert inspect.getdoc(value), f"{name}.{member}"


def test_no_other_name_is_public() -> None:
    assert set(evo.__all__) <= set(dir(evo)) | set(evo._FOUND_IN)
    with pytest.raises(AttributeError, match="no attribute 'tuned'"):
        _ = evo.tuned


def test_importing_evo_brings_nothing() -> None:
    code = "import sys; before = set(sys.modules); import evo; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {name.split(".")[0] for name in done.stdout.split()} - sys.stdlib_module_names == {"evo"}


def test_the_parameters_are_the_options() -> None:
    def names(function: object) -> set[str]:
        return set(inspect.signature(function).parameters)  # type: ignore[arg-type]

    several = {"shapes", "portfolio", "own"}  # problems, which are several studies
    assert names(evo.search) - {"progress", "spares"} == names(commands.search) - several - {
        *("context", "json"),
        "slurm",  # `scheduler` takes the file, too
    }
    alone = {"shape", "inputs", "scheduler", "spares", "exchange"}
    assert names(evo.search_shapes) == (names(evo.search) | several) - alone
    resumed = names(evo.load_study) | names(evo.Study.resume) - {"self", "progress", "spares"}
    assert resumed - {"name"} == names(commands.resume) - {"context", "json", "study", "slurm"}


def test_what_a_study_ranks_by_reaches_what_times() -> None:
    task = load_task("attention")
    record = Record("s", task.example, "emulator", "L4", (), 1.0, ranking="mean", accept_unproven=True)
    spec = EvaluatorSpec.of(Setup.of(record, ROOT))
    assert (spec.ranking, spec.accept_unproven) == ("mean", True)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> evo.Study:
    """A search of a toy by its folder, until nothing is left."""
    database = tmp_path_factory.mktemp("runs") / "evo.db"
    return evo.search(
        TOYS / "saxpy", shape={"N": 1000}, budget=600, device="emulator", workers=1, database=database,
        progress=False, study="mine",
    )  # fmt: skip


@pytest.mark.nvcc
def test_a_search_gives_its_study(study: evo.Study, capsys: pytest.CaptureFixture[str]) -> None:
    again = evo.load_study("mine", database=study.database)
    best = again.best
    assert best is not None
    assert again.status == "exhausted"
    assert again.problem == "saxpy N=1000 fp32"
    assert (best.status, best.template, best.median_us, best.reason) == ("GREEN", "saxpy", None, "")
    assert best.estimate_us is not None
    assert set(best.parameters) == {"block_size_x", "per_thread"}
    assert best.source.startswith("// evo ")
    assert again.trial(best.number).name == best.name == f"mine/{best.number}"
    assert repr(again) == repr(study)
    assert "12 trials, 12 correct" in repr(study)
    assert f"best <Trial {best.name} GREEN ~" in repr(study)
    assert capsys.readouterr() == ("", "")


@pytest.mark.nvcc
def test_trials_are_a_frame_or_a_list(study: evo.Study, monkeypatch: pytest.MonkeyPatch) -> None:
    frame, ranked = study.trials(), study.leaderboard(limit=3)
    assert list(frame["number"]) == list(range(12))
    assert set(frame["status"]) == {"GREEN"}
    assert set(frame["params_block_size_x"]) == {64, 128, 256, 512}
    assert len(ranked) == 3
    assert ranked["estimate_us"].is_monotonic_increasing
    monkeypatch.setitem(sys.modules, "pandas", None)  # as where it is not installed
    listed = study.trials()
    assert listed[3]["params_per_thread"] == frame["params_per_thread"][3]
    assert [row["number"] for row in study.leaderboard(limit=3)] == list(ranked["number"])


@pytest.mark.nvcc
def test_the_kernel_of_a_trial_runs_on_tensors_and_arrays(study: evo.Study) -> None:
    best = study.best
    assert best
    x, y = torch.randn(1000), torch.randn(1000)
    expected = 2 * x + y
    assert best.kernel(x, y) is y, "it changes y in place"
    assert torch.equal(y, expected)
    few = np.arange(77, dtype=np.float32)  # another problem of the task
    out = best.kernel(y=few.copy(), x=few)
    assert isinstance(out, np.ndarray)
    assert np.array_equal(out, 3 * few)


@pytest.mark.nvcc
def test_the_best_kernel_of_a_study_is_a_call(study: evo.Study) -> None:
    saxpy = evo.kernel(study, device="emulator")
    x, y = torch.randn(50), torch.randn(50)
    expected = 2 * x + y
    assert saxpy(x, y) is y
    assert torch.equal(y, expected)
    (decision,) = saxpy.table()
    assert study.best
    assert decision.kernel == study.best.name
    assert "made for saxpy N=1000 fp32, found on L4" in decision.why
    again = evo.kernel("mine", database=study.database)
    assert again.explain(x, y, gpu="L4").decision.kernel == decision.kernel


@pytest.mark.nvcc
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((torch.ones(9),), "input y is missing"),
        ((torch.ones(9), torch.ones(8)), "N is 9 by x and 8 by y"),
        ((torch.ones(9), torch.ones(9).double()), "y is fp64, and saxpy takes fp32"),
        ((torch.ones(9), torch.ones(3, 3)), "y has 2 dimensions"),
        ((torch.ones(9), torch.ones(9), torch.ones(9)), "3 tensors for 2 inputs"),
        ((torch.ones(9), [1.0]), "y is a list"),
        ((torch.ones(9), torch.ones(18)[::2]), "y is written and not contiguous"),
        ((torch.ones(9), torch.ones(9, device="meta")), "tensors lie on cpu, meta"),
    ],
    ids=str,
)
def test_tensors_that_do_not_fit_are_refused(study: evo.Study, given: tuple[object, ...], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        study.trial(0).kernel(*given)


@pytest.mark.nvcc
def test_a_study_goes_on(study: evo.Study, capsys: pytest.CaptureFixture[str]) -> None:
    assert study.resume("+1m").result
    assert study.result
    assert study.result.stopped == "exhausted"
    assert "12 trials" in capsys.readouterr().err
    assert len(study.trials()) == 12
    with pytest.raises(UsageError, match=r"has spent its budget of 0\.001 s, and every feasible point"):
        study.resume(1e-3)
    study.resume(study._record().spent_s + 1e-3)
    spent = study._record().spent_s  # more than the budget by now
    study.resume("+5s")
    assert study._record().budget_s >= spent + 5


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"budget": "soon"}, "malformed budget: soon"),
        ({"budget": -1.0}, "cannot be negative"),
        ({"workers": -2}, "workers cannot be -2"),
        ({"seed": -1}, "seed cannot be -1"),
        ({"shape": {"columns": 3}}, "saxpy has no size columns"),
        ({"shape": (1, 2)}, "malformed shape: 1,2"),
        ({"device": "tpu"}, "unknown device: tpu"),
        ({"flag": {"causal": True}}, "unknown flag: causal"),
        ({"smem_limit": "much"}, "malformed size: much"),
    ],
)
def test_what_cannot_be_is_said_before_anything_starts(
    tmp_path: Path, changed: dict[str, object], said: str
) -> None:
    asked = {"budget": 5, "device": "emulator", "templates": str(TOYS)} | changed
    with pytest.raises(UsageError, match=said):
        evo.search("saxpy", database=tmp_path / "evo.db", **asked)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_an_error_shows_its_hint_in_python(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="unknown task: saxpi") as caught:
        evo.search("saxpi", budget=1, templates=TOYS, database=tmp_path / "evo.db")
    assert caught.value.__notes__[0].startswith("hint: did you mean saxpy?")
    assert NothingFound("nothing").__dict__.get("__notes__") is None


@pytest.mark.nvcc
@pytest.mark.parametrize(
    ("called", "keyword", "meant"),
    [("search", "shapee", "shape"), ("search_shapes", "portfolios", "portfolio"),
     ("tune", "restriction", "restrictions"), ("tune", "work", "workers")],
)  # fmt: skip
def test_an_argument_that_there_is_not_is_said_with_the_nearest_one(
    called: str, keyword: str, meant: str
) -> None:
    with pytest.raises(UsageError) as caught:
        getattr(evo, called)("saxpy", budget=1, **{keyword: ["x"]})
    assert caught.value.message == f"unknown argument of evo.{called}: {keyword}"
    assert caught.value.hint.startswith(f"did you mean {meant}?")


def test_ctrl_c_ends_a_search_and_gives_the_study(tmp_path: Path) -> None:
    database = tmp_path / "evo.db"

    def interrupt() -> None:
        while True:
            time.sleep(0.2)
            with suppress(EvoError):  # the database, or the study, is not there yet
                if len(evo.load_study("long", database=database).trials()) >= 2:
                    os.kill(os.getpid(), signal.SIGINT)
                    return

    watching = threading.Thread(target=interrupt, daemon=True)
    watching.start()
    found = evo.search(
        "attention", shape="1,1,16,32", budget="10m", device="emulator", workers=1, database=database,
        study="long", progress=False,
    )  # fmt: skip
    watching.join()
    assert found.status == "interrupted"
    assert found.result
    assert found.result.stopped == "interrupted"
    assert len(found.trials()) >= 2
