"""What a person or a script sees: tables in four forms, the page of a trial, the figures of a space.

Renders what it is given and decides nothing. A `Table` has four renderings: text for a terminal (any width,
with or without colour), JSON, CSV and Markdown. JSON and CSV carry full values under stable keys; text and
Markdown carry what a person reads. An estimate is written `~8.5` and never shares a column with a measured
time.
"""

from __future__ import annotations

import csv
import difflib
import io
import json
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from evo.trial import LaunchConfig, Point, Resources, Timing, Trial, Value

if TYPE_CHECKING:  # the store brings SQLAlchemy; who only renders does not wait for it
    from evo.doctor import Finding
    from evo.gate.selftest import Finding as ZooFinding
    from evo.rig import Replay
    from evo.search import DeadParameter
    from evo.space import FeasibleSet
    from evo.store import Confirmation, Failure, Finalist, Ranked, StoredTrial, Study

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
            console.print(self._grid(columns))
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

    def _grid(self, columns: Sequence[Column]) -> RichTable:
        grid = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        for column in columns:
            justify: Literal["left", "right"] = "right" if column.right else "left"
            grid.add_column(column.heading, justify=justify, overflow="fold", no_wrap=not column.folds)
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
    name = re.split(r"[<(]", name.replace("(anonymous namespace)", ""))[0].strip()
    name = name.removeprefix("void ").rsplit("::", 1)[-1]
    return name if len(name) <= NAME_WIDTH else name[: NAME_WIDTH - 2] + " …"


# ------------------------------------------------------------------------------------------ leaderboard


def leaderboards(ranked: Sequence[Ranked]) -> list[Table]:
    """A table for each problem and device: times of different ones have no common order. CONFIRMED times,
    times of the search alone and estimates are never in one table."""
    groups: dict[tuple[str, str, str, str], list[Ranked]] = {}
    for row in ranked:
        estimated_for = row.estimate_gpu if row.median_us is None else ""
        groups.setdefault((row.problem, row.device, row.kind, estimated_for), []).append(row)
    return [_leaderboard(rows) for rows in groups.values()]


def leaderboard_records(ranked: Sequence[Ranked]) -> Table:
    """All rows in one table, for JSON and CSV."""
    return Table("", (), tuple(_ranked_record(row) for row in ranked))


def _ranked_record(row: Ranked) -> dict[str, Any]:
    """A ratio is to the baseline that it names; that to SDPA is to its fastest backend, where one was timed
    beside the kernel."""
    best = compared_with(row.median_us, row.speedup, row.baselines_us)
    if row.versus and row.median_us is not None and row.speedup is not None:
        best = row.versus, row.baselines_us.get(row.versus, row.median_us * row.speedup)
    sdpa = best_baseline({name: us for name, us in row.baselines_us.items() if name in SDPA})
    return asdict(row) | {
        "best_baseline": best[0] if best else None,
        "best_baseline_us": best[1] if best else None,
        "fastest_sdpa": sdpa[0] if sdpa else None,
        "fastest_sdpa_us": sdpa[1] if sdpa else None,
        "sdpa_speedup": sdpa[1] / row.median_us if sdpa and row.median_us else None,
    }


def _leaderboard(rows: Sequence[Ranked]) -> Table:
    first = rows[0]
    title = f"{first.problem} · {first.device}"
    columns = [
        Column("#", lambda r: f"{r['rank']}{r['tied']}", right=True),
        Column("trial", lambda r: f"{r['study']}/{r['number']}"),
    ]
    if first.median_us is None:
        title += f" · times are estimates for {first.estimate_gpu}, not measurements"
        columns += [Column("estimate", lambda r: score_text(None, r["estimate_us"]), right=True)]
    else:
        title += " · CONFIRMED" if first.kind == "confirmed" else " · not CONFIRMED"
        level = f"{100 * (first.level or 0.95):.0f} % CI"
        columns += [
            Column("time", lambda r: score_text(r["median_us"], None), right=True),
            Column(level, lambda r: interval_text(r["low_us"], r["high_us"]), wide=True),
            Column("vs best baseline", _versus),
            Column("vs fastest SDPA", _versus_sdpa, wide=True),
        ]
        if first.kind == "confirmed":
            columns += [Column("cold", lambda r: score_text(r["cold_us"], None), right=True, wide=True)]
    columns += [
        Column("regs", lambda r: count(r["registers"]), right=True, wide=True),
        Column("spill", lambda r: count(r["spill_bytes"]), right=True, wide=True),
        Column("smem", lambda r: f"{r['smem_bytes'] / 1024:.1f}K", right=True, wide=True),
        Column("template", lambda r: str(r["template"])),
        Column("point", lambda r: point_text(r["point"]), folds=True),
    ]
    ranks = [row.rank for row in rows]
    records = tuple(_ranked_record(r) | {"tied": "=" if ranks.count(r.rank) > 1 else ""} for r in rows)
    return Table(title, tuple(columns), records)


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


