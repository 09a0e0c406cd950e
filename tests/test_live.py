"""The view of a running search, drawn on consoles of several kinds."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from evo.loop import Progress, Usage
from evo.report import live as module
from evo.report.live import LiveView, PlainLines, lines, plain_line, usage_text, view_on
from evo.store import TrialRow
from evo.study import Study
from evo.trial import Outcome, Problem

PROBLEM = Problem("attention", {"B": 1, "H": 8, "L": 512, "D": 64}, "fp16", {"causal": False})
STUDY = Study("mission-1", PROBLEM, "cuda:0", "H200", ("flash_mma",), 300.0, seed=3, rate=0.51)
BEST = TrialRow(
    118,
    Outcome.TIMED,
    "",
    "flash_mma",
    {"bm": 64, "swizzle": "xor"},
    "d",
    "m",
    "l",
    8.53,
    None,
    1.067,
    168,
    None,
)
NOW = Progress(
    STUDY,
    "searching",
    61.0,
    {"RED": 9, "TIMED": 214, "UNCOMPILABLE": 1},
    BEST,
    {"flash": 10.27, "cudnn": 9.1},
    1180.0,
    ["GPU: timing #230 flash_mma", "compiling #231, #232"],
)


def drawn(progress: Progress, width: int) -> list[str]:
    console = Console(width=width, file=io.StringIO(), force_terminal=False)
    with console.capture() as captured:
        console.print(lines(progress))
    return captured.get().splitlines()


def test_plain_line_says_it_all_in_one_line() -> None:
    assert plain_line(NOW) == (
        "1 min 01 s of 5 min 00 s  224 trials (1180/min): TIMED 214 RED 9 UNCOMPILABLE 1  "
        "best 8.53 µs 1.07x #118 flash_mma"
    )
    assert plain_line(replace(NOW, outcomes={}, best=None)).endswith("0 trials (1180/min)  none correct yet")
    assert " 1 trial (1180/min)" in plain_line(replace(NOW, outcomes={"TIMED": 1}))


def test_an_estimate_is_marked_in_every_view() -> None:
    estimated = replace(
        NOW, best=replace(BEST, median_us=None, estimate_us=31.4, speedup=None), baselines_us={}
    )
    assert "best ~31.4 µs #118" in plain_line(estimated)
    assert "~31.4 µs (an estimate)" in " ".join(drawn(estimated, 100))
    assert estimated.best is not None
    unknown = replace(estimated, best=replace(estimated.best, template="yours"))
    assert "~31.4 µs (a guess)" in " ".join(drawn(unknown, 100))


@pytest.mark.parametrize("width", [60, 80, 200])
def test_live_view_fits_and_says_everything(width: int) -> None:
    shown = drawn(NOW, width)
    assert max(len(line) for line in shown) <= width
    text = " ".join(" ".join(shown).split())
    for words in (
        "mission-1",
        "1 min 01 s of 5 min 00 s",
        "3 min 59 s left",
        "$0.01 of $0.04",
        "224 · 1180 a minute",
        "TIMED 214",
        "RED 9",
        "8.53 µs",
        "1.07x cudnn",
        "#118",
        "cudnn 9.10 µs, flash 10.3 µs",
        "timing #230",
        "compiling #231",
    ):
        assert words in text


def test_the_time_says_how_often_the_best_were_timed_again() -> None:
    assert usage_text(None) == usage_text(Usage({})) == ""
    usage = Usage({"gate": 0.75, "idle": 0.25}, strategy=0.125, compilers=8.06, gpu_busy=0.61)
    assert usage_text(usage) == (
        "GPU 61 % busy · gate 75 % · idle 25 % · strategy 12 % · 8.1 cores compile ahead"
    )
    assert usage_text(replace(usage, remeasured=1512)).endswith(
        "compile ahead · best trials timed again 1,512 times"
    )


def test_finishing_is_told_once_on_plain_lines() -> None:
    console = Console(width=100, file=io.StringIO())
    with PlainLines(console, every_s=0.0) as view:
        for phase in ("searching", "finishing", "finishing"):
            view.show(replace(NOW, phase=phase))
    written = console.file.getvalue()  # type: ignore[attr-defined]
    assert written.count(module.FINISHING) == 1
    assert written.count("224 trials") == 3
    assert "\x1b" not in written


def test_plain_lines_come_at_their_pace_and_the_last_one_always() -> None:
    console = Console(width=100, file=io.StringIO())
    with PlainLines(console, every_s=1000.0) as view:
        for spent_s in (1.0, 2.0, 3.0):
            view.show(replace(NOW, spent_s=spent_s))
    written = console.file.getvalue()  # type: ignore[attr-defined]
    assert [line.split(" of")[0] for line in written.splitlines()] == ["1 s", "3 s"]


@pytest.mark.parametrize(
    ("terminal", "term", "kind"),
    [(True, "xterm-256color", LiveView), (True, "dumb", PlainLines), (False, "xterm-256color", PlainLines)],
)
def test_the_view_suits_the_terminal(terminal: bool, term: str, kind: type) -> None:
    console = Console(file=io.StringIO(), force_terminal=terminal, _environ={"TERM": term})
    assert isinstance(view_on(console), kind)


def test_the_live_view_is_left_standing_when_the_search_ends() -> None:
    console = Console(width=100, file=io.StringIO(), force_terminal=True, _environ={"TERM": "xterm"})
    with LiveView(console) as view:
        view.show(NOW)
        view.show(replace(NOW, spent_s=299.0))
    written = re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", console.file.getvalue())  # type: ignore[attr-defined]
    assert "4 min 59 s of 5 min 00 s" in written
