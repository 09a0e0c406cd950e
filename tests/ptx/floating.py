"""Conformance programs: floating point of every width, comparisons and approximations.

Tolerances are those of the PTX ISA, doubled where two implementations within them are compared.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

from ptx import exact
from ptx.exact import BF16, F16, F32, F64, Format
from ptx.programs import Expected, Op, Program, lanewise

ORDERED: dict[str, Callable[[float, float], bool]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b and a == a and b == b, "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip


def value(bits: int, fmt: Format) -> float:
    """The number as a Python float (exact for all four formats)."""
    if fmt is F64:
        return float(struct.unpack("<d", struct.pack("<Q", bits))[0])
    if fmt is F16:
        return float(struct.unpack("<e", struct.pack("<H", bits))[0])
    return float(struct.unpack("<f", struct.pack("<I", bits << 16 if fmt is BF16 else bits))[0])


def halves(operation: Expected) -> Expected:
    """A packed operation out of a scalar one."""

    def run(*x: int) -> int | None:
        low, high = operation(*[v & 0xFFFF for v in x]), operation(*[v >> 16 for v in x])
        return None if low is None or high is None else low | high << 16

    return run


def least(fmt: Format, greatest: bool = False, propagate: bool = False, ftz: bool = False) -> Expected:
    """min or max: -0 < +0; a NaN loses unless `propagate`."""

    def order(bits: int) -> tuple[float, int]:
        return value(bits, fmt), 0 if bits & fmt.sign_bit else 1

    def flushed(bits: int) -> int:
        return bits & fmt.sign_bit if ftz and not bits & fmt.infinity else bits

    def run(a: int, b: int) -> int:
        a, b = flushed(a), flushed(b)
        nans = [value(x, fmt) != value(x, fmt) for x in (a, b)]
        if any(nans):
            return fmt.nan if propagate or all(nans) else (b if nans[0] else a)
        return (max if greatest else min)(a, b, key=order)

    return run


def relu(fmt: Format, operation: Expected) -> Expected:
    def run(*x: int) -> int | None:
        y = operation(*x)
        if y is None or y == fmt.sign_bit:  # the sign of a clamped -0 is not defined
            return None
        return fmt.nan if value(y, fmt) != value(y, fmt) else 0 if y & fmt.sign_bit else y

    return run


def f32() -> list[Op]:
    ops = []
    for ftz in ("", ".ftz"):
        for mode in ("rn", "rz", "rm", "rp"):
            for op, count in (
                ("add", 2),
                ("sub", 2),
                ("mul", 2),
                ("fma", 3),
                ("div", 2),
                ("rcp", 1),
                ("sqrt", 1),
            ):
                oracle = exact.arithmetic(op, F32, mode, bool(ftz))
                ops.append(Op(f"{op}.{mode}{ftz}.f32", "f32", ("f32",) * count, oracle))
        ops += [
            Op(f"min{ftz}.f32", "f32", ("f32",) * 2, least(F32, ftz=bool(ftz))),
            Op(f"max{ftz}.f32", "f32", ("f32",) * 2, least(F32, greatest=True, ftz=bool(ftz))),
            Op(f"min{ftz}.NaN.f32", "f32", ("f32",) * 2, least(F32, propagate=True, ftz=bool(ftz))),
            Op(f"max{ftz}.NaN.f32", "f32", ("f32",) * 2, least(F32, True, True, bool(ftz))),
            Op(f"abs{ftz}.f32", "f32", ("f32",), _sign(F32, lambda b: b & ~F32.sign_bit, bool(ftz))),
            Op(f"neg{ftz}.f32", "f32", ("f32",), _sign(F32, lambda b: b ^ F32.sign_bit, bool(ftz))),
        ]
    for op, count in (("add", 2), ("sub", 2), ("mul", 2), ("fma", 3)):
        ops.append(Op(f"{op}.rn.sat.f32", "f32", ("f32",) * count, exact.arithmetic(op, F32, sat=True)))
        ops.append(
            Op(f"{op}.rn.ftz.sat.f32", "f32", ("f32",) * count, exact.arithmetic(op, F32, ftz=True, sat=True))
        )
    ops += [
        Op("add.f32", "f32", ("f32",) * 2, exact.arithmetic("add", F32)),
        Op("sub.f32", "f32", ("f32",) * 2, exact.arithmetic("sub", F32)),
        Op("mul.f32", "f32", ("f32",) * 2, exact.arithmetic("mul", F32)),
        Op("mad.rn.f32", "f32", ("f32",) * 3, exact.arithmetic("fma", F32)),
        Op("copysign.f32", "f32", ("f32",) * 2, lambda a, b: a & F32.sign_bit | b & ~F32.sign_bit),
        Op("min.xorsign.abs.f32", "f32", ("f32",) * 2),
        Op("max.xorsign.abs.f32", "f32", ("f32",) * 2),
        Op(".reg .pred p; setp.lt.f32 p, {a}, {b}; selp.f32 {d}, {b}, {a}, p;", "f32", ("f32",) * 2,
           lambda a, b: b if value(a, F32) < value(b, F32) else a, label="selp.f32"),
        Op("slct.f32.s32", "f32", ("f32", "f32", "s32"), lambda a, b, c: b if c >> 31 else a),
    ]  # fmt: skip
    return ops


def _sign(fmt: Format, change: Callable[[int], int], ftz: bool = False) -> Expected:
    def run(bits: int) -> int:
        tiny = ftz and not bits & fmt.infinity
        return change(bits & fmt.sign_bit if tiny else bits)

    return run


def comparisons() -> list[Op]:
    ops = []
    for fmt in (F32, F64, F16, BF16):
        kind = fmt.name
        for name, test in ORDERED.items():
            ordered, unordered = _compare(fmt, test, False), _compare(fmt, test, True)
            ops.append(Op(f"setp.{name}.{kind}", "pred", (kind, kind), ordered))
            ops.append(Op(f"setp.{name}u.{kind}", "pred", (kind, kind), unordered))
        ops.append(Op(f"setp.num.{kind}", "pred", (kind, kind), _compare(fmt, lambda a, b: True, False)))
        ops.append(Op(f"setp.nan.{kind}", "pred", (kind, kind), _compare(fmt, lambda a, b: False, True)))
    ops += [
        Op("setp.lt.ftz.f32", "pred", ("f32", "f32"), _compare(F32, ORDERED["lt"], False, ftz=True)),
        Op("set.lt.u32.f32", "u32", ("f32", "f32"), lambda a, b: -int(value(a, F32) < value(b, F32))),
        Op("set.lt.u32.f16", "u32", ("f16", "f16"), lambda a, b: -int(value(a, F16) < value(b, F16))),
        Op("set.ge.f16.f16", "f16", ("f16", "f16"), lambda a, b: 0x3C00 * (value(a, F16) >= value(b, F16))),
        Op("set.ge.f32.f32", "f32", ("f32", "f32"),
           lambda a, b: 0x3F800000 * (value(a, F32) >= value(b, F32))),
    ]  # fmt: skip
    tests: dict[str, Callable[[float], bool]] = {
        "finite": math.isfinite, "infinite": math.isinf, "number": lambda x: x == x, "notanumber": math.isnan,
        "normal": lambda x: x == 0 or (math.isfinite(x) and abs(x) >= 2.0**-126),
        "subnormal": lambda x: 0 < abs(x) < 2.0**-126,
    }  # fmt: skip
    for name, holds in tests.items():
        ops.append(Op(f"testp.{name}.f32", "pred", ("f32",), _tested(holds)))
    return ops


def _compare(
    fmt: Format, test: Callable[[float, float], bool], unordered: bool, ftz: bool = False
) -> Expected:
    def run(a: int, b: int) -> int:
        x, y = (0.0 if ftz and not v & fmt.infinity else value(v, fmt) for v in (a, b))
        return unordered if x != x or y != y else test(x, y)

    return run


def _tested(holds: Callable[[float], bool]) -> Expected:
    return lambda a: holds(value(a, F32))


def f64() -> list[Op]:
    ops = []
    for mode in ("rn", "rz", "rm", "rp"):
        for op, count in (
            ("add", 2),
            ("sub", 2),
            ("mul", 2),
            ("fma", 3),
            ("div", 2),
            ("rcp", 1),
            ("sqrt", 1),
        ):
            oracle = exact.arithmetic(op, F64, mode)
            if mode == "rn" or op in ("add", "mul", "fma"):
                ops.append(Op(f"{op}.{mode}.f64", "f64", ("f64",) * count, oracle))
    ops += [
        Op("min.f64", "f64", ("f64",) * 2, least(F64)),
        Op("max.f64", "f64", ("f64",) * 2, least(F64, greatest=True)),
        Op("abs.f64", "f64", ("f64",), _sign(F64, lambda b: b & ~F64.sign_bit)),
        Op("neg.f64", "f64", ("f64",), _sign(F64, lambda b: b ^ F64.sign_bit)),
        Op(
            ".reg .pred p; setp.lt.f64 p, {a}, {b}; selp.f64 {d}, {a}, {b}, p;",
            "f64",
            ("f64",) * 2,
            label="selp.f64",
        ),
    ]
    return ops


def half(fmt: Format) -> list[Op]:
    """f16 or bf16, scalar and packed."""
    name = fmt.name
    ops = []
    for packed in (False, True):
        kind = f"{name}x2" if packed else name

        def on(operation: Expected, packed: bool = packed) -> Expected:
            return halves(operation) if packed else operation

        for op, count in (("add", 2), ("sub", 2), ("mul", 2), ("fma", 3)):
            of = (kind,) * count
            for ftz in ("", ".ftz") if fmt is F16 else ("",):
                ops.append(Op(f"{op}.rn{ftz}.{kind}", kind, of, on(exact.arithmetic(op, fmt, ftz=bool(ftz)))))
                if fmt is F16:
                    sat = on(exact.arithmetic(op, fmt, ftz=bool(ftz), sat=True))
                    ops.append(Op(f"{op}.rn{ftz}.sat.{kind}", kind, of, sat))
        ops += [
            Op(f"fma.rn.relu.{kind}", kind, (kind,) * 3, on(relu(fmt, exact.arithmetic("fma", fmt)))),
            Op(f"min.{kind}", kind, (kind,) * 2, on(least(fmt))),
            Op(f"max.{kind}", kind, (kind,) * 2, on(least(fmt, greatest=True))),
            Op(f"min.NaN.{kind}", kind, (kind,) * 2, on(least(fmt, propagate=True))),
            Op(f"max.NaN.{kind}", kind, (kind,) * 2, on(least(fmt, True, True))),
            Op(f"abs.{kind}", kind, (kind,), on(_sign(fmt, lambda b: b & 0x7FFF))),
            Op(f"neg.{kind}", kind, (kind,), on(_sign(fmt, lambda b: b ^ 0x8000))),
        ]
    ops += [
        Op(f"ex2.approx{'' if fmt is F16 else '.ftz'}.{name}", name, (name,), _approximately(fmt, _exp2),
           relative=2.0**-9 if fmt is F16 else 2.0**-6, absolute=2.0**-23 if fmt is F16 else 2.0**-126),
        Op(f"tanh.approx.{name}", name, (name,), _approximately(fmt, math.tanh),
           absolute=2.0**-10 if fmt is F16 else 2.0**-7),
    ]  # fmt: skip
    pair = f"{name}x2"
    if fmt is F16:
        second = f".reg .pred p, q; setp.lt.{pair} p|q, {{a}}, {{b}}; selp.u32 {{d}}, 1, 0, q;"
        less = _compare(F16, ORDERED["lt"], False)
        ops.append(Op(second, "u32", (pair,) * 2, lambda a, b: less(a >> 16, b >> 16), label="setp.f16x2"))
    return ops


def _exp2(x: float) -> float:
    return math.inf if x >= 1024 else 0.0 if x < -1070 else 2.0**x


def _approximately(fmt: Format, function: Callable[[float], float], ftz: bool = False) -> Expected:
    """`function` in double precision, rounded: the middle of an approximation's allowed interval."""

    def run(bits: int) -> int:
        x = value(bits & fmt.sign_bit if ftz and not bits & fmt.infinity else bits, fmt)
        try:
            y = function(x)
        except ZeroDivisionError:
            y = math.copysign(math.inf, x)
        except ValueError:
            y = math.nan
        as_double = struct.unpack("<Q", struct.pack("<d", y))[0]
        return exact.encode(exact.decode(as_double, F64), fmt, ftz=ftz)

    return run


