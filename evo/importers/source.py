"""What a plain CUDA source says of its kernel: arguments, tunables, and a formula where it is elementwise.

Read by patterns, not by a compiler: what is not understood is left for a person to write.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from evo.dtype import CXX_TYPES, DTYPES, element_of
from evo.errors import UnknownName, UsageError
from evo.importers.positions import Launch, Positions
from evo.importers.statements import as_tunables, constants_in, may_be_tuned, with_plain_pointers
from evo.template.constants import Declared, unfilled
from evo.template.macros import kernels_in

WHOLE = tuple(d.name for d in DTYPES.values() if d.kind in ("int", "uint") and d.nbytes >= 4)
"""Types of numbers that are sizes."""
SCALARS = (2, 3, 5, 7, 11, 13)
"""What numbers that are no sizes are, in the example: each another, so that the gate sees which is which."""
_MACRO = re.compile(
    r"#\s*(?:ifndef\s+(\w+)|if\s+!\s*defined\s*\(?\s*(\w+)\s*\)?)\s*"
    r"#\s*define\s+(?:\1|\2)\s+\(?(-?\d+)\)?\s*#\s*endif"
)
_OF_HOST = ("main", "PYBIND11_MODULE", "TORCH_LIBRARY", "TORCH_LIBRARY_IMPL")
_HOST_INCLUDES = re.compile(
    r"^[ \t]*#[ \t]*include[ \t]*(<(?:torch|ATen|c10|pybind11)/[^>\n]*>)[^\n]*", re.MULTILINE
)
_HOST = re.compile(r"^[ \t]*#ifndef __CUDACC_RTC__$.*?^[ \t]*#endif", re.MULTILINE | re.DOTALL)
_NUMBER = re.compile(r"\(?(\d+)[uUlL]*\)?")
_SHARED = re.compile(
    r"\bextern\s+__shared__\s+(?:(?:__align__|alignas)\s*\([^()]*\)\s*)?([\w ]+?)\s+\w+\s*\[\s*\]"
)
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
    lanes: int = 1
    """Elements of a vector: 4 for a pointer to float4, whose `dtype` is fp32."""
    constant: str = ""
    """The `__constant__` variable that it is, if it is no argument."""
    elements: int | None = None
    """How many such a variable holds, where that is known."""


@dataclass(frozen=True)
class KernelSource:
    """What was understood of a source. `formula`: `result` in torch for each buffer that is written, where
    every element depends on the same element of the others; empty where that is not so."""

    text: str
    entry: str
    arguments: tuple[KernelArgument, ...]
    tunables: dict[str, int]
    """Macros that have a default, with it."""
    launch: Launch
    shapes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The sides of buffers by sizes, of those whose indices say them."""
    ranges: dict[str, str] = field(default_factory=dict)
    """Buffers whose elements are rows of another one, each with the size that they are below."""
    numbers: dict[str, int] = field(default_factory=dict)
    """Constants that grid and block depend on and that stay."""
    formula: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """What `text` has otherwise than the file, and what is a guess."""
    shared: str = ""
    """The type of the elements of its dynamic shared memory; "" where it has none."""
    constants: tuple[KernelArgument, ...] = ()
    """What it reads from constant memory that has no initialiser."""

    @property
    def sizes(self) -> list[str]:
        """Its sizes, those that are no arguments first."""
        made_up = [size for size in self.ranges.values() if size not in self._whole]
        return [*self.launch.made_up, *dict.fromkeys(made_up), *self._whole] or ["n"]

    @property
    def _whole(self) -> list[str]:
        return [a.name for a in self.arguments if not a.role and a.dtype in WHOLE]


