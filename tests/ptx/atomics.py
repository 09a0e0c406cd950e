"""Conformance programs: atomics and reductions in global and in shared memory."""

from __future__ import annotations

from ptx.operands import RAW, WORDS
from ptx.programs import Program, Writer, launch_of


def programs() -> list[Program]:
    return [_atomics(space) for space in ("global", "shared")]


def _atomics(space: str) -> Program:
    """Every lane has its own word (old values are defined), then all lanes meet in one (commutative sums)."""
    before = ".shared .align 16 .b8 block[4096];\n"
    w = Writer(f"atomics_{space}", launch_of(1, 64), RAW, before)
    w.run("mad.wide.u32 %d0, %t, 16, %in; ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%d0];")
    cells = w.reserve("cells", "b32", 64 * 4)
    if space == "global":
        w.run(f"mad.wide.u32 %d1, %t, 16, %out; add.u64 %d1, %d1, {cells};")
    else:
        w.run("mov.u32 %r9, block; mad.lo.u32 %r9, %t, 16, %r9;")
    at = "[%d1]" if space == "global" else "[%r9]"
    first = f"st.{space}.v2.u32 {at}, {{%r1, %r2}};"
    _of_32_bits(w, space, at, first)
    _of_64_bits(w, space, at, first)
    _floating(w, space, at)
    w.run(
        f"{first} red.{space}.add.u32 {at}, %r3; red.relaxed.gpu.{space}.xor.b32 {at}, %r4; ld.{space}.u32 %r6, {at};"
    )
    w.put("red", "%r6", "b32", lambda i: (WORDS[4 * i] + WORDS[4 * i + 2]) ^ WORDS[4 * i + 3])
    _in_one_word(w, space, at, cells)
    return w.program()


def _of_32_bits(w: Writer, space: str, at: str, first: str) -> None:
    """`at` is the thread's own cell; `first` stores the first two words of its input there."""
    for op, kind in [(o, k) for o in ("add", "min", "max") for k in ("u32", "s32")] + [
        ("and", "b32"), ("or", "b32"), ("xor", "b32"), ("exch", "b32"), ("inc", "u32"), ("dec", "u32"),
    ]:  # fmt: skip
        w.run(f"{first} atom.{space}.{op}.{kind} %r5, {at}, %r3; ld.{space}.u32 %r6, {at};")
        w.put(f"atom.{op}.{kind} old", "%r5", "b32", lambda i: WORDS[4 * i])
        w.put(f"atom.{op}.{kind} new", "%r6", "b32")
    w.run(f"{first} atom.{space}.cas.b32 %r5, {at}, %r1, %r4; ld.{space}.u32 %r6, {at};")
    w.put("atom.cas.b32", "%r6", "b32", lambda i: WORDS[4 * i + 3])


def _of_64_bits(w: Writer, space: str, at: str, first: str) -> None:
    w.run(f"{first} mov.b64 %d2, {{%r1, %r2}}; mov.b64 %d3, {{%r3, %r4}};")
    for op, kind in (("add", "u64"), ("min", "s64"), ("max", "u64"), ("and", "b64"), ("exch", "b64")):
        w.run(f"{first} atom.{space}.{op}.{kind} %d4, {at}, %d3; ld.{space}.u64 %d5, {at};")
        w.put(f"atom.{op}.{kind}", "%d5", "b64")
    w.run(f"{first} atom.{space}.cas.b64 %d4, {at}, %d2, %d3; ld.{space}.u64 %d5, {at};")
    w.put("atom.cas.b64", "%d5", "b64", lambda i: WORDS[4 * i + 2] | WORDS[4 * i + 3] << 32)


def _floating(w: Writer, space: str, at: str) -> None:
    w.run(f"cvt.rn.f32.u32 %f0, %t; st.{space}.f32 {at}, %f0; atom.{space}.add.f32 %f1, {at}, 0f3F000000;")
    w.run(f"ld.{space}.f32 %f2, {at};")
    w.put("atom.add.f32", "%f2", "f32")
    w.run(
        f"cvt.rn.f64.u32 %e0, %t; st.{space}.f64 {at}, %e0; atom.{space}.add.f64 %e1, {at}, %e0; "
        f"ld.{space}.f64 %e2, {at};"
    )
    w.put("atom.add.f64", "%e2", "f64")
    w.run(
        f"st.{space}.u32 {at}, 0x3C003800; mov.u32 %r5, 0x40003C00; atom.{space}.add.noftz.f16x2 %r6, {at}, %r5;"
    )
    w.run(f"ld.{space}.u32 %r6, {at};")
    w.put("atom.add.noftz.f16x2", "%r6", "f16x2", lambda i: 0x42003E00)


def _in_one_word(w: Writer, space: str, at: str, cells: int) -> None:
    """All lanes add to one word; then `cells` of `out` holds the cells."""
    one = w.reserve("contended", "u32", 4, [sum(WORDS[4 * i] for i in range(64)) & 0xFFFFFFFF, 0, 0, 0])
    where = f"[%out+{one}]" if space == "global" else "[block+2048]"
    zero = f"st.{space}.v4.u32 {where}, {{0, 0, 0, 0}};".replace("{0, 0, 0, 0}", "{%r10, %r10, %r10, %r10}")
    w.run(f"mov.u32 %r10, 0; setp.eq.u32 %p0, %t, 0; @%p0 {zero} bar.sync 0;")
    scopes = ".acq_rel.gpu" if space == "global" else ""
    w.run(f"atom{scopes}.{space}.add.u32 %r5, {where}, %r1; bar.sync 0;")
    if space == "shared":
        w.run(f"@%p0 ld.shared.v4.u32 {{%r5, %r6, %r7, %r8}}, {where};")
        w.run(f"@%p0 st.global.v4.u32 [%out+{one}], {{%r5, %r6, %r7, %r8}};")
        w.run(f"mad.wide.u32 %d1, %t, 16, %out; ld.shared.v2.u32 {{%r5, %r6}}, {at};")
        w.run(f"mov.u32 %r7, 0; mov.u32 %r8, 0; st.global.v4.u32 [%d1+{cells}], {{%r5, %r6, %r7, %r8}};")
    else:
        w.run("st.global.v2.u32 [%d1+8], {%r10, %r10};")
