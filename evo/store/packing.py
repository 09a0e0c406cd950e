"""Sources and samples as bytes. Sources of one template are alike: one is stored against another."""

from __future__ import annotations

import zlib

import numpy as np

_CHUNK = 12 << 10
_MARGIN = 8 << 10
"""zlib looks back 32 KB: a chunk of the text and the part of the base around the same place fit into that."""


def pack_source(source: str, base: str | None) -> bytes:
    """`source`, compressed with the same region of `base` as the dictionary where there is one.

    `unpack_source(pack_source(s, b), b) == s`.
    """
    raw = source.encode()
    if base is None:
        return zlib.compress(raw, 9)
    dictionary = base.encode()
    parts = []
    for start in range(0, len(raw), _CHUNK):
        packer = zlib.compressobj(9, zdict=_around(dictionary, start))
        part = packer.compress(raw[start : start + _CHUNK]) + packer.flush()
        parts.append(len(part).to_bytes(2, "little") + part)
    return b"".join(parts)


def unpack_source(packed: bytes, base: str | None) -> str:
    """The text that `pack_source` was given."""
    if base is None:
        return zlib.decompress(packed).decode()
    dictionary = base.encode()
    raw = b""
    at = start = 0
    while at < len(packed):
        size = int.from_bytes(packed[at : at + 2], "little")
        unpacker = zlib.decompressobj(zdict=_around(dictionary, start))
        raw += unpacker.decompress(packed[at + 2 : at + 2 + size])
        at += 2 + size
        start += _CHUNK
    return raw.decode()


def _around(dictionary: bytes, start: int) -> bytes:
    return dictionary[max(0, start - _MARGIN) : start + _CHUNK + _MARGIN]


def pack_samples(samples_us: tuple[float, ...]) -> bytes:
    """Raw samples as compressed little-endian float32 (a clock ticks far coarser than their 2^-24)."""
    return zlib.compress(np.asarray(samples_us, "<f4").tobytes(), 6)


def unpack_samples(packed: bytes) -> tuple[float, ...]:
    return tuple(float(s) for s in np.frombuffer(zlib.decompress(packed), "<f4"))
