"""Correctly rounded arithmetic by exact rational numbers: the oracle for floating-point instructions.

A float travels as its bit pattern (an unsigned int) and a `Format`. Slow (about 10 µs an operation) and simple:
nothing here shares an idea with the interpreter it judges.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[np.unsignedinteger]


@dataclass(frozen=True)
class Format:
    """An IEEE-like binary format: `exponent` and `mantissa` field widths, and its canonical NaN."""

    name: str
    exponent: int
    mantissa: int
    nan: int

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1

    @property
    def width(self) -> int:
        return 1 + self.exponent + self.mantissa

    @property
    def infinity(self) -> int:
        return ((1 << self.exponent) - 1) << self.mantissa

    @property
    def sign_bit(self) -> int:
        return 1 << (self.width - 1)

    @property
    def smallest_exponent(self) -> int:
        """Exponent of the last place of a subnormal: the spacing near zero is 2**this."""
        return 1 - self.bias - self.mantissa


F16 = Format("f16", 5, 10, 0x7FFF)
BF16 = Format("bf16", 8, 7, 0x7FFF)
F32 = Format("f32", 8, 23, 0x7FFFFFFF)
F64 = Format("f64", 11, 52, 0x7FFFFFFFFFFFFFFF)
FORMATS = {f.name: f for f in (F16, BF16, F32, F64)}


@dataclass(frozen=True)
class Real:
    """A number on its way: a signed magnitude (so that -0 is kept), an infinity (magnitude None) or a NaN."""

    negative: bool
    magnitude: Fraction | None
    nan: bool = False

    @property
    def infinite(self) -> bool:
        return self.magnitude is None and not self.nan

    @property
    def zero(self) -> bool:
        return self.magnitude == 0

    @property
    def value(self) -> Fraction:
        assert self.magnitude is not None
        return -self.magnitude if self.negative else self.magnitude


NAN = Real(False, None, nan=True)


def decode(bits: int, fmt: Format, ftz: bool = False) -> Real:
    """The number that `bits` mean; subnormals read as zero of their sign where `ftz`."""
    negative = bool(bits & fmt.sign_bit)
    exponent = (bits >> fmt.mantissa) & ((1 << fmt.exponent) - 1)
    fraction = bits & ((1 << fmt.mantissa) - 1)
    if exponent == (1 << fmt.exponent) - 1:
        return NAN if fraction else Real(negative, None)
    if exponent == 0:
        return Real(
            negative, Fraction(0) if ftz else Fraction(fraction) * Fraction(2) ** fmt.smallest_exponent
        )
    scale = Fraction(2) ** (exponent - fmt.bias - fmt.mantissa)
    return Real(negative, ((1 << fmt.mantissa) + fraction) * scale)


def _round_integer(x: Fraction, mode: str, negative: bool) -> int:
    """The magnitude `x` >= 0 as an integer under rounding `mode` (rn, rz, rm, rp, rna) for a number of that sign."""
    floor = x.numerator // x.denominator
    rest = x - floor
    if rest == 0 or mode == "rz":
        return floor
    if mode in ("rm", "rp"):
        return floor + ((mode == "rm") == negative)
    half = Fraction(1, 2)
    if rest != half:
        return floor + (rest > half)
    return floor + 1 if mode == "rna" else floor + (floor & 1)


def encode(x: Real, fmt: Format, mode: str = "rn", ftz: bool = False, sat: bool = False) -> int:
    """`x` rounded into `fmt`, as bits. `sat` clamps into [0, 1] with NaN to +0, as PTX's `.sat`."""
    if sat:
        if x.nan or x.negative:
            return 0
        if x.infinite or x.value > 1:
            x = Real(False, Fraction(1))
    sign = fmt.sign_bit if x.negative else 0
    if x.magnitude is None:
        return fmt.nan if x.nan else sign | fmt.infinity
    if x.magnitude == 0:
        return sign
    exponent = max(_floor_log2(x.magnitude), 1 - fmt.bias)
    unit = Fraction(2) ** (exponent - fmt.mantissa)
    digits = _round_integer(x.magnitude / unit, mode, x.negative)
    if digits == 2 << fmt.mantissa:
        digits, exponent = digits // 2, exponent + 1
    if exponent > fmt.bias:
        away = mode in ("rn", "rna") or ((mode == "rm") == x.negative and mode != "rz")
        return sign | (fmt.infinity if away else fmt.infinity - 1)
    if digits < 1 << fmt.mantissa:  # subnormal
        return sign | (0 if ftz else digits)
    return sign | ((exponent + fmt.bias) << fmt.mantissa) | (digits - (1 << fmt.mantissa))


def _floor_log2(x: Fraction) -> int:
    guess = x.numerator.bit_length() - x.denominator.bit_length()
    return guess if Fraction(2) ** guess <= x else guess - 1


