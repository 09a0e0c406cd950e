"""Conformance programs: clusters of CTAs: their registers, barriers, and shared memory of the other CTA."""

from __future__ import annotations

from ptx.operands import RAW
from ptx.programs import Program, Writer, launch_of


def clusters() -> Program:
    w = Writer(
        "clusters",
        launch_of(4, 64, cluster=2),
        RAW,
        ".shared .align 16 .b8 block[1024];\n.shared .align 8 .b64 bar;\n",
    )
    for name, exact in {
        "cluster_ctarank": lambda i: i // 64 % 2, "cluster_nctarank": lambda i: 2,
        "cluster_ctaid.x": lambda i: i // 64 % 2,
        "cluster_nctaid.x": lambda i: 2, "clusterid.x": lambda i: i // 128, "nclusterid.x": lambda i: 2,
    }.items():  # fmt: skip
        w.run(f"mov.u32 %r1, %{name};")
        w.put(name, "%r1", "u32", exact)
    w.run("mov.u32 %r9, block; mad.lo.u32 %r1, %t, 4, %r9; st.shared.u32 [%r1], %g; mov.u32 %r8, bar;")
    w.run(
        "setp.eq.u32 %p0, %t, 0; @%p0 mbarrier.init.shared::cta.b64 [%r8], 64; "
        "@%p0 fence.mbarrier_init.release.cluster;"
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
        "st.shared::cluster.u32 [%r3+512], %t; barrier.cluster.arrive; barrier.cluster.wait; "
        "ld.shared.u32 %r4, [%r1+512];"
    )
    w.put("st.shared::cluster", "%r4", "u32", lambda i: i % 64)
    w.run("mapa.shared::cluster.u32 %r6, %r9, %r2; atom.shared::cluster.add.u32 %r7, [%r3], 3;")
    w.run(
        "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; ld.shared.u32 %r4, [%r1]; "
        "getctarank.shared::cluster.u32 %r7, %r6;"
    )
    w.put("atom.shared::cluster", "%r4", "u32", lambda i: i + 3)
    w.put("getctarank", "%r7", "u32", lambda i: i // 64 % 2 ^ 1)
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
        "add.u32 %r6, %r4, 128; add.u32 %r7, %r4, 256; add.u32 %r11, %r4, 640; add.u32 %r12, %r4, 512; "
        "@!%p0 bra waiting;"
    )
    w.run("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r6], [%r9], 128, [%r5];")
    w.run(
        "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 "
        "[%r7], [%r9], 128, [%r5];"
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


def programs() -> list[Program]:
    return [clusters(), cluster_copies()]
