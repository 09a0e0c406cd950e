"""Copies of a template with one planted fault each, for what the gate costs a wrong candidate."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from shutil import copy

from benchmarks.record import ROOT

FAULTS: Mapping[str, tuple[str, str]] = {
    "scale": ("scores, scale_log2);", "scores, scale_log2 * 1.02f);"),
    "lasttile": ("for (int i = 0; i < at.tiles; ++i) {", "for (int i = 0; i < at.tiles - 1; ++i) {"),
    "unmasked": ("if (key + kBN > length ||", "if (key + kBN > length + 1 ||"),
    "lastrow": ("if (at.first_query + row < length) {", "if (at.first_query + row + 1 < length) {"),
}
"""One change each to templates/attention/flash_mma.cu.jinja that shows in its numbers (a race may not)."""


def planted(folder: Path) -> list[str]:
    """flash_mma with one fault a copy, in a folder of its own; the names of the copies."""
    ours, where = ROOT / "templates" / "attention", folder / "attention"
    where.mkdir(parents=True)
    text = (ours / "flash_mma.cu.jinja").read_text()
    model = (ours / "flash_mma.py").read_text()
    copy(ours / "call.py", where)
    for name, (before, after) in FAULTS.items():
        if before not in text:
            raise SystemExit(f"error: flash_mma has no place for the fault {name!r}: {before}")
        (where / f"flash_{name}.cu.jinja").write_text(text.replace(before, after))
        (where / f"flash_{name}.py").write_text(model)
    return [f"flash_{name}" for name in FAULTS]
