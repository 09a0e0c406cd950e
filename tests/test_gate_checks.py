"""The gate's own mutation test: without any one of its checks, some cheat of the zoo is GREEN.

Every check is switched off by itself, and a kernel that only this check sees through must then pass. What
the emulator's own checks would see first is tried on a *blind* emulator: it checks no access and knows no
buffer's end, as a GPU. A check that no cheat needs would be idle; `test_every_reason_is_there` keeps the list
whole.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from evo.cache import Cache, default_folder
from evo.compile import Compiler, find_compiler
from evo.device import Region
from evo.device.emulator import EmulatorDevice, EmulatorKernel
from evo.device.emulator.abi import CHECK_ALL, CHECK_INIT, CHECK_RACE
from evo.errors import MachineError, Red
from evo.gate import budget, cases, judge, memory, tolerance
from evo.gate import run as gate_run
from evo.gate.memory import GUARD_BYTES, GuardedMemory
from evo.gate.tolerance import Wrong
from evo.gpu import target
from evo.selftest.zoo import Zoo
from evo.selftest.zoo_run import Finding, try_finalist, try_planted
from evo.task import load_task
from evo.trial import Binary, LaunchConfig, Problem

gate = import_module("evo.gate.check")  # the package has a function of that name
torch.set_num_threads(1)  # small tensors: more threads only wait for each other

TASK = load_task("attention")
CHEATS = Zoo.of(TASK)
Patch = pytest.MonkeyPatch
Off = Callable[[Patch], None]


class BlindKernel(EmulatorKernel):
    """Knows no buffer's end: each reaches half of a guard further on both sides."""

    def execute(
        self,
        launch: LaunchConfig,
        regions: Mapping[str, Region],
        schedule: str = "default",
        profile: bool = False,
        last_clusters: int = 0,
    ) -> Any:
        beyond = GUARD_BYTES // 2
        wide = {
            name: Region(name, r.address - beyond, r.nbytes + 2 * beyond, writable=True)
            for name, r in regions.items()
        }
        self.shift = beyond
        return super().execute(launch, wide, schedule, profile, last_clusters)

    def _argument(self, arg: Any, regions: Mapping[str, Region]) -> bytes:
        real = {n: replace(r, address=r.address + self.shift) for n, r in regions.items()}
        return super()._argument(arg, real)


class BlindDevice(EmulatorDevice):
    """An emulator that checks no access, as a GPU."""

    def load(self, binary: Binary, launch: LaunchConfig) -> EmulatorKernel:
        super().load(binary, launch)
        return BlindKernel(self, binary)


def swallow(owner: Any, function: str, reason: str) -> Off:
    """Switches off whatever raises a Red of this reason in a function that returns nothing."""

    def off(patch: Patch) -> None:
        original = getattr(owner, function)

        def silent(*args: Any, **named: Any) -> None:
            try:
                original(*args, **named)
            except Red as red:
                if not red.reason.startswith(reason):
                    raise

        patch.setattr(owner, function, silent)

    return off


def no_judge(patch: Patch, reason: str) -> None:
    """Switches off one of the judge's two rules: the other still looks at every output."""
    swallow(judge, "refuse", reason)(patch)


def constant(owner: Any, name: str, value: Any) -> Off:
    return lambda patch: patch.setattr(owner, name, value)


def without(patch: Patch, relation: str) -> None:
    original = type(TASK).relations
    patch.setattr(
        type(TASK),
        "relations",
        lambda self, problem: tuple(r for r in original(self, problem) if r.name != relation),
    )


def no_relations(patch: Patch) -> None:
    """Neither the task's, nor that the same launch gives the same again."""
    patch.setattr(gate_run, "relations_of", lambda *_: iter(()))


def unequal_bits(patch: Patch) -> None:
    """Launches of the same inputs may differ, also where a relation has them again."""
    swallow(gate_run, "refuse_difference", "runs differ")(patch)
    no_relations(patch)


def no_large_values(patch: Patch) -> None:
    """Sums in half precision overflow there, which any line sees."""
    patch.setattr(type(TASK), "families", replace(type(TASK).families, large=None))


def no_nonfinite(patch: Patch, test: str) -> None:
    """Neither NaN nor Inf is looked for, of which one is."""
    original = tolerance.refuse_nonfinite

    def lenient(*args: Any) -> None:
        try:
            original(*args)
        except Wrong as red:
            if not red.reason.startswith(test):
                raise

    patch.setattr(tolerance, "refuse_nonfinite", lenient)


