"""Charts as SVG, made by hand. They need nothing else, can be printed, and can be read without colour: shape,
width and words carry the meaning. Coordinates are in user units of a viewBox; text is escaped here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 860
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 16, 40
LETTER = 6.2
"""How wide a letter of a tick's label is."""


@dataclass(frozen=True)
class Scale:
    """Maps numbers between `low` and `high` to coordinates `begin` to `end`, evenly or by their logarithm."""

    low: float
    high: float
    begin: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        a, b, x = (math.log(v) if self.log else v for v in (self.low, self.high, value))
        share = (x - a) / (b - a) if b > a else 0.5
        return self.begin + share * (self.end - self.begin)

    def ticks(self) -> list[float]:
        """Round numbers within the range."""
        if self.log:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            wide = self.high / self.low > 50
            marks = (1, 2, 5) if not wide else (1,)
            if self.high / self.low < 4:
                marks = (1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9)  # type: ignore[assignment]
            found = [m * 10.0**d for d in decades for m in marks]
        else:
            step = _round_step((self.high - self.low) / 6)
            first = math.ceil(self.low / step)
            found = [step * i for i in range(first, math.floor(self.high / step) + 1)]
        return [v for v in found if self.low <= v <= self.high]


@dataclass(frozen=True)
class Mark:
    """A horizontal line with a name: a baseline."""

    name: str
    value: float


def convergence_chart(
    trials: Sequence[tuple[int, float]], marks: Sequence[Mark], unit: str, height: int = 320
) -> str:
    """Each trial's time over its number as a dot, the best so far as a line, baselines as dashed lines."""
    if not trials:
        return ""
    values = [us for _, us in trials] + [m.value for m in marks]
    x = Scale(0, max(n for n, _ in trials) or 1, LEFT, WIDTH - RIGHT - 110)
    y = Scale(min(values) * 0.95, max(values) * 1.05, height - BOTTOM, TOP, log=True)
    parts = [_axes(x, y, height, "trial", unit)]
    parts += [f'<circle class="dot" cx="{x(n):.1f}" cy="{y(us):.1f}" r="1.6"/>' for n, us in trials]
    path, best = "", math.inf
    for n, us in sorted(trials):
        if us < best:
            path += f"M{x(n):.1f},{y(us):.1f}" if not path else f"H{x(n):.1f}V{y(us):.1f}"
            best = us
    path += f"H{x.end:.1f}"
    parts.append(f'<path class="line" d="{path}"/>')
    labels = [(y(best), f"best {best:.3g}")]
    for mark in marks:
        at = y(mark.value)
        parts.append(f'<line class="mark" x1="{x.begin}" x2="{x.end}" y1="{at:.1f}" y2="{at:.1f}"/>')
        labels.append((at, f"{mark.name} {mark.value:.3g}"))
    parts += [_text(x.end + 6, at + 4, words) for at, words in _apart(labels, 13)]
    return _svg(WIDTH, height, "Time of every trial and the best so far", parts)


def bar_chart(bars: Sequence[tuple[str, float, str]], title: str, label_width: int = 220) -> str:
    """Horizontal bars: a label, a length (relative to the longest), and the words at its end."""
    if not bars:
        return ""
    longest = max(value for _, value, _ in bars) or 1.0
    row, room = 22, WIDTH - label_width - 190
    parts = []
    for i, (label, value, words) in enumerate(bars):
        y = 4 + i * row
        length = max(1.0, value / longest * room)
        parts.append(_text(label_width - 8, y + 14, label, "end"))
        parts.append(
            f'<rect class="bar" x="{label_width}" y="{y + 2}" width="{length:.1f}" height="{row - 7}"/>'
        )
        parts.append(_text(label_width + length + 6, y + 14, words))
    return _svg(WIDTH, 8 + row * len(bars), title, parts)


