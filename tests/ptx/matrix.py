"""Conformance programs: matrix instructions of a warp, and the moves of their operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ptx.fragments import (
    ACCUMULATOR_KINDS,
    ELEMENTS,
    Element,
    Fragments,
    Matrix,
    Words,
    accumulator_positions,
    accumulator_start,
    accumulator_words,
    f32_bits,
    integers,
    listed,
    packed,
)
from ptx.operands import random_bits
from ptx.programs import Program, Writer, launch_of


def mma_fragments(a: Matrix, b: Matrix, kind_a: Element, kind_b: Element) -> tuple[Words, Words]:
    """Registers of A (16, k) and B (k, 8) for one warp: (registers, 32) each."""
    lane = np.arange(32)
    group, quad = lane // 4, lane % 4

    def registers(matrix: Matrix, kind: Element, rows: Sequence[int]) -> Words:
        """One word = consecutive k of row `group + row`; the k halves follow each other."""
        per = 32 // kind.bits
        words = packed(matrix, kind)  # (rows, k / per)
        halves = matrix.shape[-1] // (4 * per)
        return np.stack([words[group + row, quad + 4 * h] for h in range(halves) for row in rows])

    return registers(a, kind_a, (0, 8)), registers(np.ascontiguousarray(b.T), kind_b, (0,))


MMA = [
    # shape k, A, B, accumulator
    (8, "f16", "f16", "f32"), (16, "f16", "f16", "f32"), (8, "bf16", "bf16", "f32"), (16, "bf16", "bf16", "f32"),
    (8, "f16", "f16", "f16"), (16, "f16", "f16", "f16"), (4, "tf32", "tf32", "f32"), (8, "tf32", "tf32", "f32"),
    (16, "s8", "s8", "s32"), (32, "s8", "s8", "s32"), (32, "u8", "u8", "s32"), (32, "u8", "s8", "s32"),
    (32, "e4m3", "e4m3", "f32"), (32, "e5m2", "e5m2", "f32"), (32, "e4m3", "e5m2", "f32"),
]  # fmt: skip


def mma(rows: Sequence[tuple[int, str, str, str]] = MMA) -> Program:
    threads = 128
    fragments = Fragments(threads)
    w = Writer("mma", launch_of(1, threads))
    for k, left, right, acc in rows:
        name = f"mma.sync.aligned.m16n8k{k}.row.col.{acc}.{left}.{right}.{acc}"
        kind_a, kind_b = ELEMENTS[left], ELEMENTS[right]
        a_regs, b_regs, sums = [], [], []
        for warp in range(4):
            a = integers(f"{name} a {warp}", (16, k), kind_a.low, kind_a.high)
            b = integers(f"{name} b {warp}", (k, 8), kind_b.low, kind_b.high)
            fa, fb = mma_fragments(a, b, kind_a, kind_b)
            a_regs.append(fa)
            b_regs.append(fb)
            sums.append(a @ b)
        na, nb, nd = a_regs[0].shape[0], b_regs[0].shape[0], 2 if acc == "f16" else 4
        first_a = fragments.add(np.concatenate(a_regs, axis=1))
        first_b = fragments.add(np.concatenate(b_regs, axis=1))
        start = accumulator_start(acc)
        register = "f32" if acc == "f32" else "b32"
        w.run("{ " + fragments.load(first_a, na, "a") + fragments.load(first_b, nb, "b"))
        w.run(f".reg .{register} c<{nd}>, e<{nd}>; " + " ".join(f"mov.b32 c{i}, {start};" for i in range(nd)))
        w.run(f"{name} {listed('e', nd)}, {listed('a', na)}, {listed('b', nb)}, {listed('c', nd)};")
        total = np.concatenate(sums) + 3  # (64, 8)
        for r in range(nd):
            words = accumulator_words(total, acc, r)
            w.put(f"{name} register {r}", f"e{r}", ACCUMULATOR_KINDS[acc], words)
        w.run("}")
    w.raw = fragments.raw
    return w.program()


def mma_f64() -> Program:
    """m8n8k4: a and b one element a lane, c two."""
    w = Writer("mma_f64", launch_of(1, 32))
    a, b = integers("dmma a", (8, 4), -9, 9), integers("dmma b", (4, 8), -9, 9)
    lane = np.arange(32)
    values = np.stack([a[lane // 4, lane % 4], b[lane % 4, lane // 4]])
    w.raw = values.tobytes()
    w.run(
        "mad.wide.u32 %d0, %t, 8, %in; ld.global.f64 %e0, [%d0]; ld.global.f64 %e1, [%d0+256]; "
        "mov.f64 %e2, 0d3FF8000000000000;"
    )
    w.run("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%e3, %e4}, {%e0}, {%e1}, {%e2, %e2};")
    total = (a @ b + 1.5)[lane[:, None] // 4, lane[:, None] % 4 * 2 + np.arange(2)]
    for r in range(2):
        w.put(
            f"mma.m8n8k4.f64 register {r}",
            f"%e{3 + r}",
            "f64",
            np.ascontiguousarray(total[:, r]).view(np.uint64).tolist(),
        )
    return w.program()


def mma_rounding() -> Program:
    """Operands that do not sum exactly: the accumulation order is the machine's own, so a tolerance holds."""
    threads = 128
    fragments = Fragments(threads)
    w = Writer("mma_rounding", launch_of(1, threads))
    for name in ("f16", "bf16"):
        unit = (random_bits(f"mma real {name}", 4 * 24 * 16) >> np.uint64(11)).astype(np.float64) / 2**52 - 1
        unit = np.round(unit * 128) / 128  # representable in both types
        blocks = unit.reshape(4, 24, 16)
        parts = [
            mma_fragments(x[:16], np.ascontiguousarray(x[16:].T), ELEMENTS[name], ELEMENTS[name])
            for x in blocks
        ]
        first_a = fragments.add(np.concatenate([p[0] for p in parts], axis=1))
        first_b = fragments.add(np.concatenate([p[1] for p in parts], axis=1))
        w.run("{ " + fragments.load(first_a, 4, "a") + fragments.load(first_b, 2, "b") + ".reg .f32 c<4>;")
        w.run("mov.f32 c0, 0f3DCCCCCD; mov.f32 c1, c0; mov.f32 c2, c0; mov.f32 c3, c0;")
        op = f"mma.sync.aligned.m16n8k16.row.col.f32.{name}.{name}.f32"
        w.run(f"{op} {listed('c', 4)}, {listed('a', 4)}, {listed('b', 2)}, {listed('c', 4)};")
        total = np.concatenate([x[:16] @ x[16:].T for x in blocks]) + float(np.float32(0.1))
        for r in range(4):
            row, column = accumulator_positions(r, np.arange(threads))
            words = f32_bits(total[row, column])
            w.put(f"{op} register {r}", f"c{r}", "f32", words.tolist())
            w.slices[-1] = replace(w.slices[-1], absolute=2.0**-20)
        w.run("}")
    w.raw = fragments.raw
    return w.program()