def lax_line(patch: Patch) -> None:
    """The line of rows, also that of relations, four times as far away."""
    strict = type(TASK).tolerance
    patch.setattr(type(TASK), "tolerance", replace(strict, row_factor=4 * strict.row_factor))


def always_nan(patch: Patch) -> None:
    original = GuardedMemory.poison
    patch.setattr(GuardedMemory, "poison", lambda self, turn: original(self, 2 * turn))


def zeros_for_nans(patch: Patch) -> None:
    original = memory._nan_field
    patch.setattr(memory, "_nan_field", lambda device: torch.zeros_like(original(device)))


def tame_schedules(patch: Patch) -> None:
    patch.setattr(BlindDevice, "schedules", property(lambda _: ("eager", "eager")))


def no_lone_key(patch: Patch) -> None:
    original = cases.plan_own
    patch.setattr(cases, "plan_own", lambda *args: original(*args)[-1:])


def one_head(patch: Patch) -> None:
    """Of the study's own problem nothing but one head is launched."""
    original = budget.Budget.own_share

    def own_share(self: budget.Budget, case: cases.Case) -> Problem | None:
        at = original(self, case)
        return at and TASK.share(at, 0.0)

    patch.setattr(budget.Budget, "own_share", own_share)


def one_boundary(patch: Patch) -> None:
    """Of the boundary problems there is only the first."""
    original = type(TASK).gate_problems
    patch.setattr(type(TASK), "gate_problems", lambda *args: original(*args)[:1])


def emulator_check(bit: int) -> Off:
    def off(patch: Patch) -> None:
        original = EmulatorDevice.__init__

        def deaf(self: EmulatorDevice, *args: Any, **named: Any) -> None:
            original(self, *args, **{**named, "checks": CHECK_ALL & ~bit})

        patch.setattr(EmulatorDevice, "__init__", deaf)

    return off


@dataclass(frozen=True)
class Check:
    """One check of the gate: the reason that it gives, the cheat that only it sees through, how it is
    switched off. `blind`: on the emulator without checks of its own."""

    name: str
    cheat: str
    off: Off
    blind: bool = True
    reason: str = ""
    also: Off | None = None
    """Switched off in both runs: a second line of defence shows where the first has failed."""


def _reference_fails(patch: Patch) -> None:
    for reason in ("row error", "element error"):
        no_judge(patch, reason)


def _only_nonfinite(patch: Patch) -> None:
    """An infinite output is beyond every line too; the class is for a person to read."""
    _reference_fails(patch)
    no_relations(patch)


CHECKS = (
    Check("row error", "math_scale_quarter_percent", lambda p: no_judge(p, "row error"), reason="row error"),
    Check("element error", "math_one_element_of_a_long_row", lambda p: no_judge(p, "element error"),
          reason="element error"),
    Check("NaN", "memory_16_bit_offsets", lambda p: no_nonfinite(p, "NaN"), reason="NaN in the output"),
    Check("Inf", "guess_infinity", lambda p: no_nonfinite(p, "Inf"), reason="Inf in the output",
          also=_only_nonfinite),
    Check("row line", "math_sums_in_half_by_tile", lax_line, also=no_large_values),
    Check("inputs watched", "memory_input_cleared_when_done",
          swallow(GuardedMemory, "refuse_damage", "input changed"), reason="input changed"),
    Check("workspace left zero", "memory_workspace_not_left_zero",
          swallow(GuardedMemory, "refuse_damage", "workspace not left zero"),
          reason="workspace not left zero"),
    # a tile past the end also lands in the next head, which shows where CTAs start in another order
    Check("guards", "memory_write_before_the_start",
          swallow(GuardedMemory, "refuse_damage", "write out of bounds"), reason="write out of bounds"),
    Check("equal bits", "state_last_bit_of_garbage",
          unequal_bits, reason="runs differ"),
    Check("ones", "math_equal_values", lambda p: without(p, "ones"), reason="relation broken: ones"),
    Check("heads apart", "math_head_leans_on_another", lambda p: without(p, "heads apart"),
          reason="relation broken: heads apart"),
    Check("causality", "math_leans_on_the_future", lambda p: without(p, "causality"),
          reason="relation broken: causality"),
    Check("hidden values", "math_hidden_weights_not_zero", lambda p: without(p, "hidden values"),
          reason="relation broken: hidden values"),
    Check("key order", "math_last_key_dropped", lambda p: without(p, "key order"),
          reason="relation broken: key order", also=_reference_fails),
    Check("no state", "state_static_local", swallow(gate, "refuse_state", "module-level state"),
          reason="module-level state"),
    Check("poison alternates", "memory_recognises_poison", always_nan),
    Check("odd offsets", "memory_assumes_256_byte_alignment", constant(memory, "SHIFT", 0)),
    Check("NaN in guards", "memory_read_past_the_end", zeros_for_nans),
    Check("boundary problems", "math_long_ragged_lengths",
          one_boundary),
    Check("ragged problems", "math_one_remainder", constant(cases, "plan_ragged", lambda *_: [])),
    Check("own problem", "memory_16_bit_offsets", one_head),
    Check("one key far above", "math_maximum_misses_a_key", no_lone_key),
    Check("hostile schedules", "race_wait_too_lax", tame_schedules),
    # memory has one order on the emulator: without this check no schedule shows that a fence is missing
    Check("emulator: races", "order_no_fence", emulator_check(CHECK_RACE), blind=False, reason="race"),
    Check("emulator: uninitialised reads", "memory_shared_uninitialised", emulator_check(CHECK_INIT),
          blind=False),
)  # fmt: skip


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    try:
        found = find_compiler(None, Cache(default_folder()))
        EmulatorDevice(target("sm_89"))
    except MachineError as none:
        pytest.skip(f"{none.message}")
    yield found
    found.close()


