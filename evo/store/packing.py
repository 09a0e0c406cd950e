"""Sources and samples as bytes. Sources of one template are alike: each is compressed against another one."""

from __future__ import annotations

import json
import zlib
from functools import lru_cache
from threading import Lock

import numpy as np
import zstandard

LEVEL = 3
"""Of Zstandard. Higher levels take longer for sources of one template and make them no smaller."""
_ALONE = Lock()
"""A compressor is not for two threads at once: with two stores in one process it crashed."""


def pack_source(source: str, base: str | None) -> bytes:
    """`source`, compressed; where there is a `base`, with it as the dictionary.

    `unpack_source(pack_source(s, b), b) == s`.
    """
    with _ALONE:
        return _compressor(base).compress(source.encode())


def unpack_source(packed: bytes, base: str | None) -> str:
    """The text that `pack_source` was given, or an older version of it."""
    if not packed.startswith(zstandard.FRAME_HEADER):
        return _unpack_older(packed, base)
    return zstandard.ZstdDecompressor(dict_data=_dictionary(base)).decompress(packed).decode()


@lru_cache(maxsize=16)
def _compressor(base: str | None) -> zstandard.ZstdCompressor:
    return zstandard.ZstdCompressor(LEVEL, dict_data=_dictionary(base))


@lru_cache(maxsize=16)
def _dictionary(base: str | None) -> zstandard.ZstdCompressionDict | None:
    if not base:
        return None
    return zstandard.ZstdCompressionDict(base.encode(), dict_type=zstandard.DICT_TYPE_RAWCONTENT)


_LINES = b"\0\0"
_CHUNK = 12 << 10
_MARGIN = 8 << 10


def _unpack_older(packed: bytes, base: str | None) -> str:
    """What databases of before release 0.1.0 have: zlib's bytes; or the lines that are not the base's; or
    chunks of the text, each compressed with the base around the same place as zlib's dictionary, behind its
    size in two bytes."""
    if base is None:
        return zlib.decompress(packed).decode()
    if packed.startswith(_LINES):
        known, lines = base.split("\n"), []
        for part in json.loads(zlib.decompress(packed[len(_LINES) :])):
            lines += [part] if isinstance(part, str) else known[part[0] : part[0] + part[1]]
        return "\n".join(lines)
    raw, dictionary = b"", base.encode()
    at = start = 0
    while at < len(packed):
        size = int.from_bytes(packed[at : at + 2], "little")
        around = dictionary[max(0, start - _MARGIN) : start + _CHUNK + _MARGIN]
        raw += zlib.decompressobj(zdict=around).decompress(packed[at + 2 : at + 2 + size])
        at += 2 + size
        start += _CHUNK
    return raw.decode()


def pack_samples(samples_us: tuple[float, ...]) -> bytes:
    """Raw samples as compressed little-endian float32 (a clock ticks far coarser than their 2^-24)."""
    return zlib.compress(np.asarray(samples_us, "<f4").tobytes(), 6)


def unpack_samples(packed: bytes) -> tuple[float, ...]:
    """The samples that `pack_samples` was given, rounded to float32."""
    return tuple(float(s) for s in np.frombuffer(zlib.decompress(packed), "<f4"))
