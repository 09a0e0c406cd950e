"""What each optimisation is worth: switches that rules allow, journeys that happen, honest verdicts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from evo.cli import main
from evo.compile import toolkits
from evo.errors import BadTemplate
from evo.explain.ablation import Ablation, SwitchResult, switches, verdict
from evo.explain.artifacts import read_artifacts, write_artifact
from evo.gpu import KNOWN_GPUS, Limits
from evo.report.ablation import ablation_text
from evo.space import Parameter
from evo.store import Store
from evo.study import Study
from evo.task import load_task
from evo.template import load_template
from evo.trial import Interval, Outcome, Problem, Trial

PROBLEM = Problem("attention", {"B": 1, "H": 8, "L": 512, "D": 64}, "fp16", {"causal": False})
L4 = Limits.of(KNOWN_GPUS["L4"])
FOLDER = Path(__file__).parent / "templates"
SMALL = PROBLEM.replace(H=1, L=32, D=32)


def test_each_parameter_goes_to_off_else_to_its_default_else_nearby() -> None:
    template = load_template(load_task("attention"), "flash_mma")
    point = {
        **template.space.default,
        "bm": 32,
        "bn": 32,
        "warps": 2,
        "kv_split": 4,
        "swizzle": "pad",
        "q_path": "reuse",
    }
    assert template.space.why_not(point, L4, PROBLEM) is None
    planned = {s.parameter.name: s for s in switches(template, point, L4, PROBLEM)}
    assert (planned["swizzle"].to, planned["swizzle"].kind) == ("none", "off")
    assert (planned["kv_split"].to, planned["kv_split"].kind) == (1, "off")
    assert (planned["bm"].to, planned["bm"].kind) == (64, "default")
    assert (planned["cta_split"].to, planned["cta_split"].reason) == (None, "is off")
    assert (planned["k_stages"].to, planned["k_stages"].kind) == (1, "off")
    assert (planned["warps"].to, planned["warps"].kind) == (4, "default")
    unmoved = {**template.space.default, "swizzle": "none"}
    assert {
        s.reason for s in switches(template, unmoved, L4, PROBLEM) if s.parameter.name in ("bm", "bn")
    } == {"is default"}
    for switch in planned.values():
        if switch.to is not None:
            assert template.space.why_not(switch.applied(point), L4, PROBLEM) is None
            moved = {name for name, value in switch.applied(point).items() if value != point[name]}
            assert moved == {switch.parameter.name, *dict(switch.along)}


def test_what_the_rules_forbid_alone_takes_one_other_parameter_along() -> None:
    template = load_template(load_task("attention"), "flash_mma")
    point = {
        **template.space.default,
        "bm": 32,
        "bn": 16,
        "warps": 2,
        "kv_split": 4,
        "min_ctas": 3,
        "k_stages": 1,
        "q_path": "registers",
    }
    small = PROBLEM.replace(L=64)
    planned = {s.parameter.name: s for s in switches(template, point, L4, small)}
    assert template.space.why_not({**point, "kv_split": 1}, L4, small) is not None
    assert (planned["kv_split"].to, dict(planned["kv_split"].along)) == (1, {"min_ctas": 1})
    assert planned["kv_split"].parameter.worth == (1.2, 1.3)


def test_an_expectation_in_figures_needs_a_value_without_it() -> None:
    Parameter("a", (1, 2), 1, off=1, worth=(1.1, 1.2))
    for worth, off in (((1.1, 1.2), None), ((1.2, 1.1), 1), ((0.0, 1.0), 1)):
        with pytest.raises(BadTemplate, match="worth"):
            Parameter("a", (1, 2), 1, off=off, worth=worth)


WORTH = SwitchResult(
    "a", 2, 1, "off", (), "TIMED", "", 5.0, 1.25, Interval(1.24, 1.26), False, 80, 0, "some words", (1.2, 1.3)
)


@pytest.mark.parametrize(
    ("changed", "spread", "said"),
    [
        ({}, 0.01, "helps 1.25x, as expected"),
        ({"expected_ratio": (1.5, 2.0)}, 0.01, "helps 1.25x, less than expected"),
        ({"expected_ratio": (1.0, 1.1)}, 0.01, "helps 1.25x, more than expected"),
        ({"ratio": 0.8, "interval": Interval(0.79, 0.81), "expected_ratio": None}, 0.01, "hurts 1.25x"),
        ({"ratio": 1.01, "interval": Interval(0.99, 1.03), "expected_ratio": None}, 0.0, "no difference"),
        ({"ratio": 1.01, "interval": Interval(1.008, 1.012), "expected_ratio": None}, 0.02, "no difference"),
        ({"same_code": True}, 0.0, "same machine code"),
        ({"ratio": None, "outcome": "RED", "reason": "race"}, 0.0, "RED: race"),
    ],
)
def test_verdicts(changed: dict[str, object], spread: float, said: str) -> None:
    assert verdict(replace(WORTH, **changed), spread) == said  # type: ignore[arg-type]


def measured() -> Ablation:
    point = {"swizzle": "xor", "grid_order": "head_fastest"}
    rows = (
        replace(WORTH, name="swizzle", value="xor", to="none", expected="up to 4x over none: no conflicts"),
        replace(WORTH, name="grid_order", value="head_fastest", to="m_fastest", along=(("bm", 64),)),
    )
    return Ablation(
        "s",
        3,
        PROBLEM.key,
        "flash_mma",
        point,
        "NVIDIA H200",
        "H200",
        False,
        (4.0, 4.01, 4.02),
        0.0025,
        rows,
        (("epilogue", "direct", "is off"),),
        True,
        {},
        "2026-01-02",
    )


def test_what_is_kept_is_what_was_found(tmp_path: Path) -> None:
    found = measured()
    write_artifact(tmp_path, "s/odd name", 3, "ablation", found.to_record())
    write_artifact(tmp_path, "s/odd name", 12, "ablation", found.to_record())
    assert read_artifacts(tmp_path, "s/odd name", "ablation", Ablation.from_record) == ([found, found], [])
    assert read_artifacts(tmp_path, "s/odd name", "profile", dict) == ([], [])
    path = write_artifact(
        tmp_path, "s/odd name", 13, "ablation", {"rows": [], "stayed": [], "of": "another evo"}
    )
    assert read_artifacts(tmp_path, "s/odd name", "ablation", Ablation.from_record) == (
        [found, found],
        [path],
    )


@pytest.mark.parametrize("width", [80, 200])
def test_the_page_keeps_to_the_terminal(width: int) -> None:
    page = ablation_text(measured(), "text", Console(width=width, no_color=True))
    assert all(len(line) <= width for line in page.splitlines())
    assert "xor → none (off)" in page
    assert "helps 1.25x, as expected" in page
    assert "timed 3 times" in page
    assert ("[1.240, 1.260]" in page) == (width == 200)
    assert ablation_text(measured(), "markdown", Console()).startswith("| parameter | switched |")


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A trial of the naive template, whose best-looking point is to be explained."""
    template = load_template(load_task("attention", [FOLDER]), "naive", [FOLDER])
    candidate = template.candidate({"rows": 8, "unroll": 4, "dead": 2}, SMALL)
    path = tmp_path / "evo.db"
    with Store(path) as store:
        study = store.create(Study("tiny", SMALL, "emulator", "L4", ("naive",), 60.0, folders=(str(FOLDER),)))
        green = Trial(candidate, Outcome.GREEN, estimate_us=9.0, estimate_gpu="L4", device="emulator (L4)")
        store.add(study, 7, green)
    return path


