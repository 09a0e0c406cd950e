"""Mutants of what orders events: barriers, waits, fences, scopes, phases, expected bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from evo.selftest.mutation.statement import Change, Statement, is_number

SYNC = (
    r"(?:bar|barrier)\.(?:cta\.|warp\.|cluster\.)?(?:sync|arrive|wait|red)"
    r"|cp\.async\.(?:bulk\.)?(?:wait|commit)\w*|fence|membar|mbarrier\.(?:arrive|expect_tx|init)"
    r"|wgmma\.(?:fence|commit|wait)\w*"
)
_SYNC = re.compile(rf"(?:{SYNC})\b")
_ORDERED = {"acquire", "release", "acq_rel", "sc"}


def deleted(s: Statement) -> Iterator[Change]:
    """A barrier, wait, fence or commit is gone."""
    if _SYNC.match(s.text):
        yield "synchronisation deleted", ""


def laxer(s: Statement) -> Iterator[Change]:
    """A wait leaves one group more in flight. One that waits for more is the same kernel, only slower."""
    if re.match(r"(?:cp\.async|wgmma)\.(?:bulk\.)?wait_group\b", s.opcode) and is_number(s.operands[0]):
        yield "wait made laxer", s.given({0: str(int(s.operands[0]) + 1)})
    elif re.match(r"cp\.async\.wait_all\b", s.opcode):
        yield "wait made laxer", s.whole("cp.async.wait_group \t1")


def weaker(s: Statement) -> Iterator[Change]:
    """A narrower scope, or a weaker order, of what has one."""
    scoped = ("fence", "ld", "st", "atom", "red", "mbarrier", "membar")
    for wide, narrow in (("sys", "gpu"), ("gpu", "cta"), ("cluster", "cta")):
        if s.verb in scoped and wide in s.modifiers and "mbarrier_init" not in s.modifiers:
            yield "scope weakened", s.coded(_without(s, wide, narrow))
    if s.verb == "membar" and s.modifiers == ("gl",):
        yield "scope weakened", s.coded("membar.cta")
    order = next((m for m in s.modifiers if m in _ORDERED), None)
    if order and s.verb in ("ld", "st", "atom", "red", "mbarrier"):
        yield "order weakened", s.coded(_without(s, order, "relaxed"))
    if s.opcode.startswith("barrier.cluster.arrive") and "relaxed" not in s.modifiers:
        yield "order weakened", s.coded("barrier.cluster.arrive.relaxed" + _if(s, "aligned"))
    if order and s.verb == "fence" and order == "sc":
        yield "order weakened", s.coded(_without(s, "sc", "acq_rel"))
    if s.opcode.startswith("fence.proxy.async"):
        for space in ("global", "shared::cta"):
            yield "fence of another space", s.coded(f"fence.proxy.async.{space}")


def barriers(s: Statement) -> Iterator[Change]:
    """Another barrier, or another number of threads or arrivals."""
    named = re.match(r"(?:bar|barrier)\.(?:cta\.)?(?:sync|arrive)\b", s.opcode)
    if named and s.operands and is_number(s.operands[0]):
        yield "another barrier", s.given({0: str((int(s.operands[0]) + 1) % 16)})
    if named and len(s.operands) == 2 and is_number(s.operands[1]):
        for change in (-32, 32):
            yield "count of a barrier", s.given({1: str(int(s.operands[1]) + change)})
    if s.opcode.startswith("mbarrier.init"):
        for operation, amount in (("add.s32", "1"), ("add.s32", "-1"), ("shl.b32", "1")):
            yield "count of a barrier", s.computed(1, operation, amount)


def phases(s: Statement) -> Iterator[Change]:
    """The other phase is waited for; a wait's answer is ignored; other bytes are expected."""
    if re.match(r"mbarrier\.(?:try|test)_wait\.parity", s.opcode):
        yield "phase flipped", s.computed(2, "xor.b32", "1")
        yield "wait not repeated", s.twice(f"setp.eq.s32 \t{s.operands[0]}, 0, 0")
    if s.opcode.startswith("mbarrier") and "expect_tx" in s.modifiers:
        last = len(s.operands) - 1
        for operation, amount in (("add.s32", "16"), ("add.s32", "-16"), ("shr.u32", "1"), ("shl.b32", "1")):
            yield "other bytes expected", s.computed(last, operation, amount)


def _without(s: Statement, old: str, new: str) -> str:
    modifiers = [new if m == old else m for m in s.modifiers]
    return ".".join([s.verb, *modifiers])


def _if(s: Statement, modifier: str) -> str:
    return f".{modifier}" if modifier in s.modifiers else ""


OPERATORS = (deleted, laxer, weaker, barriers, phases)
