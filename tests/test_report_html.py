"""The HTML report: well-formed, self-contained, readable by a browser without complaint, and by a person
without colour."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from times import timing

from evo.cli import main
from evo.explain.ablation import Ablation, SwitchResult
from evo.explain.artifacts import write_artifact
from evo.report.svg import (
    Mark,
    Scale,
    bar_chart,
    convergence_chart,
    interval_chart,
    parallel_chart,
    roofline_chart,
)
from evo.store import Store
from evo.study import Study
from evo.trial import (
    BufferArg,
    Candidate,
    Interval,
    LaunchConfig,
    Outcome,
    Point,
    Problem,
    Resources,
    Trial,
)

PROBLEM = Problem("attention", {"B": 1, "H": 8, "L": 512, "D": 64}, "fp16", {"causal": False})
VOID = {"meta", "link", "br", "hr", "img"}
SWITCHED = SwitchResult(
    "swizzle",
    "xor",
    "none",
    "off",
    (),
    "TIMED",
    "",
    10.0,
    2.0,
    Interval(1.98, 2.02),
    False,
    80,
    0,
    "up to 4x over none",
    (1.0, 4.0),
)
ABLATION = Ablation(
    "demo",
    7,
    PROBLEM.key,
    "flash_mma",
    {"swizzle": "xor"},
    "NVIDIA H200",
    "H200",
    False,
    (5.0, 5.01),
    0.001,
    (SWITCHED,),
    (("bm", 64, "is default"),),
    True,
    {},
    "now",
)


def measured(number: int, rng: np.random.Generator) -> Trial:
    """A trial whose time depends on its swizzle; every ninth is RED."""
    swizzle, bm = rng.choice(["xor", "pad", "none"]), rng.choice([32, 64, 128])
    point: Point = {"bm": int(bm), "swizzle": str(swizzle), "lazy": bool(rng.integers(2))}
    us = 5.0 * {"xor": 1, "pad": 1.1, "none": 2}[str(point["swizzle"])] * float(rng.normal(1, 0.01))
    source = f"// point {number}\n\n__global__ void f() {{ if (1 < 2 && 3 > 2) return; }} // {number}\n"
    launch = LaunchConfig((8, 8, 1), (128, 1, 1), 16384, (BufferArg("q"),))
    candidate = Candidate(PROBLEM, "flash_mma", point, source, "f", launch)
    timed = timing(
        (us,),
        us,
        Interval(us * 0.99, us * 1.01),
        {"cudnn": 9.1},
        9.1 / us,
        Interval(9.0 / us, 9.2 / us),
    )
    found = {"machine_code": str(number), "versions": {"torch": "2.11"}, "device": "NVIDIA H200"}
    resources = Resources(80, 0, 0, 0)
    trial = Trial(candidate, Outcome.TIMED, "", timing=timed, resources=resources)
    trial = replace(trial, **found)  # type: ignore[arg-type]
    if number % 9 == 8:
        trial = Trial(candidate, Outcome.RED, reason="row error <b>", device="NVIDIA H200")
    return trial


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a measured study of 200 trials, some RED, one of them ablated."""
    folder = tmp_path_factory.mktemp("page")
    rng = np.random.default_rng(0)
    with Store(folder / "evo.db") as store:
        study = store.create(Study("demo", PROBLEM, "cuda:0", "NVIDIA H200", ("flash_mma",), 300.0))
        store.set_baselines(study, {"cudnn": 9.1, "<flash>": 10.3})
        for number in range(200):
            store.add(study, number, measured(number, rng))
    write_artifact(folder / "runs", "demo", 7, "ablation", ABLATION.to_record())
    write_artifact(folder / "runs", "demo", 8, "ablation", {"of": "another evo"})
    words = ["--database", str(folder / "evo.db"), "-o", str(folder / "report.html")]
    assert main(["report", "demo", *words, "--out", str(folder / "runs")]) == 0
    return folder / "report.html"


