"""The source of another tuner's kernel: what evo cannot take of it, its arguments, its text made whole."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evo.dtype import CXX_TYPES, dtype_named, element_of
from evo.errors import UsageError
from evo.importers.script import Text
from evo.importers.source import function_of, without_comments
from evo.template.constants import Declared, constants_of, unfilled
from evo.template.macros import kernels_in

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]*)"[^\n]*$', re.MULTILINE)
_UNROLL = re.compile(
    r"^[ \t]*#[ \t]*pragma[ \t]+unroll[ \t(]+(loop_unroll_factor\w*)\)?[ \t]*$", re.MULTILINE
)
_HIP_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]hip/hip_runtime\.h[">]', re.MULTILINE)
_HIP = re.compile(r"hip/\w+\.h|\b(?:hip[A-Z]\w*|__hip_\w+|__builtin_amdgcn_\w+|HIP_\w+)")
Tunables = Mapping[str, Sequence[Any]]
_REFUSED = (
    (r"\b(?:__kernel\b|get_global_id\s*\()", "the kernel is OpenCL", "evo takes CUDA"),
    (r"\btexture\s*<", "the kernel reads a texture", "make it an argument: const float* __restrict__"),
)


@dataclass(frozen=True)
class SourceArgument:
    """One argument of a kernel as its source has it. `dtype` is None where the type is a macro or a name of
    the source; of a vector (float2) it is that of its elements."""

    name: str
    dtype: str | None
    pointer: bool
    constant: bool
    written: bool
    read: bool
    accumulated: bool
    """Whether values are added to what it holds."""


@dataclass(frozen=True)
class CudaSource:
    """A source without quoted includes, the arguments of one kernel, and what lies in constant memory."""

    text: str
    arguments: tuple[SourceArgument, ...]
    body: str
    constants: Mapping[str, Declared]

    def macros(
        self, sides: Sequence[str], grid: Sequence[str], block: Sequence[str], tunables: Tunables
    ) -> dict[str, str]:
        """The macros that Kernel Tuner defines besides the tunables, as far as the source has them. `sides`:
        the names of the block's sides."""
        found = {"kernel_tuner": "1"}
        found |= {f"grid_size_{end}": side for end, side in zip("xyz", [*grid, "1", "1"], strict=False)}
        found |= dict(zip(sides, [*block, "1", "1"], strict=False))
        missing = [name for name in found if not re.search(rf"\b{name}\b", self.text)]
        return {name: text for name, text in found.items() if name not in (*missing, *tunables)}


def read_kernel(source: Text, entry: str, folders: list[Path], filled: Collection[str] = ()) -> CudaSource:
    """The kernel `entry` of a source, whose quoted includes lie in `folders`. `filled`: variables in constant
    memory that the tuner fills. UsageError with file and line for what evo cannot take."""
    source = _without_hip(source)
    whole = _with_includes(source.text, source, folders, set())
    code = without_comments(whole)
    for pattern, message, hint in _REFUSED:
        if found := re.search(pattern, code):
            raise UsageError(f"{place_of(source, found[0])}: {message}: {' '.join(found[0].split())}", hint)
    _refuse_unfilled(source, code, filled)
    if not re.fullmatch(r"[A-Za-z_]\w*", entry):
        hint = "write a kernel that is no template and calls it with its types"
        raise UsageError(f"{source.origin}:{source.line}: {entry} is an instance of a C++ template", hint)
    if entry not in kernels_in(whole):
        found = re.search(rf"\b{entry}\s*\(", code)
        what = "is a C++ template" if found else "is not there"
        hint = f"kernels that are no templates: {', '.join(kernels_in(whole)) or 'none'}"
        raise UsageError(f"{place_of(source, entry)}: the kernel {entry} {what}", hint)
    text = _UNROLL.sub(lambda found: f"#if {found[1]} > 0\n{found[0]}\n#endif", whole)
    if (function := function_of(code, entry)) is None:
        hint = "names and types, no defaults, no functions"
        raise UsageError(f"{place_of(source, entry)}: the arguments of {entry} are not plain", hint)
    signature, body = function
    arguments = tuple(_argument(one, body, source) for one in signature.split(",") if one.strip())
    return CudaSource(text, arguments, body, constants_of(whole))


def _without_hip(source: Text) -> Text:
    """The source without the include of HIP's header, where that is all that it has of HIP."""
    code = _HIP_INCLUDE.sub("", source.text)
    if found := _HIP.search(without_comments(code)):
        hint = "evo takes CUDA: name the .cu file"
        raise UsageError(f"{place_of(source, found[0])}: the kernel is HIP: {found[0]}", hint)
    return Text(code, source.origin, source.line)


