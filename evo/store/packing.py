"""Sources and samples as bytes. Sources of one template are alike: stored is what differs from another."""

from __future__ import annotations

import json
import zlib
from functools import lru_cache

import numpy as np

_LINES = b"\0\0"
"""How a source begins that is stored as lines: no chunk of the older form has no bytes."""


def pack_source(source: str, base: str | None) -> bytes:
    """`source`, compressed; where there is a `base`, only the lines that are not the base's.

    `unpack_source(pack_source(s, b), b) == s`.
    """
    if base is None:
        return zlib.compress(source.encode(), 9)
    parts = json.dumps(_difference(source.split("\n"), base), separators=(",", ":"))
    return _LINES + zlib.compress(parts.encode(), 9)


def unpack_source(packed: bytes, base: str | None) -> str:
    """The text that `pack_source` was given."""
    if base is None:
        return zlib.decompress(packed).decode()
    if not packed.startswith(_LINES):
        return _unpack_chunks(packed, base.encode())
    known, _ = _lines_of(base)
    lines: list[str] = []
    for part in json.loads(zlib.decompress(packed[len(_LINES) :])):
        lines += [part] if isinstance(part, str) else known[part[0] : part[0] + part[1]]
    return "\n".join(lines)


def _difference(lines: list[str], base: str) -> list[str | list[int]]:
    """`lines` in order: each itself, or for a run of the base's lines [the first one's number, how many]."""
    known, numbers = _lines_of(base)
    parts: list[str | list[int]] = []
    here = at = 0  # `at`: where the base would go on
    while here < len(lines):
        if at >= len(known) or known[at] != lines[here]:
            found = numbers.get(lines[here])
            if found is None:
                parts.append(lines[here])
                here, at = here + 1, at + 1  # as if the base's line were replaced by this one
                continue
            at = found
        run = _alike(lines, here, known, at)
        parts.append([at, run])
        here, at = here + run, at + run
    return parts


def _alike(lines: list[str], here: int, others: list[str], there: int) -> int:
    """How many of `lines` from number `here` on are the same as those of `others` from `there` on."""
    count, stride = 0, 64  # slices first: one call compares so many lines
    while True:
        some = lines[here + count : here + count + stride]
        same = others[there + count : there + count + stride]
        if some != same or not some:
            break
        count += len(some)
    for line, other in zip(some, same, strict=False):
        if line != other:
            break
        count += 1
    return count


@lru_cache(maxsize=16)
def _lines_of(base: str) -> tuple[list[str], dict[str, int]]:
    """The lines of a base, and where each one is."""
    known = base.split("\n")
    return known, {line: number for number, line in enumerate(known)}


_CHUNK = 12 << 10
_MARGIN = 8 << 10


def _unpack_chunks(packed: bytes, dictionary: bytes) -> str:
    """What older databases have: chunks of the text, each compressed with the base around the same place as
    zlib's dictionary, behind its size in two bytes."""
    raw = b""
    at = start = 0
    while at < len(packed):
        size = int.from_bytes(packed[at : at + 2], "little")
        around = dictionary[max(0, start - _MARGIN) : start + _CHUNK + _MARGIN]
        unpacker = zlib.decompressobj(zdict=around)
        raw += unpacker.decompress(packed[at + 2 : at + 2 + size])
        at += 2 + size
        start += _CHUNK
    return raw.decode()


def pack_samples(samples_us: tuple[float, ...]) -> bytes:
    """Raw samples as compressed little-endian float32 (a clock ticks far coarser than their 2^-24)."""
    return zlib.compress(np.asarray(samples_us, "<f4").tobytes(), 6)


def unpack_samples(packed: bytes) -> tuple[float, ...]:
    return tuple(float(s) for s in np.frombuffer(zlib.decompress(packed), "<f4"))
