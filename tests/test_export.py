"""A study as an Optuna storage: every trial is there, with its value or as a failure."""

from __future__ import annotations

from pathlib import Path

import optuna
import pytest
from times import timing

from evo.cli import main
from evo.store import Store
from evo.study import Study
from evo.trial import BufferArg, Candidate, Interval, LaunchConfig, Outcome, Point, Problem, Trial

PROBLEM = Problem("attention", {"B": 1, "H": 8, "L": 512, "D": 64}, "fp16", {"causal": False})


def trial(template: str, point: Point, us: float | None) -> Trial:
    launch = LaunchConfig((8, 8, 1), (128, 1, 1), 16384, (BufferArg("q"),))
    candidate = Candidate(PROBLEM, template, point, f"// {point}\n\n{point}", "f", launch)
    seconds = {"compile": 0.5, "gate": 1.0, "idle": 7.0}
    if us is None:
        return Trial(candidate, Outcome.RED, reason="race", device="NVIDIA H200", seconds=seconds)
    timed = timing((us,), us, Interval(us, us), {"cudnn": 9.1}, 9.1 / us, Interval(1, 2))
    return Trial(candidate, Outcome.TIMED, timing=timed, device="NVIDIA H200", seconds=seconds)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "evo.db"
    with Store(path) as store:
        one = store.create(Study("one", PROBLEM, "cuda:0", "NVIDIA H200", ("flash_mma",), 60.0, seed=5))
        for number, bm in enumerate((128, 16, 64, 32)):
            us = None if bm == 16 else float(bm)
            store.add(one, number, trial("flash_mma", {"bm": bm, "lazy": bool(number % 2)}, us))
        two = store.create(Study("two", PROBLEM, "cuda:0", "NVIDIA H200", ("flash_mma", "wmma"), 60.0))
        store.add(two, 0, trial("flash_mma", {"bm": 64}, 9.0))
        store.add(two, 1, trial("wmma", {"bm": 32, "stages": 2}, 8.0))
    return path


def test_optuna_reads_every_trial(database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "optuna.db"
    assert main(["export", "--optuna", "one", str(target), "--database", str(database)]) == 0
    assert "4 trials" in capsys.readouterr().err
    study = optuna.load_study(study_name="one", storage=f"sqlite:///{target}")
    assert [(t.state.name, t.value) for t in study.trials] == [
        ("COMPLETE", 128.0),
        ("FAIL", None),
        ("COMPLETE", 64.0),
        ("COMPLETE", 32.0),
    ]
    assert study.best_params == {"bm": 32, "lazy": True}
    assert study.metric_names == ["µs"]
    assert [t.number for t in study.trials] == [t.user_attrs["number"] for t in study.trials]
    assert study.trials[0].distributions["bm"] == optuna.distributions.IntDistribution(16, 128, log=True)
    assert study.trials[1].user_attrs["reason"] == "race"
    assert study.trials[1].user_attrs["outcome"] == "RED"
    assert study.user_attrs["problem"] == PROBLEM.key
    assert study.user_attrs["value"] == "µs, median by FAST"
    took = [t.duration.total_seconds() for t in study.trials if t.duration is not None]
    assert took == pytest.approx([1.5] * 4), "the timeline shows how long each trial took"
    # again under another name, beside it; not under the same
    again = ["export", "--optuna", "one", f"sqlite:///{target}", "--database", str(database)]
    assert main([*again, "--name", "copy"]) == 0
    assert main(again) == 2
    assert "has a study one already" in capsys.readouterr().err


def test_several_templates_have_a_space_each(database: Path, tmp_path: Path) -> None:
    target = tmp_path / "optuna.db"
    assert main(["export", "--optuna", "two", str(target), "--database", str(database)]) == 0
    study = optuna.load_study(study_name="two", storage=f"sqlite:///{target}")
    assert [t.params for t in study.trials] == [
        {"template": "flash_mma", "flash_mma.bm": 64},
        {"template": "wmma", "wmma.bm": 32, "wmma.stages": 2},
    ]


def test_what_cannot_be_an_optuna_storage_is_told(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = database.read_bytes()
    words = ["--database", str(database)]
    for target, code, said in (
        (str(database), 2, "is a database of evo"),
        (str(tmp_path / "nowhere" / "x.db"), 3, "cannot make an Optuna storage"),
        ("nonsense://host/x", 3, "cannot make an Optuna storage"),
    ):
        assert main(["export", "--optuna", "one", target, *words]) == code
        error = capsys.readouterr().err
        assert said in error
        assert "hint: " in error
    assert database.read_bytes() == before
    assert main(["export", "one", "x.db", *words]) == 2
    assert "nothing says where to write the export" in capsys.readouterr().err