def _versus(record: Record) -> str:
    text = ratio_text(record["speedup"], record["speedup_low"], record["speedup_high"])
    tie = ", a tie" if record["verdict"] == "tie" else ""
    return f"{text} {record['best_baseline'] or ''}".rstrip() + tie


def _versus_sdpa(record: Record) -> str:
    return f"{record['sdpa_speedup']:.2f}x {record['fastest_sdpa']}" if record["sdpa_speedup"] else "-"


def interval_text(low: float | None, high: float | None) -> str:
    """`[8.51, 8.55]`, or a dash."""
    return "-" if low is None or high is None else f"[{three_digits(low)}, {three_digits(high)}]"


def count(number: int | None) -> str:
    """A number, or a dash."""
    return "-" if number is None else str(number)


# ------------------------------------------------------------------------------- studies, doctor, space


def studies_table(studies: Sequence[tuple[Study, Mapping[str, int]]]) -> Table:
    """Studies with their trials by outcome."""
    records = tuple(_study_record(study, counts) for study, counts in studies)
    columns = (
        Column("study", lambda r: str(r["name"])),
        Column("status", lambda r: str(r["status"])),
        Column("trials", lambda r: str(r["trials"]), right=True),
        Column("correct", lambda r: str(r["correct"]), right=True),
        Column("spent", lambda r: duration(r["spent_s"]), right=True),
        Column("budget", lambda r: duration(r["budget_s"]), right=True),
        Column("strategy", lambda r: str(r["strategy"]), wide=True),
        Column("seed", lambda r: str(r["seed"]), right=True, wide=True),
        Column("device", lambda r: str(r["device"]), wide=True),
        Column("problem", lambda r: str(r["problem"]), folds=True),
    )
    return Table("", columns, records, "no studies yet: evo search --budget 2m makes one")


def _study_record(study: Study, counts: Mapping[str, int]) -> dict[str, Any]:
    record = {k: v for k, v in vars(study).items() if k != "problem"}
    return record | {
        "problem": study.problem.key,
        "trials": sum(counts.values()),
        "correct": counts.get("TIMED", 0) + counts.get("GREEN", 0),
        "outcomes": dict(counts),
    }


def failures_table(failures: Sequence[Failure]) -> Table:
    """Why trials died, the most frequent reason first."""
    columns = (
        Column("outcome", lambda r: str(r["outcome"])),
        Column("trials", lambda r: str(r["count"]), right=True),
        Column("such as", lambda r: f"#{r['example']}", right=True),
        Column("reason", lambda r: str(r["reason"]), folds=True),
    )
    return Table("Why trials failed", columns, tuple(asdict(f) for f in failures), "none did")


def dead_parameters_text(dead: Sequence[DeadParameter]) -> list[str]:
    """A line for each parameter that changes nothing."""
    return [
        f"parameter {d.name} of {d.template} is dead: same machine code and launch in all {d.pairs} pairs "
        "of trials that differ in it alone"
        for d in dead
    ]


def findings_table(findings: Sequence[Finding]) -> Table:
    """What `evo doctor` found."""
    columns = (
        Column("check", lambda r: str(r["check"])),
        Column("", lambda r: str(r["status"])),
        Column("found", lambda r: r["found"] + (f"\n→ {r['advice']}" if r["advice"] else ""), folds=True),
    )
    return Table("", columns, tuple(asdict(f) for f in findings))


