"""What ptxas says, as values: resources from its report, reasons from its errors, a hash of its code.

Besides, PTX to machine code, and machine code to text.
"""

from __future__ import annotations

import hashlib
import re
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from textwrap import shorten

from evo.child import Command
from evo.compile.toolkit import Toolkit, find_tool
from evo.errors import MachineError, Uncompilable
from evo.trial import Binary, Resources

DETAIL_LINES = 12
_ERROR = re.compile(r"(?:\(\d+\)|:\d+:\d+): (?:catastrophic |fatal )?error(?: #\d+(?:-D)?)?: (?P<what>.*)")
_PTXAS = re.compile(r"ptxas.*?(?:error|fatal)\s*:\s*(?P<what>.*)")
_KNOWN_PTXAS = (
    (re.compile(r"uses too much shared data"), "static shared memory limit"),
    (re.compile(r"register allocation failed|too many registers|register count", re.I), "register limit"),
    (re.compile(r"too much (local|stack)", re.I), "local memory limit"),
    (
        re.compile(r"requires (PTX ISA )?\.target|not supported on \.target|requires \.target", re.I),
        "instruction not in this architecture",
    ),
    (re.compile(r"formal parameter space", re.I), "parameter space limit"),
)
_WARNING = re.compile(r"^\s*ptxas.*?(?:info|warning)\s*:\s*(?P<what>.*)", re.M)
_STATIC_ASSERT = re.compile(r"static assertion failed(?: with)? \"?(?P<what>[^\"]*)\"?")


def reason(log: str) -> str:
    """A short phrase by which failures can be counted: no names, lines or numbers that vary by point."""
    if error := _ERROR.search(log):
        what = error["what"].strip()
        if asserted := _STATIC_ASSERT.search(what):
            return f"static_assert: {asserted['what'].strip() or 'without words'}"
        return shorten(f"compiler error: {what}", 100, placeholder=" …")
    if error := _PTXAS.search(log):
        what = error["what"].strip()
        for pattern, phrase in _KNOWN_PTXAS:
            if pattern.search(what):
                return phrase
        return f"ptxas error: {re.sub(r'0x[0-9a-fA-F]+|[0-9]+', 'N', what)}"[:100]
    lines = [line for line in log.splitlines() if line.strip()]
    return f"compiler error: {lines[0].strip() if lines else 'without words'}"[:100]


def first_errors(log: str) -> str:
    """The first lines of `log` that matter: errors with what follows them; all of it if there are none."""
    lines = [line.rstrip() for line in log.splitlines() if line.strip()]
    first = next((i for i, line in enumerate(lines) if re.search(r"\b(error|fatal)\b", line)), 0)
    return "\n".join(lines[first : first + DETAIL_LINES])


def resources(log: str, entry: str) -> Resources:
    """What `ptxas -v` reports of `entry`; Uncompilable where it reports no such kernel."""
    parts = re.split(r"Compiling entry function '([^']+)'", log)
    reports = dict(zip(parts[1::2], parts[2::2], strict=True))
    if entry not in reports:
        mangled = re.compile(rf"_Z(?:N\w*?(?<!\d))?{len(entry)}{re.escape(entry)}")
        hint = '; it needs extern "C" before __global__' if any(map(mangled.match, reports)) else ""
        found = ", ".join(reports) or "none"
        raise Uncompilable("no entry point", f"the source has no kernel named {entry}: {found}{hint}")
    said = reports[entry]
    own = said.partition(f"Function properties for {entry}")[2]
    frame = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", own)
    used = re.search(r"Used (\d+) registers", said)
    static = re.search(r"Used \d+ registers.*?(\d+) bytes smem", said)
    if not frame or not used:
        raise RuntimeError(f"ptxas reports in an unknown form: {said[:500]}")
    said_besides = [
        m for m in _WARNING.finditer(log) if "warning" in m[0] or re.match(r"\(C\d{4}\)", m["what"])
    ]
    warnings = tuple(dict.fromkeys(m["what"].strip() for m in said_besides))
    return Resources(
        registers=int(used[1]),
        spill_bytes=int(frame[2]) + int(frame[3]),
        stack_bytes=int(frame[1]),
        static_smem_bytes=int(static[1]) if static else 0,
        warnings=warnings,
    )


def _sections(cubin: bytes) -> Iterator[tuple[str, int, int]]:
    """(name, offset, bytes) of the sections of an ELF file that have content in it."""
    if cubin[:5] != b"\x7fELF\x02":
        raise RuntimeError("the compiler's cubin is no 64-bit ELF file")
    table, size, count, names = (
        *struct.unpack_from("<Q", cubin, 0x28),
        *struct.unpack_from("<HHH", cubin, 0x3A),
    )
    headers = [struct.unpack_from("<IIQQQQ", cubin, table + i * size) for i in range(count)]
    strings = headers[names][4]
    for name, kind, _, _, offset, nbytes in headers:
        if kind != 8:  # SHT_NOBITS
            begin = strings + name
            yield cubin[begin : cubin.index(b"\0", begin)].decode(), offset, nbytes


