"""Conformance programs: loads and stores of every memory space, generic addresses, fences."""

from __future__ import annotations

from collections.abc import Callable

from ptx.operands import RAW, WORDS
from ptx.programs import Program, Writer, launch_of


def memory() -> Program:
    before = (
        ".const .align 16 .b8 table[64] = {" + ", ".join(str(i * 3) for i in range(64)) + "};\n"
        ".global .align 16 .u32 scratch[128];\n.global .align 4 .u32 filled[4] = {11, 22, 33, 44};\n"
        ".shared .align 16 .b8 block[2048];\n"
    )
    w = Writer("memory", launch_of(1, 64), RAW, before)
    w.run(".local .align 16 .b8 stack[64]; mad.wide.u32 %d0, %t, 16, %in;")
    _global_loads(w)
    _shared_and_generic(w)
    _local_and_module_variables(w)
    _stores(w)
    _shared_widths(w)
    return w.program()


def _word(i: int, k: int) -> int:
    return WORDS[4 * i + k]


def _sign_extended(width: int) -> Callable[[int], int]:
    def run(i: int) -> int:
        v = _word(i, 0) & ((1 << width) - 1)
        return v - (1 << width) if v >> (width - 1) else v

    return run


def _global_loads(w: Writer) -> None:
    """%d0 is the thread's own 16 bytes of `in`."""
    w.run("ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%d0]; xor.b32 %r5, %r1, %r4;")
    w.put("ld.v4.u32", "%r5", "b32", lambda i: _word(i, 0) ^ _word(i, 3))
    w.run("ld.global.v2.u32 {%r1, %r2}, [%d0+8]; ld.global.v2.b64 {%d1, %d2}, [%d0]; cvt.u32.u64 %r3, %d2;")
    w.run("xor.b32 %r3, %r3, %r2;")
    w.put("ld.v2", "%r3", "b32", lambda i: _word(i, 2) ^ _word(i, 3))
    for name, suffix, take in (("u8", "u8", 0xFF), ("u16", "u16", 0xFFFF)):
        w.run(f"ld.global.{suffix} %r1, [%d0];")
        w.put(f"ld.{name}", "%r1", "u32", [_word(i, 0) & take for i in range(64)])
    for width in (8, 16):
        w.run(f"ld.global.s{width} %r1, [%d0];")
        w.put(f"ld.s{width}", "%r1", "s32", _sign_extended(width))
    for modifiers in (
        *(
            "volatile.global",
            "relaxed.gpu.global",
            "acquire.gpu.global",
            "global.nc",
            "global.ca",
            "global.cg",
        ),
        *("global.nc.L1::no_allocate", "global.L2::128B", "relaxed.sys.global", "acquire.cta.global"),
    ):
        w.run(f"ld.{modifiers}.u32 %r1, [%d0+4];")
        w.put(f"ld.{modifiers}", "%r1", "u32", lambda i: _word(i, 1))


def _shared_and_generic(w: Writer) -> None:
    """%r6 is the thread's own 16 bytes of shared memory, %d4 the neighbour's as a generic address."""
    w.run(
        "mov.u32 %r6, block; mad.lo.u32 %r6, %t, 16, %r6; st.shared.v4.u32 [%r6], {%t, %r1, %r2, %r3}; bar.sync 0;"
    )
    w.run("mov.u64 %d3, block; cvta.shared.u64 %d3, %d3; xor.b32 %r7, %t, 1; mad.wide.u32 %d4, %r7, 16, %d3;")
    w.run("ld.u32 %r8, [%d4];")
    w.put("generic ld of shared", "%r8", "u32", lambda i: i ^ 1)
    w.run(
        "isspacep.shared %p0, %d4; isspacep.global %p1, %d4; selp.u32 %r8, 1, 0, %p0; @%p1 add.u32 %r8, %r8, 2;"
    )
    w.put("isspacep", "%r8", "u32", lambda i: 1)
    w.run("cvta.to.shared.u64 %d5, %d4; cvt.u32.u64 %r8, %d5; ld.volatile.shared.u32 %r8, [%r8];")
    w.put("cvta.to.shared", "%r8", "u32", lambda i: i ^ 1)


def _local_and_module_variables(w: Writer) -> None:
    """%d8 is the thread's own word of `scratch`."""
    w.run("mov.u64 %d6, stack; add.u32 %r9, %t, 5; st.local.u32 [%d6+12], %r9; st.local.u16 [%d6+2], 9;")
    w.run("cvta.local.u64 %d7, %d6; ld.u32 %r10, [%d7+12]; ld.local.u16 %h0, [%d6+2]; cvt.u32.u16 %r11, %h0;")
    w.run("add.u32 %r10, %r10, %r11;")
    w.put("local", "%r10", "u32", lambda i: i + 14)
    w.run("mov.u64 %d8, table; cvt.u64.u32 %d9, %t; add.u64 %d8, %d8, %d9; ld.const.u8 %r10, [%d8];")
    w.put("ld.const", "%r10", "u32", lambda i: i * 3 & 0xFF)
    w.run(
        "mov.u64 %d8, scratch; mad.wide.u32 %d8, %t, 4, %d8; st.global.u32 [%d8], %t; ld.global.u32 %r10, [%d8];"
    )
    w.run("ld.global.u32 %r11, [filled+8]; add.u32 %r10, %r10, %r11;")
    w.put("module variables", "%r10", "u32", lambda i: i + 33)


def _stores(w: Writer) -> None:
    w.run("mov.u64 %d10, scratch; cvta.global.u64 %d10, %d10; mad.wide.u32 %d10, %t, 4, %d10;")
    for modifiers in (
        "relaxed.gpu.global",
        "release.gpu.global",
        "volatile.global",
        "global.wt",
        "global.cs",
        "release.cta.global",
    ):
        w.run(f"st.{modifiers}.u32 [%d8], %r9;")
    w.run("st.u32 [%d10], %r9; ld.u32 %r10, [%d10];")
    w.put("generic st of global", "%r10", "u32", lambda i: i + 5)
    w.run(
        "prefetch.global.L2 [%d0]; prefetchu.L1 [%d0]; fence.acq_rel.gpu; fence.sc.cta; membar.gl; membar.cta;"
    )


def _shared_widths(w: Writer) -> None:
    w.run(
        "st.shared.u8 [%r6], %t; st.shared.u16 [%r6+2], 77; st.shared.f32 [%r6+4], 0f3F800000; "
        "st.shared.b64 [%r6+8], %d9;"
    )
    w.run(
        "ld.shared.u8 %r1, [%r6]; ld.shared.s16 %r2, [%r6+2]; ld.shared.v2.u32 {%r3, %r4}, [%r6+8]; "
        "add.u32 %r1, %r1, %r2;"
    )
    w.run("add.u32 %r1, %r1, %r3;")
    w.put("shared widths", "%r1", "u32", lambda i: 2 * i + 77)


def programs() -> list[Program]:
    return [memory()]
