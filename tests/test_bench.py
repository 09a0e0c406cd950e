"""Kernels and baselines over shapes, with simulated worker (finals.py): the loop, the table and the plot."""

from __future__ import annotations

import io
import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from finals import SimulatedWorker
from landscape import PROBLEM, SPACE, evaluate, write_template
from rich.console import Console
from test_champions import kept
from times import timing

from evo.api.parse import parse_problems
from evo.cli import main
from evo.confirm.bench import Entrant, Sheet, bench, rendered
from evo.confirm.entrants import nearest_trial
from evo.errors import Infeasible
from evo.gpu import Limits, target
from evo.report import as_json
from evo.report.bench import absent_lines, bench_record, bench_svg, bench_table
from evo.store import Store
from evo.study import Study
from evo.task import load_task
from evo.template import load_template
from evo.trial import Candidate, Interval, Outcome, Problem, Trial

TASK = load_task("attention")
LONGER = PROBLEM.replace(L=2048)
FIXED = """
def supports(problem):
    return None if problem["L"] == 512 else "made for 512 keys"
"""


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


def sheets_of(entrants: dict[str, Entrant], worker: SimulatedWorker) -> list[Sheet]:
    return bench([PROBLEM, LONGER], lambda _: entrants, lambda _: worker, rounds=10)


def test_entrants_and_baselines_stand_side_by_side(entrants: dict[str, Entrant]) -> None:
    first, second = sheets_of(entrants, SimulatedWorker())
    assert (first.shape, second.shape) == ("1,8,512,64", "1,8,2048,64")
    assert first.entrants == ("s/0", "s/1")
    assert first.standings["s/0"].median_us == pytest.approx(5.0, rel=0.02)
    assert first.standings["s/0"].verdict == "faster"
    assert set(first.baselines) == {"cudnn", "flash", "math"}
    assert first.absent == {"s/2": "INFEASIBLE: not for 512 keys", "flex": "does not compile"}
    assert first.kernels["cudnn"] == ["cudnn_sdpa_kernel"]


def test_the_table_keeps_to_the_terminal_and_the_script_gets_everything(entrants: dict[str, Entrant]) -> None:
    sheets = sheets_of(entrants, SimulatedWorker())
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
    root = ET.fromstring(bench_svg(sheets_of(entrants, SimulatedWorker())))
    space = "{http://www.w3.org/2000/svg}"
    bars = [r for r in root.iter(f"{space}rect") if r.get("x")]
    assert len(bars) == 2 * 5
    words = [t.text for t in root.iter(f"{space}text")]
    assert "s/0" in words
    assert any(re.fullmatch(r"7\.[45]\d µs", str(word)) for word in words)


def test_an_entrant_that_falls_leaves_the_others(entrants: dict[str, Entrant]) -> None:
    (sheet,) = bench([PROBLEM], lambda _: entrants, lambda _: SimulatedWorker(falls=("s/0", 2)), rounds=10)
    assert sheet.entrants == ("s/1",)
    assert sheet.absent["s/0"] == "RED: row error"


def test_baselines_alone_have_standings_too() -> None:
    (sheet,) = bench([PROBLEM], lambda _: {}, lambda _: SimulatedWorker(), rounds=10)
    assert set(sheet.standings) == {"cudnn", "flash", "math"}
    assert bench_table([sheet]).records[0]["kernel"] == "-"


def test_the_nearest_trial_is_of_the_nearest_shape_that_its_template_can_serve(tmp_path: Path) -> None:
    template = write_template(tmp_path)
    gpu = replace(target("sm_89"), name="none")

    def nearest(problem: Problem) -> str | None:
        found = nearest_trial(store, problem, gpu)
        return found[0] if found else None

    with Store(tmp_path / "evo.db") as store:
        folders = (str(tmp_path),)
        for number, problem in enumerate([PROBLEM, LONGER, PROBLEM.replace(causal=True)]):
            made = Study(f"s{number}", problem, "none", "L4", ("landscape",), 60.0, folders=folders)
            store.add(store.create(made), 0, evaluate(template.candidate(template.space.default, problem)))
        assert nearest(PROBLEM.replace(L=1500)) == "s1/0"
        assert nearest(PROBLEM.replace(L=1500, causal=True)) == "s2/0"
        assert nearest(PROBLEM.replace(dtype="bf16")) is None

        # the best of the nearest shape is of a template that cannot serve others: another template is taken
        fixed = write_template(tmp_path, "fixed", SPACE + FIXED)
        faster = {**fixed.space.default, "rows": 128, "columns": 64, "stages": 3, "wide": True}
        both = Study("s3", PROBLEM, "none", "L4", ("fixed", "landscape"), 60.0, folders=folders)
        store.add(store.create(both), 0, evaluate(fixed.candidate(faster, PROBLEM)))
        assert nearest(PROBLEM) == "s3/0"
        assert nearest(PROBLEM.replace(L=600)) == "s0/0"


