"""What an author of a template in plain CUDA may get wrong between its two files: a macro that evo cannot
set, arguments that are not the kernel's.

Read by patterns: what is not understood is left to the compiler and the gate."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from evo.dtype import CXX_TYPES, Dtype, dtype_named
from evo.errors import BadTemplate
from evo.task import BufferSpec
from evo.template.constants import constants_of
from evo.template.macros import KERNEL, NO_CODE, Macros, kernels_in
from evo.trial import Argument, BufferArg, ScalarArg

_ORDER = "args has the order of the kernel's arguments"
_QUALIFIERS = re.compile(r"\b(?:__restrict__|__restrict|const|__grid_constant__|volatile)\b")
_CONDITION = re.compile(r"\s*#\s*(if|ifdef|ifndef|endif)\b")


@dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel, as its source has it. `dtype`: None of a type that is not known."""

    text: str
    name: str
    pointer: bool
    constant: bool
    dtype: Dtype | None


def check_macros(program: Macros, names: Sequence[str]) -> None:
    """BadTemplate if the source itself defines one of the `names`, whatever evo sets."""
    depth = 0
    for number, line in enumerate(_code(program.text).splitlines(), 1):
        if found := _CONDITION.match(line):
            depth += -1 if found[1] == "endif" else 1
        elif not depth and (defined := _defined(line)) in names:
            hint = f"#ifndef {defined}, #define {defined} …, #endif: in three lines"
            message = f"{defined} is defined here, whatever evo sets it to"
            raise BadTemplate(f"{program.path}:{number}: {message}", hint)


def check_kernel(path: Path, text: str, entry: str) -> None:
    """BadTemplate if `entry` stands in the `text` of a source, and not as a kernel that can be launched."""
    code = _code(text)
    if entry in kernels_in(text) or re.search(r"#\s*define\b.*__global__", code):
        return
    if found := next((one for one in KERNEL.finditer(code) if one["name"] == entry), None):
        what = "is a C++ template"
        hint = f"make its types macros, or write a kernel that calls it: __global__ void {entry}_of_float(…)"
    elif found := re.search(rf"\b{entry}\s*\(", code):
        what, hint = "is no kernel", f"__global__ void {entry}(…)"
    else:
        return
    line = code.count("\n", 0, found.end()) + 1
    raise BadTemplate(f"{path}:{line}: {entry} {what}", hint)


def parameters_of(text: str, entry: str) -> list[Parameter] | None:
    """The parameters of a kernel; None where the source has none of that name, several, or conditions."""
    code = _code(text)
    found = [one for one in KERNEL.finditer(code) if one["name"] == entry]
    if len(found) != 1:
        return None
    depth, begin, words = 1, found[0].end(), list[str]()
    for at in range(begin, len(code)):
        depth += {"(": 1, "<": 1, "[": 1, ")": -1, ">": -1, "]": -1}.get(code[at], 0)
        if (code[at] == "," and depth == 1) or not depth:
            words.append(" ".join(code[begin:at].split()))
            begin = at + 1
        if not depth:
            break
    if any("#" in one or "=" in one for one in words):
        return None
    return [_parameter(one) for one in words if one]


def check_arguments(
    place: str,
    entry: str,
    parameters: Sequence[Parameter],
    names: Sequence[str],
    args: Sequence[Argument],
    buffers: Sequence[BufferSpec],
) -> None:
    """BadTemplate at `place` if a kernel's `parameters` are not the `args` of its launch, which are called
    `names`."""
    if len(parameters) != len(args):
        takes = f"{entry} takes {len(parameters)} arguments: {', '.join(one.text for one in parameters)}"
        hint = "args names buffers, sizes and numbers, in the kernel's order"
        raise BadTemplate(f"{place}: {takes}; it is given {len(args)}: {', '.join(names)}", hint)
    specs = {buffer.name: buffer for buffer in buffers}
    for number, (parameter, name, arg) in enumerate(zip(parameters, names, args, strict=True), 1):
        if wrong := _wrong(parameter, name, arg, specs):
            what, hint = wrong
            raise BadTemplate(f"{place}: argument {number} of {entry} is `{parameter.text}`: {what}", hint)