def space_table(template: str, feasible: FeasibleSet) -> Table:
    """How many points a template has, how many are feasible, and how many each rule rejects."""
    about = "" if feasible.exact else "about "
    title = f"{template}: {feasible.size:,} points, {about}{feasible.count:,} feasible"
    records = [{"template": template, "reason": why, "rejected": n, "exact": feasible.exact}
               for why, n in feasible.rejected.items() if n]  # fmt: skip
    columns = (
        Column("rejected", lambda r: f"{r['rejected']:,}", right=True),
        Column("because", lambda r: str(r["reason"]), folds=True),
    )
    return Table(title, columns, tuple(records), "no rule rejects any")


def space_record(template: str, feasible: FeasibleSet) -> dict[str, Any]:
    """The same figures for a script."""
    return {
        "template": template,
        "points": feasible.size,
        "feasible": feasible.count,
        "exact": feasible.exact,
        "rejected": dict(feasible.rejected),
        "parameters": {p.name: list(p.values) for p in feasible.space.parameters},
    }


def zoo_line(finding: ZooFinding) -> str:
    """How one planted or honest kernel ended at the gate; a line that begins with `ok` is as it should be."""
    verdict = "ok   " if finding.reasoned else "other" if finding.right else "WRONG"
    ended = f"{finding.outcome} {finding.reason}".strip()
    return f"{verdict}  {finding.name:<44}  {ended:<32}  {finding.says}"


def zoo_summary(findings: Sequence[ZooFinding]) -> str:
    """The catch rate and the false alarms."""
    honest = [f for f in findings if f.says == "nothing is wrong"]
    planted = [f for f in findings if f.says != "nothing is wrong"]
    caught, passed = sum(f.right for f in planted), sum(f.right for f in honest)
    reasoned = sum(f.reasoned for f in planted)
    return (
        f"{caught} of {len(planted)} planted kernels refused ({reasoned} for the expected reason), "
        f"{passed} of {len(honest)} honest ones GREEN, in {duration(sum(f.seconds for f in findings))}"
    )


# ------------------------------------------------------------------------------------- one trial's page


def trial_page(
    stored: StoredTrial, console: Console, verdict: tuple[Confirmation, Finalist] | None = None
) -> str:
    """Everything a person asks of one trial, but for its code; `verdict`: what CONFIRMED said of it."""
    title = f"trial {stored.study}/{stored.number} · {stored.trial.outcome}"
    confirmed = _confirmed_facts(*verdict) if verdict else ()
    style = STYLES.get(stored.trial.outcome, "bold")
    return Facts(title, (*_facts(stored), *confirmed), style).render("text", console)


def replay_page(stored: StoredTrial, replay: Replay, console: Console) -> str:
    """What became of a trial when it was done again, beside what it was, and how its source differs now."""
    same = (
        "same source and launch"
        if replay.same_source
        else "the template renders another source or launch now"
    )
    now = replace(stored, trial=replay.trial, created="")
    then = f"{stored.trial.outcome} {score_text(_median(stored.trial), stored.trial.estimate_us)}"
    page = f"{same}\nthen: {then}\nnow:\n{trial_page(now, console)}"
    return page + "".join(_difference(replay))


def _difference(replay: Replay) -> Iterator[str]:
    """A unified diff of the stored source and the one that is rendered now."""
    then, now = (c.source.splitlines(keepends=True) for c in (replay.stored, replay.rendered))
    yield from difflib.unified_diff(then, now, "stored", "rendered now", n=1)


def replay_record(stored: StoredTrial, replay: Replay) -> dict[str, Any]:
    """The same for a script."""
    return {"same_source": replay.same_source, "then": trial_record(stored), "now": asdict(replay.trial)}


def _median(trial: Trial) -> float | None:
    return trial.timing.median_us if trial.timing else None


def trial_record(stored: StoredTrial) -> dict[str, Any]:
    """The same for a script, source and samples included."""
    record = asdict(stored.trial)
    return {"id": stored.id, "study": stored.study, "number": stored.number, "created": stored.created,
            "same_as": stored.same_as, **record}  # fmt: skip


