"""Registers with rules of their own: those that a wgmma uses, and how many a warp may have."""

from __future__ import annotations

import pytest

from evo.device.emulator import EmulatorKernel
from evo.device.emulator.abi import DEADLOCK, PROXY, SYNC
from evo.device.emulator.interpreter import Fault
from evo.trial import BufferArg, LaunchConfig
from ptx.programs import entry
from ptx.running import aligned, binary_of, h200, regions_of

DECLARE = """
.reg .b32 %t, %at, %x<8>, %a<8>, %y<4>; .reg .b64 %out, %wide, %b; .reg .pred %p;
.shared .align 1024 .b8 tile[2048];
mov.u32 %t, %tid.x; mov.u32 %at, tile;
"""
OPERANDS = """
mad.lo.u32 %y0, %t, 16, %at; st.shared.v4.u32 [%y0], {0, 0, 0, 0};
fence.proxy.async.shared::cta; bar.sync 0;
shr.u32 %y1, %at, 4; cvt.u64.u32 %b, %y1; or.b64 %b, %b, 0x0000000800080000;
"""
FENCE = "wgmma.fence.sync.aligned;"
DONE = "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"


def product(columns: int, d: str = "a", a: str = "x") -> str:
    """d += A B, A in the registers x0 to x3."""
    into = ", ".join(f"%{d}{i}" for i in range(columns // 2))
    of = ", ".join(f"%{a}{i}" for i in range(4))
    shape = f"m64n{columns}k16.f32.f16.f16"
    return f"wgmma.mma_async.sync.aligned.{shape} {{{into}}}, {{{of}}}, %b, 1, 1, 1, 0;"


def fault_of(body: str, threads: int = 128, registers: int = 0) -> Fault | None:
    """What is reported of `body` when a CTA runs it."""
    kernel = EmulatorKernel(h200(), binary_of(entry(DECLARE + body), registers=registers))
    launch = LaunchConfig((1, 1, 1), (threads, 1, 1), 0, (BufferArg("in"), BufferArg("out")))
    return kernel.execute(launch, regions_of({"in": aligned(16), "out": aligned(16)})).fault


@pytest.mark.parametrize(
    "body",
    [
        f"{FENCE} {product(8)} {DONE} {product(8)} {DONE}",
        f"{FENCE} {product(8)} {product(8)} {DONE}",
        f"{FENCE} {product(8)} {DONE} add.f32 %y2, %a0, %a1; {FENCE} {product(8)} {DONE}",
        f"{FENCE} {product(8)} {DONE} add.f32 %a0, %a0, %a1; {FENCE} {product(8)} {DONE}",
        f"{FENCE} {product(8)} {DONE} {FENCE} {product(16)} {DONE}",
        f"{FENCE} mov.u32 %x0, 5; mov.u32 %a0, 0; {product(8)} {DONE}",
        f"{FENCE} {product(8)} {DONE} add.u32 %y2, %x0, 1; {product(8)} {DONE}",
    ],
    ids=["accumulated twice", "both in flight", "read, fence", "written, fence", "shapes, fence",
         "constants", "A read"],
)  # fmt: skip
def test_what_wgmma_allows_is_not_reported(body: str) -> None:
    assert fault_of(OPERANDS + body) is None


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (f"{product(8)} {DONE}", "without a wgmma.fence"),
        (f"{FENCE} {product(8)} {DONE} add.f32 %y2, %a0, %a1; {product(8)} {DONE}", "were read after"),
        (f"{FENCE} {product(8)} {DONE} add.f32 %a0, %y2, %y3; {product(8)} {DONE}", "were written after"),
        (f"{FENCE} add.u32 %y2, %t, 1; mov.u32 %x0, %y2; {product(8)} {DONE}", "were written after"),
        (f"{FENCE} ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%x0}}, [%at]; {product(8)} {DONE}",
         "were written after"),
        (f"{FENCE} {product(8)} {product(16)} {DONE}", "a wgmma of another shape accumulated in"),
        (f"{FENCE} {product(8)} {DONE} {product(8, 'y', 'a')} {DONE}", "a wgmma accumulated in"),
        (f"{FENCE} {product(8)} {product(8, 'y', 'a')} {DONE}", "has not been waited for"),
        (f"{FENCE} {product(8)} {product(8, 'x', 'y')} {DONE}", "reads as A"),
        (f"{FENCE} {product(8)} shfl.sync.idx.b32 %y2, %a0, 0, 31, -1; {DONE}", "has not been waited for"),
        (f"{FENCE} {product(8)} mov.u32 %x1, 7; {DONE}", "a wgmma in flight uses"),
    ],
)  # fmt: skip
def test_registers_of_wgmma_need_their_fence_and_their_wait(body: str, text: str) -> None:
    fault = fault_of(OPERANDS + body)
    assert fault is not None
    assert (fault.kind, text in fault.text) == (PROXY, True), fault.text


