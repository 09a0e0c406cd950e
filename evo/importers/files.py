"""`evo import`: which importer takes a file, and what the task is called."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from evo.errors import UnknownName, UsageError
from evo.importers.kernel_tuner import read_script
from evo.importers.made import Made, task_name, writing
from evo.importers.t1 import read_t1
from evo.importers.tuned import TunedKernel, write_task

KINDS = ("kernel-tuner", "kernelbench", "flashinfer-trace")
Given = Mapping[str, int | float | str]


def import_file(
    kind: str,
    file: Path,
    folder: Path,
    name: str | None = None,
    kernel: str | None = None,
    given: Given | None = None,
    reference: Path | None = None,
) -> Made:
    """Writes `folder/NAME` from a file of another tool. UsageError with file and line for what cannot be
    taken; nothing is written then."""
    if kind not in KINDS:
        raise UnknownName.among("kind of file", kind, list(KINDS))
    for path in (file, reference):
        if path is not None and not path.is_file():
            raise UsageError(f"there is no file {path}", "name a file that is there")
    with writing(folder):
        if kind == "kernelbench":
            from evo.importers.kernelbench import import_problem, task_word

            return import_problem(file, folder, name or task_name(task_word(file)), given or {})
        if kind == "flashinfer-trace":
            from evo.importers.flashinfer_trace import import_definition

            return import_definition(file, folder, name or "", given or {})
        tuned = _tuned(file, kernel, given or {}, reference)
        return write_task(name or task_name(tuned.entry), folder, tuned)


def _tuned(file: Path, kernel: str | None, given: Given, reference: Path | None) -> TunedKernel:
    if file.suffix == ".json":
        if kernel is not None or given:
            raise UsageError("a T1 file says its kernel and its numbers", "leave out --kernel and --set")
        return read_t1(file, reference)
    return read_script(file, kernel, given, reference)
