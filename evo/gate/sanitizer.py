"""compute-sanitizer on one candidate: memcheck, initcheck, synccheck, restricted to the candidate's kernel.

For finalists on a GPU: it takes seconds a tool, and finds accesses that guards cannot see (a read past the
end whose value is not used, an uninitialised read that happens to do no harm). Not racecheck: it does not
see what TMA writes, and reports races of raw bulk copies that are none.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evo.child import Command
from evo.compile import find_tool
from evo.device.launch_once import Request
from evo.errors import Crashed, Hung, MachineError, Red
from evo.task import Task
from evo.trial import Binary, LaunchConfig, Problem

TOOLS = ("memcheck", "initcheck", "synccheck")
_SUMMARY = re.compile(r"ERROR SUMMARY: (\d+) error")
_FIRST = re.compile(
    r"^=+ ((?:Invalid|Uninitialized|Barrier|Program hit|Error|Misaligned|Potential).*)$", re.M
)
_AT = re.compile(r"^=+\s+(?:at|by thread) (.*)$", re.M)


@dataclass(frozen=True)
class Clean:
    """A tool that found nothing, and how long it took."""

    tool: str
    seconds: float


def sanitize(
    binary: Binary,
    launch: LaunchConfig,
    task: Task,
    problem: Problem,
    *,
    seed: int = 0,
    device: str = "cuda:0",
    tools: Sequence[str] = TOOLS,
    timeout_s: float = 120.0,
) -> tuple[Clean, ...]:
    """One launch of `binary` for `problem` on the GPU `device`, under each of the `tools`, on fresh plain
    inputs.

    Raises Red with the tool's first complaint, Hung after `timeout_s` a tool, Crashed where the launch fails
    without a complaint, MachineError where there is no compute-sanitizer or it cannot watch this GPU.
    """
    sanitizer = find_tool("compute-sanitizer")
    if sanitizer is None:
        raise MachineError("no compute-sanitizer on this machine", "it comes with the CUDA toolkit")
    with tempfile.TemporaryDirectory(prefix="evo-sanitize-") as name:
        request = Request.of(device, binary, launch, task, problem, seed=seed)
        program = request.write(Path(name) / "request")
        return tuple(_watch(sanitizer, tool, binary.entry, program, timeout_s) for tool in tools)


def _watch(sanitizer: Path, tool: str, entry: str, program: Sequence[str], timeout_s: float) -> Clean:
    begin = time.perf_counter()
    command = [
        str(sanitizer),
        "--tool",
        tool,
        "--kernel-name",
        f"kernel_substring={entry}",
        "--print-limit",
        "4",
        *program,
    ]
    here = Path(__file__).parents[2]  # so that the child finds the evo that asks
    try:
        status, said = Command(command, cwd=here).wait(timeout_s)
    except TimeoutError as late:
        raise Hung(f"no answer under {tool}", f"after {timeout_s:g} s") from late
    read_verdict(tool, said, status)
    return Clean(tool, time.perf_counter() - begin)


def read_verdict(tool: str, said: str, returncode: int) -> None:
    """Raises unless the tool says that there were no errors, and the program ended well."""
    summary = _SUMMARY.search(said)
    if summary is None:
        last = [line for line in said.splitlines() if line.strip()][-3:]
        raise MachineError(f"compute-sanitizer ({tool}) gave no verdict", " | ".join(last))
    if int(summary[1]):
        first, at = _FIRST.search(said), _AT.search(said)
        what = first[1].strip() if first else "error"
        kind = re.sub(r"\s+(?:of size \d+.*|at .*|\(.*\))$", "", what)
        raise Red(f"{tool}: {kind}", f"{summary[1]} errors, first: {what}", at[1].strip() if at else "")
    if returncode:
        last = [line for line in said.splitlines() if line.strip()][-1:]
        raise Crashed(f"ended with {returncode} under {tool}", " ".join(last))
