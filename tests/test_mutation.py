"""Which mutants are made of a kernel: one statement each, of the lines that were executed."""

from __future__ import annotations

import pytest

from evo.selftest.mutation import cuda_lines, mutants, sample

PTX = """.version 9.0
.target sm_80
.visible .entry k(.param .u64 p)
{
\tld.param.u64 \t%rd1, [p];
\tsetp.lt.s32 \t%p1, %r1, %r2;
\t@%p1 bra \t$L__1;
\tbar.sync \t0;
\tcp.async.wait_group \t1;
\tadd.s32 \t%r3, %r1, 16;
\tmul.f32 \t%f1, %f2, 0f3F800000;
\tsub.f32 \t%f3, %f1, %f2;
\tmax.f32 \t%f4, %f3, %f2;
\tst.global.u32 \t[%rd1+4], %r3;
\tfma.rn.f32 \t%f5, %f1, %f2, %f3;
\tshfl.sync.bfly.b32 \t%r4|%p2, %r3, 1, 31, -1;
\tldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r5, %r6, %r7, %r8}, [%r9];
\tmma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2}, {%r1}, {%r2}, {%f3, %f4};
$L__1:
\tret;
}
"""

CHANGED = {
    "bar.sync 0": {
        "synchronisation deleted": "",
        "another barrier": "bar.sync 1",
    },
    "bar.sync 1, 128": {"count of a barrier": "bar.sync 1, 96"},
    "cp.async.commit_group": {"synchronisation deleted": ""},
    "cp.async.wait_group 1": {"synchronisation deleted": "", "wait made laxer": "cp.async.wait_group 2"},
    "wgmma.wait_group.sync.aligned 0": {"wait made laxer": "wgmma.wait_group.sync.aligned 1"},
    "fence.acq_rel.gpu": {"scope weakened": "fence.acq_rel.cta"},
    "fence.proxy.async.global": {"fence of another space": "fence.proxy.async.shared::cta"},
    "atom.acq_rel.gpu.global.add.u32 %r1, [%rd1], 1": {
        "scope weakened": "atom.acq_rel.cta.global.add.u32 %r1, [%rd1], 1",
        "order weakened": "atom.relaxed.gpu.global.add.u32 %r1, [%rd1], 1",
    },
    "mbarrier.init.shared.b64 [%r1], %r2": {
        "count of a barrier":
            "{ .reg .b32 other; add.s32 other, %r2, 1; mbarrier.init.shared.b64 [%r1], other; }",
    },
    "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], %r2": {
        "other bytes expected": "{ .reg .b32 other; add.s32 other, %r2, 16; "
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], other; }",
    },
    "mbarrier.try_wait.parity.shared::cta.b64 done, [%r1], %r2": {
        "phase flipped": "{ .reg .b32 other; xor.b32 other, %r2, 1; "
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%r1], other; }",
        "wait not repeated": "{ mbarrier.try_wait.parity.shared::cta.b64 done, [%r1], %r2; "
        "setp.eq.s32 done, 0, 0; }",
    },
    "@%p1 bra $L__1": {"predicate turned": "@!%p1 bra $L__1", "branch forced": "bra $L__1"},
    "@!%p1 add.s32 %r1, %r2, %r3": {
        "predicate turned": "@%p1 add.s32 %r1, %r2, %r3",
        "guard dropped": "add.s32 %r1, %r2, %r3",
    },
    "setp.lt.s32 %p1, %r1, 64": {
        "comparison shifted": "setp.le.s32 %p1, %r1, 64",
        "comparison reversed": "setp.gt.s32 %p1, %r1, 64",
        "bound off by one": "setp.lt.s32 %p1, %r1, 65",
        "bound doubled": "setp.lt.s32 %p1, %r1, 128",
        "bound halved": "setp.lt.s32 %p1, %r1, 32",
        "signed for unsigned": "setp.lt.u32 %p1, %r1, 64",
    },
    "setp.lt.s32 %p1, %r1, %r2": {
        "bound off by one": "{ .reg .b32 other; add.s32 other, %r2, 1; setp.lt.s32 %p1, %r1, other; }",
        "operands swapped": "setp.lt.s32 %p1, %r2, %r1",
    },
    "and.pred %p1, %p2, %p3": {
        "predicates joined otherwise": "or.pred %p1, %p2, %p3",
        "predicate overlooked": "mov.pred %p1, %p2",
    },
    "selp.b32 %r1, 16, 0, %p1": {"selection forced": "mov.b32 %r1, 16"},
    "add.s32 %r3, %r1, 16": {
        "constant": "add.s32 %r3, %r1, 17",
        "constant doubled": "add.s32 %r3, %r1, 32",
        "constant halved": "add.s32 %r3, %r1, 8",
    },
    "mul.f32 %f1, %f2, 0f3F800000": {
        "scale": "mul.f32 %f1, %f2, 0f3F828F5C",
        "scale doubled": "mul.f32 %f1, %f2, 0f40000000",
        "last bit": "mul.f32 %f1, %f2, 0f3F800001",
        "sign": "mul.f32 %f1, %f2, 0fBF800000",
    },
    "mul.f32 %f1, %f2, %f3": {
        "factor dropped": "mov.f32 %f1, %f2",
        "factor twice": "{ .reg .f32 other; mul.f32 other, %f2, %f3; mul.f32 %f1, other, %f3; }",
        "rounding": "mul.rz.f32 %f1, %f2, %f3",
        "saturated": "mul.sat.f32 %f1, %f2, %f3",
        "flushed or not": "mul.ftz.f32 %f1, %f2, %f3",
    },
    "fma.rn.f32 %f1, %f2, %f3, %f4": {
        "term dropped": "mul.rn.f32 %f1, %f2, %f3",
        "product dropped": "mov.f32 %f1, %f4",
        "factor twice": "{ .reg .f32 other; mul.f32 other, %f2, %f3; fma.rn.f32 %f1, other, %f3, %f4; }",
        "rounding": "fma.rz.f32 %f1, %f2, %f3, %f4",
    },
    "add.f32 %f1, %f2, %f3": {
        "sum made difference": "sub.f32 %f1, %f2, %f3",
        "term dropped": "mov.f32 %f1, %f2",
    },
    "max.f32 %f1, %f2, %f3": {
        "maximum made minimum": "min.f32 %f1, %f2, %f3",
        "maximum overlooks a term": "mov.f32 %f1, %f2",
    },
    "ex2.approx.ftz.f32 %f1, %f2": {"flushed or not": "ex2.approx.f32 %f1, %f2"},
    "cvt.rn.f16x2.f32 %r1, %f1, %f2": {
        "rounding": "cvt.rz.f16x2.f32 %r1, %f1, %f2",
        "operands swapped": "cvt.rn.f16x2.f32 %r1, %f2, %f1",
    },
    "cvt.u64.u32 %rd1, %r1": {"signed for unsigned": "cvt.s64.s32 %rd1, %r1"},
    "shr.u32 %r1, %r2, 3": {"signed for unsigned": "shr.s32 %r1, %r2, 3"},
    "st.global.u32 [%rd1+4], %r3": {
        "store dropped": "",
        "offset": "st.global.u32 [%rd1+20], %r3",
        "one lane's access lost": "{ .reg .pred others; .reg .b32 lane; mov.u32 lane, %laneid; "
        "setp.ne.u32 others, lane, 0; @others st.global.u32 [%rd1+4], %r3; }",
    },
    "@!%p1 st.global.u32 [%rd1], %r3": {
        "one lane's access lost": "{ .reg .pred others, own; .reg .b32 lane; mov.u32 lane, %laneid; "
        "setp.ne.u32 others, lane, 0; not.pred own, %p1; and.pred others, others, own; "
        "@others st.global.u32 [%rd1], %r3; }",
    },
    "mov.u32 %r1, 0": {"zero fill lost": "mov.u32 %r1, 0x7FFF7FFF", "constant": "mov.u32 %r1, 1"},
    "cp.async.cg.shared.global [%r1], [%rd1], 16, %r2": {
        "zero fill lost": "cp.async.cg.shared.global [%r1], [%rd1], 16, 16",
        "zero fill of half": "{ .reg .b32 other; shr.u32 other, %r2, 1; "
        "cp.async.cg.shared.global [%r1], [%rd1], 16, other; }",
    },
    "xor.b32 %r1, %r2, %r3": {
        "swizzle dropped": "mov.b32 %r1, %r2",
        "swizzle off by one bit": "{ .reg .b32 other; xor.b32 other, %r3, 1; xor.b32 %r1, %r2, other; }",
    },
    "and.b32 %r1, %r2, 112": {"mask off by one bit": "and.b32 %r1, %r2, 96"},
    "shfl.sync.bfly.b32 %r4|%p2, %r3, 1, 31, -1": {
        "shuffle dropped": "mov.b32 %r4, %r3",
        "lane": "{ .reg .b32 other; add.s32 other, 1, 1; shfl.sync.bfly.b32 %r4|%p2, %r3, other, 31, -1; }",
        "mask narrowed": "{ .reg .b32 other; shr.u32 other, 31, 1; "
        "shfl.sync.bfly.b32 %r4|%p2, %r3, 1, other, -1; }",
        "shuffle of another kind": "shfl.sync.down.b32 %r4|%p2, %r3, 1, 31, -1",
    },
    "vote.sync.any.pred %p1, %p2, -1": {
        "mask narrowed": "vote.sync.any.pred %p1, %p2, 65535",
        "vote of another kind": "vote.sync.all.pred %p1, %p2, -1",
    },
    "ld.shared.v2.f32 {%f1, %f2}, [%r1]": {"vector reordered": "ld.shared.v2.f32 { %f2, %f1 }, [%r1]"},
    "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r1, %r2}, [%r9]": {
        "transposed or not": "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r1, %r2}, [%r9]",
        "fragments swapped": "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 { %r2, %r1 }, [%r9]",
    },
    "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f1}, {%r1, %r2}, {%r3}, {%f4}": {
        "product dropped": "",
        "fragment repeated":
            "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f1}, { %r1, %r1 }, {%r3}, {%f4}",
        "sum begins anew":
            "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f1}, {%r1, %r2}, {%r3}, { 0f00000000 }",
    },
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1}, %rd1, %rd2, p, 1, 1, 0, 0": {
        "sign": "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1}, %rd1, %rd2, p, -1, 1, 0, 0",
        "transposed or not":
            "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1}, %rd1, %rd2, p, 1, 1, 1, 0",
        "descriptors swapped":
            "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1}, %rd2, %rd1, p, 1, 1, 0, 0",
        "descriptor: base offset": "{ .reg .b64 other; xor.b64 other, %rd1, 562949953421312; "
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1}, other, %rd2, p, 1, 1, 0, 0; }",
        "sum begins anew": "{ .reg .pred fixed; setp.ne.s32 fixed, 0, 0; "
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1}, %rd1, %rd2, fixed, 1, 1, 0, 0; }",
    },
    "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
    "[%r1], [%rd1, { %r2, %r3 }], [%r4]": {
        "coordinates swapped": "cp.async.bulk.tensor.2d.shared::cluster.global.tile."
        "mbarrier::complete_tx::bytes [%r1], [%rd1, { %r3, %r2 }], [%r4]",
        "coordinate off by one": "{ .reg .b32 other; add.s32 other, %r2, 1; cp.async.bulk.tensor.2d."
        "shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%rd1, { other, %r3 }], [%r4]; }",
    },
    "mapa.shared::cluster.u32 %r1, %r2, %r3": {"another CTA": "mov.b32 %r1, %r2"},
}  # fmt: skip
"""Some of what is made of a statement: its text by kind."""