WMMA = [
    ("m16n16k16", "row", "col", "f16", "f32"), ("m16n16k16", "row", "row", "f16", "f32"),
    ("m16n16k16", "col", "row", "f16", "f32"), ("m16n16k16", "col", "col", "f16", "f16"),
    ("m32n8k16", "row", "col", "f16", "f32"), ("m8n32k16", "row", "col", "f16", "f32"),
    ("m16n16k16", "row", "col", "bf16", "f32"), ("m32n8k16", "row", "row", "bf16", "f32"),
    ("m8n32k16", "col", "col", "bf16", "f32"), ("m16n16k8", "row", "col", "tf32", "f32"),
    ("m16n16k16", "row", "col", "s8", "s32"), ("m16n16k16", "col", "row", "u8", "s32"),
]  # fmt: skip


def wmma() -> Program:
    """load, multiply, store: fragments are opaque, so only the stored matrix is looked at."""
    w = Writer("wmma", launch_of(1, 32))
    raw = b""
    for shape, layout_a, layout_b, kind, acc in WMMA:
        m, n, k = (int(x) for x in shape.replace("m", "").replace("n", " ").replace("k", " ").split())
        element = ELEMENTS[kind]
        label = f"{shape}.{layout_a}.{layout_b}.{kind}.{acc}"
        a = integers(f"wmma a {label}", (m, k), element.low, element.high)
        b = integers(f"wmma b {label}", (k, n), element.low, element.high)
        c = integers(f"wmma c {label}", (m, n), -9, 9)
        offsets = []
        for matrix, layout, how in ((a, layout_a, element), (b, layout_b, element), (c, "row", None)):
            raw += b"\0" * (-len(raw) % 128)
            offsets.append(len(raw))
            stored = np.ascontiguousarray(matrix if layout == "row" else matrix.T)
            raw += packed(stored, how).tobytes() if how else _accumulator(stored, acc).tobytes()
        na, nb = (4, 4) if kind == "tf32" else _wmma_registers(m, n, k, element)
        nd = m * n // 32 if acc != "f16" else m * n // 64
        register = "f32" if acc == "f32" else "b32"
        store = w.reserve(f"wmma {label}", {"f16": "f16", "f32": "f32", "s32": "s32"}[acc], m * n,
                          _accumulator(a @ b + c, acc).ravel().tolist())  # fmt: skip
        # leading dimensions in elements
        lda, ldb = (k if layout_a == "row" else m), (n if layout_b == "row" else k)
        types = f"{acc}.{kind}.{kind}.{acc}" if kind in ("bf16", "tf32", "s8", "u8") else f"{acc}.{acc}"
        w.run(f"{{ .reg .b32 a<{na}>, b<{nb}>; .reg .{register} c<{nd}>, e<{nd}>;")
        w.run(
            f"add.u64 %d1, %in, {offsets[0]}; "
            f"wmma.load.a.sync.aligned.{layout_a}.{shape}.global.{kind} {listed('a', na)}, [%d1], {lda};"
        )
        w.run(
            f"add.u64 %d1, %in, {offsets[1]}; "
            f"wmma.load.b.sync.aligned.{layout_b}.{shape}.global.{kind} {listed('b', nb)}, [%d1], {ldb};"
        )
        w.run(
            f"add.u64 %d1, %in, {offsets[2]}; "
            f"wmma.load.c.sync.aligned.row.{shape}.global.{acc} {listed('c', nd)}, [%d1], {n};"
        )
        w.run(
            f"wmma.mma.sync.aligned.{layout_a}.{layout_b}.{shape}.{types} "
            f"{listed('e', nd)}, {listed('a', na)}, {listed('b', nb)}, {listed('c', nd)};"
        )
        w.run(
            f"add.u64 %d1, %out, {store}; "
            f"wmma.store.d.sync.aligned.row.{shape}.global.{acc} [%d1], {listed('e', nd)}, {n}; }}"
        )
    w.raw = raw
    return w.program()


