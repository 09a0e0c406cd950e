"""What `evo studies`, `doctor` and `space` show, and why the trials of a study failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from evo.report import Column, Record, Table, duration, score_text

if TYPE_CHECKING:  # these bring SQLAlchemy and more, which a renderer does not need
    from evo.loop import DeadParameter
    from evo.loop.starts import Start
    from evo.selftest.doctor import Finding
    from evo.space import FeasibleSet
    from evo.store import Failure
    from evo.study import Study


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
        "calls": asdict(study.calls) if study.calls else None,
        "problem": study.problem.key,
        "trials": sum(counts.values()),
        "correct": counts.get("TIMED", 0) + counts.get("GREEN", 0),
        "outcomes": dict(counts),
    }


def failures_table(failures: Sequence[Failure]) -> Table:
    """Why trials failed, the most frequent reason first."""
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


def starts_text(starts: Sequence[Start]) -> list[str]:
    """A line for what each start of a search found; none where there was one start."""
    if len(starts) < 2:
        return []
    lines = []
    for number, start in enumerate(starts, 1):
        found = "none correct"
        if best := start.best:
            found = f"best {score_text(best.median_us, best.estimate_us)} (trial {best.number})"
        lines.append(f"start {number}: {start.trials} trials from trial {start.first}, {found}")
    return lines


def findings_table(findings: Sequence[Finding]) -> Table:
    """What `evo doctor` found."""
    columns = (
        Column("check", lambda r: str(r["check"])),
        Column("", lambda r: str(r["status"])),
        Column(
            "found",
            lambda r: r["found"] + (f"\n→ {r['advice']}" if r["advice"] else ""),
            folds=True,
            lines=True,
        ),
    )
    return Table("", columns, tuple(asdict(f) for f in findings))


def _found(record: Record) -> str:
    return str(record["found"]) + (f"\n→ {record['advice']}" if record["advice"] else "")


def space_table(template: str, feasible: FeasibleSet) -> Table:
    """How many points a template has, how many are feasible, and how many each rule rejects."""
    about = "" if feasible.exact else "about "
    title = f"{template}: {feasible.size:,} points, {about}{feasible.count:,} feasible"
    records = [
        {"template": template, "reason": why, "rejected": n, "exact": feasible.exact}
        for why, n in feasible.rejected.items()
        if n
    ]
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
