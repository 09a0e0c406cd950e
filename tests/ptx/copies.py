"""Conformance programs: barriers of a CTA, asynchronous and bulk copies, mbarriers."""

from __future__ import annotations

from ptx.operands import RAW, WORDS
from ptx.programs import Program, Writer, launch_of


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
        "bar.arrive 4, 128; mov.u32 %r4, 5; bra joined; consumer: bar.sync 4, 128; "
        "ld.shared.u32 %r4, [%r1+2304]; joined:"
    )
    w.put("bar.arrive", "%r4", "u32", lambda i: i % 128 + 1064 if i % 128 < 64 else 5)
    w.run("setp.lt.u32 %p1, %t, 100; barrier.red.popc.u32 %r4, 5, %p1;")
    w.put("barrier.red.popc", "%r4", "u32", lambda i: 100)
    w.run(
        "bar.red.and.pred %p2, 6, %p1; selp.u32 %r4, 1, 0, %p2; barrier.red.or.pred %p2, 7, %p1; "
        "@%p2 add.u32 %r4, %r4, 2;"
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
        "cp.async.ca.shared.global [%r1], [%d0], 4; cp.async.ca.shared.global [%r1+8], [%d0+8], 8; "
        "cp.async.commit_group;"
    )
    w.run("cp.async.cg.shared.global [%r1+1024], [%d0+1024], 16; cp.async.commit_group;")
    w.run("mov.u32 %r3, 4; cp.async.cg.shared.global [%r1+2048], [%d0], 16, %r3; cp.async.commit_group;")
    w.run(
        "mov.u32 %r3, 0; cp.async.ca.shared.global.L2::128B [%r1+3072], [%d0], 16, %r3; "
        "cp.async.wait_group 1; bar.sync 0;"
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


def programs() -> list[Program]:
    return [barriers(), async_copies(), bulk_copies()]
