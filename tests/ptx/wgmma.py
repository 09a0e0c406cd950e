"""Conformance programs: matrix instructions of a warpgroup, which take operands from shared memory."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ptx.fragments import (
    ACCUMULATOR_KINDS,
    ELEMENTS,
    Element,
    Fragments,
    Matrix,
    Words,
    accumulator_start,
    accumulator_words,
    integers,
    listed,
    packed,
)
from ptx.programs import Program, Writer, launch_of
from ptx.tensor_maps import swizzled

B_AT = 16384
"""Where B lies in shared memory, bytes; A is at 0."""


# accumulator, element, columns, swizzle span, A from registers, B transposed (MN-major), scale-d, negate
WGMMA = [
    ("f32", "f16", 64, 128, False, False, 1, (1, 1)), ("f32", "bf16", 64, 128, False, False, 0, (1, 1)),
    ("f32", "f16", 8, 128, False, False, 1, (-1, 1)), ("f32", "f16", 256, 128, False, False, 1, (1, -1)),
    ("f32", "f16", 128, 64, False, False, 1, (1, 1)), ("f32", "bf16", 32, 32, False, False, 1, (1, 1)),
    ("f32", "f16", 64, 128, True, False, 1, (1, 1)), ("f32", "f16", 64, 128, True, True, 1, (1, 1)),
    ("f32", "bf16", 64, 128, False, True, 1, (1, 1)), ("f16", "f16", 64, 128, False, False, 1, (1, 1)),
    ("f32", "tf32", 32, 128, False, False, 1, (1, 1)), ("f32", "e4m3", 64, 128, False, False, 1, (1, 1)),
    ("f32", "e5m2", 16, 128, False, False, 1, (1, 1)), ("s32", "s8", 64, 128, False, False, 1, (1, 1)),
    ("s32", "u8", 32, 128, True, False, 1, (1, 1)), ("f32", "f16", 24, 0, False, False, 1, (1, 1)),
]  # fmt: skip


def programs() -> list[Program]:
    return [_wgmma(i, *row) for i, row in enumerate(WGMMA)]


def _wgmma(index: int, acc: str, kind: str, n: int, span: int, registers_a: bool, trans_b: bool, scale: int,
           signs: tuple[int, int]) -> Program:  # fmt: skip
    element = ELEMENTS[kind]
    k = 256 // element.bits
    name = f"wgmma_{index}_{acc}_{kind}_n{n}_s{span}{'_rs' if registers_a else ''}{'_mn' if trans_b else ''}"
    a = integers(f"{name} a", (64, k), max(element.low, -9), min(element.high, 9))
    b = integers(f"{name} b", (k, n), max(element.low, -9), min(element.high, 9))
    nd = n // 2 if acc != "f16" else n // 4
    w = Writer(name, launch_of(1, 128), before=".shared .align 1024 .b8 block[49152];\n")
    fragments = Fragments(128)
    image = _image(a, b, element, span, trans_b)
    words = fragments.add(image.view(np.uint32).reshape(-1, 128))
    w.run("mov.u32 %r9, block; mad.lo.u32 %r8, %t, 4, %r9; mad.wide.u32 %at, %g, 4, %in; mov.u32 %r1, 0;")
    w.run(
        f"copy: ld.global.u32 %r2, [%at+{words * 512}]; st.shared.u32 [%r8], %r2; add.u64 %at, %at, 512; "
        "add.u32 %r8, %r8, 512;"
    )
    w.run(
        f"add.u32 %r1, %r1, 1; setp.lt.u32 %p0, %r1, {image.size // 512}; @%p0 bra copy; "
        "fence.proxy.async.shared::cta; bar.sync 0;"
    )
    a_operand = "%d1"
    if registers_a:
        first = fragments.add(_registers(a, element))
        w.run(fragments.load(first, 4, "a"))
        a_operand = listed("a", 4)
    w.run(_descriptor("%d1", "%r9", 0, span) + _descriptor("%d2", "%r9", B_AT, span))
    register = "f32" if acc == "f32" else "b32"
    start = accumulator_start(acc)
    w.run(f".reg .{register} e<{nd}>; " + " ".join(f"mov.b32 e{i}, {start};" for i in range(nd)))
    tail = "" if acc == "s32" else f", {signs[0]}, {signs[1]}"
    if kind in ("f16", "bf16"):
        tail += f", {int(trans_b)}" if registers_a else f", 0, {int(trans_b)}"
    w.run(f"mov.u32 %r63, {scale}; setp.ne.u32 %p0, %r63, 0; wgmma.fence.sync.aligned;")
    op = f"wgmma.mma_async.sync.aligned.m64n{n}k{k}.{acc}.{kind}.{kind}"
    w.run(
        f"{op} {listed('e', nd)}, {a_operand}, %d2, %p0{tail}; wgmma.commit_group.sync.aligned; "
        "wgmma.wait_group.sync.aligned 0;"
    )
    total = signs[0] * signs[1] * (a @ b) + 3 * scale
    for r in range(nd):
        w.put(f"{op} register {r}", f"e{r}", ACCUMULATOR_KINDS[acc], accumulator_words(total, acc, r))
    w.raw = fragments.raw
    return w.program()


def _image(a: Matrix, b: Matrix, element: Element, span: int, trans_b: bool) -> npt.NDArray[np.uint8]:
    """Shared memory with both operands."""
    image = np.zeros(B_AT + 32768, np.uint8)
    image[:B_AT] = swizzled(_k_major(a, element, span, B_AT), span)
    if trans_b:
        image[B_AT:] = swizzled(_mn_major(b, element, image.size - B_AT), span)
    else:
        image[B_AT:] = swizzled(_k_major(np.ascontiguousarray(b.T), element, span, image.size - B_AT), span)
    return image


def _registers(a: Matrix, element: Element) -> Words:
    """A as the registers of four warps: (registers, 128)."""
    lane, words = np.arange(32), packed(a, element)
    halves = words.shape[1] // 4
    warps = [
        np.stack([words[16 * q + lane // 4 + r, lane % 4 + 4 * h] for h in range(halves) for r in (0, 8)])
        for q in range(4)
    ]
    return np.concatenate(warps, axis=1)


def _k_major(rows: Matrix, element: Element, span: int, nbytes: int) -> npt.NDArray[np.uint8]:
    """Rows of `k` elements. With a swizzle each row takes `span` bytes; without, 8x16-byte core matrices, the two of a
    row group 128 bytes apart, row groups 256 bytes apart."""
    data = packed(rows, element).view(np.uint8).reshape(rows.shape[0], -1)  # 32 bytes a row
    image = np.zeros(nbytes, np.uint8)
    for r, line in enumerate(data):
        if span:
            image[r * span : r * span + line.size] = line
        else:
            for half in range(2):
                at = r // 8 * 256 + half * 128 + r % 8 * 16
                image[at : at + 16] = line[16 * half : 16 * half + 16]
    return image


def _mn_major(b: Matrix, element: Element, nbytes: int) -> npt.NDArray[np.uint8]:
    """(k, 64) with 64 elements of 16 bits a row of 128 bytes: eight k rows make a 1024-byte atom."""
    data = packed(b, element).view(np.uint8).ravel()
    image = np.zeros(nbytes, np.uint8)
    image[: data.size] = data
    return image


def _descriptor(register: str, base: str, offset: int, span: int) -> str:
    layout = {128: 1, 64: 2, 32: 3, 0: 0}[span]
    leading, stride = (16, 8 * span) if span else (128, 256)
    high = layout << 62 | (stride >> 4) << 32 | (leading >> 4) << 16
    return (
        f"add.u32 %r62, {base}, {offset}; and.b32 %r62, %r62, 0x3ffff; shr.u32 %r62, %r62, 4; "
        f"cvt.u64.u32 {register}, %r62; or.b64 {register}, {register}, {high};\n"
    )
