"""Every conformance program, and the answers that a GPU gave to them."""

from __future__ import annotations

import json
import lzma
from collections.abc import Mapping
from functools import cache as once
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ptx import (
    atomics,
    clusters,
    conversions,
    copies,
    floating,
    flow,
    integer,
    matrix,
    memory,
    tensor_maps,
    warps,
    wgmma,
)
from ptx.operands import TYPES, unsigned
from ptx.programs import Program, Slice

FAMILIES = (
    integer,
    floating,
    conversions,
    flow,
    memory,
    warps,
    atomics,
    copies,
    clusters,
    matrix,
    wgmma,
    tensor_maps,
)
RECORDED = Path(__file__).with_name("recorded.xz")


@once
def programs() -> tuple[Program, ...]:
    """All programs, in a stable order."""
    made = [program for family in FAMILIES for program in family.programs()]
    assert len({p.name for p in made}) == len(made)
    return tuple(made)


def save(path: Path, device: str, answers: Mapping[str, bytes]) -> None:
    """Write recorded outputs by program name: a JSON line (device, digests, sizes), then the bytes, compressed."""
    known = {p.name: p for p in programs()}
    head = {
        "device": device,
        "programs": [[name, known[name].digest, len(raw)] for name, raw in answers.items()],
    }
    text = json.dumps(head).encode() + b"\n" + b"".join(answers.values())
    path.write_bytes(lzma.compress(text, preset=9 | lzma.PRESET_EXTREME))


@once
def recorded(path: Path = RECORDED) -> dict[str, tuple[str, bytes]]:
    """Program name -> (digest of the program it answers for, its output on the GPU); empty without a recording."""
    if not path.exists():
        return {}
    text = lzma.decompress(path.read_bytes())
    end = text.index(b"\n")
    found, at = {}, end + 1
    for name, digest, nbytes in json.loads(text[:end])["programs"]:
        found[name] = (digest, text[at : at + nbytes])
        at += nbytes
    return found


def recorded_device(path: Path = RECORDED) -> str:
    """The GPU that answered."""
    text = lzma.decompress(path.read_bytes())
    return str(json.loads(text[: text.index(b"\n")])["device"])


def wanted(part: Slice, answer: bytes | None) -> npt.NDArray[np.unsignedinteger] | None:
    """What a slice must hold: the recorded answer, else the exact expectation, else None (nothing to compare)."""
    if answer is not None:
        return np.frombuffer(answer, unsigned(TYPES[part.kind][2]), part.count, part.offset)
    return part.expected
