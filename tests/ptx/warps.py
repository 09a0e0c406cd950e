"""Conformance programs: what the lanes of a warp do together: shuffles, votes, matches, reductions."""

from __future__ import annotations

from collections.abc import Callable

from ptx.operands import RAW, WORDS
from ptx.programs import Program, Writer, launch_of


def warp() -> Program:
    w = Writer("warp", launch_of(2, 64), RAW)
    w.run("mad.wide.u32 %d0, %g, 4, %in; ld.global.u32 %r1, [%d0]; mov.u32 %r2, %laneid;")
    _shuffles(w)
    _votes(w)
    _matches(w)
    _reductions(w)
    _active_lanes(w)
    return w.program()


def _lane_word(i: int, lane: int) -> int:
    """What another lane of thread i's warp loaded into %r1."""
    return WORDS[i // 32 * 32 + lane]


def _shuffled(mode: str, b: int, clamp: int) -> Callable[[int], int]:
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
        return _lane_word(i, j if inside else lane)

    return run


def _shuffles(w: Writer) -> None:
    for mode in ("up", "down", "bfly", "idx"):
        for b in (0, 1, 5, 16, 31):
            for clamp in (0, 0x1800) if mode == "up" else (31, 0x181F, 0x1C1F):
                w.run(f"shfl.sync.{mode}.b32 %r3|%p0, %r1, {b}, {clamp}, 0xffffffff;")
                w.put(f"shfl.sync.{mode} {b} {clamp:#x}", "%r3", "b32", _shuffled(mode, b, clamp))
                w.run("selp.u32 %r3, 1, 0, %p0;")
                w.put(f"shfl.sync.{mode} {b} {clamp:#x} in range", "%r3", "u32")
    w.run("and.b32 %r4, %r1, 7; shfl.sync.idx.b32 %r3, %r1, %r4, 0x1f, 0xffffffff;")
    w.put("shfl of a register lane", "%r3", "b32", lambda i: _lane_word(i, WORDS[i] & 7))


def _votes(w: Writer) -> None:
    w.run("setp.gt.u32 %p0, %r1, 0x80000000;")
    ballot = {g: sum((WORDS[g * 32 + j] > 1 << 31) << j for j in range(32)) for g in range(4)}
    w.run("vote.sync.ballot.b32 %r3, %p0, 0xffffffff;")
    w.put("vote.ballot", "%r3", "b32", lambda i: ballot[i // 32])
    for mode, answers in (("any", range(1, 1 << 32)), ("all", (0xFFFFFFFF,)), ("uni", (0, 0xFFFFFFFF))):
        w.run(f"vote.sync.{mode}.pred %p1, %p0, 0xffffffff; selp.u32 %r3, 1, 0, %p1;")
        w.put(f"vote.{mode}", "%r3", "u32", [ballot[i // 32] in answers for i in range(128)])


def _matches(w: Writer) -> None:
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


def _reductions(w: Writer) -> None:
    for op in ("add", "min", "max"):
        for kind in ("u32", "s32"):
            w.run(f"redux.sync.{op}.{kind} %r3, %r1, 0xffffffff;")
            w.put(f"redux.{op}.{kind}", "%r3", kind, _reduced(op, kind))
    for op in ("and", "or", "xor"):
        w.run(f"redux.sync.{op}.b32 %r3, %r1, 0xffffffff;")
        w.put(f"redux.{op}", "%r3", "b32", _reduced(op, "u32"))


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


def _active_lanes(w: Writer) -> None:
    """%r2 is the lane."""
    w.run("activemask.b32 %r3;")
    w.put("activemask", "%r3", "b32", lambda i: 0xFFFFFFFF)
    w.run("elect.sync %r3|%p1, 0xffffffff; selp.u32 %r4, 1, 0, %p1;")
    w.put("elect.sync", "%r4", "u32", lambda i: i % 32 == 0)
    w.run("mov.u32 %r5, 0; setp.lt.u32 %p0, %r2, 12; @!%p0 bra skip; redux.sync.add.u32 %r5, %r1, 0xfff;")
    w.run("shfl.sync.bfly.b32 %r6, %r5, 1, 31, 0xfff; bar.warp.sync 0xfff; skip: bar.warp.sync 0xffffffff;")
    w.put(
        "partial mask", "%r5", "u32", lambda i: sum(_lane_word(i, j) for j in range(12)) if i % 32 < 12 else 0
    )


def programs() -> list[Program]:
    return [warp()]
