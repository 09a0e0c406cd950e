"""Files about one trial: `DIR/<study>/<number>/ablation.json`, `profile.json` and what came with them. They
are not in the database, for each can be made again."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

from evo.errors import MachineError

ArtifactKind = Literal["ablation", "profile"]
Artifact = TypeVar("Artifact")


def folder_of(root: Path, study: str, number: int) -> Path:
    """The folder of one trial; made where it is missing. MachineError where it cannot be."""
    folder = _study_folder(root, study) / str(number)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MachineError(f"cannot make {folder}: {error.strerror}", "choose another with --out") from error
    return folder


def write_artifact(root: Path, study: str, number: int, kind: ArtifactKind, record: dict[str, Any]) -> Path:
    """Writes `record` whole or not at all, in place of an earlier one. Returns its path."""
    path = folder_of(root, study, number) / f"{kind}.json"
    scratch = path.with_suffix(f".{os.getpid()}")
    try:
        scratch.write_text(json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
        scratch.replace(path)
    except OSError as error:
        scratch.unlink(missing_ok=True)
        raise MachineError(f"cannot write {path}: {error.strerror}", "choose another with --out") from error
    return path


def read_artifacts(
    root: Path, study: str, kind: ArtifactKind, make: Callable[[dict[str, Any]], Artifact]
) -> tuple[list[Artifact], list[Path]]:
    """The artifacts of that kind of the trials of `study`, in the order of their numbers, each made from its
    record; and the files that another evo wrote, which `make` cannot read."""
    paths = _study_folder(root, study).glob(f"*/{kind}.json")
    values, strange = [], []
    for path in sorted((p for p in paths if p.parent.name.isdecimal()), key=lambda p: int(p.parent.name)):
        try:
            values.append(make(json.loads(path.read_text())))
        except (OSError, ValueError, TypeError, KeyError):
            strange.append(path)
    return values, strange


def _study_folder(root: Path, study: str) -> Path:
    return root / re.sub(r"[^\w.+-]", "_", study)