@pytest.mark.nvcc
@pytest.mark.skipif(not toolkits(), reason="there is no CUDA compiler here")
def test_a_kernel_is_ablated_on_the_emulator(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "ablate",
        "tiny/7",
        "--database",
        str(database),
        "--out",
        str(tmp_path / "runs"),
        "--json",
        "--workers",
        "1",
    ]
    assert main(words) == 0
    told = json.loads(capsys.readouterr().out)
    found = Ablation.from_record(told)
    rows = {row.name: row for row in found.rows}
    assert found.estimated
    assert found.same_source
    assert set(rows) == {"rows", "unroll", "dead"}
    assert (rows["unroll"].to, rows["unroll"].kind) == (1, "off")
    assert verdict(rows["dead"], found.spread) == "same machine code"
    assert rows["dead"].ratio == 1
    assert all(row.outcome == "GREEN" and row.ratio is not None for row in found.rows)
    ratio = rows["rows"].ratio
    assert ratio is not None
    assert np.isclose(ratio, (rows["rows"].us or 0) / found.original_us)
    assert read_artifacts(tmp_path / "runs", "tiny", "ablation", Ablation.from_record) == ([found], [])
    with Store(database) as store:
        assert len(store.rows(store.study("tiny"))) == 1  # nothing is written there
    words[words.index("--out") + 1] = str(database)  # no folder can be made there
    assert main(words) == 3
    said = capsys.readouterr()
    assert len(Ablation.from_record(json.loads(said.out)).rows) == 3, "what was measured is not lost"
    assert "cannot make" in said.err