def _refuse_unfilled(source: Text, text: str, filled: Collection[str]) -> None:
    """UsageError if a kernel reads constant memory that nothing fills."""
    for one in unfilled(text):
        if one.name not in filled:
            found = re.search(rf"__constant__[^;]*\b{one.name}\b[^;]*;", text)
            words = " ".join(found[0].split()) if found else one.name
            hint = f'say what it holds: cmem_args={{"{one.name}": ...}}, or an argument of MemType Constant'
            what = f"the kernel reads constant memory that nothing fills: {words}"
            raise UsageError(f"{place_of(source, words.partition('[')[0])}: {what}", hint)


def held_in(source: CudaSource, name: str, dtype: str, elements: int, tunables: Tunables) -> str:
    """Why an array of `elements` cannot fill the variable `name`; "" where it can."""
    own = source.constants[name]
    largest = {tunable: max(values) for tunable, values in tunables.items() if _all_numbers(values)}
    if own.dtype and dtype_named(own.dtype).nbytes != dtype_named(dtype).nbytes:
        return f"{name} is {dtype} in the file and {own.dtype} in the kernel"
    room = own.elements(largest)
    if room is not None and room < elements:
        return f"__constant__ {name} has room for {room} elements, and is filled with {elements}"
    return ""


def _all_numbers(values: Iterable[object]) -> bool:
    return all(isinstance(value, (int, float)) for value in values)


def place_of(source: Text, words: str) -> str:
    """File and line where a source has these words, or the file's first line."""
    at = source.text.find(words)
    return f"{source.origin}:{source.line + (source.text.count(chr(10), 0, at) if at >= 0 else 0)}"


def _with_includes(text: str, source: Text, folders: list[Path], pasted: set[Path]) -> str:
    def content(match: re.Match[str]) -> str:
        for folder in folders:
            path = (folder / match[1]).resolve()
            if path.is_file() and path.is_relative_to(folder.resolve()):
                if path in pasted:
                    return ""
                pasted.add(path)
                inner = path.read_text(encoding="utf-8", errors="replace")
                return f"// {path.name}\n{_with_includes(inner, source, folders, pasted)}"
        hint = "put the file beside the source, or write it into the source"
        raise UsageError(f"{place_of(source, match[0].strip())}: there is no include {match[1]}", hint)

    return _INCLUDE.sub(content, text)


def _argument(text: str, body: str, source: Text) -> SourceArgument:
    words = re.sub(r"\b(?:__restrict__|__restrict|const|__grid_constant__|volatile)\b", " ", text)
    match = re.fullmatch(r"\s*([\w ]+?)\s*(\*?)\s*(\w+)\s*(\[\s*\])?\s*", words)
    if not match:
        hint = "a pointer or a number, without structs and functions"
        raise UsageError(f"{place_of(source, text.strip())}: argument {text.strip()!r} is not taken", hint)
    kind, name, pointer = " ".join(match[1].split()), match[3], bool(match[2] or match[4])
    dtype = CXX_TYPES.get(element_of(kind)[0])
    place = rf"\b{name}\s*\[(?:[^\[\]]|\[[^\]]*\])*\]"
    assigned, added = rf"{place}\s*=(?!=)", rf"{place}\s*(?:[-+*/|&^%]|<<|>>)=|{place}\s*(?:\+\+|--)"
    added = rf"{added}|atomic\w+\s*\(\s*(?:&\s*)?{name}\b"
    adds = re.search(added, body) is not None
    left = re.sub(assigned, " ", body)
    return SourceArgument(
        name,
        dtype,
        pointer,
        constant=bool(re.search(r"\bconst\b[^*]*\*", text)),
        written=adds or re.search(assigned, body) is not None,
        read=re.search(rf"\b{name}\s*\[", left) is not None,
        accumulated=adds,
    )


def role_of(argument: SourceArgument, starts_empty: bool, is_output: bool | None) -> str:
    """Whether a pointer is in, out or inout. `starts_empty`: the tuner fills it with zeros; `is_output`:
    whether the tuner compares it, where that is said."""
    if argument.constant or is_output is False:
        return "in"
    written = argument.written or bool(is_output) or starts_empty
    if not written:
        return "in"
    return "out" if starts_empty and not argument.read and not argument.accumulated else "inout"
