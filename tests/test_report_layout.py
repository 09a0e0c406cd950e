"""The report page on a phone and on a screen: nothing sticks out, no two labels of a chart overlap."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_report_html import ABLATION, PROBLEM, SWITCHED
from times import timing

from evo.cli import main
from evo.explain.artifacts import write_artifact
from evo.gpu import KNOWN_GPUS, Limits
from evo.report.html import STYLE
from evo.report.svg import Mark, bar_chart, convergence_chart, parallel_chart, roofline_chart
from evo.store import Store
from evo.study import Study
from evo.task import load_task
from evo.template import load_template
from evo.trial import BufferArg, Candidate, Interval, LaunchConfig, Outcome, Point, Resources, Trial

BASELINES = {
    **{"cudnn": 9.1, "flash": 9.2, "flex": 9.15, "efficient": 9.4, "compiled": 30.0, "math": 120.0},
    "eager_with_a_name_that_is_very_long": 31.0,
}
REASONS = (
    "row error",
    "emulator: uninitialised read",
    "a reason that takes more words than a label has room for",
)
TRIALS = 120
MEASURE = """
const width = document.documentElement.clientWidth;
const outside = [...document.querySelectorAll('body *')]
  .filter(e => !e.parentElement.closest('.scroll, pre') && e.getBoundingClientRect().right > width + 1)
  .map(e => e.tagName);
const corners = t => {  // of the letters' box, turned as the text is
  const b = t.getBBox(), m = t.getScreenCTM(), left = b.x + 1, right = b.x + b.width - 1;
  return [[left, b.y + 2], [right, b.y + 2], [right, b.y + b.height - 2], [left, b.y + b.height - 2]]
    .map(([x, y]) => [m.a * x + m.c * y + m.e, m.b * x + m.d * y + m.f]); };
const apart = (p, q) => [p, q].some(sides => sides.some((a, i) => {  // a line between two convex shapes
  const c = sides[(i + 1) % 4], along = r => r.map(v => v[0] * (a[1] - c[1]) + v[1] * (c[0] - a[0]));
  const [u, v] = [along(p), along(q)];
  return Math.max(...u) <= Math.min(...v) || Math.max(...v) <= Math.min(...u); }));
const overlaps = [], cut = [], letters = [];
for (const svg of document.querySelectorAll('svg')) {
  const texts = [...svg.querySelectorAll('text')], boxes = texts.map(corners);
  const frame = svg.getBoundingClientRect();
  texts.forEach((t, i) => {
    letters.push(parseFloat(getComputedStyle(t).fontSize) * frame.width / svg.viewBox.baseVal.width);
    const box = t.getBoundingClientRect();
    if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.bottom > frame.bottom + 1)
      cut.push(t.textContent);
    for (let j = 0; j < i; j++)
      if (!apart(boxes[i], boxes[j])) overlaps.push(texts[j].textContent + ' | ' + t.textContent); }); }
const hidden = [...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth + 1);
return {charts: document.querySelectorAll('svg').length, page: document.documentElement.scrollWidth - width,
        outside, overlaps, cut, smallest: Math.min(...letters), hidden: hidden.length,
        shown: hidden.filter(e => getComputedStyle(e).backgroundAttachment.includes('local')).length};
"""


def tried(number: int, point: Point, us: float, emulated: bool) -> Trial:
    launch = LaunchConfig((8, 8, 1), (128, 1, 1), 16384, (BufferArg("q"),))
    candidate = Candidate(PROBLEM, "flash_mma", point, f"// {number}\n", "f", launch)
    if number % 7 == 6:
        return Trial(candidate, Outcome.RED, reason=REASONS[number % 3], device="x")
    same = {"resources": Resources(80, 0, 0, 0), "machine_code": str(number), "versions": {"torch": "2.11"}}
    if emulated:
        return Trial(
            candidate,
            Outcome.GREEN,
            estimate_us=us,
            estimate_gpu="L4",
            device="emulator (L4)",
            **same,  # type: ignore[arg-type]
        )
    low, high = Interval(us * 0.99, us * 1.01), Interval(9 / us, 9.2 / us)
    timed = timing((us,), us, low, BASELINES, 9.1 / us, high)
    return Trial(candidate, Outcome.TIMED, timing=timed, device="NVIDIA H200", **same)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Reports of a measured study with many baselines, parameters and switches, and of an emulated one whose
    kernels are nearly equal."""
    folder, rng = tmp_path_factory.mktemp("pages"), np.random.default_rng(1)
    space = load_template(load_task("attention"), "flash_mma").space
    points = space.feasible(Limits.of(KNOWN_GPUS["H200"]), PROBLEM)
    found = {}
    for kind in ("measured", "emulated"):
        emulated = kind == "emulated"
        device, gpu = ("emulator", "L4") if emulated else ("cuda:0", "NVIDIA H200")
        with Store(folder / f"{kind}.db") as store:
            study = store.create(Study(kind, PROBLEM, device, gpu, ("flash_mma",), 300.0))
            if not emulated:
                store.set_baselines(study, BASELINES)
            for number in range(TRIALS):
                us = 8.3 * (1 + 0.03 * rng.random() if emulated else rng.lognormal(0.4, 0.5))
                store.add(study, number, tried(number, points.sample(rng), float(us), emulated))
        if not emulated:
            ratios = [1 + 0.2 * i * i for i in range(9)]
            rows = tuple(
                replace(SWITCHED, name=f"a_name_{i}", ratio=r, interval=Interval(r - 0.02, r + 0.02))
                for i, r in enumerate(ratios)
            )
            write_artifact(
                folder / "runs", kind, 7, "ablation", replace(ABLATION, study=kind, rows=rows).to_record()
            )
        found[kind] = folder / f"{kind}.html"
        words = [
            "--database",
            str(folder / f"{kind}.db"),
            "-o",
            str(found[kind]),
            "--out",
            str(folder / "runs"),
        ]
        assert main(["report", kind, *words]) == 0
    return found


