"""Tables and facts, from which every page is made.

A `Table` has four forms: text for a terminal (any width, with or without colour), JSON, CSV and Markdown.
JSON and CSV have full values under stable keys; text and Markdown have what a person reads."""

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

from evo.report.terminal import for_terminal

Form = Literal["text", "json", "csv", "markdown"]
Record = Mapping[str, Any]
"""One row of a table: stable key -> plain value."""

LEAST_FOLDED_WIDTH = 30
"""A folding last column has at least so many characters; with fewer, its cells are written below the rows."""

STYLES = {
    "TIMED": "green",
    "GREEN": "green",
    "RED": "red",
    "UNPROVEN": "yellow",
    "UNRENDERABLE": "red",
    "HUNG": "red",
    "CRASHED": "red",
    "works": "green",
    "absent": "yellow",
    "broken": "red",
}
"""Colours of words. They only repeat what the word says."""


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
    lines: bool = False
    """Whether a cell may have several lines."""

    def text(self, record: Record) -> str:
        """The cell, for a terminal."""
        return for_terminal(self.cell(record), self.lines)


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
        return f"**{for_terminal(self.title, lines=False)}**\n\n{self._markdown()}"

    def _csv(self) -> str:
        out = io.StringIO()
        keys = list(dict.fromkeys(key for record in self.records for key in record))
        writer = csv.DictWriter(out, keys, lineterminator="\n")
        writer.writeheader()
        for record in self.records:
            writer.writerow({key: _field(value) for key, value in record.items()})
        return out.getvalue()

    def _markdown(self) -> str:
        lines = [
            "| " + " | ".join(column.heading for column in self.columns) + " |",
            "|" + "|".join("--:" if column.right else "---" for column in self.columns) + "|",
        ]
        for record in self.records:
            cells = (column.text(record).replace("|", "\\|") for column in self.columns)
            lines.append("| " + " | ".join(cells) + " |")
        return "\n".join(lines) + "\n"

    def _text(self, console: Console) -> str:
        if not self.records:
            return f"{self.title}: {self.empty}\n" if self.title else f"{self.empty}\n"
        columns = self._fitting(console.width)
        below = columns.pop() if self._cramped(columns, console.width) else None
        with console.capture() as captured:
            if self.title:
                console.print(Text(for_terminal(self.title, lines=False), "bold"))
            console.print(self._grid(columns, console.width))
        lines = [line.rstrip() for line in captured.get().splitlines()]
        if below is not None:
            head = len(lines) - len(self.records)  # a title may take several lines
            rows = zip(lines[head:], self.records, strict=True)
            lines[head:] = [
                line for row, r in rows for line in (row, *_indented(below.text(r), console.width))
            ]
        return "\n".join(lines) + "\n"

    def _fitting(self, width: int) -> list[Column]:
        """The columns that fit into `width`: `wide` ones are left out, the last ones first, until they do."""
        columns = list(self.columns)
        for column in reversed(self.columns):
            if sum(self._needs(c, 2 * LEAST_FOLDED_WIDTH) for c in columns) <= width + 2:
                break
            if column.wide:
                columns.remove(column)
        return columns

    def _needs(self, column: Column, room: int = LEAST_FOLDED_WIDTH) -> int:
        """Characters that a column takes, with the two to the next one; a column that folds needs at most
        `room`."""
        cells = [column.heading, *(column.text(record) for record in self.records)]
        longest = max(len(line) for cell in cells for line in cell.split("\n"))
        return 2 + (min(longest, room) if column.folds else longest)

    def _cramped(self, columns: Sequence[Column], width: int) -> bool:
        """Whether the last column folds and the others, none of which does, leave it too little room."""
        if not columns or not columns[-1].folds or any(column.folds for column in columns[:-1]):
            return False
        taken = sum(self._needs(column) for column in columns[:-1])
        return taken <= width and width - taken < self._needs(columns[-1]) - 2

    def _grid(self, columns: Sequence[Column], width: int) -> RichTable:
        """Where the columns are still too wide, every one folds: a cell that is cut says something else."""
        fits = sum(self._needs(column, LEAST_FOLDED_WIDTH // 2) for column in columns) <= width + 2
        grid = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        for column in columns:
            justify: Literal["left", "right"] = "right" if column.right else "left"
            whole = fits and not column.folds
            grid.add_column(column.heading, justify=justify, overflow="fold", no_wrap=whole)
        for record in self.records:
            cells = [column.text(record) for column in columns]
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
        shown = [(for_terminal(label, lines=False), for_terminal(text)) for label, text in self.lines if text]
        if form == "markdown":
            return "".join(f"- **{label}**: {text}\n" for label, text in shown)
        with console.capture() as captured:
            console.print(Text(for_terminal(self.title, lines=False), self.style))
            grid = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
            grid.add_column(style="dim", no_wrap=True)
            grid.add_column(overflow="fold")
            for label, text in shown:
                grid.add_row(label, Text(text))
            console.print(grid)
        return "\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n"


def as_json(value: object) -> str:
    """`value` as a person and a script both can read it."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str, allow_nan=False)
    # outside of ASCII JSON may hold what a terminal obeys, and lone surrogates
    return _NOT_SHOWN.sub(lambda odd: json.dumps(odd[0])[1:-1], text) + "\n"


_NOT_SHOWN = re.compile(r"[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff]")


def _field(value: object) -> object:
    """A field of CSV."""
    if isinstance(value, Mapping):
        value = json.dumps(value)
    return for_terminal(value, lines=False) if isinstance(value, str) else value
