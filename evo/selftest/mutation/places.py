"""Mutants of which lane accesses which byte: addresses, lanes, masks, vectors, swizzles, zeros."""

from __future__ import annotations

import re
from collections.abc import Iterator

from evo.selftest.mutation.statement import (
    Change,
    Statement,
    exchanged,
    is_number,
    is_register,
    members,
    vector,
)

_STORE = re.compile(r"^(?:st|red|stmatrix|wmma\.store|cp\.async\.(?:c[ag]|bulk)(?!\.(?:wait|commit)))\b")
_LOAD = re.compile(r"^(?:ld\.(?:global|shared|v)|ld(?!\.param|matrix)\b)")
_ADDRESS = re.compile(r"\[(%\w+)(?:\+(-?\d+))?\]")
LANES = (0, 13, 31)
"""Lanes whose access is lost."""
NAN_PAIR = "0x7FFF7FFF"


def stores(s: Statement) -> Iterator[Change]:
    """A store or copy is gone; a load; or one lane's."""
    if _STORE.match(s.text):
        yield "store dropped", ""
    elif _LOAD.match(s.text):
        yield "load dropped", ""
    else:
        return
    for lane in LANES:
        yield "one lane's access lost", _without_lane(s, lane)


def _without_lane(s: Statement, lane: int) -> str:
    own = s.guard.strip()
    join = ""
    if own:
        name = own.lstrip("@!")
        join = f"not.pred \town, {name}; " if own.startswith("@!") else f"mov.pred \town, {name}; "
        join += "and.pred \tothers, others, own; "
    declared = "others, own" if own else "others"
    test = f"mov.u32 \tlane, %laneid; setp.ne.u32 \tothers, lane, {lane};"
    return f"{{ .reg .pred {declared}; .reg .b32 lane; {test} {join}@others {s.text}; }}"


def addresses(s: Statement) -> Iterator[Change]:
    """Another 16 bytes further or nearer; the next element."""
    found = _ADDRESS.search(s.text)
    if not found or "param" in s.modifiers or s.verb in ("mbarrier", "prefetch"):
        return
    offset = int(found[2] or 0)
    wide = re.search(r"[bsuf](16|32|64)$", s.opcode)
    element = int(wide[1]) // 8 if wide else 16
    for other in dict.fromkeys((offset + 16, offset - 16, offset + element, offset - element)):
        place = f"[{found[1]}+{other}]" if other else f"[{found[1]}]"
        yield "offset", s.whole(s.text[: found.start()] + place + s.text[found.end() :])


def zeros(s: Statement) -> Iterator[Change]:
    """A zero that padding is filled with is lost: garbage stands there."""
    if re.match(r"mov\.[bsu]32$", s.opcode) and s.operands[1] == "0":
        yield "zero fill lost", s.given({1: NAN_PAIR})
    if re.match(r"mov\.f32$", s.opcode) and s.operands[1] == "0f00000000":
        yield "zero fill lost", s.given({1: "0f7FFFFFFF"})
    if re.match(r"cp\.async\.c[ag]\b", s.opcode) and len(s.operands) == 4:
        size = s.operands[2]
        yield "zero fill lost", s.given({3: size})
        yield "zero fill lost", s.whole(f"{s.opcode} \t{', '.join(s.operands[:3])}")
        yield "zero fill of half", s.computed(3, "shr.u32", "1")


def swizzles(s: Statement) -> Iterator[Change]:
    """An exclusive or is dropped, or off by one bit; a mask is narrower or wider by one bit."""
    if s.opcode.startswith("xor.b"):
        bits = s.opcode[5:]
        yield "swizzle dropped", s.whole(f"mov.b{bits} \t{s.operands[0]}, {s.operands[1]}")
        if is_register(s.operands[2]):
            yield "swizzle dropped", s.whole(f"mov.b{bits} \t{s.operands[0]}, {s.operands[2]}")
        for bit in (0, 3, 4, 5, 6):
            amount = str(1 << bit)
            yield "swizzle off by one bit", s.computed(2, f"xor.b{bits}", amount)
    if s.opcode.startswith("and.b") and is_number(s.operands[2]):
        mask = int(s.operands[2], 0)
        if mask > 0:
            low, high = mask & -mask, 1 << (mask.bit_length() - 1)
            for other in (mask & ~low, mask & ~high, mask | low >> 1, mask | high << 1):
                if other != mask:
                    yield "mask off by one bit", s.given({2: str(other)})


def lanes(s: Statement) -> Iterator[Change]:
    """Exchanges between lanes: another lane, fewer lanes, a narrower segment, no exchange."""
    if s.verb == "shfl":
        where = s.operands[0].split("|")[0]
        yield "shuffle dropped", s.whole(f"mov.b32 \t{where}, {s.operands[1]}")
        for operation, amount in (("add.s32", "1"), ("shl.b32", "1"), ("shr.u32", "1")):
            yield "lane", s.computed(2, operation, amount)
        yield "mask narrowed", s.computed(3, "shr.u32", "1")
        yield "mask narrowed", s.given({4: "65535"})
        other = {"bfly": "down", "down": "up", "up": "down", "idx": "bfly"}
        modifiers = [other.get(m, m) for m in s.modifiers]
        yield "shuffle of another kind", s.coded(".".join(["shfl", *modifiers]))
    elif s.verb in ("vote", "match", "redux", "elect") or s.opcode == "bar.warp.sync":
        last = len(s.operands) - 1
        for mask in ("65535", "1"):
            yield "mask narrowed", s.given({last: mask})
    if s.opcode.startswith("vote.") and ("any" in s.modifiers or "all" in s.modifiers):
        other = {"any": "all", "all": "any"}
        yield "vote of another kind", s.coded(".".join(["vote", *(other.get(m, m) for m in s.modifiers)]))
    if s.verb == "activemask":
        yield "mask narrowed", s.whole(f"mov.b32 \t{s.operands[0]}, 65535")


def vectors(s: Statement) -> Iterator[Change]:
    """The elements of a vector in another order."""
    if s.verb not in ("ld", "st") or not any(m in ("v2", "v4", "v8") for m in s.modifiers):
        return
    for index, operand in enumerate(s.operands):
        if operand.startswith("{"):
            names = members(operand)
            for one in range(len(names) - 1):
                if names[one] != names[one + 1]:
                    yield "vector reordered", s.given({index: vector(exchanged(names, one, one + 1))})


OPERATORS = (stores, addresses, zeros, swizzles, lanes, vectors)
