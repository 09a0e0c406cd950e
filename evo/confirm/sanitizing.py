"""What compute-sanitizer says of a finalist."""

from __future__ import annotations

from evo.errors import Hung, MachineError, Red
from evo.evaluate import Evaluator
from evo.gate import Green
from evo.gate.sanitizer import sanitize
from evo.trial import Binary, Candidate, LaunchConfig, Problem

MOST_BYTES = 128 << 20
"""Of a launch's buffers: they are written to a file first, and it looks at each access."""


def sanitized(evaluator: Evaluator, candidate: Candidate, green: Green) -> str:
    """What it says of one that is clean, or why it was not asked; Red where memcheck complains.

    A finalist of a large problem is watched on the largest of the gate's small ones.
    """
    try:
        problem, launch = _watched(evaluator, candidate, green)
        binary = _with_lines(evaluator, candidate, green.kernel.binary)
        where = evaluator.device.torch_device
        clean = sanitize(binary, launch, evaluator.task, problem, device=where, timeout_s=60)
    except (MachineError, Hung) as error:  # a tool that is absent, or too slow for the problem
        return f"not asked: {error.message}"
    except Red as red:
        if red.reason.startswith("memcheck"):
            raise
        # the others have been tried on too few templates for their word alone to refuse a winner
        return f"complains: {red.message}"
    at = "" if problem is green.problem else f" (at {problem.key})"
    return "clean: " + ", ".join(found.tool for found in clean) + at


def _watched(evaluator: Evaluator, candidate: Candidate, green: Green) -> tuple[Problem, LaunchConfig]:
    nbytes = evaluator.task.nbytes(green.problem) + sum(w.nbytes for w in green.launch.workspaces)
    if nbytes <= MOST_BYTES:
        return green.problem, green.launch
    if (small := evaluator.small_launch(candidate)) is None:
        raise MachineError("the problem is too large, and no small one has the same code")
    return small


def _with_lines(evaluator: Evaluator, candidate: Candidate, timed: Binary) -> Binary:
    """The instructions that are timed, with the lines of the source that a tool may name."""
    with evaluator.spec.compiler(whole=True) as compiler:
        binary = compiler.compile(candidate.source, candidate.entry, timed.arch)
    return binary if binary.machine_code == timed.machine_code else timed
