"""Charts as SVG, made by hand. They need nothing else, can be printed, and can be read without colour: shape,
width and words carry the meaning. Coordinates are in user units of a viewBox; text is escaped here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 860
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 16, 40
LETTER = 7.2
"""How wide a letter of a label is."""
LINE = 15
"""How far apart labels below each other are."""
LONGEST_LABEL = 24
"""Letters of a label at the right of a chart; longer ones are cut."""


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
    trials: Sequence[tuple[int, float]],
    marks: Sequence[Mark],
    unit: str,
    height: int = 320,
    *,
    estimated: bool = False,
) -> str:
    """Each trial's time over its number as a dot, the best so far as a line, baselines as dashed lines.
    `estimated`: the times are estimates, and the best is marked as one."""
    if not trials:
        return ""
    values = [us for _, us in trials] + [m.value for m in marks]
    labels = [(min(us for _, us in trials), "best ~" if estimated else "best ")]
    labels += [(m.value, f"{shortened(m.name, LONGEST_LABEL)} ") for m in marks]
    said = [(value, f"{name}{value:.3g}") for value, name in labels]
    x = Scale(0, max(n for n, _ in trials) or 1, LEFT, WIDTH - RIGHT - _room(words for _, words in said))
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
    for mark in marks:
        at = y(mark.value)
        parts.append(f'<line class="mark" x1="{x.begin}" x2="{x.end}" y1="{at:.1f}" y2="{at:.1f}"/>')
    beside = _apart([(y(value), words) for value, words in said], height - BOTTOM)
    parts += [_text(x.end + 6, at + 4, words) for at, words in beside]
    return _svg(WIDTH, height, "Time of every trial and the best so far", parts)


def bar_chart(bars: Sequence[tuple[str, float, str]], title: str, label_width: int = 220) -> str:
    """Horizontal bars: a label, a length (relative to the longest), and the words at its end."""
    if not bars:
        return ""
    longest = max(value for _, value, _ in bars) or 1.0
    row, room = 22, WIDTH - label_width - max(60.0, _room(words for *_, words in bars))
    parts = []
    for i, (label, value, words) in enumerate(bars):
        y = 4 + i * row
        length = max(1.0, value / longest * room)
        parts.append(_text(label_width - 8, y + 14, shortened(label, label_width // LETTER), "end"))
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
        parts.append(_text(label_width - 8, y + 4, shortened(label, label_width // LETTER), "end"))
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

    room = (x(1) - x(0) - 6) // LETTER
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
        every = -(-len(values) * LINE // (height - 82))  # of many values not all have a label
        parts += [
            _text(x(i) + 4, at(i, p) + 4, shortened(v, room), kind="tick halo")
            for p, v in enumerate(values)
            if p % every == 0
        ]
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
    said = [f"{shortened(name, LONGEST_LABEL)} {tflops:.3g}" for name, _, tflops in points]
    peak = f"{peak_tflops:,.0f} TFLOP/s"
    ridges = [peak_tflops * 1e3 / gbps for gbps in bandwidths.values()]
    span = [p[1] for p in points] + ridges
    x = Scale(min(span) / 6, max(span) * 6, LEFT, WIDTH - RIGHT - _room([peak]), log=True)
    lowest = min(p[2] for p in points) / 3
    y = Scale(lowest, peak_tflops * 2, height - BOTTOM, TOP, log=True)
    parts = [_axes(x, y, height, "FLOP a byte of compulsory traffic", "TFLOP/s")]
    parts += [
        f'<circle class="{"hollow" if i else "point"}" cx="{x(p[1]):.1f}" cy="{y(p[2]):.1f}" r="4.5"/>'
        for i, p in enumerate(points)
    ]
    right = max(x(p[1]) for p in points) + 10
    right = min(right, x.end - _room(said))
    beside = _apart([(y(p[2]), words) for p, words in zip(points, said, strict=True)], height - BOTTOM)
    parts += [_text(right, at + 4, words, kind="halo") for at, words in beside]
    taken = [_Box.of(right, at + 4, words) for at, words in beside]
    flat = f"M{x(min(ridges)):.1f},{y(peak_tflops):.1f}H{x.end:.1f}"
    parts.append(f'<path class="roof" d="{flat}"/>')
    parts.append(_text(x.end + 6, y(peak_tflops) + 4, peak))
    for name, gbps in sorted(bandwidths.items(), key=lambda item: -item[1]):
        first, last = max(x.low, lowest * 1e3 / gbps), peak_tflops * 1e3 / gbps
        roof = Scale(first, last, x(first), x(last), log=True)
        path = f"M{roof.begin:.1f},{y(first * gbps / 1e3):.1f}L{roof.end:.1f},{y(peak_tflops):.1f}"
        parts.insert(1, f'<path class="roof" d="{path}"/>')
        words = f"{name} {gbps:,.0f} GB/s"
        box = _beside_a_roof(words, (roof.begin, y(first * gbps / 1e3)), (roof.end, y(peak_tflops)), taken)
        taken.append(box)
        parts.append(_text(box.left, box.bottom - 4, words, kind="halo"))
    return _svg(WIDTH, height, "Roofline", parts)


@dataclass(frozen=True)
class _Box:
    """Where a label is, by how wide its letters are."""

    left: float
    top: float
    right: float
    bottom: float

    @classmethod
    def of(cls, left: float, base: float, words: str) -> _Box:
        return cls(left, base + 4 - LINE, left + LETTER * len(words), base + 4)

    def meets(self, other: _Box) -> bool:
        beside = self.left >= other.right or other.left >= self.right
        return not (beside or self.top >= other.bottom or other.top >= self.bottom)


def _beside_a_roof(
    words: str, low: tuple[float, float], high: tuple[float, float], taken: Sequence[_Box]
) -> _Box:
    """A place for a label on either side of the line from `low` to `high` that is free, if one is."""
    wide = LETTER * len(words)
    places = []
    for share in (0.5, 0.6, 0.4, 0.7, 0.3, 0.8, 0.2):
        x, y = (a + share * (b - a) for a, b in zip(low, high, strict=True))
        places += [_Box.of(x - wide - 8, y - 4, words), _Box.of(x + 8, y + 14, words)]
    inside = [box for box in places if box.left > LEFT and box.bottom < low[1]]
    free = [box for box in inside if not any(box.meets(other) for other in taken)]
    return (free or inside or places)[0]


# ------------------------------------------------------------------------------------------------- the parts


def shortened(words: str, letters: float) -> str:
    """The words, cut to so many letters."""
    return words if len(words) <= letters else f"{words[: max(1, int(letters) - 1)]}…"


def _room(labels: Iterable[str]) -> float:
    """How wide the longest label is."""
    return 10 + LETTER * max((len(words) for words in labels), default=0)


def _svg(width: float, height: float, title: str, parts: Sequence[str]) -> str:
    """The chart, in a part of the page that scrolls where the page is narrow."""
    return (
        f'<div class="scroll" tabindex="0"><svg viewBox="0 0 {width:g} {height:g}" role="img" '
        f'aria-label="{escape(title)}"><title>{escape(title)}</title>{"".join(parts)}</svg></div>'
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


def _apart(labels: Sequence[tuple[float, str]], lowest: float) -> list[tuple[float, str]]:
    """The same labels, moved down where two would overlap, and up again where one came below `lowest`."""
    placed: list[tuple[float, str]] = []
    for at, words in sorted(labels):
        placed.append((max(at, placed[-1][0] + LINE) if placed else at, words))
    for i in reversed(range(len(placed))):
        limit = placed[i + 1][0] - LINE if i + 1 < len(placed) else lowest
        placed[i] = (min(placed[i][0], limit), placed[i][1])
    return placed


def _round_step(rough: float) -> float:
    """1, 2 or 5 times a power of ten, not below `rough`."""
    if rough <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= rough * 0.999)