@pytest.mark.slow  # test_a_kernel_is_ablated_on_the_emulator ablates the same kernel
@pytest.mark.nvcc
@pytest.mark.skipif(not toolkits(), reason="there is no CUDA compiler here")
def test_what_ran_is_what_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A rule that lets `unroll` be off only together with another value of `dead`."""
    made = tmp_path / "templates" / "attention"
    made.mkdir(parents=True)
    for suffix in ("cu.jinja", "py"):
        (made / f"coupled.{suffix}").write_text((FOLDER / "attention" / f"naive.{suffix}").read_text())
    python = made / "coupled.py"
    coupled = (
        "@rule('coupled')\ndef coupled(p, _l, _p):\n    return (p.unroll == 4) | (p.dead == 1)\n\n\nSPACE ="
    )
    text = (
        python.read_text().replace("SPACE =", coupled).replace("(rows_are_used,)", "(rows_are_used, coupled)")
    )
    python.write_text(text)
    folders = [tmp_path / "templates"]
    template = load_template(load_task("attention"), "coupled", folders)
    candidate = template.candidate({"rows": 8, "unroll": 4, "dead": 2}, SMALL)
    with Store(tmp_path / "evo.db") as store:
        asked = Study("tiny", SMALL, "emulator", "L4", ("coupled",), 60.0, folders=(str(folders[0]),))
        green = Trial(candidate, Outcome.GREEN, estimate_us=9.0, estimate_gpu="L4", device="emulator (L4)")
        store.add(store.create(asked), 0, green)
    words = [
        "ablate",
        "tiny/0",
        "--database",
        str(tmp_path / "evo.db"),
        "--out",
        str(tmp_path),
        "--json",
        "--workers",
        "1",
    ]
    assert main(words) == 0
    rows = {row.name: row for row in Ablation.from_record(json.loads(capsys.readouterr().out)).rows}
    assert (rows["unroll"].to, rows["unroll"].along) == (1, (("dead", 1),))
    assert rows["dead"].along == ()
    assert rows["unroll"].outcome == "GREEN"


def test_a_template_that_has_changed_is_told(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Store(database) as store:
        study = store.study("tiny")
        old = store.trial("tiny/7")
        gone = replace(old.candidate, point={**old.candidate.point, "tiles": 3})
        store.add(study, 8, replace(old, candidate=gone))
    assert main(["ablate", "tiny/8", "--database", str(database)]) == 2
    said = capsys.readouterr().err
    assert "template naive has changed since tiny/8: there is no parameter tiles" in said
    assert "hint: " in said
