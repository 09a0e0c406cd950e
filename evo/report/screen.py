"""Where a search shows how it goes: on stderr, in a cell of a notebook, or nowhere.

A notebook needs no widgets: the view of a running search is one output of the cell, drawn anew."""

from __future__ import annotations

import importlib
import io
import sys
import time
from typing import TYPE_CHECKING, Any, Protocol

from rich.console import Console

from evo.report.live import View, lines, view_on
from evo.report.tables import Table
from evo.report.terminal import for_terminal

if TYPE_CHECKING:  # the search brings Optuna
    from evo.loop import Progress

FRAME_S = 0.5
"""Seconds between two drawings in a notebook."""
COLUMNS = 110
"""Characters of a line in a notebook."""


class Screen(Protocol):
    """Shows lines, tables and the view of a running search."""

    def notice(self, text: str) -> None: ...

    def table(self, table: Table) -> None: ...

    def view(self) -> View: ...


def screen(progress: bool) -> Screen:
    """The one that there is: none without `progress`, the notebook that runs this process, else stderr."""
    if not progress:
        return NoScreen()
    display = notebook_display()
    return StderrScreen() if display is None else NotebookScreen(display)


class StderrScreen:
    """stderr: the view is live on a terminal, and plain lines elsewhere."""

    def notice(self, text: str) -> None:
        print(for_terminal(text), file=sys.stderr)

    def table(self, table: Table) -> None:
        print(table.render("text", _stderr()).rstrip(), file=sys.stderr)

    def view(self) -> View:
        return view_on(_stderr())


def _stderr() -> Console:
    return Console(stderr=True, highlight=False)


class NotebookScreen:
    """The output of a cell. `display` is that of IPython."""

    def __init__(self, display: Any) -> None:
        self._display = display

    def notice(self, text: str) -> None:
        print(for_terminal(text), file=sys.stdout)

    def table(self, table: Table) -> None:
        """Nothing: what each rule refuses is a matter of the command line."""

    def view(self) -> View:
        return NotebookView(self._display)


class NotebookView:
    """A few lines that are drawn over in place, as one output of the cell."""

    def __init__(self, display: Any) -> None:
        self._display = display
        self._handle: Any = None
        self._due = 0.0
        self._last: Progress | None = None

    def __enter__(self) -> NotebookView:
        return self

    def __exit__(self, *_: object) -> None:
        if self._last is not None:
            self._draw(self._last)

    def show(self, progress: Progress) -> None:
        self._last = progress
        if time.monotonic() >= self._due:
            self._draw(progress)

    def _draw(self, progress: Progress) -> None:
        drawn = Drawing(progress)
        if self._handle is None:
            self._handle = self._display(drawn, display_id=True)
        else:
            self._handle.update(drawn)
        self._due = time.monotonic() + FRAME_S


class Drawing:
    """The view of a search as a notebook takes it: as HTML, or as text."""

    def __init__(self, progress: Progress) -> None:
        console = Console(
            file=io.StringIO(), width=COLUMNS, record=True, highlight=False, force_jupyter=False
        )
        console.print(lines(progress))
        pre = '<pre style="line-height: normal">{code}</pre>'
        self._html = console.export_html(inline_styles=True, code_format=pre, clear=False)
        self._text = console.export_text()

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        return self._html


class NoScreen:
    """Shows nothing."""

    def notice(self, text: str) -> None: ...

    def table(self, table: Table) -> None: ...

    def view(self) -> View:
        return _NoView()


class _NoView:
    def __enter__(self) -> View:
        return self

    def __exit__(self, *_: object) -> None: ...

    def show(self, progress: Progress) -> None: ...


def notebook_display() -> Any:
    """IPython's `display` where this process runs the cells of a notebook; else None."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return importlib.import_module("IPython.display").display if hasattr(shell, "kernel") else None
