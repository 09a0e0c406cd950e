"""Conformance programs: integer arithmetic, logic, comparison and bit fields."""

from __future__ import annotations

import operator
from collections.abc import Callable

from ptx.programs import Op, Program, lanewise

WIDTH = {"16": 16, "32": 32, "64": 64}
COMPARE: dict[str, Callable[[int, int], bool]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip
UNSIGNED_COMPARE = {"lo": operator.lt, "ls": operator.le, "hi": operator.gt, "hs": operator.ge}


def number(kind: str, bits: int) -> int:
    """The integer that `bits` mean in a type: "s32"."""
    width = int(kind[1:3])
    return bits - (1 << width) if kind[0] == "s" and bits >> (width - 1) else bits


def bits_in(value: int, width: int) -> int:
    return value & ((1 << width) - 1)


def truncated(a: int, b: int) -> int:
    """C's division: towards zero."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def arithmetic() -> list[Op]:
    ops = []
    for kind in ("s16", "u16", "s32", "u32", "s64", "u64"):
        w = int(kind[1:])

        def on(function: Callable[..., int], kind: str = kind) -> Callable[..., int]:
            return lambda *x: function(*[number(kind, v) for v in x])

        two, three, nz = (kind,) * 2, (kind,) * 3, (kind, kind + "nz")
        ops += [
            Op(f"add.{kind}", kind, two, on(operator.add)),
            Op(f"sub.{kind}", kind, two, on(operator.sub)),
            Op(f"mul.lo.{kind}", kind, two, on(operator.mul)),
            Op(f"mul.hi.{kind}", kind, two, on(lambda a, b, w=w: a * b >> w)),
            Op(f"mad.lo.{kind}", kind, three, on(lambda a, b, c: a * b + c)),
            Op(f"mad.hi.{kind}", kind, three, on(lambda a, b, c, w=w: (a * b >> w) + c)),
            Op(f"div.{kind}", kind, nz, on(truncated)),
            Op(f"rem.{kind}", kind, nz, on(lambda a, b: a - truncated(a, b) * b)),
            Op(f"min.{kind}", kind, two, on(min)),
            Op(f"max.{kind}", kind, two, on(max)),
            Op(f"sad.{kind}", kind, three, on(lambda a, b, c: c + abs(a - b))),
        ]
        if w < 64:
            wide = f"{kind[0]}{2 * w}"
            ops += [
                Op(f"mul.wide.{kind}", wide, two, on(operator.mul)),
                Op(f"mad.wide.{kind}", wide, (*two, wide), _mad_wide(kind, wide)),
            ]
        if kind[0] == "s":
            ops += [
                Op(f"abs.{kind}", kind, (kind,), on(abs)),
                Op(f"neg.{kind}", kind, (kind,), on(operator.neg)),
            ]
    return ops


def _mad_wide(kind: str, wide: str) -> Callable[..., int]:
    return lambda a, b, c: number(kind, a) * number(kind, b) + number(wide, c)


def special() -> list[Op]:
    def clamp(value: int) -> int:
        return min(max(value, -(1 << 31)), (1 << 31) - 1)

    def s(v: int) -> int:
        return number("s32", v)

    def s24(v: int) -> int:
        return v - (1 << 24) if v & 0x800000 else v

    def carry(a: int, b: int, c: int) -> int:
        return b + c + ((a + b) >> 32)

    def borrow(a: int, b: int, c: int) -> int:
        return b - c - (a < b)

    r = ("u32", "u32", "u32")
    scratch = ".reg .u32 t; "
    ops = [
        Op("add.sat.s32", "s32", ("s32", "s32"), lambda a, b: clamp(s(a) + s(b))),
        Op("sub.sat.s32", "s32", ("s32", "s32"), lambda a, b: clamp(s(a) - s(b))),
        Op("mul24.lo.u32", "u32", r[:2], lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF)),
        Op("mul24.hi.u32", "u32", r[:2], lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF) >> 16),
        Op("mul24.lo.s32", "s32", ("s32", "s32"), lambda a, b: s24(a & 0xFFFFFF) * s24(b & 0xFFFFFF)),
        Op("mad24.lo.u32", "u32", r, lambda a, b, c: (a & 0xFFFFFF) * (b & 0xFFFFFF) + c),
        Op(scratch + "add.cc.u32 t, {a}, {b}; addc.u32 {d}, {b}, {c};", "u32", r, carry, label="add.cc addc"),
        Op(scratch + "sub.cc.u32 t, {a}, {b}; subc.u32 {d}, {b}, {c};", "u32", r, borrow, label="sub.cc subc"),
        Op(scratch + "add.cc.u32 t, {a}, {b}; addc.cc.u32 t, {b}, {c}; addc.u32 {d}, {a}, {c};", "u32", r,
           lambda a, b, c: a + c + (carry(a, b, c) >> 32), label="addc.cc"),
        Op(scratch + "sub.cc.u32 t, {a}, {b}; subc.cc.u32 t, {b}, {c}; subc.u32 {d}, {a}, {c};", "u32", r,
           lambda a, b, c: a - c - (borrow(a, b, c) < 0), label="subc.cc"),
        Op(scratch + "mad.lo.cc.u32 t, {a}, {b}, {c}; madc.hi.u32 {d}, {a}, {b}, {c};", "u32", r,
           lambda a, b, c: (a * b >> 32) + c + ((bits_in(a * b, 32) + c) >> 32), label="mad.cc madc"),
        Op("dp4a.u32.u32", "u32", r, lambda a, b, c: c + sum(_byte(a, i) * _byte(b, i) for i in range(4))),
        Op("dp4a.s32.s32", "s32", ("s32",) * 3,
           lambda a, b, c: c + sum(_signed8(_byte(a, i)) * _signed8(_byte(b, i)) for i in range(4))),
        Op("dp2a.lo.u32.u32", "u32", r, lambda a, b, c: c + sum((a >> 16 * i & 0xFFFF) * _byte(b, i) for i in (0, 1))),
        Op("dp2a.hi.u32.u32", "u32", r,
           lambda a, b, c: c + sum((a >> 16 * i & 0xFFFF) * _byte(b, 2 + i) for i in (0, 1))),
        Op("fns.b32 {d}, {a}, 0, 1;", "u32", ("b32",), lambda a: (a & -a).bit_length() - 1 if a else 0xFFFFFFFF),
    ]  # fmt: skip
    return ops


def _byte(value: int, index: int) -> int:
    return value >> 8 * index & 0xFF


def _signed8(value: int) -> int:
    return value - 256 if value & 0x80 else value


def logic() -> list[Op]:
    ops = []
    for w in (16, 32, 64):
        kind = f"b{w}"
        two = (kind, kind)
        ops += [
            Op(f"and.{kind}", kind, two, operator.and_),
            Op(f"or.{kind}", kind, two, operator.or_),
            Op(f"xor.{kind}", kind, two, operator.xor),
            Op(f"not.{kind}", kind, (kind,), operator.inv),
            Op(f"cnot.{kind}", kind, (kind,), lambda a: a == 0),
            Op(f"shl.{kind}", kind, (kind, "shift"), lambda a, b, w=w: a << min(b, w)),
            Op(f"shr.{kind}", kind, (kind, "shift"), operator.rshift),
            Op(f"shr.u{w}", f"u{w}", (f"u{w}", "shift"), operator.rshift),
            Op(f"shr.s{w}", f"s{w}", (f"s{w}", "shift"), lambda a, b, w=w: number(f"s{w}", a) >> min(b, w)),
        ]
    for mode in ("clamp", "wrap"):
        for side in "lr":
            ops.append(Op(f"shf.{side}.{mode}.b32", "b32", ("b32", "b32", "shift"), _funnel(side, mode)))
    for table in (0x96, 0xE8, 0xCA, 0x01, 0x80):
        ops.append(Op(f"lop3.b32 {{d}}, {{a}}, {{b}}, {{c}}, {table};", "b32", ("b32",) * 3, _lop3(table)))
    for mode in ("", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16"):
        name = f"prmt.b32{'.' + mode if mode else ''}"
        ops.append(Op(name, "b32", ("b32", "b32", "b32"), _prmt if not mode else None))
    predicates = ".reg .pred p, q; setp.lt.s32 p, {a}, {b}; setp.gt.s32 q, {b}, {c}; "
    for name, function in (("and", operator.and_), ("or", operator.or_), ("xor", operator.xor)):
        ops.append(
            Op(predicates + f"{name}.pred {{d}}, p, q;", "pred", ("s32",) * 3, _two_predicates(function),
               label=f"{name}.pred")
        )  # fmt: skip
    ops.append(Op(".reg .pred p; setp.lt.s32 p, {a}, {b}; not.pred {d}, p;", "pred", ("s32",) * 2,
                  lambda a, b: number("s32", a) >= number("s32", b), label="not.pred"))  # fmt: skip
    return ops


def _two_predicates(function: Callable[[bool, bool], int]) -> Callable[..., int]:
    def run(a: int, b: int, c: int) -> int:
        x, y, z = (number("s32", v) for v in (a, b, c))
        return function(x < y, y > z)

    return run


def _funnel(side: str, mode: str) -> Callable[..., int]:
    def run(a: int, b: int, c: int) -> int:
        n = c & 31 if mode == "wrap" else min(c, 32)
        both = b << 32 | a
        return both << n >> 32 if side == "l" else both >> n

    return run


def _lop3(table: int) -> Callable[..., int]:
    def run(a: int, b: int, c: int) -> int:
        return sum(
            (table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1)) & 1) << i for i in range(32)
        )  # fmt: skip

    return run


def _prmt(a: int, b: int, c: int) -> int:
    both = b << 32 | a
    out = 0
    for i in range(4):
        selector = c >> 4 * i & 0xF
        byte = both >> 8 * (selector & 7) & 0xFF
        out |= (0xFF * (byte >> 7) if selector & 8 else byte) << 8 * i
    return out


def bit_fields() -> list[Op]:
    ops = [
        Op("popc.b32", "u32", ("b32",), int.bit_count),
        Op("popc.b64", "u32", ("b64",), int.bit_count),
        Op("clz.b32", "u32", ("b32",), lambda a: 32 - a.bit_length()),
        Op("clz.b64", "u32", ("b64",), lambda a: 64 - a.bit_length()),
        Op("brev.b32", "b32", ("b32",), lambda a: int(f"{a:032b}"[::-1], 2)),
        Op("brev.b64", "b64", ("b64",), lambda a: int(f"{a:064b}"[::-1], 2)),
    ]
    for kind in ("u32", "s32", "u64", "s64"):
        w = int(kind[1:])
        ops += [
            Op(f"bfind.{kind}", "u32", (kind,), _bfind(kind, False)),
            Op(f"bfind.shiftamt.{kind}", "u32", (kind,), _bfind(kind, True)),
            Op(f"bfe.{kind}", kind, (kind, "byte", "byte"), _bfe(kind)),
        ]
        if kind[0] == "u":
            ops.append(
                Op(f".reg .b{w} t; shr.u{w} t, {{a}}, 3; bfi.b{w} {{d}}, {{a}}, t, {{b}}, {{c}};", f"b{w}",
                   (f"b{w}", "byte", "byte"), _bfi(w), label=f"bfi.b{w}")
            )  # fmt: skip
    for mode in ("clamp", "wrap"):
        ops += [
            Op(f"bmsk.{mode}.b32", "b32", ("byte", "byte")),
            Op(f"szext.{mode}.s32", "s32", ("s32", "byte")),
            Op(f"szext.{mode}.u32", "u32", ("u32", "byte")),
        ]
    return ops


def _bfind(kind: str, shift: bool) -> Callable[[int], int]:
    w = int(kind[1:])

    def run(a: int) -> int:
        value = number(kind, a)
        magnitude = ~value if value < 0 else value
        top = magnitude.bit_length() - 1
        return 0xFFFFFFFF if top < 0 else w - 1 - top if shift else top

    return run


def _bfe(kind: str) -> Callable[..., int]:
    w = int(kind[1:])

    def run(a: int, position: int, length: int) -> int:
        position, length = position & 0xFF, length & 0xFF
        value = number(kind, a)
        if length == 0:
            return 0
        field = (value >> min(position, w)) & ((1 << length) - 1) if kind[0] == "u" else 0
        if kind[0] == "u":
            return field
        top = min(position + length - 1, w - 1)
        kept = (a >> position if position < w else 0) & ((1 << min(length, max(w - position, 0))) - 1)
        sign = a >> top & 1
        known = min(length, max(w - position, 0))
        return kept - (sign << known)

    return run


def _bfi(w: int) -> Callable[..., int]:
    def run(a: int, position: int, length: int) -> int:
        position, length = position & 0xFF, length & 0xFF
        mask = bits_in(((1 << length) - 1) << position, w)
        return (a >> 3) & ~mask | (a << position) & mask

    return run


def comparison() -> list[Op]:
    ops = []
    for kind in ("s16", "u16", "s32", "u32", "s64", "u64"):
        names = COMPARE | (UNSIGNED_COMPARE if kind[0] == "u" else {})
        for name, function in names.items():

            def test(a: int, b: int, f: Callable[[int, int], bool] = function, k: str = kind) -> int:
                return f(number(k, a), number(k, b))

            ops.append(Op(f"setp.{name}.{kind}", "pred", (kind, kind), test))
    for w in (16, 32, 64):
        for name in ("eq", "ne"):
            ops.append(Op(f"setp.{name}.b{w}", "pred", (f"b{w}", f"b{w}"), COMPARE[name]))
        for kind in (f"b{w}", f"s{w}", f"u{w}"):
            text = f".reg .pred p; setp.lt.u{w} p, {{a}}, {{b}}; selp.{kind} {{d}}, {{a}}, {{b}}, p;"
            ops.append(Op(text, kind, (kind, kind), min, label=f"selp.{kind}"))
    for kind in ("s32", "u32", "b32", "s64", "u64", "b64"):
        ops.append(Op(f"slct.{kind}.s32", kind, (kind, kind, "s32"), lambda a, b, c: b if c >> 31 else a))
    for name, join in (("and", operator.and_), ("or", operator.or_), ("xor", operator.xor)):
        text = f".reg .pred q; setp.ge.s32 q, {{b}}, {{c}}; setp.lt.{name}.s32 {{d}}, {{a}}, {{b}}, q;"
        ops.append(Op(text, "pred", ("s32",) * 3, _joined(join), label=f"setp.lt.{name}"))
    both = ".reg .pred p, q; setp.lt.s32 p|q, {a}, {b}; "
    ops.append(Op(both + "selp.u32 {d}, 1, 0, q;", "u32", ("s32", "s32"),
                  lambda a, b: number("s32", a) >= number("s32", b), label="setp p|q"))  # fmt: skip
    ops += [
        Op("set.lt.u32.s32", "u32", ("s32", "s32"), lambda a, b: -(number("s32", a) < number("s32", b))),
        Op("set.eq.u32.u32", "u32", ("u32", "u32"), lambda a, b: -(a == b)),
        Op("set.ge.s32.u32", "s32", ("u32", "u32"), lambda a, b: -(a >= b)),
    ]
    return ops


def _joined(join: Callable[[bool, bool], int]) -> Callable[..., int]:
    def run(a: int, b: int, c: int) -> int:
        x, y, z = (number("s32", v) for v in (a, b, c))
        return join(x < y, y >= z)

    return run


def programs() -> list[Program]:
    return [
        lanewise("integer_arithmetic", arithmetic()),
        lanewise("integer_special", special()),
        lanewise("logic", logic()),
        lanewise("bit_fields", bit_fields()),
        lanewise("integer_comparison", comparison()),
    ]