def interval_chart(rows: Sequence[tuple[str, float, float, float]], centre: float, title: str) -> str:
    """A value with its interval a row, around a line at `centre`: what an optimisation is worth."""
    if not rows:
        return ""
    label_width, row = 220, 22
    low = min(centre, *(r[2] for r in rows))
    high = max(centre, *(r[3] for r in rows))
    pad = 0.05 * (high - low or 1.0)
    x = Scale(low - pad, high + pad, label_width, WIDTH - 90)
    height = 12 + row * len(rows) + 24
    parts = [f'<line class="mark" x1="{x(centre):.1f}" x2="{x(centre):.1f}" y1="4" y2="{height - 24}"/>']
    for i, (label, value, left, right) in enumerate(rows):
        y = 14 + i * row
        parts.append(_text(label_width - 8, y + 4, label, "end"))
        parts.append(f'<line class="whisker" x1="{x(left):.1f}" x2="{x(right):.1f}" y1="{y}" y2="{y}"/>')
        parts.append(f'<circle class="point" cx="{x(value):.1f}" cy="{y}" r="4"/>')
        parts.append(_text(WIDTH - 84, y + 4, f"{value:.3f}x"))
    parts += [_text(x(t), height - 8, f"{t:g}x", "middle") for t in x.ticks()]
    return _svg(WIDTH, height, title, parts)


def parallel_chart(
    axes: Sequence[tuple[str, Sequence[str]]],
    lines: Sequence[tuple[Sequence[int], float]],
    unit: str,
    best: int,
    height: int = 340,
) -> str:
    """Parallel coordinates: an axis a parameter with its values in order, and the time on the last axis.
    `lines` are (positions, time), the fastest first; the first `best` are drawn bold, over the others."""
    if not lines or not axes:
        return ""
    x = Scale(0, len(axes), 46, WIDTH - 70)
    times = [us for _, us in lines]
    y_time = Scale(min(times) * 0.99, max(times) * 1.01, height - 58, 24, log=True)

    def at(axis: int, position: int) -> float:
        count = len(axes[axis][1])
        return height - 58 if count < 2 else 24 + (height - 82) * (1 - position / (count - 1))

    room = int((x(1) - x(0) - 6) / LETTER)
    parts = []
    for rank in reversed(range(len(lines))):
        positions, us = lines[rank]
        spots = [f"{x(i):.1f},{at(i, p):.1f}" for i, p in enumerate(positions)]
        spots.append(f"{x(len(axes)):.1f},{y_time(us):.1f}")
        parts.append(
            f'<polyline class="{"chosen" if rank < best else "thread"}" points="{" ".join(spots)}"/>'
        )
    for i, (name, values) in enumerate(axes):
        parts.append(f'<line class="axis" x1="{x(i):.1f}" x2="{x(i):.1f}" y1="24" y2="{height - 58}"/>')
        short = [v if len(v) <= room else f"{v[: room - 1]}…" for v in values]
        parts += [_text(x(i) + 4, at(i, p) + 4, v, kind="tick halo") for p, v in enumerate(short)]
        parts.append(_slanted(x(i), height - 42, name))
    end = x(len(axes))
    parts.append(f'<line class="axis" x1="{end:.1f}" x2="{end:.1f}" y1="24" y2="{height - 58}"/>')
    parts += [_text(end + 6, y_time(t) + 4, f"{t:g}", kind="tick") for t in y_time.ticks()]
    parts.append(_slanted(end, height - 42, unit))
    return _svg(WIDTH, height + 24, "Parameters of every correct trial, the fastest bold", parts)