def test_shapes_are_sets_or_single_ones_each_once() -> None:
    found = parse_problems(TASK, ["seeds", "1,8,512,64", "4,16,512,64"], None)
    assert len(found) == 11
    causal = parse_problems(TASK, ["seeds"], "bf16", ["causal"])
    assert len(causal) == 5
    assert all(p["causal"] and p.dtype == "bf16" for p in causal)


def test_the_command_times_champions_and_the_best_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole command, but for the GPU: its confirm worker is simulated."""
    monkeypatch.chdir(tmp_path)
    hopper = target("sm_90a")
    monkeypatch.setattr("evo.device.open.choose_device", lambda *_: ("cuda:0", hopper))
    worker = SimulatedWorker(alike=5.0)
    monkeypatch.setattr("evo.confirm.worker.WorkerProcess", lambda _: worker)
    kept(tmp_path / "kernels", "flash_wgmma_split", PROBLEM, "sm_90a", 4.0)
    words = ["bench", "--kernels", "kernels", "--shapes", "1,8,512,64", "--shapes", "1,8,2048,64"]
    assert main(words) == 0
    said = capsys.readouterr()
    assert "1,8,512,64: champion/sm_90a is attention/sm_90a/b1_h8_l512_d64_fp16: made for this" in said.err
    assert re.search(r"champion/sm_90a +[45]\.\d\d +1\.\d\dx \[.*\] cudnn", said.out)
    assert re.search(r"^1,8,2048,64 +- ", said.out, re.MULTILINE)
    assert "1,8,2048,64: champion took no part: INFEASIBLE: no champion serves" in said.err
    assert worker.asked == ["gate champion/sm_90a thoroughly"]
    assert re.search(r"^cudnn +cudnn_sdpa_kernel$", said.out, re.MULTILINE)
    assert not (tmp_path / "runs").exists(), "nothing is stored"

    template = load_template(TASK, "flash_wgmma_split")
    champion = template.candidate(template.space.default, PROBLEM)
    other = template.candidate({**template.space.default, "polynomials": 2}, PROBLEM)
    with Store(tmp_path / "runs.db") as store:
        study = store.create(Study("s", PROBLEM, "cuda:0", "H200", ("flash_wgmma_split",), 60.0))
        for number, candidate in enumerate((champion, other)):
            timed = timing((4.0,), 4.0, Interval(3.9, 4.1))
            store.add(study, number, Trial(candidate, Outcome.TIMED, timing=timed, device="H200"))
    named = ["--trial", "s/0", "--trial", "s/1", "--database", "runs.db"]
    assert main([*words[:5], *named, "--json", "--plot", "bench.svg"]) == 0
    said = capsys.readouterr()
    (sheet,) = json.loads(said.out)
    assert sheet["entrants"] == ["champion/sm_90a", "s/1"]
    assert sheet["absent"]["s/0"] == "the same program as champion/sm_90a"
    assert sheet["origins"]["s/1"] == f"trial s/1, found for {PROBLEM.key}"
    assert (tmp_path / "bench.svg").read_text().startswith("<svg")


def test_red_is_said_with_its_reason(entrants: dict[str, Entrant]) -> None:
    worker = SimulatedWorker(red=["s/0", "s/1"])
    (sheet,) = bench([PROBLEM], lambda _: entrants, lambda _: worker, rounds=10)
    assert sheet.entrants == ()
    assert sheet.absent["s/0"] == "RED: row error"
