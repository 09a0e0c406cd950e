"""The formats of an exported folder, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from evo.errors import MachineError, UsageError
from evo.export.bundle import Bundle
from evo.export.c_header import write_c
from evo.export.flashinfer import write_flashinfer
from evo.export.huggingface import write_huggingface
from evo.export.python import write_python

FORMATS: Mapping[str, Callable[[Bundle, Path, Path | None], None]] = {
    "python": write_python,
    "flashinfer": write_flashinfer,
    "hf": write_huggingface,
    "c": write_c,
}
"""What writes each: it takes the bundle, an empty folder, and the compiled table of known calls, if there is
one."""


def write(bundle: Bundle, folder: Path, form: str, library: Path | None = None) -> None:
    """Writes `bundle` into `folder`, which is made. UsageError where it is not empty, or for another format;
    MachineError where it cannot be written."""
    if form not in FORMATS:
        raise UsageError(f"unknown format: {form}", f"one of {', '.join(FORMATS)}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is not empty", "name a folder that does not exist yet")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        FORMATS[form](bundle, folder, library)
    except OSError as error:
        raise MachineError(f"cannot write {folder}: {error.strerror}", "choose another with --to") from error