def check_constants(
    path: Path,
    text: str,
    buffers: Sequence[BufferSpec],
    args: Sequence[Argument],
    values: Mapping[str, object],
) -> None:
    """BadTemplate if a buffer in constant memory has no `__constant__` variable in the `text` of a source, or
    one of another type or with too little room; `values` are known macros. A buffer that is among `args` may
    lack it."""
    found = constants_of(text)
    given = {getattr(arg, "buffer", None) for arg in args}
    for spec in (one for one in buffers if one.constant):
        own = found.get(spec.constant or "")
        if own is None and spec.name not in given:
            known = f"declared: {', '.join(found)}" if found else f"__constant__ float {spec.constant}[…];"
            raise BadTemplate(f"{path}:1: there is no __constant__ {spec.constant} for {spec.name}", known)
        if own is None:
            continue
        if own.dtype and dtype_named(own.dtype).nbytes != dtype_named(spec.dtype).nbytes:
            what = f"__constant__ {own.name} is {own.dtype}, and {spec.name} is in {spec.dtype}"
            raise BadTemplate(f"{path}:{own.line}: {what}", "one type in task.py and in the kernel")
        if small := own.too_small(spec, values):
            raise BadTemplate(f"{path}:{own.line}: {small}", f"{own.name}[{math.prod(spec.shape)}], or more")


def _wrong(
    parameter: Parameter, name: str, arg: Argument, specs: dict[str, BufferSpec]
) -> tuple[str, str] | None:
    """Why a parameter cannot be that argument, and what to write; None where it can."""
    wrong = None
    if isinstance(arg, ScalarArg):
        wrong = _wrong_number(parameter, name, dtype_named(arg.type))
    elif isinstance(arg, BufferArg) and arg.buffer in specs:
        wrong = _wrong_buffer(parameter, name, specs[arg.buffer])
    return wrong


def _wrong_number(parameter: Parameter, name: str, given: Dtype) -> tuple[str, str] | None:
    if parameter.pointer:
        return f"{name} is a number", _ORDER
    own = parameter.dtype
    if own is None or (own.floating, own.nbytes) == (given.floating, given.nbytes):
        return None
    return f"{name} is given as {given.name}", f'args=[…, Cast("{name}", "{own.name}")], of evo.template'


def _wrong_buffer(parameter: Parameter, name: str, spec: BufferSpec) -> tuple[str, str] | None:
    own, given = parameter.dtype, dtype_named(spec.dtype)
    if not parameter.pointer:
        return (f"{name} is a buffer", _ORDER) if own else None
    if parameter.constant and spec.written:
        return f"{name} is a buffer that the kernel writes", f"{_ORDER}; no const where it writes"
    if own and own.floating and given.floating and own.nbytes != given.nbytes:
        return f"{name} is in {given.name}", "one type in task.py and in the kernel"
    return None


def _parameter(text: str) -> Parameter:
    words = _QUALIFIERS.sub(" ", text)
    found = re.fullmatch(r"\s*([\w ]+?)\s*([*\s]*)\b(\w+)\s*((?:\[[^\]]*\])?)\s*", words)
    if not found:
        return Parameter(text, "", "*" in text, False, None)
    pointer = bool(found[2].strip() or found[4])
    constant = pointer and re.search(r"\bconst\b[^*]*(?:\*|\[)", text) is not None
    return Parameter(text, found[3], pointer, constant, _type_of(found[1]))


def _type_of(words: str) -> Dtype | None:
    name = CXX_TYPES.get(" ".join(words.split()))
    return dtype_named(name) if name else None


def _defined(line: str) -> str:
    """The name that a line defines as a macro or a constant."""
    found = re.match(r"\s*#\s*define\s+(\w+)|\s*(?:static\s+)?(?:constexpr|const)\b[\w\s]*?(\w+)\s*=", line)
    return (found[1] or found[2]) if found else ""


def _code(text: str) -> str:
    """The text without comments, with as many lines."""
    return NO_CODE.sub(lambda found: "\n" * found[0].count("\n") or " ", text)
