"""What a person or a script sees: the kit of tables, facts and words. Each page has a module of its own.

Renders what it is given and decides nothing. A `Table` has four renderings: text for a terminal (any width,
with or without colour), JSON, CSV and Markdown. JSON and CSV carry full values under stable keys; text and
Markdown carry what a person reads. An estimate is written `~8.5` and never shares a column with a measured
time.
"""

from __future__ import annotations

import csv
import io
import json
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from evo.trial import Point, Value

Form = Literal["text", "json", "csv", "markdown"]
Record = Mapping[str, Any]
"""One row of a table: stable key -> plain value."""

ROOM = 30
"""Characters that a folding last column has at least; where it would have fewer, its cells stand below the
rows."""

SDPA = ("sdpa", "flash", "cudnn", "efficient", "math")
"""Baselines that are PyTorch's scaled_dot_product_attention: its own choice, and its backends by name."""

NAMES, NAME_WIDTH = 3, 60
"""Kernels of a baseline that a person sees, and characters of each: names of C++ templates are long."""

STYLES = {
    "TIMED": "green", "GREEN": "green", "RED": "red", "HUNG": "red", "CRASHED": "red",
    "works": "green", "absent": "yellow", "broken": "red",
}  # fmt: skip
"""Colours repeat what a word says: nothing is told by colour alone."""


@dataclass(frozen=True)
class Column:
    """What a person sees of a record: a heading and how to write the cell."""

    heading: str
    cell: Callable[[Record], str]
    right: bool = False
    folds: bool = False
    """Whether a cell is folded over several lines where the terminal is narrow."""
    wide: bool = False
    """Whether the column is left out of a text that is too narrow for all; the last of them goes first."""