_VARIABLE = re.compile(
    r"[ \t]*(?:\.\w+[ \t]+)*\.(?:global|const)[ \t][^;]*?([\w$]+)(?:\[\d*\])*[ \t]*(?:=[^;]*)?;"
)


def machine_code(cubin: bytes, ptx: str, entry: str) -> str:
    """A hash of the instructions, and of the tables that they read: equal for equal behaviour of equal
    launches. Line tables, names, provenance and unused constants do not count.

    The tables are taken from the PTX: in the cubin every namespace-scope `constexpr` has its place, used or
    not, so that a knob that nothing reads would seem to change the code."""
    digest = hashlib.sha256()
    own = False
    for name, offset, nbytes in sorted(_sections(cubin)):
        own |= name == f".text.{entry}"
        if name.startswith((".text.", ".nv.constant2")):
            digest.update(f"{name} {nbytes}\n".encode())
            digest.update(cubin[offset : offset + nbytes])
    if not own:
        raise Uncompilable("no entry point", f"the cubin has no kernel named {entry}")
    for variable in _declarations(ptx, _VARIABLE):
        if mentioned_twice(ptx, variable[1]):
            digest.update(variable[0].encode())
    return digest.hexdigest()[:32]


def _declarations(ptx: str, pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
    """The lines with `.global` or `.const` that begin as `pattern` does, once each: found by these words, in
    a tenth of the time that a search by line takes."""
    end = 0
    for word in re.finditer(r"\.(?:global|const)\s", ptx):
        line = ptx.rfind("\n", 0, word.start()) + 1
        if line >= end and (match := pattern.match(ptx, line)):
            end = match.end()
            yield match


def mentioned_twice(ptx: str, name: str) -> bool:
    """Whether `name`, as a whole word, is there at least twice: it is declared, and something uses it.

    A plain search: an expression with word boundaries took 80 ms a kernel, the most of all Python there."""
    found, at = 0, ptx.find(name)
    while at >= 0 and found < 2:
        end = at + len(name)
        found += not (_in_word(ptx[at - 1 : at]) or _in_word(ptx[end : end + 1]))
        at = ptx.find(name, end)
    return found > 1


def _in_word(character: str) -> bool:
    return character.isalnum() or character in ("_", "$")


def without_ptx_text(cubin: bytes) -> bytes:
    """The same cubin with its copy of the PTX text (55 of 100 KB; the PTX is kept beside it) blanked out."""
    blank = bytearray(cubin)
    for name, offset, nbytes in _sections(cubin):
        if name == ".nv_debug_ptx_txt":
            blank[offset : offset + nbytes] = bytes(nbytes)
    return bytes(blank)


def assemble(ptx: str, arch: str, ptxas: Path | None, timeout_s: float = 120.0) -> bytes:
    """The cubin of a PTX text. Uncompilable where ptxas refuses it, MachineError where there is no ptxas."""
    if ptxas is None:
        raise MachineError("no ptxas on this machine", "pip install nvidia-cuda-nvcc, or give --nvcc PATH")
    with tempfile.TemporaryDirectory(prefix="evo-ptxas-") as name:
        folder = Path(name)
        (folder / "x.ptx").write_text(ptx, encoding="utf-8")
        try:
            command = Command([str(ptxas), f"-arch={arch}", "x.ptx", "-o", "x.cubin"], cwd=folder)
            status, log = command.wait(timeout_s)
        except TimeoutError as late:
            raise Uncompilable("compile timeout", f"ptxas took more than {timeout_s:g} s") from late
        if status:
            raise Uncompilable(reason(log), first_errors(log))
        return (folder / "x.cubin").read_bytes()


def disassemble(binary: Binary, toolkit: Toolkit, timeout_s: float = 120.0) -> str:
    """The machine code (SASS) of `binary` as text. MachineError without nvdisasm and cuobjdump."""
    for name, option in (("nvdisasm", "-c"), ("cuobjdump", "-sass")):
        if tool := find_tool(name, toolkit.root):
            with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
                file.write(binary.cubin)
                file.flush()
                status, said = Command([str(tool), option, file.name]).wait(timeout_s)
            if status:
                raise MachineError(f"{tool} failed: {said.strip()}")
            return said
    raise MachineError("no nvdisasm and no cuobjdump found", "pip install nvidia-cuda-nvdisasm")
