"""Conformance programs: special registers, branches, calls, hints, and register counts."""

from __future__ import annotations

from dataclasses import replace

from ptx.operands import RAW, WORDS
from ptx.programs import Program, Writer, launch_of


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
    return [special_registers(), control(), hints(), register_budget(), register_exchange()]
