"""The view of a running search: live on a terminal, a plain line every few seconds anywhere else.

The search reports its progress as often as it likes; a view draws it only a few times a second or less. Views
write to stderr alone.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from evo.report import (
    STYLES,
    an_estimate,
    best_baseline,
    dollars,
    duration,
    for_terminal,
    memory_text,
    microseconds,
    point_text,
    ratio_text,
    score_text,
    several,
)
from evo.trial import WORST

if TYPE_CHECKING:  # the search brings Optuna
    from evo.loop import Progress, Usage
    from evo.study import Study

LINE_EVERY_S = 5.0
"""Seconds between two plain lines."""
FRAMES_A_SECOND = 4
FINISHING = "finishing what is under way, a few seconds"


class View(Protocol):
    """A view of a running search, to be used in a `with` block."""

    def __enter__(self) -> View: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def show(self, progress: Progress) -> None:
        """Draws, unless it just did."""
        ...


def view_on(console: Console) -> View:
    """The live view where `console` is a terminal that can move its cursor, else plain lines."""
    return LiveView(console) if console.is_terminal and not console.is_dumb_terminal else PlainLines(console)


class PlainLines:
    """One line every few seconds, and one at the end."""

    def __init__(self, console: Console, every_s: float = LINE_EVERY_S) -> None:
        self._console = console
        self._every_s = every_s
        self._due = 0.0
        self._last: Progress | None = None
        self._finishing = False

    def __enter__(self) -> PlainLines:
        return self

    def __exit__(self, *_: object) -> None:
        if self._last is not None:
            self._print(plain_line(self._last))

    def show(self, progress: Progress) -> None:
        self._last = progress
        if progress.phase == "finishing" and not self._finishing:
            self._finishing = True
            self._print(FINISHING)
        now = time.monotonic()
        if now >= self._due:
            self._due = now + self._every_s
            self._print(plain_line(progress))
            self._last = None

    def _print(self, line: str) -> None:
        self._console.print(for_terminal(line, lines=False), soft_wrap=True, markup=False)


class LiveView:
    """A few lines that are drawn over in place."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False)
        self._due = 0.0
        self._last: Progress | None = None

    def __enter__(self) -> LiveView:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._last is not None:
            self._live.update(lines(self._last), refresh=True)
        self._live.__exit__(kind, error, trace)

    def show(self, progress: Progress) -> None:
        self._last = progress
        now = time.monotonic()
        if now >= self._due:
            self._due = now + 1 / FRAMES_A_SECOND
            self._live.update(lines(progress), refresh=True)


def study_line(study: Study) -> str:
    """What is searched, where and how: the line that a search opens with."""
    limits = f", at most {memory_text(study.smem_limit)} of shared memory" if study.smem_limit else ""
    target = f" as {study.target}" if study.target else ""
    unproven = " · UNPROVEN kernels are ranked" if study.accept_unproven else ""
    own = f" and on {', '.join(study.calls.names)}" if study.calls else ""
    ranked = "" if study.ranking == WORST else f", ranked by {study.ranking}"
    where = ", ".join(study.gpus) or study.device
    return for_terminal(
        f"{study.name} · {study.problem.key}{own} · {where} ({study.gpu}{target}){limits} · "
        f"strategy {study.strategy}, seed {study.seed}{ranked}{unproven}",
        lines=False,
    )


def plain_line(progress: Progress) -> str:
    """`1 min 05 s of 2 min 00 s  231 trials (118/min): GREEN 214 RED 9  best ~6.42 µs #118 flash_mma`."""
    outcomes = " ".join(f"{outcome} {count}" for outcome, count in _sorted(progress.outcomes))
    best = progress.best
    found = "none correct yet"
    if best:
        ratio = f" {ratio_text(best.speedup, None, None)}" if best.speedup is not None else ""
        found = f"best {score_text(best.median_us, best.estimate_us)}{ratio} #{best.number} {best.template}"
    budget = f"{duration(progress.spent_s)} of {duration(progress.study.budget_s)}"
    if progress.step:
        return f"{budget}  CONFIRMED: {progress.step}  {found}"
    trials = f"{several(progress.trials, 'trial')} ({progress.per_minute:.0f}/min)"
    return f"{budget}  {trials}{': ' if outcomes else ''}{outcomes}  {found}"


