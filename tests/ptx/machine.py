"""Conformance programs: memory spaces, control flow, warp collectives, atomics, barriers, asynchronous copies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ptx.programs import Program, Writer, launch_of, random_bits

WORDS = [int(w) & 0xFFFFFFFF for w in random_bits("words", 4096)]
RAW = np.array(WORDS, dtype=np.uint32).tobytes()


def special_registers() -> Program:
    w = Writer("special_registers", launch_of(3, 96))
    for name, value in {
        "tid.x": lambda i: i % 96, "tid.y": lambda i: 0, "ntid.x": lambda i: 96, "ntid.y": lambda i: 1,
        "ctaid.x": lambda i: i // 96, "ctaid.z": lambda i: 0, "nctaid.x": lambda i: 3, "nctaid.y": lambda i: 1,
        "laneid": lambda i: i % 32, "lanemask_eq": lambda i: 1 << i % 32, "lanemask_lt": lambda i: (1 << i % 32) - 1,
        "lanemask_le": lambda i: (2 << i % 32) - 1, "lanemask_gt": lambda i: ~((2 << i % 32) - 1),
        "lanemask_ge": lambda i: ~((1 << i % 32) - 1),
    }.items():  # fmt: skip
        w.run(f"mov.u32 %r1, %{name};")
        w.put(name, "%r1", "u32", value)
    return w.program()


def control() -> Program:
    functions = """