def _wmma_registers(m: int, n: int, k: int, element: Element) -> tuple[int, int]:
    if element.name == "f16":
        return 8, 8
    words = 32 // element.bits * 32
    return m * k // words, n * k // words


def _accumulator(values: Matrix, acc: str) -> npt.NDArray[np.unsignedinteger]:
    if acc == "f16":
        return values.astype(np.float16).view(np.uint16)
    return values.astype(np.int32).view(np.uint32) if acc == "s32" else f32_bits(values)


def matrix_moves() -> Program:
    """ldmatrix and stmatrix over 8x8 tiles of 16-bit elements; element (r, c) of tile i is i*64 + r*8 + c."""
    w = Writer("matrix_moves", launch_of(1, 32), before=".shared .align 128 .b8 block[2048];\n")
    w.raw = np.arange(512, dtype=np.uint16).tobytes()
    w.run("mov.u32 %r9, block; mad.lo.u32 %r1, %t, 32, %r9; mad.wide.u32 %d0, %t, 32, %in;")
    w.run("ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%d0]; st.shared.v4.u32 [%r1], {%r2, %r3, %r4, %r5};")
    w.run(
        "ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%d0+16]; st.shared.v4.u32 [%r1+16], {%r2, %r3, %r4, %r5}; bar.sync 0;"
    )
    # lane's row: rows of a tile in a scrambled order, so that addresses matter
    w.run("xor.b32 %r6, %t, 5; mad.lo.u32 %r6, %r6, 16, %r9;")

    def element(tile: int, row: int, column: int) -> int:
        return ((tile * 8 + row) ^ 5) * 8 + column

    def exact(tile: int, trans: bool) -> Callable[[int], int]:
        def run(lane: int) -> int:
            pairs = [(lane // 4, lane % 4 * 2 + j) for j in range(2)]
            low, high = (element(tile, c, r) if trans else element(tile, r, c) for r, c in pairs)
            return low | high << 16

        return run

    for count in (1, 2, 4):
        for trans in (False, True):
            names = "{" + ", ".join(f"%r{10 + i}" for i in range(count)) + "}"
            text = f"ldmatrix.sync.aligned.m8n8.x{count}{'.trans' if trans else ''}.shared.b16"
            w.run(f"{text} {names}, [%r6];")
            for i in range(count):
                w.put(f"{text} {i}", f"%r{10 + i}", "b32", exact(i, trans))
    for count in (1, 2, 4):
        for trans in (False, True):
            names = "{" + ", ".join(f"%r{10 + i}" for i in range(count)) + "}"
            w.run(
                "add.u32 %r7, %r6, 1024; "
                f"stmatrix.sync.aligned.m8n8.x{count}{'.trans' if trans else ''}.shared.b16 [%r7], {names};"
            )
            w.run(
                "bar.sync 0; mad.lo.u32 %r8, %t, 16, %r9; setp.lt.u32 %p0, %t, "
                + str(8 * count)
                + "; mov.u32 %r15, 0;"
            )
            w.run(
                "mad.lo.u32 %r8, %t, 16, %r9; xor.b32 %r16, %t, 5; mad.lo.u32 %r8, %r16, 16, %r9; "
                "@%p0 ld.shared.u32 %r15, [%r8+1028]; bar.sync 0;"
            )
            w.put(f"stmatrix x{count}{' trans' if trans else ''}", "%r15", "b32")
    return w.program()


def programs() -> list[Program]:
    return [mma(), mma_f64(), mma_rounding(), wmma(), matrix_moves()]
