"""Conformance programs: copies by tensor map, of one CTA and of a cluster."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from evo.trial import TensorMapArg
from ptx.operands import unsigned
from ptx.programs import Program, Writer, launch_of

Elements = npt.NDArray[np.unsignedinteger]


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


# dims: shape, box, first coordinate, swizzle span, dtype
TILES: list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int, str]] = [
    ((1024,), (64,), (8,), 0, "fp16"), ((1000,), (64,), (976,), 0, "fp16"), ((64, 64), (64, 8), (0, 16), 128, "fp16"),
    ((64, 50), (64, 16), (0, 40), 128, "fp16"), ((64, 64), (16, 32), (16, 8), 32, "fp16"),
    ((32, 16, 4), (32, 4, 2), (0, 13, 1), 0, "fp32"),
    ((32, 8, 4, 4), (16, 2, 2, 2), (8, 7, 1, 3), 64, "fp32"),
    ((16, 4, 4, 4, 2), (16, 2, 2, 2, 2), (0, 1, 3, 1, 0), 0, "fp16"),
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
    image, stored = _copied(values, box, start, span)
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
        f"mov.u32 %r1, %t; clear: setp.ge.u32 %p2, %r1, {count}; @%p2 bra cleared; "
        f"mad.wide.u32 %at, %r1, {nbytes}, %out;"
    )
    w.run(
        "mov.u32 %r2, 0; cvt.u16.u32 %h0, %r2; "
        f"st.global.{kind} [%at], {'%h0' if nbytes == 2 else '%r2'}; add.u32 %r1, %r1, 128; bra clear;"
    )
    w.run(
        "cleared: @%p0 mbarrier.init.shared::cta.b64 [%r8], 1; @%p0 fence.mbarrier_init.release.cluster; "
        "fence.proxy.async; bar.sync 0;"
    )
    w.run(f"@!%p0 bra waiting; mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r8], {box_nbytes};")
    w.run(
        f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        f"[%r9], [%d1, {coordinates}], [%r8];"
    )
    w.run("waiting: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r8], 0; @!%p1 bra waiting;")
    w.run(
        f"mov.u32 %r1, %t; read: setp.ge.u32 %p2, %r1, {image.size}; @%p2 bra done; mad.lo.u32 %r2, %r1, {nbytes}, %r9;"
    )
    register = "%h1" if nbytes == 2 else "%r3"
    w.run(
        f"ld.shared.{kind} {register}, [%r2]; mad.wide.u32 %at, %r1, {nbytes}, %out; "
        f"st.global.{kind} [%at+{at}], {register};"
    )
    w.run("add.u32 %r1, %r1, 128; bra read; done: bar.sync 0; @!%p0 bra finished;")
    w.run(f"cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group [%d2, {coordinates}], [%r9];")
    w.run("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; finished:")
    return w.program()


def _copied(
    values: Elements, box: tuple[int, ...], start: tuple[int, ...], span: int
) -> tuple[Elements, Elements]:
    """The box as it lies in shared memory, and what a copy of it back to its place in zeros gives."""
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
    return image, stored


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
        "clear: mad.wide.u32 %at, %r2, 4, %out; st.global.f32 [%at], %f0; add.u32 %r2, %r2, 64; "
        "setp.lt.u32 %p2, %r2, 1024; @%p2 bra clear; cleared:"
    )
    w.run("@%p0 mbarrier.init.shared::cta.b64 [%r8], 1; @%p0 fence.mbarrier_init.release.cluster;")
    w.run(
        "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r8], 4096; fence.proxy.async; "
        "barrier.cluster.arrive; barrier.cluster.wait;"
    )
    # each CTA loads 8 rows for both: half of the image each
    w.run(
        "mov.u32 %r20, 0; mul.lo.u32 %r21, %r1, 8; mad.lo.u32 %r3, %r1, 2048, %r9; mov.u16 %h0, 3; @!%p0 bra waiting;"
    )
    w.run(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%r3], [%d1, {%r20, %r21}], [%r8], %h0;"
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
        "cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0; cp.async.bulk.wait_group 0; "
        "finished: barrier.cluster.arrive; barrier.cluster.wait;"
    )
    return w.program()


def programs() -> list[Program]:
    return [tma_cluster(), *tma()]