@pytest.fixture
def page_of(browser: Any) -> Iterator[Any]:
    """Opens a file at a width."""

    def opened(path: Path, width: int) -> Any:
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        browser.get(path.as_uri())
        return browser.execute_script(MEASURE)

    yield opened
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("kind", ["measured", "emulated"])
@pytest.mark.parametrize("width", [400, 1200])
def test_a_page_can_be_read_at_any_width(page_of: Any, pages: dict[str, Path], kind: str, width: int) -> None:
    seen = page_of(pages[kind], width)
    assert seen["charts"] >= 5
    assert (seen["page"], seen["outside"], seen["overlaps"], seen["cut"]) == (0, [], [], [])
    assert seen["smallest"] >= 9, "letters are too small"
    assert seen["shown"] == seen["hidden"], "what scrolls does not show it"
    assert (seen["hidden"] > 0) == (width == 400)


@pytest.mark.parametrize("kind", ["measured", "emulated"])
def test_a_page_follows_the_colours_of_the_reader(browser: Any, pages: dict[str, Path], kind: str) -> None:
    """Of text, lines and background: far apart on light pages and on dark ones."""
    script = """
    const light = parts => parts.slice(0, 3).reduce((sum, part) => sum + Number(part), 0) / 765;
    const of = (query, name) =>
      light(getComputedStyle(document.querySelector(query))[name].match(/[0-9.]+/g));
    return [of('body', 'backgroundColor'), of('body', 'color'), of('svg text', 'fill'),
            of('.line', 'stroke')];
    """
    for theme, dark in (("light", False), ("dark", True)):
        asked = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", asked)
        browser.get(pages[kind].as_uri())
        page, *drawn = browser.execute_script(script)
        assert (page < 0.5) == dark
        assert all(abs(page - one) > 0.4 for one in drawn), (theme, page, drawn)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_labels_of_crowded_charts_stay_apart(page_of: Any, tmp_path: Path) -> None:
    near = [(f"baseline_{i}", 9.0 + i / 100) for i in range(12)]
    charts = [
        convergence_chart([(n, 9.0) for n in range(3)], [Mark(*one) for one in near], "µs"),
        roofline_chart([(name, 200.0, 50 * us) for name, us in near], {"L2": 5500, "DRAM": 4800}, 989.0),
        roofline_chart([(name, 0.4, us / 1e3) for name, us in near[:3]], {"L2": 1500, "DRAM": 300}, 121.0),
        roofline_chart([("best", 4000.0, 80.0)], {"L2": 1500, "DRAM": 300}, 121.0),
        bar_chart(
            [
                (
                    "a label that is far too long for the room at the left",
                    1.0,
                    "99 % of the longest pipe (a model)",
                )
            ],
            "bars",
        ),
        parallel_chart([("many", [str(v) for v in range(60)]), ("b", ["1", "2"])], [([5, 1], 9.0)], "µs", 1),
    ]
    path = tmp_path / "charts.html"
    path.write_text(f"<!doctype html><style>{STYLE}</style><body>{''.join(charts)}</body>")
    seen = page_of(path, 1200)
    assert (seen["charts"], seen["overlaps"], seen["cut"]) == (len(charts), [], [])


def test_a_page_says_where_estimates_cannot_tell_kernels_apart(pages: dict[str, Path]) -> None:
    correct = sum(number % 7 != 6 for number in range(TRIALS))
    assert (
        f"{correct} of {correct} correct kernels are estimated within 5 % of the best."
        in pages["emulated"].read_text()
    )
    assert "cannot tell these apart" not in pages["measured"].read_text()