def lines(progress: Progress) -> RenderableType:
    """The live view, for any width from 60 up."""
    grid = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row("budget", _budget(progress))
    grid.add_row("trials", _trials(progress))
    grid.add_row("best", _best(progress))
    if progress.baselines_us:
        ranked = sorted(progress.baselines_us.items(), key=lambda item: item[1])
        grid.add_row("to beat", ", ".join(f"{name} {microseconds(us)}" for name, us in ranked))
    if spent := usage_text(progress.usage):
        grid.add_row("time", spent)
    if progress.step:
        grid.add_row("confirming", Text(for_terminal(progress.step, lines=False)))
    for i, doing in enumerate(() if progress.step else progress.activity):
        grid.add_row(
            "workers" if i == 0 else "",
            Text(for_terminal(doing, lines=False), no_wrap=True, overflow="ellipsis"),
        )
    if progress.phase == "finishing":
        grid.add_row("", Text(FINISHING, "yellow"))
    return Group(Text(study_line(progress.study), "bold"), grid)


def usage_text(usage: Usage | None) -> str:
    """`GPU 61 % busy · gate 55 % · timing 30 % · idle 2 % · strategy 12 % · 8.1 cores compile ahead`, and how
    often the best trials were timed again."""
    if usage is None or not usage.evaluators:
        return ""
    parts = [] if usage.gpu_busy is None else [f"GPU {usage.gpu_busy:.0%} busy"]
    parts += [f"{stage} {share:.0%}" for stage, share in usage.evaluators.items()]
    parts.append(f"strategy {usage.strategy:.0%}")
    if usage.compilers:
        parts.append(f"{usage.compilers:.1f} cores compile ahead")
    if usage.remeasured:
        parts.append(f"best trials timed again {usage.remeasured:,} times")
    return " · ".join(part.replace("%", " %") for part in parts)


def _budget(progress: Progress) -> RenderableType:
    total, rate = progress.study.budget_s, progress.study.rate
    spent = min(progress.spent_s, total)
    text = f"{duration(spent)} of {duration(total)}, {duration(progress.left_s)} left"
    if rate:
        text += f" · {dollars(spent, rate)} of {dollars(total, rate)}"
    row = Table.grid(padding=(0, 2, 0, 0))
    row.add_row(ProgressBar(total=total, completed=spent, width=20), Text(text))
    return row


def _trials(progress: Progress) -> Text:
    text = Text(f"{progress.trials} · {progress.per_minute:.0f} a minute")
    for outcome, count in _sorted(progress.outcomes):
        text.append(" · ")
        text.append(f"{outcome} {count}", STYLES.get(outcome, ""))
    return text


def _best(progress: Progress) -> Text:
    best = progress.best
    if best is None:
        return Text("none correct yet")
    text = Text(score_text(best.median_us, best.estimate_us), "bold")
    if best.median_us is None:
        text.append(f" ({an_estimate(progress.study.problem.key, best.template)})", "not bold")
    fastest = best_baseline(progress.baselines_us)
    if best.speedup is not None and fastest:
        text.append(f" · {ratio_text(best.speedup, None, None)} {fastest[0]}", "not bold")
    text.append(f" · #{best.number} {best.template} {point_text(best.point)}", "not bold")
    return text


def _sorted(outcomes: Mapping[str, int]) -> list[tuple[str, int]]:
    """The good ones first, then the frequent ones."""
    good = ("TIMED", "GREEN")
    return sorted(outcomes.items(), key=lambda item: (item[0] not in good, -item[1], item[0]))
