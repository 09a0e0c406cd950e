"""Faulty variants of the honest kernels in this folder, each with what the emulator must say and where.

A comment on a line plants faults and says where they show:

    // FAULT name: replacement      in the variant `name`, the line's code is `replacement`
    // SEEN name, name: reason      the report of those variants may point at this line, for that reason
    (`|`: or)
    // RESULT name                  no access is wrong; the variant must give a wrong result
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
_TAGS = re.compile(r"\s*// (?=FAULT |SEEN |RESULT )")


@dataclass(frozen=True)
class Fault:
    """One variant: its source, and per source line the reasons that may be reported there."""

    kernel: str
    name: str
    source: str
    seen: dict[int, frozenset[str]]
    wrong_result: bool

    @property
    def reasons(self) -> frozenset[str]:
        return frozenset().union(*self.seen.values())


def kernels() -> list[str]:
    """Names of the honest kernels."""
    return sorted(path.stem for path in FOLDER.glob("*.cu"))


def honest(kernel: str) -> str:
    """A kernel's source without its comments about faults."""
    return "\n".join(_TAGS.split(line)[0] for line in _lines(kernel)) + "\n"


def faults(kernel: str) -> list[Fault]:
    """Every variant of a kernel."""
    codes, tags = [], []
    for line in _lines(kernel):
        code, *notes = _TAGS.split(line)
        codes.append(code)
        tags.append(notes)
    names: list[str] = []
    for notes in tags:
        names += [n.split(":")[0].removeprefix("FAULT ").strip() for n in notes if n.startswith("FAULT ")]
    return [_variant(kernel, name, codes, tags) for name in dict.fromkeys(names)]


def _lines(kernel: str) -> list[str]:
    return (FOLDER / f"{kernel}.cu").read_text().splitlines()


def _variant(kernel: str, name: str, codes: list[str], tags: list[list[str]]) -> Fault:
    out = []
    seen: dict[int, frozenset[str]] = {}
    wrong_result = False
    for number, (code, notes) in enumerate(zip(codes, tags, strict=True), 1):
        changed = code
        for note in notes:
            word, _, rest = note.partition(" ")
            named, _, text = rest.partition(":")
            if name not in re.split(r"[,\s]+", named.strip()):
                continue
            if word == "FAULT":
                changed = text.strip()
            elif word == "RESULT":
                wrong_result = True
            else:
                reasons = frozenset(r.strip() for r in text.split("|"))
                seen[number] = seen.get(number, frozenset()) | reasons
        out.append(changed)
    return Fault(kernel, name, "\n".join(out) + "\n", seen, wrong_result)