def roofline_chart(
    points: Sequence[tuple[str, float, float]],
    bandwidths: Mapping[str, float],
    peak_tflops: float,
    height: int = 340,
) -> str:
    """Arithmetic intensity against TFLOP/s, both logarithmic. `points`: (name, FLOP a byte, TFLOP/s);
    `bandwidths` by name in GB/s."""
    if not points or not peak_tflops or not bandwidths:
        return ""
    ridges = [peak_tflops * 1e3 / gbps for gbps in bandwidths.values()]
    span = [p[1] for p in points] + ridges
    x = Scale(min(span) / 6, max(span) * 6, LEFT, WIDTH - RIGHT - 110, log=True)
    lowest = min(p[2] for p in points) / 3
    y = Scale(lowest, peak_tflops * 2, height - BOTTOM, TOP, log=True)
    parts = [_axes(x, y, height, "FLOP a byte of compulsory traffic", "TFLOP/s")]
    for i, (name, gbps) in enumerate(sorted(bandwidths.items(), key=lambda item: -item[1])):
        ridge = peak_tflops * 1e3 / gbps
        begin = max(x.low, lowest * 1e3 / gbps)
        path = f"M{x(begin):.1f},{y(begin * gbps / 1e3):.1f}L{x(ridge):.1f},{y(peak_tflops):.1f}"
        parts.append(f'<path class="roof" d="{path}"/>')
        at = x(begin) + 8, y(begin * gbps / 1e3) + (26 if i else -18)  # above the upper one, below the others
        parts.append(_text(*at, f"{name} {gbps:,.0f} GB/s", kind="halo"))
    flat = f"M{x(min(ridges)):.1f},{y(peak_tflops):.1f}H{x.end:.1f}"
    parts.append(f'<path class="roof" d="{flat}"/>')
    parts.append(_text(x.end + 6, y(peak_tflops) + 4, f"{peak_tflops:,.0f} TFLOP/s"))
    labels = []
    for i, (name, intensity, tflops) in enumerate(points):
        kind = "point" if i == 0 else "hollow"
        parts.append(f'<circle class="{kind}" cx="{x(intensity):.1f}" cy="{y(tflops):.1f}" r="4.5"/>')
        labels.append((y(tflops), f"{name} {tflops:.3g}"))
    right = max(x(p[1]) for p in points) + 10
    parts += [_text(right, at + 4, words, kind="halo") for at, words in _apart(labels, 13)]
    return _svg(WIDTH, height, "Roofline", parts)


# ------------------------------------------------------------------------------------------------- the parts


def _svg(width: float, height: float, title: str, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{''.join(parts)}</svg>"
    )


def _text(x: float, y: float, words: str, anchor: str = "start", kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{named}>{escape(words)}</text>'


def _slanted(x: float, y: float, words: str) -> str:
    return f'<text transform="translate({x:.1f},{y:.1f}) rotate(25)">{escape(words)}</text>'


def _axes(x: Scale, y: Scale, height: int, x_name: str, y_name: str) -> str:
    floor = height - BOTTOM
    parts = [f'<path class="axis" d="M{LEFT},{TOP}V{floor}H{x.end:.1f}"/>']
    for tick in x.ticks():
        at = x(tick)
        parts.append(f'<line class="axis" x1="{at:.1f}" x2="{at:.1f}" y1="{floor}" y2="{floor + 4}"/>')
        parts.append(_text(at, floor + 16, f"{tick:g}", "middle", "tick"))
    for tick in y.ticks():
        at = y(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{x.end:.1f}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(_text(LEFT - 6, at + 4, f"{tick:g}", "end", "tick"))
    parts.append(_text((LEFT + x.end) / 2, height - 6, x_name, "middle"))
    parts.append(
        f'<text transform="translate(16,{(TOP + floor) / 2:.1f}) rotate(-90)" text-anchor="middle">'
        f"{escape(y_name)}</text>"
    )
    return "".join(parts)


def _apart(labels: Sequence[tuple[float, str]], gap: float) -> list[tuple[float, str]]:
    """The same labels, moved down where two would overlap."""
    placed: list[tuple[float, str]] = []
    for at, words in sorted(labels):
        placed.append((max(at, placed[-1][0] + gap) if placed else at, words))
    return placed


def _round_step(rough: float) -> float:
    """1, 2 or 5 times a power of ten, not below `rough`."""
    if rough <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= rough * 0.999)