ROLES = "setp.ge.u32 %p, %t, 128; @%p bra work;"


def roles(gives: str, works: str) -> str:
    """One warpgroup does this, the other that."""
    return f"{ROLES} {gives} bra met; work: {works} met: bar.sync 0;"


def give(count: int) -> str:
    return f"setmaxnreg.dec.sync.aligned.u32 {count};"


def take(count: int) -> str:
    return f"setmaxnreg.inc.sync.aligned.u32 {count};"


def test_what_is_given_can_be_taken() -> None:
    assert fault_of(roles(give(24), take(104)), 256, 64) is None
    assert fault_of(roles(give(24), f"{take(88)} bar.sync 1, 128; {take(104)}"), 256, 64) is None


def test_a_launch_of_unknown_registers_is_not_judged() -> None:
    assert fault_of(roles("", take(104)), 256) is None


@pytest.mark.parametrize(
    ("gives", "works", "lack"),
    [(give(24), take(112), 1024), (give(32), take(104), 1024), ("", take(72), 1024), ("exit;", take(72), 1024)],
    ids=["one step too much", "one step too little", "nothing", "what who exits had"],
)  # fmt: skip
def test_more_registers_than_are_given_are_waited_for(gives: str, works: str, lack: int) -> None:
    """As on an H200, where each of these hung."""
    fault = fault_of(roles(gives, works), 256, 64)
    assert fault is not None
    assert (fault.kind, fault.ptx_text) == (DEADLOCK, works.rstrip(";"))
    assert f"{lack} registers lack" in fault.text


@pytest.mark.parametrize("threads", [160, 256])
def test_warps_share_with_their_own_quarter(threads: int) -> None:
    """One warp gives more than four want; three of them cannot get it: so it is on an H200."""
    gives = f"setp.lt.u32 %p, %t, 32; @!%p bra met; {give(24)}" if threads == 256 else give(24)
    who = 128 if threads == 256 else 0
    body = (
        f"setp.lt.u32 %p, %t, 128; @{'!' if who else ''}%p bra work; {gives} bra met; "
        f"work: {take(72)} met: bar.sync 0;"
    )
    fault = fault_of(body, threads, 64)
    assert fault is not None
    assert (fault.kind, "768 registers lack" in fault.text) == (DEADLOCK, True), fault.text


def test_setmaxnreg_is_for_whole_warpgroups_with_a_barrier_between() -> None:
    some = f"setp.lt.u32 %p, %t, 32; @!%p bra met; {give(24)} met: bar.sync 0;"
    for body in (some, f"{give(40)} {give(24)}"):
        fault = fault_of(body, 128, 64)
        assert fault is not None
        assert (fault.kind, fault.ptx_text) == (SYNC, give(24).rstrip(";"))
    assert fault_of(f"{give(40)} bar.sync 0; {give(24)}", 128, 64) is None