.func (.param .b32 result) triple(.param .b32 x)
{ .reg .u32 n; ld.param.u32 n, [x]; mul.lo.u32 n, n, 3; st.param.b32 [result], n; ret; }
.func (.param .b32 answer) collatz(.param .b32 start)
{
.reg .u32 n, steps, odd; .reg .pred p;
ld.param.u32 n, [start]; mov.u32 steps, 0;
again: setp.le.u32 p, n, 1; @p bra done;
and.b32 odd, n, 1; setp.eq.u32 p, odd, 0; add.u32 steps, steps, 1;
@p bra even; mad.lo.u32 n, n, 3, 1; bra again;
even: shr.u32 n, n, 1; bra.uni again;
done: st.param.b32 [answer], steps; ret;
}
"""

    def steps(i: int) -> int:
        n, count = i + 1, 0
        while n > 1:
            n, count = (3 * n + 1 if n & 1 else n // 2), count + 1
        return count

    w = Writer("control", launch_of(2, 64), before=functions)
    w.run("{ .param .b32 x; .param .b32 y; st.param.b32 [x], %t;")
    w.run("call.uni (y), triple, (x); ld.param.b32 %r1, [y]; }")
    w.put("call", "%r1", "u32", lambda i: i % 64 * 3)
    w.run("add.u32 %r1, %g, 1; { .param .b32 x; .param .b32 y; st.param.b32 [x], %r1;")
    w.run("call (y), collatz, (x); ld.param.b32 %r2, [y]; }")
    w.put("divergent loop", "%r2", "u32", steps)
    w.run(
        "and.b32 %r1, %t, 3; mov.u32 %r2, 0; { choices: .branchtargets c0, c1, c2, c3; brx.idx %r1, choices;"
    )
    w.run("c0: mov.u32 %r2, 10; bra join; c1: mov.u32 %r2, 20; bra join; c2: mov.u32 %r2, 30; bra join;")
    w.run("c3: mov.u32 %r2, 40; join: }")
    w.put("brx.idx", "%r2", "u32", lambda i: (i % 4 + 1) * 10)
    w.run("setp.lt.u32 %p0, %t, 40; mov.u32 %r3, 7; @%p0 mov.u32 %r3, 8; @!%p0 add.u32 %r3, %r3, %t;")
    w.put("predicated", "%r3", "u32", lambda i: 8 if i % 64 < 40 else 7 + i % 64)
    w.run("mov.b64 %d0, {%t, %r3}; mov.b64 {%r4, %r5}, %d0; xor.b32 %r4, %r4, %r5;")
    w.run("mov.b32 {%h0, %h1}, %r3; mov.b32 %r5, {%h1, %h0}; add.u32 %r4, %r4, %r5; mov.pred %p1, %p0;")
    w.run("@%p1 add.u32 %r4, %r4, 1;")
    w.put("mov pack", "%r4", "b32")
    w.run("setp.ge.u32 %p0, %g, 50; @%p0 exit; mov.u32 %r6, %t;")
    offset = w.reserve("exit", "u32", 50, list(range(50)))
    w.run(f"mad.wide.u32 %at, %t, 4, %out; st.global.u32 [%at+{offset}], %r6;")
    return w.program()


def memory() -> Program:
    before = (
        ".const .align 16 .b8 table[64] = {" + ", ".join(str(i * 3) for i in range(64)) + "};\n"
        ".global .align 16 .u32 scratch[128];\n.global .align 4 .u32 filled[4] = {11, 22, 33, 44};\n"
        ".shared .align 16 .b8 block[2048];\n"
    )
    w = Writer("memory", launch_of(1, 64), RAW, before)
    w.run(".local .align 16 .b8 stack[64]; mad.wide.u32 %d0, %t, 16, %in;")

    def word(i: int, k: int) -> int:
        return WORDS[4 * i + k]

    w.run("ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%d0]; xor.b32 %r5, %r1, %r4;")
    w.put("ld.v4.u32", "%r5", "b32", lambda i: word(i, 0) ^ word(i, 3))
    w.run("ld.global.v2.u32 {%r1, %r2}, [%d0+8]; ld.global.v2.b64 {%d1, %d2}, [%d0]; cvt.u32.u64 %r3, %d2;")
    w.run("xor.b32 %r3, %r3, %r2;")
    w.put("ld.v2", "%r3", "b32", lambda i: word(i, 2) ^ word(i, 3))
    for name, suffix, take in (("u8", "u8", 0xFF), ("u16", "u16", 0xFFFF)):
        w.run(f"ld.global.{suffix} %r1, [%d0];")
        w.put(f"ld.{name}", "%r1", "u32", [word(i, 0) & take for i in range(64)])
    for width in (8, 16):
        w.run(f"ld.global.s{width} %r1, [%d0];")
        w.put(f"ld.s{width}", "%r1", "s32", _sign_extended(word, width))
    for modifiers in ("volatile.global", "relaxed.gpu.global", "acquire.gpu.global", "global.nc", "global.ca", "global.cg",
                      "global.nc.L1::no_allocate", "global.L2::128B", "relaxed.sys.global", "acquire.cta.global"):  # fmt: skip
        w.run(f"ld.{modifiers}.u32 %r1, [%d0+4];")
        w.put(f"ld.{modifiers}", "%r1", "u32", lambda i: word(i, 1))
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
    w.run(
        "st.shared.u8 [%r6], %t; st.shared.u16 [%r6+2], 77; st.shared.f32 [%r6+4], 0f3F800000; st.shared.b64 [%r6+8], %d9;"
    )
    w.run(
        "ld.shared.u8 %r1, [%r6]; ld.shared.s16 %r2, [%r6+2]; ld.shared.v2.u32 {%r3, %r4}, [%r6+8]; add.u32 %r1, %r1, %r2;"
    )
    w.run("add.u32 %r1, %r1, %r3;")
    w.put("shared widths", "%r1", "u32", lambda i: 2 * i + 77)
    return w.program()


def _sign_extended(word: Callable[[int, int], int], width: int) -> Callable[[int], int]:
    def run(i: int) -> int:
        v = word(i, 0) & ((1 << width) - 1)
        return v - (1 << width) if v >> (width - 1) else v

    return run


def warp() -> Program:
    w = Writer("warp", launch_of(2, 64), RAW)
    w.run("mad.wide.u32 %d0, %g, 4, %in; ld.global.u32 %r1, [%d0]; mov.u32 %r2, %laneid;")

    def v(i: int, lane: int) -> int:
        return WORDS[i // 32 * 32 + lane]

    def shuffled(mode: str, b: int, clamp: int) -> Callable[[int], int]:
        def run(i: int) -> int:
            lane, segment = i % 32, clamp >> 8 & 0x1F
            last = lane & segment | clamp & 0x1F & ~segment
            j = {
                "up": lane - b,
                "down": lane + b,
                "bfly": lane ^ b,
                "idx": lane & segment | b & ~segment & 31,
            }[mode]
            inside = j >= last if mode == "up" else j <= last
            return v(i, j if inside else lane)

        return run

    for mode in ("up", "down", "bfly", "idx"):
        for b in (0, 1, 5, 16, 31):
            for clamp in (0, 0x1800) if mode == "up" else (31, 0x181F, 0x1C1F):
                w.run(f"shfl.sync.{mode}.b32 %r3|%p0, %r1, {b}, {clamp}, 0xffffffff;")
                w.put(f"shfl.sync.{mode} {b} {clamp:#x}", "%r3", "b32", shuffled(mode, b, clamp))
                w.run("selp.u32 %r3, 1, 0, %p0;")
                w.put(f"shfl.sync.{mode} {b} {clamp:#x} in range", "%r3", "u32")
    w.run("and.b32 %r4, %r1, 7; shfl.sync.idx.b32 %r3, %r1, %r4, 0x1f, 0xffffffff;")
    w.put("shfl of a register lane", "%r3", "b32", lambda i: v(i, WORDS[i] & 7))
    w.run("setp.gt.u32 %p0, %r1, 0x80000000;")
    ballot = {g: sum((WORDS[g * 32 + j] > 1 << 31) << j for j in range(32)) for g in range(4)}
    w.run("vote.sync.ballot.b32 %r3, %p0, 0xffffffff;")
    w.put("vote.ballot", "%r3", "b32", lambda i: ballot[i // 32])
    for mode, answers in (("any", range(1, 1 << 32)), ("all", (0xFFFFFFFF,)), ("uni", (0, 0xFFFFFFFF))):
        w.run(f"vote.sync.{mode}.pred %p1, %p0, 0xffffffff; selp.u32 %r3, 1, 0, %p1;")
        w.put(f"vote.{mode}", "%r3", "u32", [ballot[i // 32] in answers for i in range(128)])
    w.run("and.b32 %r4, %r1, 3; match.any.sync.b32 %r3, %r4, 0xffffffff;")
    w.put(
        "match.any",
        "%r3",
        "b32",
        lambda i: sum((WORDS[i // 32 * 32 + j] & 3 == WORDS[i] & 3) << j for j in range(32)),
    )
    w.run(
        "match.all.sync.b32 %r3|%p1, %r4, 0xffffffff; cvt.u64.u32 %d1, %r4; match.any.sync.b64 %r5, %d1, 0xffffffff;"
    )
    w.put("match.all", "%r3", "b32", lambda i: 0)
    w.put("match.any.b64", "%r5", "b32")
    for op in ("add", "min", "max"):
        for kind in ("u32", "s32"):
            w.run(f"redux.sync.{op}.{kind} %r3, %r1, 0xffffffff;")
            w.put(f"redux.{op}.{kind}", "%r3", kind, _reduced(op, kind))
    for op in ("and", "or", "xor"):
        w.run(f"redux.sync.{op}.b32 %r3, %r1, 0xffffffff;")
        w.put(f"redux.{op}", "%r3", "b32", _reduced(op, "u32"))
    w.run("activemask.b32 %r3;")
    w.put("activemask", "%r3", "b32", lambda i: 0xFFFFFFFF)
    w.run("elect.sync %r3|%p1, 0xffffffff; selp.u32 %r4, 1, 0, %p1;")
    w.put("elect.sync", "%r4", "u32", lambda i: i % 32 == 0)
    w.run("mov.u32 %r5, 0; setp.lt.u32 %p0, %r2, 12; @!%p0 bra skip; redux.sync.add.u32 %r5, %r1, 0xfff;")
    w.run("shfl.sync.bfly.b32 %r6, %r5, 1, 31, 0xfff; bar.warp.sync 0xfff; skip: bar.warp.sync 0xffffffff;")
    w.put("partial mask", "%r5", "u32", lambda i: sum(v(i, j) for j in range(12)) if i % 32 < 12 else 0)
    return w.program()


def _reduced(op: str, kind: str) -> Callable[[int], int]:
    def run(i: int) -> int:
        words = WORDS[i // 32 * 32 : i // 32 * 32 + 32]
        if kind == "s32":
            words = [x - (1 << 32) if x >> 31 else x for x in words]
        if op in ("min", "max", "add"):
            return min(words) if op == "min" else max(words) if op == "max" else sum(words)
        result = words[0]
        for x in words[1:]:
            result = {"and": result & x, "or": result | x, "xor": result ^ x}[op]
        return result

    return run


def atomics() -> list[Program]:
    """Every lane has its own word (old values are defined), then all lanes meet in one (commutative sums)."""
    programs = []
    for space in ("global", "shared"):
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
        for op, kind in [(o, k) for o in ("add", "min", "max") for k in ("u32", "s32")] + [
            ("and", "b32"), ("or", "b32"), ("xor", "b32"), ("exch", "b32"), ("inc", "u32"), ("dec", "u32"),
        ]:  # fmt: skip
            w.run(f"{first} atom.{space}.{op}.{kind} %r5, {at}, %r3; ld.{space}.u32 %r6, {at};")
            w.put(f"atom.{op}.{kind} old", "%r5", "b32", lambda i: WORDS[4 * i])
            w.put(f"atom.{op}.{kind} new", "%r6", "b32")
        w.run(f"{first} atom.{space}.cas.b32 %r5, {at}, %r1, %r4; ld.{space}.u32 %r6, {at};")
        w.put("atom.cas.b32", "%r6", "b32", lambda i: WORDS[4 * i + 3])
        w.run(f"{first} mov.b64 %d2, {{%r1, %r2}}; mov.b64 %d3, {{%r3, %r4}};")
        for op, kind in (("add", "u64"), ("min", "s64"), ("max", "u64"), ("and", "b64"), ("exch", "b64")):
            w.run(f"{first} atom.{space}.{op}.{kind} %d4, {at}, %d3; ld.{space}.u64 %d5, {at};")
            w.put(f"atom.{op}.{kind}", "%d5", "b64")
        w.run(f"{first} atom.{space}.cas.b64 %d4, {at}, %d2, %d3; ld.{space}.u64 %d5, {at};")
        w.put("atom.cas.b64", "%d5", "b64", lambda i: WORDS[4 * i + 2] | WORDS[4 * i + 3] << 32)
        w.run(
            f"cvt.rn.f32.u32 %f0, %t; st.{space}.f32 {at}, %f0; atom.{space}.add.f32 %f1, {at}, 0f3F000000;"
        )
        w.run(f"ld.{space}.f32 %f2, {at};")
        w.put("atom.add.f32", "%f2", "f32")
        w.run(
            f"cvt.rn.f64.u32 %e0, %t; st.{space}.f64 {at}, %e0; atom.{space}.add.f64 %e1, {at}, %e0; ld.{space}.f64 %e2, {at};"
        )
        w.put("atom.add.f64", "%e2", "f64")
        w.run(
            f"st.{space}.u32 {at}, 0x3C003800; mov.u32 %r5, 0x40003C00; atom.{space}.add.noftz.f16x2 %r6, {at}, %r5;"
        )
        w.run(f"ld.{space}.u32 %r6, {at};")
        w.put("atom.add.noftz.f16x2", "%r6", "f16x2", lambda i: 0x42003E00)
        w.run(
            f"{first} red.{space}.add.u32 {at}, %r3; red.relaxed.gpu.{space}.xor.b32 {at}, %r4; ld.{space}.u32 %r6, {at};"
        )
        w.put("red", "%r6", "b32", lambda i: (WORDS[4 * i] + WORDS[4 * i + 2]) ^ WORDS[4 * i + 3])
        # all lanes in one cell
        one = w.reserve("contended", "u32", 4, [sum(WORDS[4 * i] for i in range(64)) & 0xFFFFFFFF, 0, 0, 0])
        where = f"[%out+{one}]" if space == "global" else "[block+2048]"
        zero = f"st.{space}.v4.u32 {where}, {{0, 0, 0, 0}};".replace(
            "{0, 0, 0, 0}", "{%r10, %r10, %r10, %r10}"
        )
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
        programs.append(w.program())
    return programs


def barriers() -> Program:
    w = Writer("barriers", launch_of(2, 128), RAW, ".shared .align 16 .b8 block[4096];\n")
    w.run("mov.u32 %r9, block; mad.lo.u32 %r1, %t, 4, %r9;")
    for n, text in enumerate(
        ("bar.sync 0;", "barrier.sync 1;", "bar.sync 2, 128;", "barrier.sync.aligned 3, 128;")
    ):
        w.run(f"add.u32 %r2, %t, {n}; st.shared.u32 [%r1+{512 * n}], %r2; {text}")
        w.run(f"xor.b32 %r3, %t, 77; mad.lo.u32 %r3, %r3, 4, %r9; ld.shared.u32 %r4, [%r3+{512 * n}];")
        w.put(text, "%r4", "u32", [(i % 128 ^ 77) + n for i in range(256)])
    w.run("setp.lt.u32 %p0, %t, 64; @%p0 bra consumer; add.u32 %r2, %t, 1000; st.shared.u32 [%r1+2048], %r2;")
    w.run(
        "bar.arrive 4, 128; mov.u32 %r4, 5; bra joined; consumer: bar.sync 4, 128; ld.shared.u32 %r4, [%r1+2304]; joined:"
    )
    w.put("bar.arrive", "%r4", "u32", lambda i: i % 128 + 1064 if i % 128 < 64 else 5)
    w.run("setp.lt.u32 %p1, %t, 100; barrier.red.popc.u32 %r4, 5, %p1;")
    w.put("barrier.red.popc", "%r4", "u32", lambda i: 100)
    w.run(
        "bar.red.and.pred %p2, 6, %p1; selp.u32 %r4, 1, 0, %p2; barrier.red.or.pred %p2, 7, %p1; @%p2 add.u32 %r4, %r4, 2;"
    )
    w.put("bar.red.and/or", "%r4", "u32", lambda i: 2)
    return w.program()


def async_copies() -> Program:
    w = Writer(
        "async_copies",
        launch_of(1, 64),
        RAW,
        ".shared .align 128 .b8 block[8192];\n.shared .align 8 .b64 bar;\n",
    )
    w.run(
        "mov.u32 %r9, block; mad.lo.u32 %r1, %t, 16, %r9; mad.wide.u32 %d0, %t, 16, %in; xor.b32 %r2, %t, 1;"
    )
    w.run("mad.lo.u32 %r2, %r2, 16, %r9;")
    w.run(
        "cp.async.ca.shared.global [%r1], [%d0], 4; cp.async.ca.shared.global [%r1+8], [%d0+8], 8; cp.async.commit_group;"
    )
    w.run("cp.async.cg.shared.global [%r1+1024], [%d0+1024], 16; cp.async.commit_group;")
    w.run("mov.u32 %r3, 4; cp.async.cg.shared.global [%r1+2048], [%d0], 16, %r3; cp.async.commit_group;")
    w.run(
        "mov.u32 %r3, 0; cp.async.ca.shared.global.L2::128B [%r1+3072], [%d0], 16, %r3; cp.async.wait_group 1; bar.sync 0;"
    )
    w.run("ld.shared.u32 %r4, [%r2]; ld.shared.v2.u32 {%r5, %r6}, [%r2+8]; ld.shared.u32 %r7, [%r2+1036];")
    w.put("cp.async 4", "%r4", "b32", lambda i: WORDS[4 * (i ^ 1)])
    w.put("cp.async 8", "%r6", "b32", lambda i: WORDS[4 * (i ^ 1) + 3])
    w.put("cp.async 16", "%r7", "b32", lambda i: WORDS[256 + 4 * (i ^ 1) + 3])
    w.run(
        "cp.async.wait_all; bar.sync 0; ld.shared.v2.u32 {%r4, %r5}, [%r2+2048]; ld.shared.u32 %r6, [%r2+3084];"
    )
    w.put("cp.async src-size copies", "%r4", "b32", lambda i: WORDS[4 * (i ^ 1)])
    w.put("cp.async src-size fills", "%r5", "b32", lambda i: 0)
    w.put("cp.async ignored", "%r6", "b32", lambda i: 0)
    # an mbarrier that counts cp.async arrivals, then plain ones
    w.run("setp.eq.u32 %p0, %t, 0; mov.u32 %r8, bar; @%p0 mbarrier.init.shared.b64 [%r8], 64; bar.sync 0;")
    w.run(
        "cp.async.cg.shared.global [%r1+4096], [%d0+16], 16; cp.async.mbarrier.arrive.noinc.shared.b64 [%r8];"
    )
    w.run(
        "wait0: mbarrier.try_wait.parity.shared.b64 %p1, [%r8], 0; @!%p1 bra wait0; ld.shared.u32 %r4, [%r2+4096];"
    )
    w.put("cp.async.mbarrier.arrive.noinc", "%r4", "b32", lambda i: WORDS[4 * ((i ^ 1) + 1)])
    w.run(
        "mbarrier.arrive.shared.b64 %d1, [%r8]; wait1: mbarrier.test_wait.shared.b64 %p1, [%r8], %d1; @!%p1 bra wait1;"
    )
    w.run("bar.sync 0; @%p0 mbarrier.inval.shared.b64 [%r8];")
    w.run("mov.u32 %r4, 1;")
    w.put("mbarrier.test_wait", "%r4", "u32", lambda i: 1)
    return w.program()


def bulk_copies() -> Program:
    before = ".shared .align 128 .b8 block[8192];\n.shared .align 8 .b64 bar;\n"
    w = Writer("bulk_copies", launch_of(1, 64), RAW, before)
    reduced = w.reserve("cp.reduce.async.bulk.add.u32", "u32", 256, [2 * x & 0xFFFFFFFF for x in WORDS[:256]])
    stored = w.reserve("cp.async.bulk store", "b32", 256, WORDS[:256])
    w.run("mov.u32 %r9, block; mov.u32 %r8, bar; mad.lo.u32 %r1, %t, 16, %r9; mad.wide.u32 %d0, %t, 16, %in;")
    w.run("ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%d0]; mad.wide.u32 %d1, %t, 16, %out;")
    w.run(f"st.global.v4.u32 [%d1+{reduced}], {{%r2, %r3, %r4, %r5}};")
    w.run(
        "setp.eq.u32 %p0, %t, 0; @%p0 mbarrier.init.shared::cta.b64 [%r8], 1; @%p0 fence.mbarrier_init.release.cluster;"
    )
    w.run("fence.proxy.async; bar.sync 0; @!%p0 bra waiting;")
    w.run("mbarrier.arrive.expect_tx.shared::cta.b64 %d2, [%r8], 1024;")
    w.run("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r9], [%in], 1024, [%r8];")
    w.run("waiting: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r8], 0; @!%p1 bra waiting;")
    w.run("xor.b32 %r6, %r1, 16; ld.shared.u32 %r7, [%r6+4];")
    w.put("cp.async.bulk load", "%r7", "b32", lambda i: WORDS[4 * (i ^ 1) + 1])
    w.run("@!%p0 bra bulk_done;")
    w.run(f"add.u64 %d3, %out, {stored}; cp.async.bulk.global.shared::cta.bulk_group [%d3], [%r9], 1024;")
    w.run(
        f"add.u64 %d3, %out, {reduced}; cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%d3], [%r9], 1024;"
    )
    w.run(
        "cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0; cp.async.bulk.wait_group 0; bulk_done:"
    )
    return w.program()


def clusters() -> Program:
    w = Writer(
        "clusters",
        launch_of(4, 64, cluster=2),
        RAW,
        ".shared .align 16 .b8 block[1024];\n.shared .align 8 .b64 bar;\n",
    )
    for name, exact in {
        "cluster_ctarank": lambda i: i // 64 % 2, "cluster_nctarank": lambda i: 2, "cluster_ctaid.x": lambda i: i // 64 % 2,
        "cluster_nctaid.x": lambda i: 2, "clusterid.x": lambda i: i // 128, "nclusterid.x": lambda i: 2,
    }.items():  # fmt: skip
        w.run(f"mov.u32 %r1, %{name};")
        w.put(name, "%r1", "u32", exact)
    w.run("mov.u32 %r9, block; mad.lo.u32 %r1, %t, 4, %r9; st.shared.u32 [%r1], %g; mov.u32 %r8, bar;")
    w.run(
        "setp.eq.u32 %p0, %t, 0; @%p0 mbarrier.init.shared::cta.b64 [%r8], 64; @%p0 fence.mbarrier_init.release.cluster;"
    )
    w.run("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;")
    w.run("mov.u32 %r2, %cluster_ctarank; xor.b32 %r2, %r2, 1; mapa.shared::cluster.u32 %r3, %r1, %r2;")
    w.run("ld.shared::cluster.u32 %r4, [%r3];")
    w.put("ld.shared::cluster", "%r4", "u32", lambda i: i ^ 64)
    w.run("cvt.u64.u32 %d1, %r1; cvta.shared.u64 %d1, %d1; mapa.u64 %d2, %d1, %r2; ld.u32 %r4, [%d2];")
    w.put("mapa generic", "%r4", "u32", lambda i: i ^ 64)
    w.run(
        "mapa.shared::cluster.u32 %r5, %r8, %r2; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r5];"
    )
    w.run(
        "waiting: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p1, [%r8], 0; @!%p1 bra waiting;"
    )
    w.run(
        "st.shared::cluster.u32 [%r3+512], %t; barrier.cluster.arrive; barrier.cluster.wait; ld.shared.u32 %r4, [%r1+512];"
    )
    w.put("st.shared::cluster", "%r4", "u32", lambda i: i % 64)
    w.run("mapa.shared::cluster.u32 %r6, %r9, %r2; atom.shared::cluster.add.u32 %r7, [%r3], 3;")
    w.run(
        "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; ld.shared.u32 %r4, [%r1]; getctarank.shared::cluster.u32 %r7, %r6;"
    )
    w.put("atom.shared::cluster", "%r4", "u32", lambda i: i + 3)
    w.put("getctarank", "%r7", "u32", lambda i: i // 64 % 2 ^ 1)
    return w.program()


def hints() -> Program:
    """What changes nothing that a program can see, and what only counts."""
    w = Writer(
        "hints", launch_of(1, 64), RAW, ".global .align 128 .b8 scratch[256];\n.shared .align 8 .b64 bar;\n"
    )
    w.run("mad.wide.u32 %d0, %t, 4, %in; ldu.global.u32 %r1, [%d0]; mov.u64 %d1, scratch;")
    w.put("ldu", "%r1", "b32", lambda i: WORDS[i])
    w.run("setp.eq.u32 %p0, %t, 0; @%p0 discard.global.L2 [%d1], 128;")
    w.run(
        "applypriority.global.L2::evict_normal [%d1], 128; createpolicy.fractional.L2::evict_first.b64 %d2, 1.0;"
    )
    w.run("nanosleep.u32 20; pmevent 1; griddepcontrol.launch_dependents; griddepcontrol.wait;")
    w.run(
        "@%p0 cp.async.bulk.prefetch.L2.global [%in], 256; setp.lt.u32 %p1, %t, 20; bar.red.popc.u32 %r2, 1, %p1;"
    )
    w.put("bar.red.popc", "%r2", "u32", lambda i: 20)
    w.run(
        "mov.u32 %r8, bar; mov.u32 %r3, 0; mov.u32 %r4, 0; @!%p0 bra counted; mbarrier.init.shared.b64 [%r8], 4;"
    )
    w.run("mbarrier.arrive.noComplete.shared.b64 %d3, [%r8], 2; mbarrier.pending_count.b64 %r3, %d3;")
    w.run(
        "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r8], 16; mbarrier.arrive.shared.b64 %d3, [%r8], 2;"
    )
    w.run("mbarrier.test_wait.shared.b64 %p2, [%r8], %d3; selp.u32 %r4, 1, 0, %p2;")
    w.run(
        "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r8], 16; mbarrier.test_wait.shared.b64 %p2, [%r8], %d3;"
    )
    w.run("@%p2 add.u32 %r4, %r4, 2; counted:")
    w.put("mbarrier.pending_count", "%r3", "u32")
    w.put("mbarrier bytes hold a phase back", "%r4", "u32", lambda i: 2 if i == 0 else 0)
    return w.program()


def cluster_copies() -> Program:
    """Asynchronous writes into the other CTA of the cluster, counted on its mbarrier."""
    w = Writer("cluster_copies", launch_of(2, 32, cluster=2), RAW,
               ".shared .align 128 .b8 block[1024];\n.shared .align 8 .b64 bar;\n")  # fmt: skip
    w.run("mov.u32 %r9, block; mov.u32 %r8, bar; mad.lo.u32 %r1, %t, 4, %r9; st.shared.u32 [%r1], %g;")
    w.run(
        "mov.u32 %r2, 100; st.shared.u32 [%r1+256], %r2; setp.eq.u32 %p0, %t, 0; mov.u32 %r3, %cluster_ctarank;"
    )
    w.run(
        "xor.b32 %r3, %r3, 1; mapa.shared::cluster.u32 %r4, %r9, %r3; mapa.shared::cluster.u32 %r5, %r8, %r3;"
    )
    w.run("@%p0 mbarrier.init.shared::cta.b64 [%r8], 1; @%p0 fence.mbarrier_init.release.cluster;")
    # 128 bytes copied, 128 bytes added, 4 bytes stored, 4 bytes added
    w.run("@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r8], 264; fence.proxy.async;")
    w.run("mov.u32 %r10, 7; st.shared.u32 [%r1+512], %r10; barrier.cluster.arrive; barrier.cluster.wait;")
    w.run(
        "add.u32 %r6, %r4, 128; add.u32 %r7, %r4, 256; add.u32 %r11, %r4, 640; add.u32 %r12, %r4, 512; @!%p0 bra waiting;"
    )
    w.run("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r6], [%r9], 128, [%r5];")
    w.run(
        "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 [%r7], [%r9], 128, [%r5];"
    )
    w.run("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r11], %r10, [%r5];")
    w.run(
        "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r12], %r10, [%r5];"
    )
    w.run(
        "waiting: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p1, [%r8], 0; @!%p1 bra waiting;"
    )
    w.run("ld.shared.u32 %r13, [%r1+128]; ld.shared.u32 %r14, [%r1+256]; ld.shared.u32 %r15, [%r9+640];")
    w.run("ld.shared.u32 %r16, [%r9+512]; barrier.cluster.arrive; barrier.cluster.wait;")
    w.put("cp.async.bulk to the cluster", "%r13", "u32", lambda i: i ^ 32)
    w.put("cp.reduce.async.bulk to the cluster", "%r14", "u32", lambda i: 100 + (i ^ 32))
    w.put("st.async", "%r15", "u32", lambda i: 7)
    w.put("red.async", "%r16", "u32", lambda i: 14)
    return w.program()


def register_budget() -> Program:
    """setmaxnreg by a whole warpgroup, which has a barrier between; only on a kernel with a known register
    count."""
    w = Writer("register_budget", launch_of(1, 128), RAW)
    w.run("setmaxnreg.dec.sync.aligned.u32 40; mov.u32 %r1, 3; bar.sync 0;")
    w.run("setmaxnreg.inc.sync.aligned.u32 64;")
    w.put("setmaxnreg", "%r1", "u32", lambda i: 3)
    return _launched_with(64, w.program())


def register_exchange() -> Program:
    """One warpgroup takes what the other gives: all of the CTA's registers."""
    w = Writer("register_exchange", launch_of(1, 256), RAW)
    w.run("mov.u32 %r1, 5; setp.ge.u32 %p0, %t, 128; @%p0 bra work;")
    w.run("setmaxnreg.dec.sync.aligned.u32 24; bra met;")
    w.run("work: setmaxnreg.inc.sync.aligned.u32 104; add.u32 %r1, %r1, 2;")
    w.run("met: bar.sync 0;")
    w.put("setmaxnreg", "%r1", "u32", lambda i: 5 if i < 128 else 7)
    return _launched_with(64, w.program())


def _launched_with(registers: int, program: Program) -> Program:
    attributes = f" .reqntid {program.launch.threads}, 1, 1 .maxnreg {registers}\n{{"
    return replace(program, ptx=program.ptx.replace(" \n{", attributes, 1))


def programs() -> list[Program]:
    return [special_registers(), control(), memory(), warp(), *atomics(), barriers(), async_copies(), bulk_copies(),
            clusters(), hints(), cluster_copies(), register_budget(),
            register_exchange()]  # fmt: skip
