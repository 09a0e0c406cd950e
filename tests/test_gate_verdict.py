"""The verdict: who may give it, from which cases and seeds, and what is stored."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from typing import Any

import pytest
import torch
from host_kernels import (
    SMALL,
    TASK,
    TILES,
    HostDevice,
    HostKernel,
    Memory,
    Program,
    after,
    flash,
    honest,
    last_row_unwritten,
    verdict,
)

from evo.device import LaunchReport
from evo.errors import Infeasible, Red
from evo.gate import Case, Green, case_seed, plan_boundary, plan_own, plan_ragged
from evo.gate.memory import GuardedMemory
from evo.trial import Problem


def test_only_the_gate_makes_a_green() -> None:
    green = verdict(honest)
    fields = {name: getattr(green, name) for name in Green.__slots__}
    with pytest.raises(TypeError, match=r"only gate\.check"):
        Green(object(), **fields)
    with pytest.raises(AttributeError):
        green.kernel = None  # type: ignore[assignment]
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError):
            duplicate(green)


def test_the_same_seed_gives_the_same_verdict_and_another_seed_other_inputs() -> None:
    one, same, other = (verdict(honest, seed=s).errors for s in (1, 1, 2))
    assert one == same
    assert {e.seed for e in one}.isdisjoint(e.seed for e in other)


def test_a_red_fails_again_at_the_same_element_and_keeps_what_was_measured() -> None:
    program: Program = after(last_row_unwritten)
    reds = []
    for _ in range(2):
        with pytest.raises(Red) as caught:
            verdict(program, seed=9)
        reds.append(caught.value)
    assert reds[0].where == reds[1].where
    assert reds[0].errors == reds[1].errors
    failed = reds[0].errors[-1]
    assert failed.row_error > failed.limit
    case = f"{failed.problem} {failed.family} seed={failed.seed}"
    assert reds[0].where.startswith(case)
    assert pickle.loads(pickle.dumps(reds[0])).errors == reds[0].errors


def test_problems_that_the_kernel_cannot_serve_are_named() -> None:
    first = TASK.gate_problems(SMALL, TILES)[0]["L"]
    green = verdict(honest, only={SMALL["L"]})  # a length may be compiled in
    assert any("fixed length" in text for text in green.skipped)
    assert {e.problem for e in green.errors} == {SMALL.key, SMALL.replace(H=1).key}
    with pytest.raises(Infeasible):
        verdict(honest, only={first})


def test_a_dear_kernel_gets_fewer_boundary_problems_but_its_own_in_full() -> None:
    cheap = verdict(honest)
    dear_device = HostDevice()

    def dear(self: HostKernel, *args: Any) -> LaunchReport:
        report = launch(self, *args)
        return replace(report, counters={"instructions": 3e6 * self.problem["L"] / 65})

    launch = HostKernel.launch
    HostKernel.launch = dear  # type: ignore[assignment,method-assign]
    try:
        green = verdict(honest, device=dear_device)
    finally:
        HostKernel.launch = launch  # type: ignore[method-assign]
    assert green.launches < cheap.launches
    assert any("instructions" in text for text in green.skipped)
    assert green.errors[-1].problem == SMALL.key
    assert not cheap.skipped


def test_plans_cover_families_boundaries_and_schedules() -> None:
    device = HostDevice()
    for seed in range(len(TASK.families.names)):
        plan = plan_boundary(TASK, SMALL, TILES, seed, device)
        assert {case.family for case in plan} == set(TASK.families.names)
        assert plan[0].family == "normal"
        assert plan[1].family == "peaky"
        assert {case.problem["L"] for case in plan} == {p["L"] for p in TASK.gate_problems(SMALL, TILES)}
        assert any(case.schedules == device.schedules for case in plan)
    families = {
        (c.problem["L"], c.family)
        for s in range(len(TASK.families.names))
        for c in plan_boundary(TASK, SMALL, TILES, s, device)
    }
    assert {f for length, f in families if length == 31} == set(TASK.families.names)
    own = plan_own(TASK, SMALL, 0, HostDevice(launches_are_cheap=True))
    assert sum(len(case.schedules) for case in own) >= 20
    assert [case.family for case in own] == ["spike", "normal"]


def test_seeds_of_cases_are_spread() -> None:
    seeds = {
        case_seed(s, p, f)
        for s in range(50)
        for p in TASK.gate_problems(SMALL, TILES)
        for f in TASK.families.names
    }
    assert len(seeds) == 50 * len(TASK.gate_problems(SMALL, TILES)) * len(TASK.families.names)
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_the_arena_aligns_as_promised_and_no_better() -> None:
    inputs = TASK.inputs(SMALL, "normal", 0, "cpu")
    for shift, mod in ((0, 0), (16, 16)):
        arena = GuardedMemory(TASK.buffers(SMALL), (), torch_device="cpu", shift=shift)
        arena.fill(inputs, seed=1)
        assert all(torch.equal(tensor, inputs[name]) for name, tensor in arena.inputs().items())
        assert all(region.address % 256 == mod for region in arena.regions.values())
        assert [r.writable for r in arena.regions.values()] == [False, False, False, True]
        assert [r.initialised for r in arena.regions.values()] == [True, True, True, False]


def test_poison_alternates() -> None:
    arena = GuardedMemory(TASK.buffers(SMALL), (), torch_device="cpu")
    arena.fill(TASK.inputs(SMALL, "normal", 0, "cpu"), seed=1)
    outputs = []
    for turn, image in enumerate(arena.room_for_images(4)):
        arena.poison(turn)
        arena.take_image(image)
        outputs.append(arena.outputs(image)["o"])
    assert outputs[0].isnan().all()
    assert outputs[1].isfinite().all()
    assert outputs[2].isnan().all()
    assert len({o.view(torch.int16).flatten()[:64].numpy().tobytes() for o in outputs}) == 4
    assert Case(SMALL, "normal", 1, ("default",)).problem is SMALL


@pytest.mark.parametrize("length", [9, 41, 100, 333])
def test_a_single_bad_remainder_is_found_by_a_thorough_check(length: int) -> None:
    """Mutation testing found these: one padding key unmasked, at one length of the last tile only."""

    def program(memory: Memory, problem: Problem, _before: int) -> None:
        flash(memory, problem, tile=32, padding=int(problem["L"] == length))

    with pytest.raises(Red) as caught:
        verdict(program, thorough=True)
    assert f"L={length} " in caught.value.where


def test_ragged_problems_change_with_the_seed_and_are_all_there_for_finalists() -> None:
    device = HostDevice()
    every = {p["L"] for p in TASK.ragged_problems(SMALL, TILES)}
    assert every == set(range(1, 129))
    boundary = {p["L"] for p in TASK.gate_problems(SMALL, TILES)}
    for on, count, more in ((device, 32, boundary), (HostDevice(launches_are_cheap=True), 12, set())):
        few = [plan_ragged(TASK, SMALL, TILES, s, on, False) for s in range(30)]
        assert all({c.problem["L"] for c in cases[:-count]} == more for cases in few)
        ragged = [{c.problem["L"] for c in cases[-count:]} for cases in few]
        assert all(len(lengths) == count for lengths in ragged)
        assert len(set().union(*ragged)) > 100
        if not on.launches_are_cheap:  # an even and an odd one of each eight, with and without a tile before
            for lengths in ragged:
                last = {(length % 64 // 8, length % 2, length > 64) for length in lengths}
                assert last == {(e, odd, deep) for e in range(8) for odd in (0, 1) for deep in (False, True)}
    longer = SMALL.replace(L=1000)
    below = {999, 1000 - max(16, min(TILES)) // 2, 1001 - max(16, min(TILES))}
    for on, always in ((HostDevice(launches_are_cheap=True), True), (device, False)):
        longest = [
            max(c.problem["L"] for c in plan_ragged(TASK, longer, TILES, s, on, False)) for s in range(60)
        ]
        assert {length for length in longest if length > 500} == below
        assert min(longest) > 500 or not always
        assert 5 < sum(length > 500 for length in longest) < 25 or always
    assert below < {c.problem["L"] for c in plan_ragged(TASK, longer, TILES, 0, device, True)}
    thorough = plan_ragged(TASK, SMALL, TILES, 0, device, True)
    far = set(range(129, 513))
    assert {c.problem["L"] for c in thorough} == every | boundary | far
    assert {c.family for c in thorough} == set(TASK.families.names)
    assert {c.problem["L"] for c in thorough if c.family == TASK.families.masked} == every | far
    assert {c.schedules for c in thorough if c.problem["L"] in far} >= {(s,) for s in device.schedules}
    assert boundary <= {c.problem["L"] for c in thorough if c.family == TASK.families.lone}