class Reader(HTMLParser):
    """Complains of tags that are not closed in order; keeps headings, text and attributes that load
    things."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.headings: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        self.loads += [str(v) for name, v in attrs if name in ("src", "href") and v]

    def handle_startendtag(self, _tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [str(v) for name, v in attrs if name in ("src", "href") and v]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)


def test_the_page_is_well_formed_and_loads_nothing(page: Path) -> None:
    text = page.read_text()
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    assert reader.loads == ["data:,"]
    assert reader.headings == [
        "The best kernels",
        "Convergence",
        "How trials ended",
        "What matters in flash_mma",
        "All points of flash_mma",
        "Roofline",
        "What each optimisation of trial 7 is worth",
        "The winning source",
    ]
    assert "<script" not in text
    assert "row error &lt;b&gt;" in text
    assert "&lt;flash&gt;" in text
    assert "if (1 &lt; 2 &amp;&amp; 3 &gt; 2)" in text
    assert "helps 2.00x, as expected" in text
    for chart in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ElementTree.fromstring(chart)
    assert not re.search(r"\b(nan|inf)\b", " ".join(re.findall(r"<svg.*?</svg>", text, re.DOTALL)))


def test_a_study_without_trials_has_a_page(tmp_path: Path) -> None:
    with Store(tmp_path / "evo.db") as store:
        store.create(Study("empty", PROBLEM, "emulator", "L4", ("flash_mma",), 300.0))
    target = tmp_path / "report.html"
    assert main(["report", "empty", "--database", str(tmp_path / "evo.db"), "-o", str(target)]) == 0
    reader = Reader()
    reader.feed(target.read_text())
    assert reader.open == []


def test_a_page_that_cannot_be_written_is_told(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = page.parent / "evo.db"
    assert main(["report", "demo", "--database", str(database), "-o", str(page / "below.html")]) == 3
    assert "error: cannot write" in capsys.readouterr().err


# ---- in a browser


def test_a_browser_shows_it_without_complaint_and_without_the_network(browser: Any, page: Path) -> None:
    browser.get_log("performance")  # which forgets the pages of other tests
    browser.get(page.as_uri())
    assert browser.get_log("browser") == []
    requested = [
        message["params"]["request"]["url"]
        for entry in browser.get_log("performance")
        if (message := json.loads(entry["message"])["message"])["method"] == "Network.requestWillBeSent"
    ]
    assert [url for url in requested if not url.startswith("data:")] == [page.as_uri()]
    sizes = browser.execute_script(
        "return [...document.querySelectorAll('svg')].map(s => [s.clientWidth, s.clientHeight])"
    )
    assert len(sizes) == 6
    assert all(width > 500 and height > 20 for width, height in sizes)
    wide = "return document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    assert browser.execute_script(wide), "the page scrolls sideways"
    cut = "return [...document.querySelectorAll('.scroll')].filter(d => d.scrollWidth > d.clientWidth).length"
    assert browser.execute_script(cut) == 0, "a table is cut off on paper"


def test_no_words_of_a_chart_are_cut_off(browser: Any, page: Path) -> None:
    browser.get(page.as_uri())
    cut = browser.execute_script(
        """return [...document.querySelectorAll('svg')].flatMap(svg => {
             const frame = svg.getBoundingClientRect();
             return [...svg.querySelectorAll('text')].filter(t => {
               const box = t.getBoundingClientRect();
               return box.left < frame.left - 1 || box.right > frame.right + 1 || box.bottom > frame.bottom +
               1;
             }).map(t => t.textContent) })"""
    )
    assert cut == []


def test_it_is_readable_without_colour(browser: Any, page: Path) -> None:
    """What a line means is told by width and dashes; text has a contrast of at least 7 on white."""
    browser.get(page.as_uri())
    styles = browser.execute_script(
        """const of = c => { const e = document.querySelector(c); const s = getComputedStyle(e);
             return [parseFloat(s.strokeWidth), s.strokeDasharray] };
           return [of('.line'), of('.mark'), of('.chosen'), of('.thread')]"""
    )
    line, mark, chosen, thread = styles
    assert line[1] == "none" != mark[1]
    assert chosen[0] > 2 * thread[0]
    colours = browser.execute_script(
        "return [...document.querySelectorAll('body *')].map(e => getComputedStyle(e).color)"
    )
    for colour in set(colours):
        channels = [int(c) / 255 for c in re.findall(r"\d+", colour)[:3]]
        linear = [c / 12.92 if c <= 0.04 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
        assert 1.05 / (luminance + 0.05) >= 7


# ---- charts


def test_scales_and_their_ticks() -> None:
    even = Scale(0, 100, 0, 1000)
    assert (even(0), even(50), even(100)) == (0, 500, 1000)
    assert even.ticks() == [0, 20, 40, 60, 80, 100]
    log = Scale(1, 100, 0, 200, log=True)
    assert log(10) == pytest.approx(100)
    assert log.ticks() == [1, 10, 100]
    assert Scale(4.0, 4.3, 0, 1, log=True).ticks() == [4.0]
    assert Scale(3, 3, 0, 10)(3) == 5


def test_charts_of_nothing_are_nothing_and_of_one_thing_are_drawn() -> None:
    assert ">best ~5<" in convergence_chart([(0, 5.0)], [], "µs", estimated=True)
    assert ">best 5<" in convergence_chart([(0, 5.0)], [], "µs")
    assert convergence_chart([], [], "µs") == bar_chart([], "t") == interval_chart([], 1.0, "t") == ""
    assert parallel_chart([], [], "µs", 1) == roofline_chart([], {}, 0.0) == ""
    for chart in (
        convergence_chart([(0, 5.0)], [Mark("a<b", 5.0)], "µs"),
        bar_chart([("a&b", 0.0, "0")], "t"),
        interval_chart([("a", 1.0, 1.0, 1.0)], 1.0, "t"),
        parallel_chart([("a", ["1"])], [([0], 5.0)], "µs", 1),
        roofline_chart([("x", 10.0, 5.0)], {"DRAM": 300.0}, 121.0),
    ):
        ElementTree.fromstring(chart)
        assert "nan" not in chart
