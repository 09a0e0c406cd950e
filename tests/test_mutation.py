"""Which mutants are made of a kernel: one statement each, of the lines that were executed."""

from __future__ import annotations

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


def test_mutants_change_one_statement_each() -> None:
    found = list(mutants(PTX))
    kinds = {m.kind for m in found}
    assert kinds >= {
        "synchronisation deleted", "wait made laxer", "store dropped", "predicate turned",
        "comparison shifted", "constant", "offset", "scale", "operands swapped", "maximum made minimum",
        "product dropped", "synchronisation later", "term dropped", "shuffle dropped", "not transposed",
    }  # fmt: skip
    original = PTX.splitlines()
    for mutant in found:
        changed = mutant.of(PTX).splitlines()
        assert len(changed) == len(original)
        differ = [i for i, (a, b) in enumerate(zip(original, changed, strict=True), 1) if a != b]
        assert differ == sorted(number for number, _ in mutant.changes)
        assert mutant.line in differ
        assert len(differ) == 1 + mutant.kind.startswith(("synchronisation later", "synchronisation earlier"))
    after = {m.kind: m.after for m in found}
    assert after["wait made laxer"].split() == ["cp.async.wait_group", "2"]
    assert after["synchronisation deleted"] == ""
    assert after["term dropped"].split() == ["mul.rn.f32", "%f5,", "%f1,", "%f2"]
    assert after["shuffle dropped"].split() == ["mov.b32", "%r4,", "%r3"]
    assert after["comparison shifted"].startswith("setp.le.s32")
    assert after["predicate turned"].startswith("@!%p1 bra")
    assert after["scale"].endswith("0f3F7AE148")


def test_only_executed_statements_are_mutated_and_rare_kinds_are_sampled() -> None:
    assert {m.line for m in mutants(PTX, executed={8, 12})} == {8, 12}
    found = list(mutants(PTX))
    few = sample(found, 16, seed=1)
    assert len(few) == 16
    assert len({m.kind for m in few}) == len({m.kind for m in found})


def test_cuda_lines_name_the_inlined_line_and_its_call() -> None:
    ptx = "\t.loc\t1 889 5\n\tmov.u32 %r1, 0;\n\t.loc\t1 702 9, function_name $L, inlined_at 1 840 5\n\tret;"
    assert cuda_lines(ptx) == {2: (889,), 4: (702, 840)}
