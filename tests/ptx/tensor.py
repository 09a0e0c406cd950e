"""Conformance programs: matrix instructions of Ampere and Hopper, tensor-map copies.

Operands are small integers, so that every order of summation gives the same bits and answers are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from evo.trial import TensorMapArg
from ptx.programs import Program, Writer, launch_of, random_bits, unsigned

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


def _f32_bits(x: Matrix) -> npt.NDArray[np.uint32]:
    return x.astype(np.float32).view(np.uint32)


def _integer_bits(width: int) -> Callable[[Matrix], npt.NDArray[np.uint32]]:
    def encode(x: Matrix) -> Words:
        bits: Words = (x.astype(np.int64) & ((1 << width) - 1)).astype(np.uint32)
        return bits

    return encode


ELEMENTS = {
    e.name: e
    for e in (
        Element("f16", 16, lambda x: x.astype(np.float16).view(np.uint16).astype(np.uint32)),
        Element("bf16", 16, lambda x: (_f32_bits(x) >> 16).astype(np.uint32)),
        Element("tf32", 32, _f32_bits),
        Element("e4m3", 8, _fp8(3, 7)),
        Element("e5m2", 8, _fp8(2, 15)),
        Element("s8", 8, _integer_bits(8), -128, 128),
        Element("u8", 8, _integer_bits(8), 0, 256),
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


def accumulator_positions(
    r: int, thread: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Row and column of 32-bit accumulator register `r` (of m16n8, or of wgmma's 64 rows over four warps)."""
    lane, warp = thread % 32, thread // 32
    return warp * 16 + lane // 4 + 8 * (r // 2 % 2), 8 * (r // 4) + lane % 4 * 2 + r % 2


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
        start = 3 if acc == "s32" else 0x42004200 if acc == "f16" else 0x40400000  # 3 everywhere
        register = "f32" if acc == "f32" else "b32"
        w.run("{ " + fragments.load(first_a, na, "a") + fragments.load(first_b, nb, "b"))
        w.run(f".reg .{register} c<{nd}>, e<{nd}>; " + " ".join(f"mov.b32 c{i}, {start};" for i in range(nd)))
        w.run(f"{name} {listed('e', nd)}, {listed('a', na)}, {listed('b', nb)}, {listed('c', nd)};")
        thread = np.arange(threads)
        total = np.concatenate(sums) + 3  # (64, 8)
        for r in range(nd):
            row, column = accumulator_positions(r if nd == 4 else 2 * r, thread)
            exact = total[row, column]
            if acc == "f16":
                pair = np.stack([exact, total[row, column + 1]], axis=-1)
                words = packed(pair, ELEMENTS["f16"])[:, 0]
            else:
                words = _integer_bits(32)(exact) if acc == "s32" else _f32_bits(exact)
            kind = {"f16": "f16x2", "s32": "s32", "f32": "f32"}[acc]
            w.put(f"{name} register {r}", f"e{r}", kind, words.tolist())
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
        "mad.wide.u32 %d0, %t, 8, %in; ld.global.f64 %e0, [%d0]; ld.global.f64 %e1, [%d0+256]; mov.f64 %e2, 0d3FF8000000000000;"
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
            words = _f32_bits(total[row, column])
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
            f"add.u64 %d1, %in, {offsets[0]}; wmma.load.a.sync.aligned.{layout_a}.{shape}.global.{kind} {listed('a', na)}, [%d1], {lda};"
        )
        w.run(
            f"add.u64 %d1, %in, {offsets[1]}; wmma.load.b.sync.aligned.{layout_b}.{shape}.global.{kind} {listed('b', nb)}, [%d1], {ldb};"
        )
        w.run(
            f"add.u64 %d1, %in, {offsets[2]}; wmma.load.c.sync.aligned.row.{shape}.global.{acc} {listed('c', nd)}, [%d1], {n};"
        )
        w.run(
            f"wmma.mma.sync.aligned.{layout_a}.{layout_b}.{shape}.{types} {listed('e', nd)}, {listed('a', na)}, {listed('b', nb)}, {listed('c', nd)};"
        )
        w.run(
            f"add.u64 %d1, %out, {store}; wmma.store.d.sync.aligned.row.{shape}.global.{acc} [%d1], {listed('e', nd)}, {n}; }}"
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
    return values.astype(np.int32).view(np.uint32) if acc == "s32" else _f32_bits(values)


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
                f"add.u32 %r7, %r6, 1024; stmatrix.sync.aligned.m8n8.x{count}{'.trans' if trans else ''}.shared.b16 [%r7], {names};"
            )
            w.run(
                "bar.sync 0; mad.lo.u32 %r8, %t, 16, %r9; setp.lt.u32 %p0, %t, "
                + str(8 * count)
                + "; mov.u32 %r15, 0;"
            )
            w.run(
                "mad.lo.u32 %r8, %t, 16, %r9; xor.b32 %r16, %t, 5; mad.lo.u32 %r8, %r16, 16, %r9; @%p0 ld.shared.u32 %r15, [%r8+1028]; bar.sync 0;"
            )
            w.put(f"stmatrix x{count}{' trans' if trans else ''}", "%r15", "b32")
    return w.program()


