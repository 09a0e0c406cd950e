"""What `evo emulate` shows: how each schedule ended, the first faults in the source, counts and conflicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evo.device.emulator import place_of
from evo.errors import CandidateError
from evo.trial import line_of

if TYPE_CHECKING:
    from evo.device.emulator.interpreter import Execution, Fault, Work
    from evo.explain.emulation import Emulation

SHOWN_CONFLICTS = 8
"""So many lines with bank conflicts are shown: the worst ones."""


def emulation_lines(result: Emulation, color: bool = False) -> Iterator[str]:
    """The result for a person, line by line."""

    def paint(code: str, text: str) -> str:
        return f"\033[{code}m{text}\033[0m" if color else text

    width = max(len(run.schedule) for run in result.runs)
    for run in result.runs:
        fault = run.execution.fault
        if fault is None:
            instructions = run.execution.counters.get("instructions", 0)
            yield (
                f"{run.schedule:<{width}}  {paint('32', 'no error')}  {run.execution.seconds * 1e3:.1f} ms, "
                f"{instructions:.0f} warp instructions, {run.execution.coverage:.0%} of the code ran"
            )
        else:
            error = run.error
            reason = error.reason if isinstance(error, CandidateError) else str(error)
            yield f"{run.schedule:<{width}}  {paint('1;31', reason)}"
    shown: set[tuple[int, int, str]] = set()
    for schedule, fault in result.faults.items():
        key = (fault.kind, fault.line or fault.ptx_line, fault.file)
        if key not in shown:
            shown.add(key)
            yield ""
            yield from _fault_lines(schedule, fault, result, paint)
    for name in result.changing:
        yield ""
        yield paint(
            "1;31", f"buffer {name} differs between schedules: its content depends on the order of events"
        )
    profile = next((run for run in result.runs if not run.execution.fault), None)
    if profile:
        yield ""
        yield from _counter_lines(profile.execution)
        yield from _conflict_lines(profile.execution.lines, result.source)
        if result.estimate:
            yield ""
            yield f"{result.gpu}: {result.estimate.explain()}"


def _fault_lines(schedule: str, fault: Fault, result: Emulation, paint: Any) -> Iterator[str]:
    def named(text: str) -> str:
        return text.replace(fault.file, result.file) if fault.file and result.file else text

    yield f"{paint('1', fault.text)}  (schedule {schedule})"
    yield f"  at {named(place_of(fault))}"
    if fault.other:
        yield f"  and {named(fault.other)}"
    if at := line_of(result.source, Path(fault.file).name, fault.line):
        first = max(0, at - 3)
        for number, line in enumerate(result.source.splitlines()[first : at + 2], first + 1):
            mark = ">" if number == at else " "
            text = f"  {mark} {number - at + fault.line:4} | {line}"
            yield paint("31", text) if number == at else text


def _counter_lines(execution: Execution) -> Iterator[str]:
    yield "counted over the grid:"
    shown = [
        (name, value)
        for name, value in execution.counters.items()
        if value and (not name.startswith("inst_") or value >= execution.counters["instructions"] / 100)
    ]
    for i in range(0, len(shown), 3):
        yield "  " + "".join(f"{name:<26}{value:>12.0f}   " for name, value in shown[i : i + 3]).rstrip()


def _conflict_lines(lines: Sequence[Work], source: str, limit: int = SHOWN_CONFLICTS) -> Iterator[str]:
    """The lines that cost most shared-memory wavefronts beyond the fewest possible."""
    worst = sorted(lines, key=lambda w: w.shared_wavefronts_ideal - w.shared_wavefronts)
    worst = [w for w in worst if w.shared_wavefronts > w.shared_wavefronts_ideal][:limit]
    yield ""
    if not worst:
        yield "no shared-memory bank conflicts"
        return
    yield "shared-memory bank conflicts by line (wavefronts, against the fewest possible):"
    for work in worst:
        name = Path(work.file).name
        at = line_of(source, name, work.line)
        code = source.splitlines()[at - 1].strip()[:70] if at else name
        factor = work.shared_wavefronts / max(1, work.shared_wavefronts_ideal)
        yield f"  {factor:5.1f}x {work.shared_wavefronts:>10}  line {work.line:>4}  {code}"


def emulation_record(result: Emulation) -> dict[str, Any]:
    """The same for a script."""
    runs = []
    for run in result.runs:
        error = run.error
        fault = run.execution.fault
        runs.append(
            {
                "schedule": run.schedule,
                "seconds": run.execution.seconds,
                "coverage": run.execution.coverage,
                "counters": run.execution.counters,
                "reason": error.reason if isinstance(error, CandidateError) else None,
                "detail": fault.text if fault else None,
                "where": place_of(fault) if fault else None,
                "line": fault.line if fault else None,
                "other": fault.other if fault else None,
            }
        )
    lines = next((run.execution.lines for run in result.runs if run.execution.lines), ())
    return {
        "kernel": result.kernel,
        "device": result.gpu,
        "green": result.green,
        "changing_buffers": list(result.changing),
        "runs": runs,
        "lines": [
            {
                "file": work.file,
                "line": work.line,
                "warp_instructions": work.warp_instructions,
                "shared_wavefronts": work.shared_wavefronts,
                "shared_wavefronts_ideal": work.shared_wavefronts_ideal,
                "global_sectors": work.global_sectors,
            }
            for work in lines
        ],
        "estimate_us": result.estimate.us if result.estimate else None,
    }
