"""Mutants of matrix products and of the copies of their tiles: fragments, descriptors, coordinates."""

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

_PRODUCT = re.compile(r"^(?:mma|wmma\.mma|wgmma\.mma_async)\b")
_LOADED = re.compile(r"^(?:ldmatrix|stmatrix|wmma\.load)\b")
FIELDS = {
    "address": ("1", "8"),
    "leading bytes": (str(1 << 16), str(32 << 16)),
    "stride bytes": (str(1 << 32), str(32 << 32)),
    "base offset": (str(1 << 49),),
    "swizzle": (str(1 << 62), str(-(1 << 63))),
}
"""Bits of a wgmma matrix descriptor that are turned, by its field."""


def products(s: Statement) -> Iterator[Change]:
    """A product is gone, or added twice; its sum begins anew, or its sign is turned."""
    if not _PRODUCT.match(s.text):
        return
    yield "product dropped", ""
    yield "product twice", s.twice(s.text)
    if s.verb == "mma":
        nothing = vector(["0f00000000"] * len(members(s.operands[3])))
        if s.operands[3] != nothing and s.modifiers[-1] == "f32":
            yield "sum begins anew", s.given({3: nothing})
    if s.verb == "wgmma":
        flags = [index for index, operand in enumerate(s.operands) if is_number(operand)]
        for number, index in enumerate(flags):
            other = str(-int(s.operands[index])) if number < 2 else str(1 - int(s.operands[index]))
            yield "sign" if number < 2 else "transposed or not", s.given({index: other})
        adds = flags[0] - 1
        yield "sum begins anew", _fixed(s, adds, "ne")
        yield "sum goes on", _fixed(s, adds, "eq")


def _fixed(s: Statement, index: int, test: str) -> str:
    """With the predicate at `index` false (`ne`) or true (`eq`)."""
    text = s.bare({index: "fixed"})
    return f"{{ .reg .pred fixed; setp.{test}.s32 \tfixed, 0, 0; {s.guard}{text}; }}"


def fragments(s: Statement) -> Iterator[Change]:
    """Two registers of a fragment swapped, one used twice; a matrix loaded as its transpose, or not."""
    if _PRODUCT.match(s.text):
        inputs = [i for i in (1, 2) if i < len(s.operands) and s.operands[i].startswith("{")]
    elif _LOADED.match(s.text):
        inputs = [i for i, operand in enumerate(s.operands) if operand.startswith("{")]
    else:
        return
    for index in inputs:
        names = members(s.operands[index])
        for one in range(len(names) - 1):
            yield "fragments swapped", s.given({index: vector(exchanged(names, one, one + 1))})
            if not _LOADED.match(s.text):
                repeated = [*names[: one + 1], names[one], *names[one + 2 :]]
                yield "fragment repeated", s.given({index: vector(repeated)})
    if s.verb in ("ldmatrix", "stmatrix"):
        modifiers = [m for m in s.modifiers if m != "trans"]
        if "trans" not in s.modifiers:
            modifiers.insert(modifiers.index("m8n8") + 2, "trans")
        yield "transposed or not", s.coded(".".join([s.verb, *modifiers]))


def descriptors(s: Statement) -> Iterator[Change]:
    """Bits of the matrix descriptors of a wgmma turned; the two swapped."""
    if s.verb != "wgmma" or "mma_async" not in s.modifiers:
        return
    places = [index for index in (1, 2) if is_register(s.operands[index], "rd")]
    for index in places:
        for field, amounts in FIELDS.items():
            for amount in amounts:
                yield f"descriptor: {field}", s.computed(index, "xor.b64", amount)
    if len(places) == 2:
        yield "descriptors swapped", s.swapped(*places)


def copies(s: Statement) -> Iterator[Change]:
    """The coordinates of a copied tile swapped, or off by one; another CTA of the cluster."""
    if s.opcode.startswith("cp.async.bulk.tensor"):
        found = re.search(r"\{([^{}]*)\}", s.text)
        names = members(found[1]) if found else []
        for one in range(len(names) - 1):
            if found and names[one] != names[one + 1]:
                text = vector(exchanged(names, one, one + 1))
                yield "coordinates swapped", s.whole(s.text[: found.start()] + text + s.text[found.end() :])
        for index, name in enumerate(names):
            if found:
                text = vector([*names[:index], "other", *names[index + 1 :]])
                changed = s.text[: found.start()] + text + s.text[found.end() :]
                for amount in ("1", "-1"):
                    yield "coordinate off by one", s.instead(name, "add.s32", amount, changed)
    if s.verb == "mapa" and len(s.operands) == 3:
        yield "another CTA", s.computed(2, "xor.b32", "1")
        yield "another CTA", s.whole(f"mov.{'b64' if s.modifiers[-1] == 'u64' else 'b32'} \t"
                                     f"{s.operands[0]}, {s.operands[1]}")  # fmt: skip
    if "multicast::cluster" in s.modifiers:
        yield "mask narrowed", s.computed(len(s.operands) - 1, "and.b16", "1")


OPERATORS = (products, fragments, descriptors, copies)