def ended(check: Check, compiler: Compiler) -> Finding:
    planted = CHEATS.read(check.cheat)
    gpu = target("sm_89")
    device = BlindDevice(gpu, checks=0) if check.blind else EmulatorDevice(gpu)
    return try_planted(planted, device, compiler, TASK, seed=3)


@pytest.mark.nvcc
@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS, ids=[c.name for c in CHECKS])
def test_without_this_check_a_cheat_is_green(check: Check, compiler: Compiler, monkeypatch: Patch) -> None:
    if check.also:
        check.also(monkeypatch)
    caught = ended(check, compiler)
    assert caught.outcome == "RED"
    if check.reason:
        assert caught.reason == check.reason
    check.off(monkeypatch)
    passed = ended(check, compiler)
    assert passed.outcome == "GREEN", f"still {passed.outcome} {passed.reason} {passed.where}"


@pytest.mark.nvcc
@pytest.mark.slow
@pytest.mark.parametrize("cheat", ["race_wait_too_lax", "race_weights_unordered"])
def test_without_the_emulator_a_race_is_seated_as_a_finalist(
    cheat: str, compiler: Compiler, monkeypatch: Patch
) -> None:
    """A device without checks, on which copies are always in time, lets it pass, as a GPU may; the emulator,
    which finalists must pass too, does not."""
    tame_schedules(monkeypatch)
    planted, gpu = CHEATS.read(cheat), target("sm_89")
    lucky = try_planted(planted, BlindDevice(gpu, checks=0), compiler, TASK, seed=3)
    assert lucky.outcome == "GREEN", f"{lucky.reason} {lucky.where}"
    asked = try_finalist(planted, EmulatorDevice(gpu), compiler, TASK, seed=3)
    assert (asked.outcome, asked.stage) == ("RED", "finalists")


def test_every_reason_is_there() -> None:
    """Each reason that the gate can give is given by a check of the list."""
    folder = Path(memory.__file__).parent
    calls = [
        node
        for name in ("check", "judge", "memory", "tolerance", "graphs", "run")
        for node in ast.walk(ast.parse((folder / f"{name}.py").read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("Red", "Wrong")
    ]
    known = {check.reason for check in CHECKS}
    plain = {c.args[0].value for c in calls if isinstance(c.args[0], ast.Constant)}
    # attention has no integers and nothing that overflows: tests/test_cli_toys.py and test_short_form.py do
    assert plain - {"wrong integer", "no limit"} <= known
    computed = [c for c in calls if not isinstance(c.args[0], ast.Constant)]
    assert len(computed) == 3  # NaN or Inf; a relation by name; an input or a workspace
    relations = {r.name for causal in (False, True)
                 for r in TASK.relations(TASK.problem("1,2,64,64", causal=causal))}  # fmt: skip
    assert {f"relation broken: {name}" for name in relations} <= known
    assert {"NaN in the output", "Inf in the output", "input changed", "workspace not left zero"} <= known