def _facts(stored: StoredTrial) -> Iterator[tuple[str, str]]:
    """The lines of a trial's page: label and text, empty where nothing is to be said."""
    trial, candidate = stored.trial, stored.trial.candidate
    yield "problem", candidate.problem.key
    yield "template", candidate.template
    yield "point", point_text(candidate.point)
    yield "reason", trial.reason
    yield "where", trial.where
    yield "detail", trial.detail
    if stored.same_as is not None:
        yield "same as", f"trial {stored.study}/{stored.same_as}: same machine code, same launch"
    if trial.timing:
        yield from _timing_facts(trial.timing)
    if trial.estimate_us is not None:
        estimate = score_text(None, trial.estimate_us)
        yield "estimate", f"{estimate} for {trial.estimate_gpu}: a model, not a measurement"
    if trial.errors:
        worst = max(trial.errors, key=lambda e: e.row_error / e.limit)
        where = f"{worst.problem}, {worst.family}, seed {worst.seed}"
        margin = f"row error {worst.row_error:.2e} of {worst.limit:.2e} allowed"
        yield "gate", f"{len(trial.errors)} cases; the nearest to its limit: {where}: {margin}"
    if trial.resources:
        yield from _resource_facts(trial.resources, candidate.launch)
    launch = candidate.launch
    cluster = f", clusters of {_by(launch.cluster)}" if launch.cluster != (1, 1, 1) else ""
    yield "launch", f"grid {_by(launch.grid)}, {launch.threads} threads a CTA{cluster}"
    yield "device", trial.device
    yield "compiler", trial.compiler
    yield "versions", ", ".join(f"{name} {version}" for name, version in trial.versions.items())
    yield "seconds", _numbers(trial.seconds)
    yield "counters", _numbers({name: value for name, value in trial.counters.items() if value})
    yield "recorded", stored.created


def _confirmed_facts(found: Confirmation, finalist: Finalist) -> Iterator[tuple[str, str]]:
    """What CONFIRMED found: a time by protocol, or why the trial was refused; and what the baselines ran."""
    if finalist.outcome != "GREEN":
        yield "CONFIRMED", f"refused: {finalist.outcome} {finalist.reason} {finalist.where}".rstrip()
    for protocol, own in finalist.standings.items():
        ci = f"{own.interval.level:.0%} CI {interval_text(own.interval.low, own.interval.high)}"
        ratio = own.speedup_interval
        text = ratio_text(own.speedup, ratio.low if ratio else None, ratio.high if ratio else None)
        time = f"{microseconds(own.median_us)}, {ci}, {text} {own.versus}, {protocol} L2"
        yield "CONFIRMED", f"{time}: {own.verdict}" if own.verdict else time
    beside = sorted(found.baselines.get("warm", {}).items(), key=lambda item: item[1].median_us)
    yield "beside it", ", ".join(f"{name} {microseconds(s.median_us)}" for name, s in beside)
    for name, ran in found.kernels.items():
        yield f"{name} ran", kernels_text(ran)
    yield "sanitizer", finalist.sanitizer


def _timing_facts(timing: Timing) -> Iterator[tuple[str, str]]:
    interval, count = timing.interval, len(timing.samples_us)
    ci = f"{interval.level:.0%} CI {interval_text(interval.low, interval.high)}"
    yield "time", f"{microseconds(timing.median_us)}, {ci}, median of {count} samples, {timing.protocol} L2"
    if timing.speedup is not None:
        ratio = timing.speedup_interval
        text = ratio_text(timing.speedup, ratio.low if ratio else None, ratio.high if ratio else None)
        best = compared_with(timing.median_us, timing.speedup, timing.baselines_us)
        yield "speedup", f"{text} {best[0] if best else ''}".rstrip()
    baselines = sorted(timing.baselines_us.items(), key=lambda item: item[1])
    yield "baselines", ", ".join(f"{name} {microseconds(us)}" for name, us in baselines)
    yield "clocks", _numbers(timing.clocks)


def _resource_facts(resources: Resources, launch: LaunchConfig) -> Iterator[tuple[str, str]]:
    smem = (resources.static_smem_bytes + launch.smem_bytes) / 1024
    spilled = f"{resources.spill_bytes} bytes spilled, {resources.stack_bytes} bytes of stack"
    yield "resources", f"{resources.registers} registers, {spilled}, {smem:.1f} KB of shared memory"
    yield "warnings", "\n".join(resources.warnings)


def _by(sides: Sequence[int]) -> str:
    """`8x4`, `1`: sides without trailing ones."""
    count = max((i for i, side in enumerate(sides, 1) if side > 1), default=1)
    return "x".join(str(side) for side in sides[:count])


def _numbers(named: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:,.6g}" for name, value in named.items())
