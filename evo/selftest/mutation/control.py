"""Mutants of what is decided: predicates, branches, comparisons, bounds, signs of integers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from evo.selftest.mutation.statement import Change, Statement, is_number, is_register

SHIFTED = {
    "eq": "ne", "ne": "eq", "lt": "le", "le": "lt", "gt": "ge", "ge": "gt", "lo": "ls", "ls": "lo",
    "hi": "hs", "hs": "hi", "equ": "neu", "neu": "equ", "ltu": "leu", "leu": "ltu",
    "gtu": "geu", "geu": "gtu",
}  # fmt: skip
REVERSED = {
    "lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "lo": "hi", "hi": "lo", "ls": "hs", "hs": "ls",
}  # fmt: skip
_SIGNED = re.compile(r"^(?:setp|shr|cvt|mul|mad|rem|div|min|max|bfe|set|abs)\b")
_OTHER_SIGN = {"s32": "u32", "u32": "s32", "s64": "u64", "u64": "s64", "s16": "u16", "u16": "s16"}


def predicates(s: Statement) -> Iterator[Change]:
    """A guard turned round, or dropped; a branch that is always taken, or never."""
    if not s.guard:
        return
    turned = "@" + s.guard[2:] if s.guard.startswith("@!") else "@!" + s.guard[1:]
    yield "predicate turned", turned + s.text
    if s.verb == "bra":
        yield "branch forced", s.text
        yield "branch forced", ""
    else:
        yield "guard dropped", s.text


def comparisons(s: Statement) -> Iterator[Change]:
    """`<` for `<=`, `<` for `>`; two predicates joined otherwise."""
    if s.verb == "setp":
        for table, kind in ((SHIFTED, "comparison shifted"), (REVERSED, "comparison reversed")):
            if other := table.get(s.modifiers[0]):
                yield kind, s.coded(".".join(["setp", other, *s.modifiers[1:]]))
    if s.opcode in ("and.pred", "or.pred", "xor.pred"):
        yield "predicates joined otherwise", s.coded("or.pred" if s.verb == "and" else "and.pred")
        for kept in (1, 2):
            yield "predicate overlooked", s.whole(f"mov.pred \t{s.operands[0]}, {s.operands[kept]}")
    if s.opcode == "not.pred":
        yield "predicate turned", s.coded("mov.pred")


def selections(s: Statement) -> Iterator[Change]:
    """One of the two values always: a mask or a zero fill is lost, or everything is masked."""
    if s.verb == "selp":
        kind = s.modifiers[-1]
        for kept in (1, 2):
            yield "selection forced", s.whole(f"mov.{kind} \t{s.operands[0]}, {s.operands[kept]}")


def bounds(s: Statement) -> Iterator[Change]:
    """The limit of a comparison, a minimum or a maximum of integers: one more, one less, twice, half."""
    if s.verb not in ("setp", "min", "max") or not re.match(r"[su](?:16|32|64)$", s.modifiers[-1]):
        return
    last = len(s.operands) - 1
    bound, kind = s.operands[last], s.modifiers[-1]
    if is_number(bound):
        value = int(bound, 0)
        for how, other in (
            ("off by one", value + 1),
            ("off by one", value - 1),
            ("doubled", 2 * value),
            ("halved", value // 2),
        ):
            if other != value and (other >= 0 or kind[0] == "s"):
                yield f"bound {how}", s.given({last: str(other)})
    elif is_register(bound, "r rd"):
        bits = kind[1:]
        for how, operation, amount in (
            ("off by one", f"add.s{bits}", "1"),
            ("off by one", f"add.s{bits}", "-1"),
            ("doubled", f"shl.b{bits}", "1"),
            ("halved", f"shr.{kind[0]}{bits}", "1"),
        ):
            yield f"bound {how}", s.computed(last, operation, amount)


def signs(s: Statement) -> Iterator[Change]:
    """Signed for unsigned, or the other way round."""
    kind = s.modifiers[-1] if s.modifiers else ""
    if not _SIGNED.match(s.opcode) or kind not in _OTHER_SIGN or "lo" in s.modifiers:
        return
    modifiers = [_OTHER_SIGN.get(m, m) for m in s.modifiers]
    if s.verb == "cvt" and s.modifiers[-2][0] in "su" and int(s.modifiers[-2][1:]) <= int(kind[1:]):
        return  # to the same width or a smaller one: no bit depends on the sign
    yield "signed for unsigned", s.coded(".".join([s.verb, *modifiers]))


OPERATORS = (predicates, comparisons, selections, bounds, signs)
