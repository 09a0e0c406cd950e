"""Clocks and places that a kernel reads: by them it can tell the gate's launches from others."""

from __future__ import annotations

import re
from collections.abc import Iterable

from evo.compile.ptx_text import code_of
from evo.trial import LaunchConfig

_PLACE = re.compile(
    r"%(clock|globaltimer|smid|nsmid|gridid|warpid|nwarpid|pm|envreg|current_graph_exec|total_smem_size"
    r"|aggr_smem_size|reserved_smem_offset)(?:64|_lo|_hi|\d+(?:_64)?|_\w+)?\b"
)


def undeclared(reads: Iterable[str], declared: Iterable[str], launch: LaunchConfig) -> tuple[str, ...]:
    """Of the places that a kernel reads, those that are not declared. A cooperative launch says that
    it takes the address of the grid's barrier from %envreg."""
    known = {*declared, "%envreg"} if launch.cooperative else {*declared}
    return tuple(name for name in reads if name not in known)


def places_read(ptx: str) -> tuple[str, ...]:
    """The special registers by which a kernel may tell one launch, or one place on the GPU, from another,
    sorted: "%clock" (64 and hi too), "%globaltimer", "%smid", "%gridid", "%warpid", "%envreg" …"""
    if not _PLACE.search(ptx):
        return ()
    return tuple(sorted({f"%{found[1]}" for found in _PLACE.finditer(code_of(ptx))}))
