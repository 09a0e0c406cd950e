"""Mutants of arithmetic: constants, factors, terms, roundings, the order of operands."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from evo.selftest.mutation.statement import Change, Statement, is_number, is_register

_INTEGERS = ("add", "sub", "mul", "mad", "shl", "shr", "and", "or", "xor", "bfe", "bfi")
_FLOAT = re.compile(r"b?f\d+(?:x2)?$")
_WIDE = re.compile(r"f(?:32|64)$")
_ROUNDINGS = ("rn", "rz", "rm", "rp")
_IMMEDIATE = re.compile(r"\b0[fF]([0-9A-Fa-f]{8})\b")
_ORDERED = ("sub", "div", "setp", "shl", "selp")


def constants(s: Statement) -> Iterator[Change]:
    """An integer that is written out: one more, one less, twice, half."""
    last = len(s.operands) - 1
    if s.verb == "mov" and is_number(s.operands[last]):
        value = int(s.operands[last], 0)
        yield "constant", s.given({last: str(value + 1)})
        if value:
            yield "constant", s.given({last: str(value - 1)})
            yield "constant doubled", s.given({last: str(2 * value)})
        return
    if s.verb not in _INTEGERS or not is_register(s.operands[0]):
        return
    for index in range(1, last + 1):
        if is_number(s.operands[index]):
            value = int(s.operands[index], 0)
            yield "constant", s.given({index: str(value + 1)})
            yield "constant", s.given({index: str(value - 1)})
            if value and s.verb not in ("shl", "shr"):
                yield "constant doubled", s.given({index: str(2 * value)})
                yield "constant halved", s.given({index: str(int(value / 2))})


def scales(s: Statement) -> Iterator[Change]:
    """A number in fp32 that is written out: 2 % more or less, twice, half, its last bit, its sign."""
    found = _IMMEDIATE.search(s.text)
    if not found:
        return
    (value,) = struct.unpack(">f", bytes.fromhex(found[1]))
    bits = int(found[1], 16)
    changed = [("scale", 1.02 * value or 0.02), ("scale", 0.98 * value or -0.02)]
    if value and abs(value) < 1e38:
        changed += [("scale doubled", 2 * value), ("scale halved", value / 2), ("sign", -value)]
    for kind, other in changed:
        text = "0f" + struct.pack(">f", other).hex().upper()
        yield kind, s.whole(s.text[: found.start()] + text + s.text[found.end() :])
    for step in (1, -1):
        if value and abs(value) < 1e38:
            text = f"0f{bits + step:08X}"
            yield "last bit", s.whole(s.text[: found.start()] + text + s.text[found.end() :])


def factors(s: Statement) -> Iterator[Change]:
    """A product without one of its factors, or with one of them twice; a sum with one term only."""
    if not s.modifiers or not _FLOAT.match(s.modifiers[-1]):
        return
    kind, where = s.modifiers[-1], s.operands[0]
    move = "mov.b32" if kind.endswith("x2") else f"mov.{kind}"
    if s.verb == "mul":
        one, other = s.operands[1:]
        for kept, lost in ((one, other), (other, one)):
            yield "factor dropped", s.whole(f"{move} \t{where}, {kept}")
            yield "factor twice", s.instead(one, f"mul.{kind}", other, f"mul.{kind} \t{where}, other, {lost}")
    if s.verb in ("fma", "mad"):
        one, other, term = s.operands[1:]
        yield "term dropped", s.whole(f"mul.rn.{kind} \t{where}, {one}, {other}")
        yield "product dropped", s.whole(f"{move} \t{where}, {term}")
        for kept, lost in ((one, other), (other, one)):
            yield "factor dropped", s.whole(f"add.{kind} \t{where}, {kept}, {term}")
            yield "factor twice", s.instead(one, f"mul.{kind}", other, s.bare({1: "other", 2: lost}))
    if s.verb in ("add", "sub"):
        for kept in s.operands[1:]:
            yield "term dropped", s.whole(f"{move} \t{where}, {kept}")
        yield "sum made difference", s.coded(("sub" if s.verb == "add" else "add") + s.opcode[3:])
        yield "term twice", s.twice(f"{s.opcode} \t{where}, {where}, {s.operands[2]}")
    if s.verb == "neg":
        yield "sign", s.coded(move)


def maxima(s: Statement) -> Iterator[Change]:
    """A minimum for a maximum, or one of its two terms overlooked."""
    if s.verb in ("max", "min"):
        yield "maximum made minimum", s.coded(("min" if s.verb == "max" else "max") + s.opcode[3:])
        for kept in s.operands[1:3]:
            yield "maximum overlooks a term", s.whole(f"mov.{s.modifiers[-1]} \t{s.operands[0]}, {kept}")


def roundings(s: Statement) -> Iterator[Change]:
    """Another rounding; results or tiny numbers cut off, or not."""
    kind = s.modifiers[-1] if s.modifiers else ""
    if s.verb in ("add", "sub", "mul", "fma", "mad", "div", "rcp", "sqrt") and _WIDE.match(kind):
        given = next((m for m in s.modifiers if m in _ROUNDINGS), "")
        if "approx" not in s.modifiers and "full" not in s.modifiers:
            rest = [m for m in s.modifiers if m != given]
            for other in _ROUNDINGS:
                if other != (given or "rn"):
                    yield "rounding", s.coded(".".join([s.verb, other, *rest]))
            if s.verb in ("add", "sub", "mul", "fma") and "sat" not in s.modifiers:
                yield "saturated", s.coded(".".join([s.verb, *s.modifiers[:-1], "sat", kind]))
    if s.verb == "cvt" and "rn" in s.modifiers:
        packed = any(m.endswith("f16x2") for m in s.modifiers)
        for other in ("rz",) if packed else ("rz", "rm", "rp"):
            yield "rounding", s.coded(".".join(["cvt", *(other if m == "rn" else m for m in s.modifiers)]))
    if "ftz" in s.modifiers:
        yield "flushed or not", s.coded(".".join([s.verb, *(m for m in s.modifiers if m != "ftz")]))
    elif kind == "f32" and s.verb in ("add", "sub", "mul", "fma", "max", "min"):
        yield "flushed or not", s.coded(".".join([s.verb, *s.modifiers[:-1], "ftz", kind]))
    for cut in ("sat", "satfinite", "relu"):
        if cut in s.modifiers:
            yield "saturated", s.coded(".".join([s.verb, *(m for m in s.modifiers if m != cut)]))


def swaps(s: Statement) -> Iterator[Change]:
    """Operands in each other's place, where that matters; the halves of a packed pair."""
    if s.verb in _ORDERED and len(s.operands) > 2 and all(is_register(o) for o in s.operands[1:3]):
        yield "operands swapped", s.swapped(1, 2)
    if s.verb == "cvt" and len(s.operands) == 3:
        yield "operands swapped", s.swapped(1, 2)
        yield "fragment repeated", s.given({1: s.operands[2]})


OPERATORS = (constants, scales, factors, maxima, roundings, swaps)
