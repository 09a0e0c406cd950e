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
from evo.errors import Infeasible, Red, Unproven
from evo.gate import Case, Green, case_seed, plan, plan_boundary, plan_own, plan_ragged
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
    assert any("not served: fixed length" in text for text in green.extent.left_out)
    assert {e.problem for e in green.errors} == {SMALL.key}
    assert not green.extent.missed
    with pytest.raises(Infeasible):
        verdict(honest, only={first})


class Dear(HostDevice):
    """A device on which a launch costs so many instructions at the length of 65, and more at longer ones."""

    price = 3e6


@pytest.fixture
def priced(monkeypatch: pytest.MonkeyPatch) -> None:
    launch = HostKernel.launch

    def dear(self: HostKernel, *args: Any) -> LaunchReport:
        report = launch(self, *args)
        return replace(report, counters={"instructions": Dear.price * self.problem["L"] / 65})

    monkeypatch.setattr(HostKernel, "launch", dear)


@pytest.mark.usefixtures("priced")
def test_of_a_dear_kernel_half_of_each_class_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    green = verdict(honest)
    ran, planned = green.extent.run, green.extent.planned
    assert len(green.extent.cases) <= ran < planned
    assert all(2 * of_class >= wanted for of_class, wanted in green.extent.cases.values())
    assert green.extent.missed == ()
    assert sum(of_class for of_class, _ in green.extent.cases.values()) == ran
    assert any("over 4e+07 instructions" in text for text in green.extent.left_out)
    assert f"L={1} " in " ".join(e.problem for e in green.errors)
    assert green.errors[-1].problem == SMALL.key
    assert green.extent.own_share == 1
    lengths = [int(e.problem.split("L=")[1].split()[0]) for e in green.errors]
    assert min(lengths) == 1
    assert any(64 < length < 128 for length in lengths)
    assert any(length > 128 for length in lengths)
    monkeypatch.setattr(Dear, "price", 3e3)
    cheap = verdict(honest).extent
    assert cheap.run == cheap.planned == planned
    assert set(cheap.cases) == set(green.extent.cases)


@pytest.mark.usefixtures("priced")
def test_a_kernel_on_which_some_class_hardly_ran_is_unproven(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Dear, "price", 1e8)
    with pytest.raises(Unproven) as caught:
        verdict(honest)
    unproven = pickle.loads(pickle.dumps(caught.value))
    extent = unproven.extent
    assert extent.missed
    assert unproven.reason == f"hardly ran: {', '.join(extent.missed)}"
    assert "over 2e+08 instructions" in unproven.detail
    assert {n for n, (ran, of) in extent.cases.items() if ran < of / 2} == set(extent.missed)
    assert unproven.errors
    green = verdict(honest, accept_unproven=True)
    assert green.extent == extent
    with pytest.raises(Red):  # what runs is judged all the same
        verdict(after(last_row_unwritten), accept_unproven=True)


def test_plans_cover_families_boundaries_and_schedules() -> None:
    device = HostDevice()
    for seed in range(len(TASK.families.names)):
        boundary = plan_boundary(TASK, SMALL, TILES, seed, device)
        assert {case.family for case in boundary} == set(TASK.families.names)
        assert boundary[0].family == "peaky"
        assert {case.problem["L"] for case in boundary} == {p["L"] for p in TASK.gate_problems(SMALL, TILES)}
        assert any(case.schedules == device.schedules for case in boundary)
    families = {
        (c.problem["L"], c.family)
        for s in range(len(TASK.families.names))
        for c in plan_boundary(TASK, SMALL, TILES, s, device)
    }
    assert {f for length, f in families if length == 31} == set(TASK.families.names)


def test_the_plan_begins_where_wrong_kernels_fail_and_then_has_a_case_of_each_class() -> None:
    long = SMALL.replace(L=1000)
    for seed in range(8):
        cases = plan(TASK, long, TILES, HostDevice(), seed=seed)
        assert [case.kind for case in cases[:3]] == ["case", "relations", "case"]
        assert [case.family for case in cases[:3]] == ["normal", "normal", "peaky"]
        assert cases[1].problem == cases[0].problem
        small = [case for case in cases[3:] if case.kind == "case"]
        classes = {case.class_name for case in small}
        assert len({case.class_name for case in small[: len(classes)]}) == len(classes)
        assert classes >= {
            *("size 1", "below a tile", "whole tiles", "beyond a tile", "many pieces", "every schedule"),
            *("lone term", "ragged", "ragged after a tile", "ragged after tiles"),
        }
        for part in (small[: len(classes)], small[len(classes) :]):
            costs = [TASK.flop(case.problem) for case in part]
            assert costs == sorted(costs)
        pieces = [case for case in small if case.class_name == "many pieces"]
        assert all(case.problem["B"] > 1 and case.problem["H"] > 2 for case in pieces)
        assert pieces[0].family == TASK.families.growing or pieces[1].family == TASK.families.growing


