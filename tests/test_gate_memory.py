"""Kernels that misbehave: memory, launches, state, schedules, relations."""

from __future__ import annotations

import math

import pytest
import torch
from host_kernels import (
    SMALL,
    HostDevice,
    Memory,
    after,
    honest,
    inside,
    last_row_unwritten,
    verdict,
)

from evo.errors import Red
from evo.gate.memory import GUARD_BYTES
from evo.trial import Problem, Workspace


def _past_the_end(memory: Memory, _problem: Problem, _before: int) -> None:
    memory["o"][-(GUARD_BYTES // 2)] = 0.5


def _before_the_start(memory: Memory, _problem: Problem, _before: int) -> None:
    memory["k"][GUARD_BYTES // 2 - 1] = 0.5


def _input(memory: Memory, problem: Problem, _before: int) -> None:
    inside(memory["k"], problem)[0, 0, 0, 3] *= -1


def _third_launch(memory: Memory, problem: Problem, before: int) -> None:
    if before >= 2:
        inside(memory["o"], problem)[0, 1, 0, 0] += 1


def _only_own_length(memory: Memory, problem: Problem, _before: int) -> None:
    if problem["L"] != SMALL["L"]:
        inside(memory["o"], problem).zero_()


def _noisy(memory: Memory, problem: Problem, before: int) -> None:
    out = inside(memory["o"], problem)
    out[0, 0, 0, 0] = torch.nextafter(out[0, 0, 0, 0], torch.tensor(99.0 * (-1) ** before, dtype=out.dtype))


DAMAGE = {
    "past the end": (_past_the_end, "write out of bounds", "0 bytes past the end of o"),
    "before the start": (_before_the_start, "write out of bounds", "2 bytes before k"),
    "input changed": (_input, "input changed", "k byte "),
    "wrong from the third launch": (_third_launch, "runs differ", "o[0, 1, 0, 0]"),
    "last row": (last_row_unwritten, "row error", "L=65"),
    "right for the tuned length only": (_only_own_length, "row error", ""),
    "not deterministic": (_noisy, "runs differ", "o[0, 0, 0, 0]"),
}


@pytest.mark.parametrize("batched", [False, True], ids=["one by one", "looked at together, as on a GPU"])
@pytest.mark.parametrize("name", DAMAGE)
def test_misbehaviour_is_red_with_its_place(name: str, batched: bool) -> None:
    act, reason, where = DAMAGE[name]
    device = HostDevice(launches_are_cheap=True, schedules=("default",)) if batched else None
    if batched and name == "wrong from the third launch":  # two of the first case come before
        reason, where = "relation broken: ones", "schedule=default"
    with pytest.raises(Red) as caught:
        verdict(after(act), device=device)
    assert caught.value.reason == reason
    assert where in caught.value.where
    assert "seed=" in caught.value.where


def test_a_template_that_promises_no_bits_may_differ_in_them() -> None:
    verdict(after(_noisy), deterministic=False)


def test_accumulating_into_the_output_is_red() -> None:
    def program(memory: Memory, problem: Problem, _before: int) -> None:
        out = inside(memory["o"], problem)
        stale = out.nan_to_num()
        honest(memory, problem)
        out += stale

    with pytest.raises(Red):
        verdict(program)


def test_a_kernel_that_recognises_nan_poison_is_red() -> None:
    """It leaves the last row alone unless it sees the NaN that a naive gate fills outputs with."""

    def program(memory: Memory, problem: Problem, _before: int) -> None:
        out = inside(memory["o"], problem)
        last = out[:, :, -1].clone()
        honest(memory, problem)
        if not last.isnan().any():
            out[:, :, -1] = last

    with pytest.raises(Red):
        verdict(program)


@pytest.mark.parametrize("zeroed", [False, True])
def test_workspaces(zeroed: bool) -> None:
    """Scratch is poisoned before each launch; a zeroed one must be zero again after it."""
    work = (Workspace("tickets", 64, zeroed=zeroed),)

    def uses(memory: Memory, problem: Problem, _before: int) -> None:
        tickets = memory["tickets"][GUARD_BYTES // 4 : -(GUARD_BYTES // 4)]
        honest(memory, problem)
        if (tickets != 0).any():
            inside(memory["o"], problem).zero_()
        tickets += 1

    with pytest.raises(Red) as caught:
        verdict(uses, workspaces=work)
    assert caught.value.reason == ("workspace not left zero" if zeroed else "row error")

    def cleans(memory: Memory, problem: Problem, before: int) -> None:
        uses(memory, problem, before)
        memory["tickets"][GUARD_BYTES // 4 : -(GUARD_BYTES // 4)] = 0

    if zeroed:
        verdict(cleans, workspaces=work)


def test_relations_see_what_a_reference_case_does_not_contain() -> None:
    """A kernel that is right unless all values are equal: no input family has that."""

    def program(memory: Memory, problem: Problem, _before: int) -> None:
        honest(memory, problem)
        values = inside(memory["v"], problem)
        if problem["L"] > 1 and bool((values == values[0, 0, 0, 0]).all()):
            inside(memory["o"], problem).mul_(1.01)

    with pytest.raises(Red) as caught:
        verdict(program)
    assert caught.value.reason == "relation broken: ones"


def test_heads_that_lean_on_each_other_are_red() -> None:
    def program(memory: Memory, problem: Problem, _before: int) -> None:
        honest(memory, problem)
        out = inside(memory["o"], problem)
        # the last bit of head 0 follows the sign of the last head's first query element
        towards = torch.tensor(math.copysign(9.0, float(inside(memory["q"], problem)[0, -1, 0, 0])))
        out[0, 0, 0, 0] = torch.nextafter(out[0, 0, 0, 0], towards.to(out.dtype))

    with pytest.raises(Red) as caught:
        verdict(program)
    assert caught.value.reason == "relation broken: heads apart"


@pytest.mark.parametrize("schedule", ["late", "reversed"])
def test_errors_that_only_a_hostile_schedule_shows_are_red(schedule: str) -> None:
    seen: list[str] = []

    def program(memory: Memory, problem: Problem, _before: int) -> None:
        honest(memory, problem)
        if seen[-1] == schedule and problem["L"] > 64:
            inside(memory["o"], problem)[0, 0, 0, 0] += 0.5

    with pytest.raises(Red) as caught:
        verdict(program, seen=seen)
    assert f"schedule={schedule}" in caught.value.where


def test_module_level_state_is_red() -> None:
    used = """.visible .global .align 4 .u32 calls;
.visible .entry k(.param .u64 p) {
  st.global.u32 [calls], 1;
  ret;
}"""
    with pytest.raises(Red, match="calls"):
        verdict(honest, ptx=used)
    verdict(honest, ptx=used.replace("[calls]", "[%rd1]"))  # declared by a library, used by nobody
