"""The `__constant__` variables that a CUDA source declares.

Read by patterns: what is not understood is left to the compiler, and to the device that fills them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from evo.dtype import CXX_TYPES, element_of
from evo.errors import UsageError
from evo.space.expression import Expression
from evo.task import BufferSpec
from evo.template.macros import NO_CODE

_QUALIFIER = r"(?:const|volatile|(?:__align__|alignas)\s*\([^()]*\))"
_DECLARED = re.compile(
    rf"__constant__\s+(?:{_QUALIFIER}\s+)*(?P<kind>(?:(?:unsigned|signed|long|short)\s+)*[A-Za-z_][\w:]*)\s+"
    r"(?P<list>[A-Za-z_][^;={]*?)\s*(?P<end>[;={])"
)
_NAMED = re.compile(r"(\w+)\s*((?:\[[^\[\];]*\]\s*)*)")
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+([A-Za-z_]\w*)[ \t]+([^\n]+?)[ \t]*$", re.MULTILINE)
_CONSTANT = re.compile(r"\b(?:constexpr|const)\s+(?:\w+\s+)+?([A-Za-z_]\w*)\s*=\s*([^;{}]+);")
_CONDITIONAL = re.compile(r"^[ \t]*#[ \t]*if.*?^[ \t]*#[ \t]*endif", re.MULTILINE | re.DOTALL)
_DEPTH = 8
"""Macros within macros."""


@dataclass(frozen=True)
class Declared:
    """A `__constant__` variable. `dtype` is None where its type is not known; `lanes` are the elements of a
    vector (float2: 2). `sides` are the texts of its dimensions. `filled`: whether it has an initialiser."""

    name: str
    dtype: str | None
    lanes: int
    sides: tuple[str, ...]
    line: int
    filled: bool
    macros: Mapping[str, str]

    def elements(self, values: Mapping[str, object]) -> int | None:
        """How many numbers it holds, where its type is known and its sides are numbers, macros of the source
        and `values`."""
        if self.dtype is None:
            return None
        known = {**self.macros, **{name: str(value) for name, value in values.items()}}
        found = [_number(side, known) for side in self.sides]
        whole = [side for side in found if side is not None]
        return math.prod(whole) * self.lanes if len(whole) == len(found) else None

    def too_small(self, spec: BufferSpec, values: Mapping[str, object]) -> str | None:
        """What to say if the buffer does not fit into it; None where it does, or that is not known."""
        room, needs = self.elements(values), math.prod(spec.shape)
        if room is None or needs <= room:
            return None
        return f"__constant__ {self.name} has room for {room} elements, {spec.name} has {needs}"


def constants_of(text: str) -> dict[str, Declared]:
    """The variables of a source, by name."""
    return {one.name: one for one in _declarations(text)}


def unfilled(text: str) -> list[Declared]:
    """The variables that code which always runs reads, and that have no initialiser."""
    code = NO_CODE.sub(" ", text)
    always = _DECLARED.sub(" ", _CONDITIONAL.sub(" ", code))
    found = [one for one in constants_of(text).values() if not one.filled]
    return [one for one in found if re.search(rf"\b{one.name}\b", always)]


def _declarations(text: str) -> Iterator[Declared]:
    code = NO_CODE.sub(lambda found: "\n" * found[0].count("\n") or " ", text)
    macros = dict(_CONSTANT.findall(code)) | dict(_MACRO.findall(code))
    for found in _DECLARED.finditer(code):
        element, lanes = element_of(" ".join(found["kind"].split()))
        line, filled = code.count("\n", 0, found.start()) + 1, found["end"] != ";"
        for named in map(_NAMED.fullmatch, (one.strip() for one in found["list"].split(","))):
            if named:
                sides = tuple(re.findall(r"\[([^\]]*)\]", named[2]))
                yield Declared(named[1], CXX_TYPES.get(element), lanes, sides, line, filled, macros)


def _number(text: str, values: Mapping[str, str]) -> int | None:
    """The whole number that an expression of C is; None where it is none, or has other names."""
    for _ in range(_DEPTH):
        text = re.sub(r"\b[A-Za-z_]\w*", lambda name: values.get(name[0], name[0]), f"({text})")
    try:
        value = Expression(re.sub(r"(?<![/])/(?![/])", "//", text))({})
    except (UsageError, ArithmeticError, KeyError, RecursionError):
        return None
    return int(value) if isinstance(value, (int, float)) and value == int(value) else None