@dataclass(frozen=True)
class Table:
    """Records, the columns that a person sees of them, a line that says what they are, and one for when
    there are none."""

    title: str
    columns: tuple[Column, ...]
    records: tuple[Record, ...]
    empty: str = "nothing yet"

    def render(self, form: Form, console: Console) -> str:
        """The table in one of its forms; `console` says how wide and how colourful a text may be."""
        if form == "json":
            return as_json(list(self.records))
        if form == "csv":
            return self._csv()
        if form == "markdown":
            return self._markdown()
        return self._text(console)

    def titled_markdown(self) -> str:
        """The table in Markdown below its title: where there are several, each must say what it is."""
        return f"**{self.title}**\n\n{self._markdown()}"

    def _csv(self) -> str:
        out = io.StringIO()
        keys = list(dict.fromkeys(key for record in self.records for key in record))
        writer = csv.DictWriter(out, keys, lineterminator="\n")
        writer.writeheader()
        for record in self.records:
            writer.writerow({k: json.dumps(v) if isinstance(v, Mapping) else v for k, v in record.items()})
        return out.getvalue()

    def _markdown(self) -> str:
        lines = [
            "| " + " | ".join(column.heading for column in self.columns) + " |",
            "|" + "|".join("--:" if column.right else "---" for column in self.columns) + "|",
        ]
        for record in self.records:
            cells = (column.cell(record).replace("|", "\\|") for column in self.columns)
            lines.append("| " + " | ".join(cells) + " |")
        return "\n".join(lines) + "\n"

    def _text(self, console: Console) -> str:
        if not self.records:
            return f"{self.title}: {self.empty}\n" if self.title else f"{self.empty}\n"
        columns = self._fitting(console.width)
        below = columns.pop() if self._cramped(columns, console.width) else None
        with console.capture() as captured:
            if self.title:
                console.print(Text(self.title, "bold"))
            console.print(self._grid(columns, console.width))
        lines = [line.rstrip() for line in captured.get().splitlines()]
        if below is not None:
            head = len(lines) - len(self.records)  # a title may take several lines
            rows = zip(lines[head:], self.records, strict=True)
            lines[head:] = [
                line for row, r in rows for line in (row, *_indented(below.cell(r), console.width))
            ]
        return "\n".join(lines) + "\n"

    def _fitting(self, width: int) -> list[Column]:
        """All columns, less as many of those that may be left out as are too many for `width`."""
        columns = list(self.columns)
        for column in reversed(self.columns):
            if sum(self._needs(c, 2 * ROOM) for c in columns) <= width + 2:
                break
            if column.wide:
                columns.remove(column)
        return columns

    def _needs(self, column: Column, room: int = ROOM) -> int:
        """Characters that a column takes, and the two to the next; one that folds is content with `room`."""
        cells = [column.heading, *(column.cell(record) for record in self.records)]
        longest = max(len(line) for cell in cells for line in cell.split("\n"))
        return 2 + (min(longest, room) if column.folds else longest)

    def _cramped(self, columns: Sequence[Column], width: int) -> bool:
        """Whether the last column folds and the others, none of which does, leave it too little room."""
        if not columns or not columns[-1].folds or any(column.folds for column in columns[:-1]):
            return False
        taken = sum(self._needs(column) for column in columns[:-1])
        return taken <= width and width - taken < self._needs(columns[-1]) - 2

    def _grid(self, columns: Sequence[Column], width: int) -> RichTable:
        """Where all is too wide even so, every column folds: a cell that is cut says something else."""
        fits = sum(self._needs(column, ROOM // 2) for column in columns) <= width + 2
        grid = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        for column in columns:
            justify: Literal["left", "right"] = "right" if column.right else "left"
            whole = fits and not column.folds
            grid.add_column(column.heading, justify=justify, overflow="fold", no_wrap=whole)
        for record in self.records:
            cells = [column.cell(record) for column in columns]
            grid.add_row(*(Text(cell, STYLES.get(cell, "")) for cell in cells))
        return grid


def _indented(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)


@dataclass(frozen=True)
class Facts:
    """Lines of a label and a text, under a title; a text that is empty is left out."""

    title: str
    lines: tuple[tuple[str, str], ...]
    style: str = "bold"

    def render(self, form: Form, console: Console) -> str:
        """As text or as Markdown."""
        told = [(label, text) for label, text in self.lines if text]
        if form == "markdown":
            return "".join(f"- **{label}**: {text}\n" for label, text in told)
        with console.capture() as captured:
            console.print(Text(self.title, self.style))
            grid = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
            grid.add_column(style="dim", no_wrap=True)
            grid.add_column(overflow="fold")
            for label, text in told:
                grid.add_row(label, Text(text))
            console.print(grid)
        return "\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n"


def as_json(value: object) -> str:
    """`value` as a person and a script both can read it."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str, allow_nan=False) + "\n"


# ------------------------------------------------------------------------------------------------ words


def microseconds(value: float) -> str:
    """`8.53 µs`, `292 µs`, `4.11 ms`: three digits."""
    return f"{three_digits(value / 1000)} ms" if value >= 10_000 else f"{three_digits(value)} µs"


def three_digits(value: float) -> str:
    """A positive number with three digits that count: 0.512, 8.53, 72.5, 290, 4114."""
    decimals = 3 if value < 0.9995 else 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{decimals}f}"


def duration(seconds: float) -> str:
    """`45 s`, `1 min 05 s`, `13 h 42 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def dollars(seconds: float, rate: float) -> str:
    """What `seconds` cost at `rate` dollars an hour."""
    return f"${seconds / 3600 * rate:.2f}"


def plain(value: Value) -> str:
    """A parameter's value; booleans as 0 and 1."""
    return str(int(value)) if isinstance(value, bool) else str(value)


def point_text(point: Point) -> str:
    """`bm=64 bn=128 swizzle=xor`."""
    return " ".join(f"{name}={plain(value)}" for name, value in point.items())


def score_text(median_us: float | None, estimate_us: float | None) -> str:
    """A measured time, or an estimate marked as one, or a dash."""
    if median_us is not None:
        return microseconds(median_us)
    return f"~{microseconds(estimate_us)}" if estimate_us is not None else "-"


def kernels_text(names: Sequence[str]) -> str:
    """The kernels of one baseline, bare of namespaces and template arguments; the first of them, if there are
    many."""
    short = list(dict.fromkeys(_bare(name) for name in names if not name.startswith(("Memset", "Memcpy"))))
    more = f" and {len(short) - NAMES} more" if len(short) > NAMES else ""
    return ", ".join(short[:NAMES]) + more


def _bare(name: str) -> str:
    if tuned := re.search(r" (\[[^\[\]]*=[^\[\]]*\])$", name):  # what a baseline chose for itself
        return f"{_bare(name[: tuned.start()])} {tuned[1]}"
    name = re.split(r"[<(]", name.replace("(anonymous namespace)", ""))[0].strip()
    name = name.removeprefix("void ").rsplit("::", 1)[-1]
    return name if len(name) <= NAME_WIDTH else name[: NAME_WIDTH - 2] + " …"


def best_baseline(baselines_us: Mapping[str, float]) -> tuple[str, float] | None:
    """Name and median of the fastest one."""
    return min(baselines_us.items(), key=lambda item: item[1]) if baselines_us else None


def compared_with(
    median_us: float | None, speedup: float | None, baselines_us: Mapping[str, float]
) -> tuple[str, float] | None:
    """Name and median of the baseline that a speedup is to: the one that was timed in turns with the kernel,
    and two may be as good as equal."""
    if median_us is None or speedup is None or not baselines_us:
        return None
    return min(baselines_us.items(), key=lambda item: abs(item[1] - median_us * speedup))


def ratio_text(ratio: float | None, low: float | None, high: float | None) -> str:
    """`1.08x [1.07, 1.09]`: above 1 is faster than the baseline."""
    if ratio is None:
        return "-"
    return f"{ratio:.2f}x" if low is None or high is None else f"{ratio:.2f}x [{low:.2f}, {high:.2f}]"


def interval_text(low: float | None, high: float | None) -> str:
    """`[8.51, 8.55]`, or a dash."""
    return "-" if low is None or high is None else f"[{three_digits(low)}, {three_digits(high)}]"


def count(number: int | None) -> str:
    """A number, or a dash."""
    return "-" if number is None else str(number)
