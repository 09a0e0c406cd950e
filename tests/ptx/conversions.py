"""Conformance programs: conversions between types."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

from ptx import exact
from ptx.exact import BF16, F16, F32, F64, Format
from ptx.floating import relu, value
from ptx.programs import Expected, Op, Program, lanewise


def float_conversions() -> list[Op]:
    ops = []
    for fmt in (F32, F64, F16, BF16):
        for mode in ("rni", "rzi", "rmi", "rpi"):
            for kind in ("s32", "u32", "s64", "u64") + (("s16", "u16") if mode == "rzi" else ()):
                oracle = exact.to_integer(fmt, int(kind[1:]), kind[0] == "s", mode)
                ops.append(Op(f"cvt.{mode}.{kind}.{fmt.name}", kind, (fmt.name,), oracle))
    ops.append(Op("cvt.rzi.ftz.s32.f32", "s32", ("f32",), exact.to_integer(F32, 32, True, "rzi", ftz=True)))
    for kind in ("s16", "u16", "s32", "u32", "s64", "u64"):
        for fmt in (F32, F64, F16, BF16):
            for mode in ("rn", "rz", "rm", "rp") if fmt is F32 else ("rn",):
                oracle = exact.from_integer(int(kind[1:]), kind[0] == "s", fmt, mode)
                ops.append(Op(f"cvt.{mode}.{fmt.name}.{kind}", fmt.name, (kind,), oracle))
    for mode in ("rn", "rz"):
        ops += [
            Op(f"cvt.{mode}.f16.f32", "f16", ("f32",), exact.convert(F32, F16, mode)),
            Op(f"cvt.{mode}.bf16.f32", "bf16", ("f32",), exact.convert(F32, BF16, mode)),
            Op(f"cvt.{mode}.f32.f64", "f32", ("f64",), exact.convert(F64, F32, mode)),
            Op(f"cvt.{mode}.f16x2.f32", "f16x2", ("f32", "f32"), _pair(exact.convert(F32, F16, mode))),
            Op(f"cvt.{mode}.bf16x2.f32", "bf16x2", ("f32", "f32"), _pair(exact.convert(F32, BF16, mode))),
            Op(
                f"cvt.{mode}.relu.bf16x2.f32",
                "bf16x2",
                ("f32", "f32"),
                _pair(relu(BF16, exact.convert(F32, BF16, mode))),
            ),
            Op(
                f"cvt.{mode}.relu.f16x2.f32",
                "f16x2",
                ("f32", "f32"),
                _pair(relu(F16, exact.convert(F32, F16, mode))),
            ),
        ]
    ops += [
        Op("cvt.f32.f16", "f32", ("f16",), exact.convert(F16, F32)),
        Op("cvt.ftz.f32.f16", "f32", ("f16",), exact.convert(F16, F32)),
        Op("cvt.f32.bf16", "f32", ("bf16",), exact.convert(BF16, F32)),
        Op("cvt.f64.f32", "f64", ("f32",), exact.convert(F32, F64)),
        Op("cvt.rn.f16.f64", "f16", ("f64",), exact.convert(F64, F16)),
        Op("cvt.f64.f16", "f64", ("f16",), exact.convert(F16, F64)),
        Op("cvt.rn.ftz.f16.f32", "f16", ("f32",), exact.convert(F32, F16, ftz=True)),
        Op("cvt.sat.f32.f32", "f32", ("f32",), exact.convert(F32, F32, sat=True)),
        Op("cvt.rn.sat.f16.f32", "f16", ("f32",), exact.convert(F32, F16, sat=True)),
        Op("cvt.rna.tf32.f32", "b32", ("moderate",)),
        Op("cvt.rn.satfinite.e4m3x2.f32", "b16", ("f32", "f32")),
        Op("cvt.rn.satfinite.e5m2x2.f32", "b16", ("f32", "f32")),
        Op("cvt.rn.f16x2.e4m3x2", "f16x2", ("b16",)),
        Op("cvt.rn.f16x2.e5m2x2", "f16x2", ("b16",)),
        Op("cvt.rn.satfinite.e4m3x2.f16x2", "b16", ("f16x2",)),
        Op("cvt.rn.satfinite.e5m2x2.f16x2", "b16", ("f16x2",)),
    ]
    for mode in ("rni", "rzi", "rmi", "rpi"):
        ops.append(Op(f"cvt.{mode}.f32.f32", "f32", ("f32",), _integral(F32, mode)))
        ops.append(Op(f"cvt.{mode}.f64.f64", "f64", ("f64",), _integral(F64, mode)))
        ops.append(Op(f"cvt.{mode}.f16.f16", "f16", ("f16",), _integral(F16, mode)))
    ops.append(Op("cvt.rzi.ftz.f32.f32", "f32", ("f32",), _integral(F32, "rzi", ftz=True)))
    return ops


def _pair(operation: Expected) -> Expected:
    """`cvt.f16x2.f32 d, a, b`: a goes into the upper half."""

    def run(a: int, b: int) -> int | None:
        high, low = operation(a), operation(b)
        return None if high is None or low is None else high << 16 | low

    return run


def _integral(fmt: Format, mode: str, ftz: bool = False) -> Expected:
    rounding: dict[str, Callable[[float], int]] = {
        "rni": round,
        "rzi": math.trunc,
        "rmi": math.floor,
        "rpi": math.ceil,
    }

    def run(bits: int) -> int:
        x = value(bits & fmt.sign_bit if ftz and not bits & fmt.infinity else bits, fmt)
        if not math.isfinite(x):
            return bits
        y = math.copysign(float(rounding[mode](x)), x)
        as_double = struct.unpack("<Q", struct.pack("<d", y))[0]
        return exact.encode(exact.decode(as_double, F64), fmt)

    return run


def integer_conversions() -> list[Op]:
    ops = [
        Op("cvt.pack.sat.s16.s32", "b32", ("s32", "s32"), _packed_s16),
        Op("cvt.pack.sat.u8.s32.b32", "b32", ("s32", "s32", "b32")),
    ]
    kinds = ("s16", "u16", "s32", "u32", "s64", "u64")
    for source in kinds:
        for target in kinds:
            if source != target:
                # ptxas refuses .sat where every value fits
                narrower = int(target[1:]) < int(source[1:]) or source[0] == "s" != target[0]
                narrower |= source[0] == "u" != target[0] and source[1:] == target[1:]
                for sat in ("", ".sat") if narrower else ("",):
                    ops.append(
                        Op(
                            f"cvt{sat}.{target}.{source}",
                            target,
                            (source,),
                            _integer(source, target, bool(sat)),
                        )
                    )
    for target in ("s32", "u32", "s16", "u16"):
        for source in ("s8", "u8"):
            ops.append(Op(f"cvt.{target}.{source}", target, (source,), _integer(source, target, False)))
            ops.append(Op(f"cvt.sat.{source}.{target}", source, (target,), _integer(target, source, True)))
            ops.append(Op(f"cvt.{source}.{target}", source, (target,), _integer(target, source, False)))
    return ops


def _packed_s16(a: int, b: int) -> int:
    high, low = (min(max(x - (x >> 31 << 32), -(1 << 15)), (1 << 15) - 1) & 0xFFFF for x in (a, b))
    return high << 16 | low


def _integer(source: str, target: str, sat: bool) -> Expected:
    from_width, to_width = int(source[1:]), int(target[1:])

    def run(bits: int) -> int:
        x = bits - (1 << from_width) if source[0] == "s" and bits >> (from_width - 1) else bits
        if sat:
            low, high = (
                (-(1 << (to_width - 1)), (1 << (to_width - 1)) - 1)
                if target[0] == "s"
                else (0, (1 << to_width) - 1)
            )
            x = min(max(x, low), high)
        return x & ((1 << to_width) - 1)

    return run


def programs() -> list[Program]:
    return [
        lanewise("float_conversion", float_conversions()),
        lanewise("integer_conversion", integer_conversions()),
    ]
