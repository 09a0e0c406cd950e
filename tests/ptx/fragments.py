"""Operands of matrix instructions: how elements are encoded and packed, and which thread holds which.

They are small integers, so that every order of summation gives the same bits and answers are exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ptx.operands import random_bits

Words = npt.NDArray[np.uint32]
Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Element:
    """How an operand's element is stored: `bits` wide, encoded from small integers."""

    name: str
    bits: int
    encode: Callable[[Matrix], npt.NDArray[np.uint32]]
    low: int = -4
    high: int = 5


def _fp8(mantissa: int, bias: int) -> Callable[[Matrix], npt.NDArray[np.uint32]]:
    def encode(x: Matrix) -> Words:
        fraction, exponent = np.frexp(np.abs(x))
        digits = np.round((fraction * 2 - 1) * 2**mantissa).astype(np.int64)
        bits = np.where(x == 0, 0, (exponent - 1 + bias) << mantissa | digits)
        signed: Words = (bits | (x < 0) * 0x80).astype(np.uint32)
        return signed

    return encode


def f32_bits(x: Matrix) -> npt.NDArray[np.uint32]:
    return x.astype(np.float32).view(np.uint32)


def integer_bits(width: int) -> Callable[[Matrix], npt.NDArray[np.uint32]]:
    def encode(x: Matrix) -> Words:
        bits: Words = (x.astype(np.int64) & ((1 << width) - 1)).astype(np.uint32)
        return bits

    return encode


ELEMENTS = {
    e.name: e
    for e in (
        Element("f16", 16, lambda x: x.astype(np.float16).view(np.uint16).astype(np.uint32)),
        Element("bf16", 16, lambda x: (f32_bits(x) >> 16).astype(np.uint32)),
        Element("tf32", 32, f32_bits),
        Element("e4m3", 8, _fp8(3, 7)),
        Element("e5m2", 8, _fp8(2, 15)),
        Element("s8", 8, integer_bits(8), -128, 128),
        Element("u8", 8, integer_bits(8), 0, 256),
    )
}


def integers(seed: str, shape: tuple[int, ...], low: int, high: int) -> Matrix:
    raw = random_bits(seed, int(np.prod(shape)))
    return (raw % np.uint64(high - low)).astype(np.float64).reshape(shape) + low


def packed(values: Matrix, element: Element) -> Words:
    """The last axis, packed into 32-bit words."""
    per_word = 32 // element.bits
    bits = element.encode(values).reshape(*values.shape[:-1], -1, per_word).astype(np.uint32)
    shifts = (np.arange(per_word) * element.bits).astype(np.uint32)
    out: Words = (bits << shifts).sum(axis=-1, dtype=np.uint32)
    return out


class Fragments:
    """Words that thread t reads as register r of an operand: `in` at (base + r * threads + t) * 4."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.rows: list[Words] = []

    def add(self, registers: Words) -> int:
        """`registers` is (count, threads); returns its first row."""
        first = len(self.rows)
        self.rows += list(registers.astype(np.uint32))
        return first

    def load(self, first: int, count: int, name: str, kind: str = "b32") -> str:
        lines = [f".reg .{kind} {name}<{count}>;"]
        for r in range(count):
            offset = (first + r) * self.threads * 4
            lines.append(f"mad.wide.u32 %at, %g, 4, %in; ld.global.{kind} {name}{r}, [%at+{offset}];")
        return " ".join(lines)

    @property
    def raw(self) -> bytes:
        return np.stack(self.rows).tobytes()


def listed(name: str, count: int) -> str:
    return "{" + ", ".join(f"{name}{i}" for i in range(count)) + "}"


def accumulator_positions(
    r: int, thread: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Row and column of 32-bit accumulator register `r` (of m16n8, or of wgmma's 64 rows over four warps)."""
    lane, warp = thread % 32, thread // 32
    return warp * 16 + lane // 4 + 8 * (r // 2 % 2), 8 * (r // 4) + lane % 4 * 2 + r % 2


ACCUMULATOR_KINDS = {"f16": "f16x2", "s32": "s32", "f32": "f32"}
"""The accumulator's type -> that of one of its registers."""


def accumulator_start(acc: str) -> int:
    """A register that holds 3 in every element."""
    return {"f32": 0x40400000, "s32": 3, "f16": 0x42004200}[acc]


def accumulator_words(total: Matrix, acc: str, r: int) -> list[int]:
    """What register `r` holds in each thread, if the whole accumulator is `total`; two threads share a row."""
    thread = np.arange(2 * total.shape[0])
    row, column = accumulator_positions(2 * r if acc == "f16" else r, thread)
    exact = total[row, column]
    if acc == "f16":
        words = packed(np.stack([exact, total[row, column + 1]], axis=-1), ELEMENTS["f16"])[:, 0]
    else:
        words = integer_bits(32)(exact) if acc == "s32" else f32_bits(exact)
    return [int(word) for word in words]