def read_source(path: Path, kernel: str | None = None) -> KernelSource:
    """The only kernel of a .cu file, or the one of a name. UsageError where there is none, or its arguments
    are not plain."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no text", "a .cu file, in UTF-8") from error
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", "name a .cu file that is there") from error
    entry = _entry(path, text, kernel)
    text, notes = _without_host_code(text)
    code = without_comments(_HOST.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text))
    if (function := function_of(code, entry)) is None:
        raise UsageError(f"{path}: the arguments of {entry} are not plain", "names and types, no defaults")
    signature = [one.strip() for one in _with_plain_types(function[0], code).split(",") if one.strip()]
    named = [found[0] for one in signature if "*" in one and (found := re.search(r"\w+$", one))]
    body = with_plain_pointers(function[1], named)
    arguments = tuple(_argument(one, body, path) for one in signature)
    tunables = {one or other: int(value) for one, other, value in _MACRO.findall(code)}
    bounds = re.search(rf"__launch_bounds__\s*\(([^(),]*)[^()]*\)\s*(?:void\s+)?{entry}\b", code)
    places, freed, numbers = _places(text, code, body, arguments, tunables, bounds[1] if bounds else "")
    notes += [f"{name} is a macro with a default in the copy, so that it can be tuned" for name in freed]
    dynamic = _SHARED.search(body) or _SHARED.search(code)
    shared = CXX_TYPES.get(element_of(dynamic[1].strip())[0], "u8") if dynamic else ""
    notes += ["smem_bytes is a guess: an element of shared memory for each thread"] if shared else []
    shapes, ranges = _shapes(places, arguments)
    return KernelSource(
        as_tunables(text, freed),
        entry,
        arguments,
        tunables | freed,
        places.launch,
        shapes,
        ranges,
        numbers,
        formula_of(body, arguments),
        tuple(notes),
        shared,
        tuple(_constant(one, path) for one in unfilled(code)),
    )


def _places(
    text: str,
    code: str,
    body: str,
    arguments: tuple[KernelArgument, ...],
    tunables: dict[str, int],
    bounds: str,
) -> tuple[Positions, dict[str, int], dict[str, int]]:
    """What the body says of places; the constants that become tunables, as the launch depends on them; those
    that it depends on, too, and that stay."""
    taken = {*tunables, *(argument.name for argument in arguments)}
    constants = {name: one for name, one in constants_in(code).items() if name not in taken}
    plain = {name: int(found[1]) for name, one in constants.items() if (found := _NUMBER.fullmatch(one))}
    known = {name: one for name, one in constants.items() if name not in plain}
    free = {
        name: value
        for name, value in plain.items()
        if may_be_tuned(name, code) and as_tunables(text, {name: value}) != text
    }
    stay = {name: value for name, value in plain.items() if name not in free}
    sizes = [a.name for a in arguments if not a.role and a.dtype in WHOLE]
    numbers = {name: str(value) for name, value in stay.items()}

    def read(changed: dict[str, str]) -> Positions:
        return Positions(body, [*tunables, *free], known | numbers | changed, sizes, bounds)

    places = read({})
    depends = [name for name, value in stay.items() if read({name: str(value + 1)}).launch != places.launch]
    freed = {name: value for name, value in free.items() if name in places.launch.names}
    return places, freed, {name: stay[name] for name in depends}


def _shapes(
    places: Positions, arguments: tuple[KernelArgument, ...]
) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """The shapes of buffers that their indices say, and what the elements of buffers of indices are below."""
    kinds = {argument.name: argument.dtype for argument in arguments if argument.role}
    said = {name: places.shape_of(name) for name in kinds}
    plain = {name: shape for name, (shape, by) in said.items() if shape and not by}
    used = {size for shape in plain.values() for size in shape} | {axis.size for axis in places.launch.axes}
    indirect = {name: one for name, one in said.items() if kinds.get(one[1]) in WHOLE}
    used |= {size for shape, _ in indirect.values() for size in shape}
    ranges: dict[str, str] = {}
    for name, (shape, by) in indirect.items():
        size = next((size for size in places.sizes if size not in used), f"{name}_rows")
        ranges[by] = ranges.get(by, size)
        plain[name] = (ranges[by], *shape[1:])
    return plain, ranges


def _entry(path: Path, text: str, kernel: str | None) -> str:
    """The kernel that is meant. UsageError where that is not one."""
    entries = kernels_in(text)
    if kernel is not None and kernel not in entries:
        raise UnknownName.among("kernel", kernel, entries)
    if kernel is not None or len(entries) == 1:
        return kernel or entries[0]
    if entries:
        raise UsageError(
            f"{path} has {len(entries)} kernels: {', '.join(entries)}", f"--kernel {entries[-1]}"
        )
    code = without_comments(text)
    if found := re.search(r"template\s*<\s*(?:typename|class)\s+(\w+)[^>]*>\s*__global__", code):
        hint = f"write `using {found[1]} = float;` in place of `template <typename {found[1]}>`"
        if number := re.search(r"\b(?:int|unsigned|bool|size_t)\s+(\w+)", found[0]):
            hint += f"; make {number[1]} a macro: #ifndef {number[1]}, #define {number[1]} 128, #endif"
        raise UsageError(f"{path} has only kernels that are C++ templates", hint)
    if re.search(r"template\s*<[^>]*>\s*__global__", code):
        hint = "make the template's arguments macros: #ifndef N, #define N 128, #endif"
        raise UsageError(f"{path} has only kernels that are C++ templates", hint)
    raise UsageError(
        f"{path} has no kernel", "a .cu file with a __global__ void function; of a script: evo import"
    )


def without_comments(text: str) -> str:
    """CUDA with blanks in place of its comments: as long, and with the same lines."""

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match[0])

    return re.sub(r"//[^\n]*|/\*.*?\*/", blank, text, flags=re.DOTALL)


def _without_host_code(text: str) -> tuple[str, list[str]]:
    """The source, in which the compiler of kernels does not see `main` and functions that launch kernels."""
    code = re.sub(r'"(?:[^"\\\n]|\\.)*"', lambda found: " " * len(found[0]), without_comments(text))
    cuts, depth, begin, opened = [], 0, 0, 0
    for at, sign in enumerate(code):
        if sign == "{":
            opened = at if not depth else opened
            depth += 1
        elif sign == "}":
            depth -= 1
            head = code[begin:opened]
            name = re.search(r"(\w+)\s*\([^()]*\)\s*$", head)
            hosts = name and (name[1] in _OF_HOST or "<<<" in code[opened:at] or "torch::" in head)
            if not depth and hosts and name and not re.search(r"__global__|__device__", head):
                first = re.search(r"\S", re.sub(r"(?m)^[ \t]*#[^\n]*$", lambda f: " " * len(f[0]), head))
                cuts.append((begin + (first.start() if first else 0), at + 1, name[1]))
        if not depth and sign in ";}":
            begin = at + 1
    cuts += [(found.start(), found.end(), found[1]) for found in _HOST_INCLUDES.finditer(code)]
    for first_at, last_at, _ in sorted(cuts, reverse=True):
        inner = text[first_at:last_at]
        text = f"{text[:first_at]}#ifndef __CUDACC_RTC__\n{inner}\n#endif{text[last_at:]}"
    return text, [f"{name} is code of the host, which evo does not compile" for *_, name in sorted(cuts)]


def function_of(code: str, entry: str) -> tuple[str, str] | None:
    """The arguments and the body of a function; None where its arguments are not plain."""
    found = re.search(rf"\b{entry}\s*\(([^()]*)\)\s*\{{", code)
    if not found:
        return None
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
        if kind in CXX_TYPES:
            signature = re.sub(rf"\b{name}\b", kind, signature)
    return signature


def _argument(text: str, body: str, path: Path) -> KernelArgument:
    words = re.sub(r"\b(?:__restrict__|__restrict|const|__grid_constant__)\b", " ", text)
    match = re.fullmatch(r"\s*([\w ]+?)\s*(\*?)\s*(\w+)\s*", words)
    kind, lanes = element_of(" ".join(match[1].split())) if match else ("", 1)
    if not match or kind not in CXX_TYPES or (lanes > 1 and not match[2]):
        hint = "a number, or a pointer to some: float, half, __nv_bfloat16, int, int64_t, uint8_t, float4 …"
        raise UsageError(f"{path}: argument {text!r} is not understood", hint)
    name, dtype = match[3], CXX_TYPES[kind]
    if not match[2]:
        return KernelArgument(name, dtype, "")
    if re.search(r"\bconst\b[^*]*\*", text):
        return KernelArgument(name, dtype, "in", lanes)
    written = rf"\b{name}\s*\[[^\]]*\]|\*\s*reinterpret_cast\s*<[^>]*>\s*\(\s*&?\s*{name}\b[^;=]*?\)"
    read = re.sub(rf"(?:{written})\s*=(?!=)", " ", body)
    role = "inout" if re.search(rf"(?<![.\w]){name}\b", read) else "out"
    return KernelArgument(name, dtype, role, lanes)


def _constant(one: Declared, path: Path) -> KernelArgument:
    if one.dtype is None:
        hint = "numbers or vectors of them: __constant__ float filter[25];"
        raise UsageError(f"{path}:{one.line}: the type of __constant__ {one.name} is not understood", hint)
    return KernelArgument(one.name, one.dtype, "in", one.lanes, one.name, one.elements({}))


def formula_of(body: str, arguments: tuple[KernelArgument, ...]) -> dict[str, str]:
    """`y[i] = 2 * x[i] + y[i]` as torch; nothing where an element depends on others."""
    buffers = [argument.name for argument in arguments if argument.role]
    numbers = [argument for argument in arguments if not argument.role]
    values = scalar_values(arguments)
    places = set(re.findall(rf"\b(?:{'|'.join(buffers)})\s*\[([^\]]*)\]", body))
    found: dict[str, str] = {}
    if len(places) != 1 or any(argument.lanes > 1 for argument in arguments):
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
            value = f'problem["{number.name}"]' if number.dtype in WHOLE else values[number.name]
            expression = re.sub(rf"\b{number.name}\b", value, expression)
        found[name] = " ".join(expression.split())
    written = {argument.name for argument in arguments if argument.role in ("out", "inout")}
    return found if set(found) == written else {}


def scalar_values(arguments: Sequence[KernelArgument]) -> dict[str, str]:
    """What the numbers that are no sizes are in the example, as Python has them."""
    numbers = [a for a in arguments if not a.role and a.dtype not in WHOLE]
    return {
        number.name: "True" if number.dtype == "bool" else f"{SCALARS[i % len(SCALARS)]:.1f}"
        for i, number in enumerate(numbers)
    }
