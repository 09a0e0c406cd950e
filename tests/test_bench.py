"""Kernels and baselines over shapes, with simulated judges (finals.py): the loop, the table and the plot."""

from __future__ import annotations

import io
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from finals import SimulatedJudges
from landscape import PROBLEM, evaluate, write_template
from rich.console import Console

from evo.bench import Entrant, Sheet, bench, rendered
from evo.cli.words import parse_problems
from evo.errors import Infeasible
from evo.gpu import Gpu, Limits, target
from evo.report import as_json
from evo.report.bench import absent_lines, bench_record, bench_svg, bench_table
from evo.rig import nearest_trial
from evo.store import Store, Study
from evo.task import load_task
from evo.trial import Candidate, Problem

TASK = load_task("attention")
LONGER = PROBLEM.replace(L=2048)


@pytest.fixture
def entrants(tmp_path: Path) -> dict[str, Entrant]:
    template = write_template(tmp_path)
    best = {**template.space.default, "rows": 128, "columns": 64, "stages": 3, "wide": True}
    limits = Limits.of(target("sm_89"))
    made = {f"s/{i}": rendered(template, template.candidate(p, PROBLEM), limits)
            for i, p in enumerate([best, dict(template.space.default)])}  # fmt: skip

    def shy(problem: Problem) -> Candidate:
        raise Infeasible(f"not for {problem['L']} keys")

    return {**made, "s/2": Entrant(shy)}


def sheets_of(entrants: dict[str, Entrant], judges: SimulatedJudges) -> list[Sheet]:
    return bench([PROBLEM, LONGER], lambda _: entrants, lambda _: judges, rounds=8)


def test_entrants_and_baselines_stand_side_by_side(entrants: dict[str, Entrant]) -> None:
    first, second = sheets_of(entrants, SimulatedJudges())
    assert (first.shape, second.shape) == ("1,8,512,64", "1,8,2048,64")
    assert first.entrants == ("s/0", "s/1")
    assert first.standings["s/0"].median_us == pytest.approx(5.0, rel=0.02)
    assert first.standings["s/0"].verdict == "faster"
    assert set(first.baselines) == {"cudnn", "flash", "math"}
    assert first.absent == {"s/2": "INFEASIBLE: not for 512 keys", "flex": "does not compile"}
    assert first.kernels["cudnn"] == ["cudnn_sdpa_kernel"]


def test_the_table_keeps_to_the_terminal_and_the_script_gets_everything(entrants: dict[str, Entrant]) -> None:
    sheets = sheets_of(entrants, SimulatedJudges())
    narrow, wide = (
        bench_table(sheets).render("text", Console(width=width, file=io.StringIO())) for width in (80, 200)
    )
    assert max(map(len, narrow.splitlines())) <= 80
    assert re.search(r"[45]\.\d\d +1\.[45]\dx \[", narrow)
    assert "cudnn" in wide.splitlines()[1]
    assert len(narrow.splitlines()) == 2 + 4
    records = json.loads(as_json(bench_record(sheets)))
    assert records[0]["standings"]["s/0"]["interval"]["level"] == 0.99
    assert "1,8,512,64: s/2 took no part: INFEASIBLE: not for 512 keys" in absent_lines(sheets)


def test_the_plot_is_an_svg_with_a_bar_for_each(entrants: dict[str, Entrant]) -> None:
    root = ET.fromstring(bench_svg(sheets_of(entrants, SimulatedJudges())))
    space = "{http://www.w3.org/2000/svg}"
    bars = [r for r in root.iter(f"{space}rect") if r.get("x")]
    assert len(bars) == 2 * 5
    words = [t.text for t in root.iter(f"{space}text")]
    assert "s/0" in words
    assert any(re.fullmatch(r"7\.[45]\d µs", str(word)) for word in words)


def test_who_falls_leaves_the_others(entrants: dict[str, Entrant]) -> None:
    (sheet,) = bench([PROBLEM], lambda _: entrants, lambda _: SimulatedJudges(falls=("s/0", 2)), rounds=8)
    assert sheet.entrants == ("s/1",)
    assert sheet.absent["s/0"] == "RED: row error"


def test_baselines_alone_have_standings_too() -> None:
    (sheet,) = bench([PROBLEM], lambda _: {}, lambda _: SimulatedJudges(), rounds=6)
    assert set(sheet.standings) == {"cudnn", "flash", "math"}
    assert bench_table([sheet]).records[0]["kernel"] == "-"


def test_the_nearest_trial_is_of_the_nearest_shape(tmp_path: Path) -> None:
    template = write_template(tmp_path)
    with Store(tmp_path / "evo.db") as store:
        for number, problem in enumerate([PROBLEM, LONGER, PROBLEM.replace(causal=True)]):
            study = store.create(Study(f"s{number}", problem, "none", "L4", ("landscape",), 60.0))
            store.add(study, 0, evaluate(template.candidate(template.space.default, problem)))
        gpu = Gpu("none", "sm_89", 1, 1, 1, 1, 1)
        near = nearest_trial(store, PROBLEM.replace(L=1500), gpu)
        assert near is not None
        assert near.study == "s1"
        causal = nearest_trial(store, PROBLEM.replace(L=1500, causal=True), gpu)
        assert causal is not None
        assert causal.study == "s2"
        assert nearest_trial(store, PROBLEM.replace(dtype="bf16"), gpu) is None


def test_shapes_are_sets_or_single_ones_each_once() -> None:
    found = parse_problems(TASK, ["seeds", "1,8,512,64", "4,16,512,64"], None, False)
    assert len(found) == 11
    causal = parse_problems(TASK, ["seeds"], "bf16", True)
    assert len(causal) == 5
    assert all(p["causal"] and p.dtype == "bf16" for p in causal)


def test_red_is_said_with_its_reason(entrants: dict[str, Entrant]) -> None:
    judges = SimulatedJudges(red=["s/0", "s/1"])
    (sheet,) = bench([PROBLEM], lambda _: entrants, lambda _: judges, rounds=6)
    assert sheet.entrants == ()
    assert sheet.absent["s/0"] == "RED: row error"
