"""What the cache keeps of a compiled kernel: what is read out of it, its cubin and its PTX, in a few bytes.

For a kernel of `flash_mma` that takes 8 ms of a core (lab/throughput.md). So the process that compiles does
it: the threads that compile for several GPUs would wait for each other. That process has the standard library
and `evo` alone, and so have the modules that are imported here.
"""

from __future__ import annotations

import json
import lzma
import re
from dataclasses import asdict

from evo.compile.built import Built, Wanted
from evo.compile.places import places_read
from evo.compile.ptxas import first_errors, machine_code, reason, resources, without_ptx_text
from evo.compile.state import module_state
from evo.errors import Uncompilable
from evo.trial import Binary, Resources

READING = 3
"""Counts up when more, or something else, is read out of what a compiler gives: older entries are void."""
XZ_PRESET = 1
"""At 6 what is kept is an eighth smaller, and takes 20 ms more of a core for each candidate."""
DAMAGED = lzma.LZMAError, EOFError, ValueError, KeyError, TypeError
"""What `unpacked` raises of a damaged entry."""
_FOLDER = re.compile(r'(\n[ \t]*\.file[ \t]+\d+[ \t]+")[^"\n]*/')
"""What PTX says before the name of a file: the folder that happened to be the compiler's, or a toolkit's."""


def packed(built: Built, wanted: Wanted, seconds: float) -> bytes:
    """What came out of a compiler after so many seconds. Uncompilable with a short reason if it says no, or
    has no such kernel; `detail` has its first errors with their lines."""
    if not built.ok:
        raise Uncompilable(reason(built.log), first_errors(built.log))
    cubin, ptx = without_ptx_text(built.cubin), _FOLDER.sub(r"\1", built.ptx.decode())
    kept_ptx = ptx.encode() if "ptx" in wanted.parts else b""
    read = {
        "entry": wanted.entry,
        "arch": wanted.arch,
        "compiler": wanted.version,
        "resources": asdict(resources(built.log, wanted.entry)),
        "machine_code": machine_code(cubin, ptx, wanted.entry),
        "seconds": seconds,
        "state": module_state(ptx),
        "reads": places_read(ptx),
        "ptx_bytes": len(kept_ptx),
    }
    content = json.dumps(read).encode() + b"\n" + kept_ptx + (cubin if "cubin" in wanted.parts else b"")
    return lzma.compress(content, check=lzma.CHECK_CRC32, preset=XZ_PRESET)


def unpacked(entry: bytes) -> Binary:
    """The binary of a packed entry; one of DAMAGED where it is none."""
    head, _, rest = lzma.decompress(entry).partition(b"\n")  # which checks its sum
    fields = json.loads(head)
    cut = fields.pop("ptx_bytes")
    fields["resources"]["warnings"] = tuple(fields["resources"]["warnings"])
    fields["resources"] = Resources(**fields["resources"])
    fields |= {name: tuple(fields[name]) for name in ("state", "reads")}
    return Binary(ptx=rest[:cut].decode(), cubin=rest[cut:], **fields)