def swizzled(image: npt.NDArray[np.uint8], span: int) -> npt.NDArray[np.uint8]:
    """Shared memory as the hardware lays it out: 16-byte chunks of a 128-byte-row pattern, xor-ed by row.
    `span` is 128, 64, 32 or 0."""
    if not span:
        return image
    address = np.arange(image.size)
    chunk_bits = {128: 7, 64: 3, 32: 1}[span]
    moved = address ^ ((address >> 7 & chunk_bits) << 4)
    out = np.empty_like(image)
    out[moved] = image
    return out


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


def wgmma() -> list[Program]:
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
    b_at = 16384
    image = np.zeros(b_at + 32768, np.uint8)
    image[:b_at] = swizzled(_k_major(a, element, span, b_at), span)
    if trans_b:
        image[b_at:] = swizzled(_mn_major(b, element, image.size - b_at), span)
    else:
        image[b_at:] = swizzled(_k_major(np.ascontiguousarray(b.T), element, span, image.size - b_at), span)
    words = fragments.add(image.view(np.uint32).reshape(-1, 128))
    w.run("mov.u32 %r9, block; mad.lo.u32 %r8, %t, 4, %r9; mad.wide.u32 %at, %g, 4, %in; mov.u32 %r1, 0;")
    w.run(
        f"copy: ld.global.u32 %r2, [%at+{words * 512}]; st.shared.u32 [%r8], %r2; add.u64 %at, %at, 512; add.u32 %r8, %r8, 512;"
    )
    w.run(
        f"add.u32 %r1, %r1, 1; setp.lt.u32 %p0, %r1, {image.size // 512}; @%p0 bra copy; fence.proxy.async.shared::cta; bar.sync 0;"
    )
    a_operand = "%d1"
    if registers_a:
        lane = np.arange(32)
        per = 32 // element.bits
        packed_a = packed(a, element)
        regs = np.concatenate(
            [np.stack([packed_a[16 * q + lane // 4 + r, lane % 4 + 4 * h] for h in range(k // per // 4) for r in (0, 8)])
             for q in range(4)], axis=1)  # fmt: skip
        first = fragments.add(regs)
        w.run(fragments.load(first, 4, "a"))
        a_operand = listed("a", 4)
    w.run(_descriptor("%d1", "%r9", 0, span) + _descriptor("%d2", "%r9", b_at, span))
    register = "f32" if acc == "f32" else "b32"
    start = {"f32": 0x40400000, "s32": 3, "f16": 0x42004200}[acc]
    w.run(f".reg .{register} e<{nd}>; " + " ".join(f"mov.b32 e{i}, {start};" for i in range(nd)))
    tail = "" if acc == "s32" else f", {signs[0]}, {signs[1]}"
    if kind in ("f16", "bf16"):
        tail += f", {int(trans_b)}" if registers_a else f", 0, {int(trans_b)}"
    w.run(f"mov.u32 %r63, {scale}; setp.ne.u32 %p0, %r63, 0; wgmma.fence.sync.aligned;")
    op = f"wgmma.mma_async.sync.aligned.m64n{n}k{k}.{acc}.{kind}.{kind}"
    w.run(
        f"{op} {listed('e', nd)}, {a_operand}, %d2, %p0{tail}; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
    )
    total = signs[0] * signs[1] * (a @ b) + 3 * scale
    thread = np.arange(128)
    for r in range(nd):
        row, column = accumulator_positions(r if acc != "f16" else 2 * r, thread)
        exact = total[row, column]
        if acc == "f16":
            words_r = packed(np.stack([exact, total[row, column + 1]], axis=-1), ELEMENTS["f16"])[:, 0]
        else:
            words_r = _integer_bits(32)(exact) if acc == "s32" else _f32_bits(exact)
        kind_d = {"f16": "f16x2", "s32": "s32", "f32": "f32"}[acc]
        w.put(f"{op} register {r}", f"e{r}", kind_d, words_r.tolist())
    w.raw = fragments.raw
    return w.program()


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


# dims: shape, box, first coordinate, swizzle span, dtype
TILES: list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int, str]] = [
    ((1024,), (64,), (8,), 0, "fp16"), ((1000,), (64,), (976,), 0, "fp16"), ((64, 64), (64, 8), (0, 16), 128, "fp16"),
    ((64, 50), (64, 16), (0, 40), 128, "fp16"), ((64, 64), (16, 32), (16, 8), 32, "fp16"),
    ((32, 16, 4), (32, 4, 2), (0, 13, 1), 0, "fp32"),
    ((32, 8, 4, 4), (16, 2, 2, 2), (8, 7, 1, 3), 64, "fp32"), ((16, 4, 4, 4, 2), (16, 2, 2, 2, 2), (0, 1, 3, 1, 0), 0, "fp16"),
    ((64, 64), (32, 16), (32, 4), 64, "bf16"),
]  # fmt: skip


def tma() -> list[Program]:
    return [_tma(i, *row) for i, row in enumerate(TILES)]


def _tma(
    index: int, shape: tuple[int, ...], box: tuple[int, ...], start: tuple[int, ...], span: int, dtype: str
) -> Program:
    """Load a box (elements outside read as zero), look at the shared image, store it back into a copy."""
    nbytes = 4 if dtype == "fp32" else 2
    kind = {2: "b16", 4: "b32"}[nbytes]
    count = int(np.prod(shape))
    values = np.arange(1, count + 1, dtype=unsigned(nbytes)).reshape(shape[::-1])
    strides, step = [], nbytes
    for size in shape[:-1]:
        step *= size
        strides.append(step)
    rank, box_nbytes = len(shape), int(np.prod(box)) * nbytes
    expected = np.zeros(box[::-1], values.dtype)
    for place in np.ndindex(expected.shape):
        source = tuple(p + s for p, s in zip(place, start[::-1], strict=True))
        if all(0 <= x < n for x, n in zip(source, values.shape, strict=True)):
            expected[place] = values[source]
    image = swizzled(expected.view(np.uint8).ravel(), span).view(values.dtype)
    stored = np.zeros_like(values)
    for place in np.ndindex(expected.shape):
        target = tuple(p + s for p, s in zip(place, start[::-1], strict=True))
        if all(0 <= x < n for x, n in zip(target, values.shape, strict=True)):
            stored[target] = expected[place]
    maps = tuple(TensorMapArg(buffer, dtype, shape, tuple(strides), box, span) for buffer in ("in", "out"))
    name = f"tma_{index}_{rank}d_s{span}"
    w = Writer(name, launch_of(1, 128, maps=maps), values.tobytes(),
               ".shared .align 1024 .b8 block[16384];\n.shared .align 8 .b64 bar;\n",
               ", .param .align 64 .b8 load_map[128], .param .align 64 .b8 store_map[128]")  # fmt: skip
    w.reserve("TMA store", kind, count, stored.ravel().tolist())  # at offset 0: the store map's base is `out`
    at = w.reserve("TMA load", kind, image.size, image.tolist())
    coordinates = "{" + ", ".join(f"%r{20 + d}" for d in range(rank)) + "}"
    w.run(
        "mov.u32 %r9, block; mov.u32 %r8, bar; setp.eq.u32 %p0, %t, 0; mov.b64 %d1, load_map; cvta.param.u64 %d1, %d1;"
    )
    w.run("mov.b64 %d2, store_map; cvta.param.u64 %d2, %d2; prefetch.tensormap [%d1];")
    w.run(" ".join(f"mov.u32 %r{20 + d}, {start[d]};" for d in range(rank)))
    w.run(f"cp.async.bulk.prefetch.tensor.{rank}d.L2.global.tile [%d1, {coordinates}];")
    # clear `out` below the store, so that its untouched elements are defined
    w.run(
        f"mov.u32 %r1, %t; clear: setp.ge.u32 %p2, %r1, {count}; @%p2 bra cleared; mad.wide.u32 %at, %r1, {nbytes}, %out;"
    )
    w.run(
        f"mov.u32 %r2, 0; cvt.u16.u32 %h0, %r2; st.global.{kind} [%at], {'%h0' if nbytes == 2 else '%r2'}; add.u32 %r1, %r1, 128; bra clear;"
    )
    w.run(
        "cleared: @%p0 mbarrier.init.shared::cta.b64 [%r8], 1; @%p0 fence.mbarrier_init.release.cluster; fence.proxy.async; bar.sync 0;"
    )
    w.run(f"@!%p0 bra waiting; mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r8], {box_nbytes};")
    w.run(
        f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r9], [%d1, {coordinates}], [%r8];"
    )
    w.run("waiting: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r8], 0; @!%p1 bra waiting;")
    w.run(
        f"mov.u32 %r1, %t; read: setp.ge.u32 %p2, %r1, {image.size}; @%p2 bra done; mad.lo.u32 %r2, %r1, {nbytes}, %r9;"
    )
    register = "%h1" if nbytes == 2 else "%r3"
    w.run(
        f"ld.shared.{kind} {register}, [%r2]; mad.wide.u32 %at, %r1, {nbytes}, %out; st.global.{kind} [%at+{at}], {register};"
    )
    w.run("add.u32 %r1, %r1, 128; bra read; done: bar.sync 0; @!%p0 bra finished;")
    w.run(f"cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group [%d2, {coordinates}], [%r9];")
    w.run("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; finished:")
    return w.program()