@pytest.mark.parametrize("statement", CHANGED)
def test_what_is_made_of_a_statement(statement: str) -> None:
    found = {(m.kind, " ".join(m.after.split())) for m in mutants(f".entry k\n\t{statement};\n")}
    assert found >= set(CHANGED[statement].items())


def test_mutants_change_one_statement_each() -> None:
    original = PTX.splitlines()
    for mutant in mutants(PTX):
        changed = mutant.of(PTX).splitlines()
        assert len(changed) == len(original)
        differ = [i for i, (a, b) in enumerate(zip(original, changed, strict=True), 1) if a != b]
        assert differ == sorted(number for number, _ in mutant.changes)
        assert mutant.line in differ
        assert len(differ) == 1 + mutant.kind.startswith(("synchronisation later", "synchronisation earlier"))


def test_no_change_is_made_twice() -> None:
    made = [(m.line, m.after) for m in mutants(PTX)]
    assert len(made) == len(set(made)) > 80


def test_only_executed_statements_are_mutated_and_rare_kinds_are_sampled() -> None:
    assert {m.line for m in mutants(PTX, executed={8, 12})} == {8, 12}
    found = list(mutants(PTX))
    kinds = {m.kind for m in found}
    few = sample(found, len(kinds), seed=1)
    assert len(few) == len({m.kind for m in few}) == len(kinds)
    assert sample(found, 9, seed=1) != sample(found, 9, seed=2)


def test_cuda_lines_name_the_inlined_line_and_its_call() -> None:
    ptx = "\t.loc\t1 889 5\n\tmov.u32 %r1, 0;\n\t.loc\t1 702 9, function_name $L, inlined_at 1 840 5\n\tret;"
    assert cuda_lines(ptx) == {2: (889,), 4: (702, 840)}