def add(a: Real, b: Real, mode: str = "rn") -> Real:
    if a.nan or b.nan or (a.infinite and b.infinite and a.negative != b.negative):
        return NAN
    if a.infinite or b.infinite:
        return a if a.infinite else b
    total = a.value + b.value
    if total == 0:
        both = a.negative and b.negative
        cancelled = not (a.zero and b.zero) or a.negative != b.negative
        return Real(both or (cancelled and mode == "rm"), Fraction(0))
    return Real(total < 0, abs(total))


def mul(a: Real, b: Real) -> Real:
    if a.nan or b.nan or (a.infinite and b.zero) or (b.infinite and a.zero):
        return NAN
    negative = a.negative != b.negative
    if a.magnitude is None or b.magnitude is None:
        return Real(negative, None)
    return Real(negative, a.magnitude * b.magnitude)


def div(a: Real, b: Real) -> Real:
    if a.nan or b.nan or (a.infinite and b.infinite) or (a.zero and b.zero):
        return NAN
    negative = a.negative != b.negative
    if a.magnitude is None or b.zero:
        return Real(negative, None)
    if b.magnitude is None:
        return Real(negative, Fraction(0))
    return Real(negative, a.magnitude / b.magnitude)


def sqrt(a: Real) -> Real:
    """The root, cut after 100 digits and more with a sticky last one: enough to round correctly."""
    if a.nan or (a.negative and not a.zero):
        return NAN
    if a.magnitude is None or a.zero:
        return a
    bits = 100 + max(0, -_floor_log2(a.magnitude))
    shift = 2 * bits
    scaled = a.magnitude * Fraction(2) ** shift
    root = math.isqrt(scaled.numerator // scaled.denominator)
    exact = Fraction(root * root) == scaled
    return Real(False, Fraction(2 * root + (not exact), 2 << bits))


Operation = Callable[..., int | None]
"""Bits of the operands to bits of the result; None where PTX leaves the result open."""


def arithmetic(op: str, fmt: Format, mode: str = "rn", ftz: bool = False, sat: bool = False) -> Operation:
    """add, sub, mul, div, rcp, sqrt or fma of `fmt` on bit patterns, correctly rounded."""

    def run(*bits: int) -> int | None:
        x = [decode(b, fmt, ftz) for b in bits]
        match op:
            case "add":
                y = add(x[0], x[1], mode)
            case "sub":
                y = add(x[0], negated(x[1]), mode)
            case "mul":
                y = mul(x[0], x[1])
            case "div":
                y = div(x[0], x[1])
            case "rcp":
                y = div(Real(False, Fraction(1)), x[0])
            case "sqrt":
                y = sqrt(x[0])
            case "fma":
                y = add(mul(x[0], x[1]), x[2], mode)
            case _:
                raise ValueError(op)
        # the sign of a zero that saturation found is not defined
        tiny = y.magnitude is not None and y.magnitude < Fraction(2) ** (1 - fmt.bias)
        return None if sat and y.negative and tiny else encode(y, fmt, mode, ftz, sat)

    return run


def negated(x: Real) -> Real:
    return x if x.nan else Real(not x.negative, x.magnitude)


def convert(
    source: Format, target: Format, mode: str = "rn", ftz: bool = False, sat: bool = False
) -> Operation:
    """Float to float: the value of `source` bits rounded into `target`. `.ftz` is about single precision only."""

    def run(bits: int) -> int | None:
        x = decode(bits, source, ftz and source is F32)
        if sat and x.negative and x.zero:
            return None
        return encode(x, target, mode, ftz and target is F32, sat)

    return run


def to_integer(source: Format, width: int, signed: bool, mode: str, ftz: bool = False) -> Operation:
    """Float to integer with clamping; NaN gives the top bit if either side has 64 bits, else 0."""
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if signed else (0, (1 << width) - 1)
    modes = {"rni": "rn", "rzi": "rz", "rmi": "rm", "rpi": "rp"}

    def run(bits: int) -> int:
        x = decode(bits, source, ftz)
        if x.nan:
            return 1 << (width - 1) if width == 64 or source is F64 else 0
        if x.magnitude is None:
            value = low if x.negative else high
        else:
            digits = _round_integer(x.magnitude, modes[mode], x.negative)
            value = min(max(-digits if x.negative else digits, low), high)
        return value & ((1 << width) - 1)

    return run


def from_integer(width: int, signed: bool, target: Format, mode: str) -> Operation:
    """Integer to float."""

    def run(bits: int) -> int:
        value = bits - (1 << width) if signed and bits >> (width - 1) else bits
        return encode(Real(value < 0, Fraction(abs(value))), target, mode)

    return run
