"""What `evo gate` and `evo audit` show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from evo.report import duration

if TYPE_CHECKING:
    from evo.gate.mutants import Tried
    from evo.gate.selftest import Finding as ZooFinding


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


def mutant_line(tried: Tried) -> str:
    """A mutant that the gate let through, and what more is known of it."""
    if tried.thorough != "GREEN":
        known = f"for finalists: {tried.thorough}"
    elif tried.differs:
        known = f"for finalists GREEN too, other bits in {tried.differs} of {tried.compared} launches"
    else:
        known = f"no other bit in {tried.compared} launches"
    change = f"{tried.before} -> {tried.after or 'nothing'}".replace("\t", " ")
    return (
        f"survived  {tried.kind}, PTX line {tried.line}: {change}\n"
        f"          CUDA line {tried.place or '?'}: {tried.text[:90]}\n"
        f"          {known}"
    )


def mutants_summary(result: Mapping[str, Any]) -> str:
    """The counts and the score."""
    return (
        f"{result['refused']} of {result['executed']} mutants refused: {result['score']:.1%}; without those "
        f"that change no bit of any output {result['score_of_different']:.1%}, by the check for finalists "
        f"{result['score_thorough']:.1%}\n"
        f"not counted: {result['unchanged']} with the same machine code, {result['no_program']} no programs\n"
    )


def audit_page(result: Mapping[str, Any]) -> str:
    """The rates, of each template and of all."""
    return "\n".join(_audit_lines(result)) + "\n"


def _audit_lines(result: Mapping[str, Any]) -> Iterator[str]:
    yield f"{result['problem']} on {result['gpu']}, asked: {_asked(result['device'])}"
    for name, rates in [*result["templates"].items(), ("all", result)]:
        yield (
            f"{name:<20} false feasible {rates['false_feasible']} of {rates['feasible']}, false infeasible "
            f"{rates['false_infeasible']} of {rates['refused_by_hardware_rules']} "
            f"({rates['false_infeasible_without_spills']} of them without spills)"
        )
    for what in ("false_feasible_reasons", "false_infeasible_reasons"):
        for reason, count in result[what].items():
            yield f"  {what.removesuffix('_reasons').replace('_', ' ')}: {count} × {reason}"
    if result["register_model_error_median"] is not None:
        yield f"register model: off by {result['register_model_error_median']:g} at the median"
    if result["occupancy_asked"]:
        differs, asked = result["occupancy_differs"], result["occupancy_asked"]
        yield f"occupancy: {differs} of {asked} differ from the driver"


def _asked(device: str) -> str:
    return "ptxas and the table of GPUs" if device == "emulator" else f"the driver ({device})"