def test_the_own_problem_meets_every_family_of_finalists_and_one_by_seed_of_candidates() -> None:
    device, names = HostDevice(), set(TASK.families.names)
    drawn = set()
    for seed in range(40):
        own = plan_own(TASK, SMALL, seed, device, TILES)
        assert own[-1].family == "normal"
        assert {"normal", "spike"} < {case.family for case in own}
        assert len(own) == 3
        drawn |= {case.family for case in own} - {"normal", "spike"}
    assert drawn == names - {"normal", "spike"}
    on_gpu = plan_own(TASK, SMALL, 0, HostDevice(launches_are_cheap=True), TILES)
    assert sum(len(case.schedules) for case in on_gpu) >= 20
    thorough = plan_own(TASK, SMALL, 0, device, TILES, thorough=True)
    assert thorough[-1].family == "normal"
    for name in names:
        seeds = [case.seed for case in thorough if case.family == name]
        assert len(set(seeds)) >= 3
        assert sorted(seeds) == list(range(min(seeds), min(seeds) + len(seeds)))
    assert {case.problem for case in thorough} == {SMALL}
    assert len({case.class_name for case in thorough}) == len(names)


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
    arena = GuardedMemory(TASK.buffers(SMALL), (), torch_device="cpu", shifted=True)
    for shifted, mod in ((True, 16), (False, 0), (True, 16)):
        arena.place(shifted)
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
    for on, count in ((device, 32), (HostDevice(launches_are_cheap=True), 12)):
        few = [plan_ragged(TASK, SMALL, TILES, s, on, False) for s in range(30)]
        for cases in few:
            assert len(cases) in (count, count + 1)  # one more has two tiles before it
        ragged = [{c.problem["L"] for c in cases} for cases in few]
        assert len(set().union(*ragged)) > 100
        if not on.launches_are_cheap:  # an even and an odd one of each eight, with and without a tile before
            for lengths in ragged:
                last = {(length % 64 // 8, length % 2, length > 64) for length in lengths}
                assert last >= {(e, odd, deep) for e in range(8) for odd in (0, 1) for deep in (False, True)}
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
    assert {c.problem["L"] for c in thorough} == every | far
    assert {c.family for c in thorough} == set(TASK.families.names)
    assert {c.problem["L"] for c in thorough if c.family == TASK.families.masked} == every | far
    assert {c.schedules for c in thorough if c.problem["L"] in far} >= {(s,) for s in device.schedules}


@pytest.mark.parametrize("tile", [16, 64])
def test_every_remainder_after_two_whole_tiles_is_drawn_for_candidates(tile: int) -> None:
    for deep in (False, True):
        drawn = {
            at["L"]
            for seed in range(16 * tile)
            for at in TASK.some_ragged(SMALL, (tile,), 24 if deep else 12, seed, deep)
        }
        assert {length % tile for length in drawn if length > 2 * tile} >= set(range(1, tile))
        assert min(drawn) >= 1
    for tiles in ((tile,), (tile, 16), (tile, 48)):
        assert {2 * t + 1 for t in tiles} <= {at["L"] for at in TASK.gate_problems(SMALL, tiles)}


def test_every_boundary_problem_has_a_lone_term_and_many_for_finalists() -> None:
    """There may be code of its own for so many tiles, where one seed hardly shows a score overlooked."""
    lone, boundary = TASK.families.lone, TASK.gate_problems(SMALL, TILES)
    for device in (HostDevice(), HostDevice(launches_are_cheap=True)):
        for thorough, least in ((False, int(not device.launches_are_cheap)), (True, 8)):
            cases = plan(TASK, SMALL, TILES, device, seed=1, thorough=thorough)
            for at in boundary:
                piece = at if thorough else TASK.share(at, 0.0)
                met = {c.seed for c in cases if (c.problem, c.family, c.kind) == (piece, lone, "case")}
                assert len(met) >= least
