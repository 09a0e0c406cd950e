"""How far a build is that takes a while, once: a bar on a terminal, plain lines anywhere else."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from evo.cache import Build, BuildLines


class BuildView:
    """Draws the builds of a process on `console`, one after the other."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lines = BuildLines()
        self._bar: Progress | None = None

    def __call__(self, build: Build) -> None:
        if not self._console.is_terminal or self._console.is_dumb_terminal:
            self._lines(build)
            return
        if self._bar is None and not build.ended:
            named = TextColumn(f"building {build.name}, once", markup=False)
            columns = (named, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._bar = Progress(*columns, console=self._console, transient=True)
            self._bar.add_task("", total=build.total)
            self._bar.start()
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=build.done)
        if build.ended:
            if self._bar is not None:
                self._bar.stop()
            self._bar = None
            self._lines(build)
