"""The README's picture, an SVG: how many times longer the baselines take than our kernels, over the seeds'
shapes. It is drawn twice, for light and for dark pages, from the result of `attention/bench`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from evo.report import three_digits

GROUPS: Mapping[str, Sequence[str]] = {
    "PyTorch SDPA": ("sdpa", "flash", "cudnn", "efficient", "math"),
    "FlexAttention, Triton": ("flex", "triton"),
    "FlashAttention 4, FlashInfer": ("flash-attn-4", "flashinfer"),
}
"""A bar each: the fastest of these baselines."""


class Theme(NamedTuple):
    """Colours; the bars' in the order of GROUPS."""

    text: str
    grid: str
    bars: tuple[str, str, str]


THEMES = {
    "light": Theme("#1f2328", "#d0d7de", ("#0550ae", "#d4730f", "#8c959f")),
    "dark": Theme("#e6edf3", "#3d444d", ("#79c0ff", "#e3963e", "#8b949e")),
}
WIDTH, HEIGHT = 760, 436
TOP, FLOOR, LEFT = 116, 350, 46
PANEL, GAP = 340, 26
"""Width of a panel, and the room between the two."""
BAR = 17


def picture(result: Mapping[str, Any], theme: str) -> str:
    """The SVG for a result of `attention/bench` whose shapes are the seeds'. `theme`: one of THEMES."""
    sheets = result["results"]["sheets"]
    panels = {mask: [s for s in sheets if ("causal=1" in s["problem"]) == mask] for mask in (False, True)}
    ratios = [ratio for sheet in sheets for ratio in slowdowns(sheet).values()]
    top = math.ceil(max(ratios))
    title = f"How much longer the baselines take than evo's kernel, {result['gpu']}"
    parts = [_text(WIDTH / 2, 26, title, 20)]
    parts += _legend(theme, [group for group in GROUPS if any(group in slowdowns(s) for s in sheets)])
    for number, (mask, ours) in enumerate(panels.items()):
        left = LEFT + number * (PANEL + GAP)
        parts += _panel(left, "causal mask" if mask else "no mask", ours, top, theme, labelled=number == 0)
    parts.append(
        _text(
            WIDTH / 2, HEIGHT - 10, "sequence length, and the time of evo's kernel (fp16, 8 heads of 64)", 17
        )
    )
    colours = THEMES[theme]
    style = f"text{{fill:{colours.text};font-family:system-ui,sans-serif}}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" role="img"><title>Baselines against the kernels that evo found</title>'
        f"<style>{style}</style>\n" + "\n".join(parts) + "\n</svg>\n"
    )


def slowdowns(sheet: Mapping[str, Any]) -> dict[str, float]:
    """How many times longer than our kernel the fastest baseline of each group takes, for groups that took
    part; on the timing input where that is least, if there are several."""
    entrants = {name: sheet["standings"][name] for name in sheet["entrants"]}
    ours = min(entrants.values(), key=lambda standing: float(standing["median_us"]))
    found = {}
    for group, names in GROUPS.items():
        present = [sheet["standings"][name] for name in names if name in sheet["standings"]]
        if present:
            ratios = [
                min(_on(standing, on) for standing in present) / _on(ours, on)
                for on in ours.get("times") or [""]
            ]
            found[group] = min(ratios)
    return found


def _on(standing: Mapping[str, Any], on: str) -> float:
    """The time on a timing input; that of a result that names none."""
    return float(standing["times"][on]["median_us"] if on else standing["median_us"])


def our_us(sheet: Mapping[str, Any]) -> float:
    return float(min(sheet["standings"][name]["median_us"] for name in sheet["entrants"]))


def _panel(
    left: float, title: str, sheets: Sequence[Mapping[str, Any]], top: float, theme: str, labelled: bool
) -> list[str]:
    """One panel: a group of bars a shape, a line at 1 for evo. `top`: the ratio at the panel's upper end."""
    colours = THEMES[theme]

    def height(ratio: float) -> float:
        return FLOOR - (FLOOR - TOP) * ratio / top

    parts = [_text(left + PANEL / 2, TOP - 14, title, 18, weight="bold")]
    for tick in range(int(top) + 1):
        y = height(tick)
        parts.append(f'<path d="M{left},{y:.1f}h{PANEL}" stroke="{colours.grid}" stroke-width="1"/>')
        if labelled:
            parts.append(_text(left - 8, y + 6, f"{tick}x", 17, "end"))
    room = PANEL / len(sheets)
    for column, sheet in enumerate(sheets):
        middle = left + room * (column + 0.5)
        ratios = slowdowns(sheet)
        for i, name in enumerate(GROUPS):
            if name in ratios:
                x = middle + (i - len(GROUPS) / 2) * BAR
                y = height(ratios[name])
                size = f'width="{BAR - 2}" height="{FLOOR - y:.1f}"'
                parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" {size} fill="{colours.bars[i]}"/>')
        parts.append(_text(middle, FLOOR + 24, sheet["shape"].split(",")[2], 18, weight="bold"))
        parts.append(_text(middle, FLOOR + 46, f"{three_digits(our_us(sheet))} µs", 16))
    return [*parts, _dashed(left, height(1), PANEL, colours.text)]


def _legend(theme: str, groups: Sequence[str]) -> list[str]:
    """The colours of the groups that took part, in the order of the bars, and what the dashed line is."""
    widths = {"PyTorch SDPA": 148, "FlexAttention, Triton": 206, "FlashAttention 4, FlashInfer": 268}
    colours = dict(zip(GROUPS, THEMES[theme].bars, strict=True))
    x = (WIDTH - sum(widths[name] for name in groups) - 70) / 2
    parts = []
    for name in groups:
        parts.append(f'<rect x="{x:.1f}" y="48" width="16" height="16" fill="{colours[name]}"/>')
        parts.append(_text(x + 23, 62, name, 16, "start"))
        x += widths[name]
    parts.append(_dashed(x, 56, 32, THEMES[theme].text))
    parts.append(_text(x + 39, 62, "evo", 16, "start"))
    return parts


def _dashed(x: float, y: float, length: float, colour: str) -> str:
    path = f"M{x:.1f},{y:.1f}h{length}"
    return f'<path d="{path}" stroke="{colour}" stroke-width="2" stroke-dasharray="7 4"/>'


def _text(x: float, y: float, words: str, size: int, anchor: str = "middle", weight: str = "normal") -> str:
    bold = f' font-weight="{weight}"' if weight != "normal" else ""
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"{bold}'
    return f"<text {place}>{escape(words)}</text>"
