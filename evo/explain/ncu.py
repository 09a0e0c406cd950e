"""Nsight Compute on one launch of one kernel: runs it and reads its report.

ncu starts a process of ours (`evo.device.launch_once`), which launches the candidate a few times on the
task's inputs. ncu profiles the last launch of that kernel alone. It repeats the launch once for every group
of counters. Clocks and caches stay as they are: that is nearest to what FAST measures (warm L2), and clocks
are not ours to set."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from evo.child import Command
from evo.device.launch_once import Request
from evo.errors import MachineError
from evo.evaluate import EvaluatorSpec
from evo.task import load_task
from evo.trial import Candidate

WARM_UP_LAUNCHES = 3
"""Launches before the one that is profiled."""
TIMEOUT_S = 300

_FAILURES = (
    (
        "ERR_NVGPUCTRPERM",
        "the GPU's counters are locked",
        "an administrator must allow them: https://developer.nvidia.com/ERR_NVGPUCTRPERM",
    ),
    (
        "LibraryNotLoaded",
        "the driver's profiling library is not there",
        "a container or sandbox may hide it: run on the host, or mount the driver's libraries",
    ),
    ("No kernels were profiled", "ncu saw no launch of the kernel", "see what the launching process said"),
    (
        "nsight-compute-lock",
        "another user's ncu holds the lock",
        "wait for it, or set TMPDIR to a folder of yours",
    ),
)
"""Words in ncu's output -> what they mean, and what to do."""


def run(ncu: Path, candidate: Candidate, spec: EvaluatorSpec, folder: Path) -> Path:
    """Profiles one launch of `candidate` on the GPU of `spec`; the `.ncu-rep` in `folder`. MachineError where
    ncu cannot be run or reads no counters."""
    request = folder / "launch.pickle"
    with spec.compiler(whole=True) as compiler:  # the lines of the source change no instruction
        binary = compiler.compile(candidate.source, candidate.entry, spec.arch)
    task = load_task(spec.task, spec.folders)
    program = Request.of(
        spec.device,
        binary,
        candidate.launch,
        task,
        candidate.problem,
        seed=spec.seed,
        times=WARM_UP_LAUNCHES + 1,
    ).write(request)
    report = folder / f"{candidate.entry}.ncu-rep"
    command = [
        str(ncu),
        "--force-overwrite",
        "--export",
        str(report),
        "--set",
        "full",
        "--import-source",
        "no",
        "--kernel-name-base",
        "function",
        "--kernel-name",
        candidate.entry,
        "--launch-skip",
        str(WARM_UP_LAUNCHES),
        "--launch-count",
        "1",
        "--clock-control",
        "none",
        "--cache-control",
        "none",
        *program,
    ]
    try:
        output = _output(command)
    finally:
        request.unlink()
    if not report.is_file():
        raise ncu_error(output)
    return report


def raw_page(ncu: Path, report: Path) -> str:
    """All metrics of a report, as ncu's CSV of raw values in base units."""
    return _output([str(ncu), "--import", str(report), "--page", "raw", "--csv", "--print-units", "base"])


def ncu_error(output: str) -> MachineError:
    """What ncu's output means where it made no report."""
    for words, message, hint in _FAILURES:
        if words in output:
            return MachineError(f"ncu: {message}", hint)
    errors = [line.removeprefix("==ERROR== ") for line in output.splitlines() if line.startswith("==ERROR==")]
    last = errors[-1:] or output.strip().splitlines()[-1:] or ["it said nothing"]
    return MachineError(f"ncu made no report: {last[0]}", "run `ncu --version`, and see evo doctor")


def metrics_of(page: str) -> dict[str, float]:
    """The numbers of a raw CSV page with one launch: metric -> value in its base unit. MachineError where
    there is no such page."""
    lines = page.splitlines()
    begin = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if begin is None:
        raise ncu_error(page)
    names, _units, *launches = list(csv.reader(io.StringIO("\n".join(lines[begin:]))))
    if not launches:
        raise ncu_error("No kernels were profiled")
    found = {}
    for name, text in zip(names, launches[-1], strict=False):
        number = _number(text)
        if re.fullmatch(r"[a-z0-9]+__\S+", name) and number is not None:
            found[name] = number
    return found


def value(metrics: Mapping[str, float], *patterns: str) -> float | None:
    """The largest metric whose whole name matches the first pattern that any matches."""
    for pattern in patterns:
        matching = [number for name, number in metrics.items() if re.fullmatch(pattern, name)]
        if matching:
            return max(matching)
    return None


def _number(text: str) -> float | None:
    try:
        number = float(text.replace(",", ""))
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _output(words: Sequence[str]) -> str:
    try:
        _, output = Command(words).wait(TIMEOUT_S)
    except OSError as error:  # it does not start, or does not end
        raise MachineError(f"ncu cannot be run: {error}", "see evo doctor") from error
    return output
