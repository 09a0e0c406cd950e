"""What a plain CUDA source says of its kernel: arguments, tunables, and a formula where it is elementwise.

Read by patterns, not by a compiler: what is not understood is left for a person to write.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from evo.dtype import DTYPES
from evo.errors import UsageError
from evo.template.macros import kernels_in

TYPES = {
    "float": "fp32",
    "double": "fp64",
    "half": "fp16",
    "__half": "fp16",
    "__nv_bfloat16": "bf16",
    "char": "i8",
    "signed char": "i8",
    "int8_t": "i8",
    "unsigned char": "u8",
    "uint8_t": "u8",
    "short": "i16",
    "int": "i32",
    "int32_t": "i32",
    "unsigned": "u32",
    "unsigned int": "u32",
    "uint32_t": "u32",
    "long long": "i64",
    "int64_t": "i64",
    "size_t": "u64",
    "bool": "bool",
}
"""C++'s names of the types that arguments may have."""
WHOLE = tuple(d.name for d in DTYPES.values() if d.kind in ("int", "uint") and d.nbytes >= 4)
"""Types of numbers that are sizes."""
SCALAR = 2
"""What a number that is no size is, in the example."""
_MACRO = re.compile(r"#\s*ifndef\s+(\w+)\s*\n\s*#\s*define\s+\1\s+(-?\d+)\s*\n\s*#\s*endif")
_FUNCTIONS = {
    "expf": "exp", "exp": "exp", "__expf": "exp", "sqrtf": "sqrt", "sqrt": "sqrt", "rsqrtf": "rsqrt",
    "fabsf": "abs", "fabs": "abs", "tanhf": "tanh", "logf": "log", "sinf": "sin", "cosf": "cos",
}  # fmt: skip
"""Functions of CUDA, and torch's of the same meaning."""


@dataclass(frozen=True)
class KernelArgument:
    """One argument: a pointer (`role` in, out or inout) or a number ("")."""

    name: str
    dtype: str
    role: str


@dataclass(frozen=True)
class KernelSource:
    """What was understood of a source. `formula`: `result` in torch for each buffer that is written, where
    every element depends on the same element of the others; empty where that is not so."""

    text: str
    entry: str
    arguments: tuple[KernelArgument, ...]
    tunables: dict[str, int]
    """Macros that have a default, with it."""
    block: tuple[str, ...]
    """Tunables that the position of a thread is made of."""
    formula: dict[str, str] = field(default_factory=dict)


def read_source(path: Path) -> KernelSource:
    """The only kernel of a .cu file. UsageError where there is none, or its arguments are not plain."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}", str(error)) from error
    entries = kernels_in(text)
    if len(entries) != 1:
        hint = "a file with one __global__ function that is no template"
        raise UsageError(f"{path} has {len(entries)} kernels", hint)
    code = without_comments(text)
    signature, body = _function(code, entries[0], path)
    signature = _with_plain_types(signature, code)
    tunables = {name: int(value) for name, value in _MACRO.findall(text)}
    arguments = tuple(_argument(one.strip(), body, path) for one in signature.split(",") if one.strip())
    position = " ".join(line for line in body.split(";") if "blockIdx" in line or "threadIdx" in line)
    block = tuple(name for name in tunables if re.search(rf"\b{name}\b", position))
    return KernelSource(text, entries[0], arguments, tunables, block, formula_of(body, arguments))


def without_comments(text: str) -> str:
    """CUDA without its comments."""
    return re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)


def _function(code: str, entry: str, path: Path) -> tuple[str, str]:
    """The arguments and the body of a function."""
    found = re.search(rf"\b{entry}\s*\(([^()]*)\)\s*\{{", code)
    if not found:
        raise UsageError(f"{path}: the arguments of {entry} are not plain", "names and types, no defaults")
    depth, at = 1, found.end()
    while depth and at < len(code):
        depth += {"{": 1, "}": -1}.get(code[at], 0)
        at += 1
    return found[1], code[found.end() : at - 1]


def _with_plain_types(signature: str, code: str) -> str:
    """The arguments, with the source's own names of types replaced: #define, using, typedef."""
    own = dict(re.findall(r"#\s*define\s+(\w+)\s+([\w ]+?)\s*$", code, re.MULTILINE))
    own |= dict(re.findall(r"\busing\s+(\w+)\s*=\s*([\w ]+?)\s*;", code))
    own |= {name: kind for kind, name in re.findall(r"\btypedef\s+([\w ]+?)\s+(\w+)\s*;", code)}
    for name, kind in own.items():
        if kind in TYPES:
            signature = re.sub(rf"\b{name}\b", kind, signature)
    return signature


def _argument(text: str, body: str, path: Path) -> KernelArgument:
    words = re.sub(r"\b(?:__restrict__|__restrict|const|__grid_constant__)\b", " ", text)
    match = re.fullmatch(r"\s*([\w ]+?)\s*(\*?)\s*(\w+)\s*", words)
    kind = " ".join(match[1].split()) if match else ""
    if not match or kind not in TYPES:
        raise UsageError(f"{path}: argument {text!r} is not understood", f"known types: {', '.join(TYPES)}")
    name = match[3]
    if not match[2]:
        return KernelArgument(name, TYPES[kind], "")
    if re.search(r"\bconst\b[^*]*\*", text):
        return KernelArgument(name, TYPES[kind], "in")
    read = re.sub(rf"\b{name}\s*\[[^\]]*\]\s*=(?!=)", " ", body)
    return KernelArgument(name, TYPES[kind], "inout" if re.search(rf"\b{name}\b", read) else "out")


def formula_of(body: str, arguments: tuple[KernelArgument, ...]) -> dict[str, str]:
    """`y[i] = 2 * x[i] + y[i]` as torch; nothing where an element depends on others."""
    buffers = [argument.name for argument in arguments if argument.role]
    numbers = [argument for argument in arguments if not argument.role]
    places = set(re.findall(rf"\b(?:{'|'.join(buffers)})\s*\[([^\]]*)\]", body))
    found: dict[str, str] = {}
    if len(places) != 1:
        return {}
    assigned = rf"\b({'|'.join(buffers)})\s*\[[^\]]*\]\s*([-+*/]?)=(?!=)([^;]*);"
    for name, sign, right in re.findall(assigned, body):
        if name in found:
            return {}
        expression = f"{name}[0] {sign} ({right})" if sign else right
        expression = re.sub(rf"\b({'|'.join(buffers)})\s*\[[^\]]*\]", r'x["\1"]', expression)
        expression = re.sub(r"(\d(?:\.\d*)?(?:e-?\d+)?|\.\d+)[fF]\b", r"\1", expression)
        for theirs, torchs in _FUNCTIONS.items():
            expression = re.sub(rf"(?<!\.)\b{theirs}\s*\(", f"torch.{torchs}(", expression)
        known = {"x", "torch", *buffers, *_FUNCTIONS.values(), *(number.name for number in numbers)}
        if set(re.findall(r"[A-Za-z_]\w*", expression)) - known or "?" in expression:
            return {}
        for number in numbers:
            value = f'problem["{number.name}"]' if number.dtype in WHOLE else f"{SCALAR:.1f}"
            expression = re.sub(rf"\b{number.name}\b", value, expression)
        found[name] = " ".join(expression.split())
    written = {argument.name for argument in arguments if argument.role in ("out", "inout")}
    return found if set(found) == written else {}
