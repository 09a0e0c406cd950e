"""What `evo gate` and `evo audit` show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console

from evo.device.open import is_gpu
from evo.report import Column, Facts, Table, cases_text, duration, several

if TYPE_CHECKING:
    from evo.selftest.mutant_results import MutantResult
    from evo.selftest.zoo_run import Finding as ZooFinding


def zoo_line(finding: ZooFinding) -> str:
    """How one planted or honest kernel ended at the gate; a line that begins with `ok` is as it should be."""
    verdict = "ok   " if finding.reasoned else "other" if finding.right else "WRONG"
    ended = f"{finding.outcome} {finding.reason}".strip()
    if finding.cases_run is not None:
        ended = f"{ended} {cases_text(finding.cases_run, finding.cases_planned)}"
    return f"{verdict}  {finding.name:<44}  {ended:<32}  {finding.says}"


def zoo_summary(findings: Sequence[ZooFinding]) -> str:
    """The catch rate and the false alarms."""
    honest = [f for f in findings if f.honest]
    planted = [f for f in findings if not f.honest]
    caught, passed = sum(f.right for f in planted), sum(f.right for f in honest)
    reasoned = sum(f.reasoned for f in planted)
    late = sum(f.right and f.stage == "finalists" for f in planted)
    return (
        f"{caught} of {len(planted)} planted kernels refused ({reasoned} for the expected reason"
        f"{f'; {late} of them only as finalists' if late else ''}), "
        f"{passed} of {len(honest)} honest ones GREEN, in {duration(sum(f.seconds for f in findings))}"
    )


def mutant_line(tried: MutantResult) -> str:
    """A mutant that the check for candidates let through, and what more is known of it."""
    if not tried.passes:
        known = f"the check for finalists: {', '.join(dict.fromkeys(tried.finalists.values()))}"
    elif tried.differs:
        known = f"the check for finalists: GREEN; other bits in {tried.differs} of {tried.compared} launches"
    else:
        known = f"the original's bits in all {tried.compared} launches"
    change = f"{tried.before} -> {tried.after or 'nothing'}".replace("\t", " ")
    place, _, caller = tried.place.partition(" from ")
    called = f", called from line {caller}" if caller else ""
    at = f"CUDA line {place}{called}: {tried.text[:90]}" if place not in ("", "0") else "of no CUDA line"
    return f"survived  {tried.kind}, PTX line {tried.line}: {change}\n          {at}\n          {known}"


def mutants_summary(result: Mapping[str, Any]) -> str:
    """What became of all mutants, one fate a line."""
    return (
        f"{several(result['executed'], 'mutant')} ran and gave other machine code:\n"
        f"{result['refused']:>6}  refused by the check for candidates ({result['score']:.1%})\n"
        f"{result['only_finalists']:>6}  refused by the check for finalists only\n"
        f"{result['alike']:>6}  with the original's bits in all launches: perhaps the same kernel\n"
        f"{result['within']:>6}  GREEN with other bits: an honest rounding, or a hole in the gate\n"
        f"not counted: {result['unchanged']} with the original's machine code, "
        f"{result['no_program']} that ptxas refused\n"
    )


def audit_page(result: Mapping[str, Any], console: Console) -> str:
    """The rates, of each template and of all; why the rules were wrong; how good the models are."""
    blocks: list[Table | Facts] = [_rates(result)]
    wrong = [
        {"what": what, "count": n, "reason": reason}
        for what in ("false feasible", "false infeasible")
        for reason, n in result[f"{what.replace(' ', '_')}_reasons"].items()
    ]
    if wrong:
        columns = (
            Column("", lambda r: str(r["what"])),
            Column("points", lambda r: str(r["count"]), right=True),
            Column("because", lambda r: str(r["reason"]), folds=True),
        )
        blocks.append(Table("Where rules and machine disagree", columns, tuple(wrong)))
    registers, occupancy = result["register_model_error_median"], ""
    if result["occupancy_asked"]:
        occupancy = f"{result['occupancy_differs']} of {result['occupancy_asked']} differ from the driver"
    models = "" if registers is None else f"off by {registers:g} at the median"
    if models or occupancy:
        blocks.append(Facts("Models", (("registers", models), ("occupancy", occupancy))))
    return "\n".join(block.render("text", console) for block in blocks)


def _rates(result: Mapping[str, Any]) -> Table:
    columns = (
        Column("template", lambda r: str(r["template"])),
        Column("false feasible", lambda r: f"{r['false_feasible']} of {r['feasible']}", right=True),
        Column(
            "false infeasible",
            lambda r: f"{r['false_infeasible']} of {r['refused_by_hardware_rules']}",
            right=True,
        ),
        Column("without spills", lambda r: str(r["false_infeasible_without_spills"]), right=True),
    )
    records = [{"template": name, **rates} for name, rates in result["templates"].items()]
    title = f"{result['problem']} on {result['gpu']}, asked: {_asked(result['device'])}"
    return Table(title, columns, (*records, {"template": "all", **result}))


def _asked(device: str) -> str:
    return f"the driver ({device})" if is_gpu(device) else "ptxas and the table of GPUs"