def tma_cluster() -> Program:
    """Multicast to both CTAs of a cluster, and a reduction into global memory."""
    shape, box = (64, 16), (64, 8)
    values = np.arange(1024, dtype=np.float32).reshape(16, 64)
    maps = tuple(TensorMapArg(b, "fp32", shape, (256,), box, 0) for b in ("in", "out"))
    w = Writer("tma_cluster", launch_of(2, 64, cluster=2, maps=maps), values.tobytes(),
               ".shared .align 1024 .b8 block[4096];\n.shared .align 8 .b64 bar;\n",
               ", .param .align 64 .b8 load_map[128], .param .align 64 .b8 store_map[128]")  # fmt: skip
    total = np.zeros_like(values)
    total[:8] = values[:8]
    total[8:] = values[8:]
    w.reserve("cp.reduce.async.bulk.tensor add", "f32", 1024, (2 * total).view(np.uint32).ravel().tolist())
    w.run("mov.u32 %r9, block; mov.u32 %r8, bar; setp.eq.u32 %p0, %t, 0; mov.u32 %r1, %cluster_ctarank;")
    w.run("mov.b64 %d1, load_map; cvta.param.u64 %d1, %d1; mov.b64 %d2, store_map; cvta.param.u64 %d2, %d2;")
    w.run("setp.ne.u32 %p3, %r1, 0; @%p3 bra cleared; mov.u32 %r2, %t; mov.f32 %f0, 0f00000000;")
    w.run(
        "clear: mad.wide.u32 %at, %r2, 4, %out; st.global.f32 [%at], %f0; add.u32 %r2, %r2, 64; setp.lt.u32 %p2, %r2, 1024; @%p2 bra clear; cleared:"
    )
    w.run("@%p0 mbarrier.init.shared::cta.b64 [%r8], 1; @%p0 fence.mbarrier_init.release.cluster;")
    w.run(
        "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r8], 4096; fence.proxy.async; barrier.cluster.arrive; barrier.cluster.wait;"
    )
    # each CTA loads 8 rows for both: half of the image each
    w.run(
        "mov.u32 %r20, 0; mul.lo.u32 %r21, %r1, 8; mad.lo.u32 %r3, %r1, 2048, %r9; mov.u16 %h0, 3; @!%p0 bra waiting;"
    )
    w.run(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%r3], [%d1, {%r20, %r21}], [%r8], %h0;"
    )
    w.run(
        "waiting: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p1, [%r8], 0; @!%p1 bra waiting;"
    )
    w.run("mad.lo.u32 %r4, %t, 64, %r9; ld.shared.f32 %f1, [%r4+4];")
    w.put("multicast", "%f1", "f32", lambda i: int(values.ravel().view(np.uint32)[(i % 64) * 16 + 1]))
    # both CTAs add the whole image: 16 rows as two boxes
    w.run("bar.sync 0; @!%p0 bra finished; mov.u32 %r21, 0; mov.u32 %r22, 8; add.u32 %r5, %r9, 2048;")
    w.run("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%d2, {%r20, %r21}], [%r9];")
    w.run("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%d2, {%r20, %r22}], [%r5];")
    w.run(
        "cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0; cp.async.bulk.wait_group 0; finished: barrier.cluster.arrive; barrier.cluster.wait;"
    )
    return w.program()


def programs() -> list[Program]:
    return [mma(), mma_f64(), mma_rounding(), wmma(), matrix_moves(), *wgmma(), tma_cluster(), *tma()]