def _log2(x: float) -> float:
    return -math.inf if x == 0 else math.log2(x)


def approximations() -> list[Op]:
    ops = []
    for ftz in ("", ".ftz"):
        flush = bool(ftz)

        def on(function: Callable[[float], float], flush: bool = flush) -> Expected:
            return _approximately(F32, function, flush)

        ops += [
            Op(f"ex2.approx{ftz}.f32", "f32", ("f32",), on(_exp2), relative=2.0**-21.5, ulps=2),
            Op(f"lg2.approx{ftz}.f32", "f32", ("f32",), on(_log2), relative=2.0**-21, absolute=2.0**-21),
            Op(f"rcp.approx{ftz}.f32", "f32", ("f32",), on(lambda x: 1 / x), ulps=2),
            Op(
                f"sqrt.approx{ftz}.f32", "f32", ("f32",), on(lambda x: math.copysign(math.sqrt(x), x)), ulps=3
            ),
            Op(f"rsqrt.approx{ftz}.f32", "f32", ("f32",), on(_rsqrt), ulps=3),
            Op(f"sin.approx{ftz}.f32", "f32", ("angle",), on(math.sin), absolute=2.0**-19.5),
            Op(f"cos.approx{ftz}.f32", "f32", ("angle",), on(math.cos), absolute=2.0**-19.5),
            Op(f"div.approx{ftz}.f32", "f32", ("moderate",) * 2, exact.arithmetic("div", F32), ulps=4),
            Op(f"div.full{ftz}.f32", "f32", ("moderate",) * 2, exact.arithmetic("div", F32), ulps=4),
        ]
    ops.append(Op("tanh.approx.f32", "f32", ("f32",), _approximately(F32, math.tanh), relative=2.0**-10))
    return ops


def _rsqrt(x: float) -> float:
    return math.copysign(math.inf, x) if x == 0 else 1 / math.sqrt(x)


def programs() -> list[Program]:
    return [
        lanewise("f32", f32()),
        lanewise("f64", f64()),
        lanewise("f16", half(F16)),
        lanewise("bf16", half(BF16)),
        lanewise("approximations", approximations()),
        lanewise("float_comparison", comparisons()),
    ]
